package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// events returns a stream. Each argument is "action package test output".
func events(t *testing.T, all ...string) string {
	t.Helper()
	var stream strings.Builder
	for _, one := range all {
		field := strings.SplitN(one, " ", 4)
		for len(field) < 4 {
			field = append(field, "")
		}
		ev := event{Action: field[0], Package: field[1], Test: field[2], Output: field[3]}
		if strings.HasPrefix(ev.Action, "build-") {
			ev.ImportPath, ev.Package = ev.Package, ""
		}
		line, err := json.Marshal(ev)
		require.NoError(t, err)
		stream.Write(line)
		stream.WriteByte('\n')
	}
	return stream.String()
}

// report runs testwatch on a stream and returns the report without its last lines
// about the archive and the input.
func report(t *testing.T, wantStatus int, stream string) string {
	t.Helper()
	status, stdout, stderr := runOn(t, strings.NewReader(stream))
	assert.Equal(t, wantStatus, status)
	assert.Empty(t, stderr)
	report, _, ok := strings.Cut(stdout, "Archive:")
	require.True(t, ok)
	return report
}

func TestInterleavedTestsKeepTheirOutput(t *testing.T) {
	got := report(t, 1, events(t,
		"start a", "start b",
		"run a TestX", "run b TestX", "run a TestY",
		"output a TestX a.X 1\n", "output b TestX b.X 1\n", "output a TestY a.Y 1\n",
		"pause a TestX", "cont a TestX",
		"output b TestX b.X 2\n", "output a TestX a.X 2\n", "output a TestX a.X 3, no newline",
		"fail a TestX", "pass b TestX", "fail a TestY",
		"output a  of the package\n", "fail a", "pass b"))
	assert.Equal(t, `--- FAIL: TestX (0.00s)  a
    a.X 1
    a.X 2
    a.X 3, no newline
--- FAIL: TestY (0.00s)  a
    a.Y 1
--- FAIL: package a (0.00s)
    of the package
FAIL    0.000s  a  2 failed
ok      0.000s  b  1 passed

Failed:
    a  TestX
    a  TestY
Packages:  1 passed, 1 failed
Tests:     1 passed, 2 failed
`, got)
}

func TestATestThatFailedOnceStaysFailed(t *testing.T) {
	got := report(t, 1, events(t,
		"start p",
		"run p TestX", "pass p TestX",
		"run p TestX", "output p TestX second\n", "fail p TestX",
		"run p TestX", "output p TestX third\n", "fail p TestX",
		"run p TestX", "pass p TestX", "fail p",
		"start q", "run q TestX", "pass q TestX", "pass q"))
	assert.Contains(t, got, "    second\n")
	assert.Contains(t, got, "    third\n")
	assert.Contains(t, got, "Failed:\n    p  TestX (2 times) (and passed 1 times after that)\nPackages")
	assert.Contains(t, got, "Tests:     3 passed, 2 failed\n")
}

// Test frameworks run tests that must fail, as testify does for its suites. go test
// says that the package has passed, and so does testwatch; but it does not hide them.
func TestFailedTestsInAPackageThatPassed(t *testing.T) {
	got := report(t, 0, events(t,
		"start p", "run p TestX", "run p TestX/inner", "output p TestX/inner oh\n", "fail p TestX/inner",
		"pass p TestX", "pass p"))
	assert.Equal(t, `--- FAIL: TestX/inner (0.00s)  p
    oh
ok      0.000s  p  1 passed, 1 failed

Failed in a package that passed:
    p  TestX/inner
Packages:  1 passed
Tests:     1 passed, 1 failed
`, got)
}

// A panic ends the binary while other tests run and wait.
func TestUnfinishedTests(t *testing.T) {
	got := report(t, 1, events(t,
		"start p",
		"run p TestDone", "pass p TestDone",
		"run p TestWaits", "pause p TestWaits",
		"run p TestParent", "run p TestParent/sub", "output p TestParent/sub panic: oh\n",
		"run p TestSilent",
		"output p  exit status 2\n", "fail p"))
	assert.Equal(t, `--- UNFINISHED: TestParent/sub  p
    panic: oh
--- UNFINISHED: TestSilent  p
--- FAIL: package p (0.00s)
    exit status 2
FAIL    0.000s  p  1 passed, 4 unfinished

Failed:
    p  TestWaits: unfinished, it waited to run in parallel
    p  TestParent: unfinished
    p  TestParent/sub: unfinished
    p  TestSilent: unfinished
Packages:  1 failed
Tests:     1 passed, 4 unfinished
`, got)
}

// The stream stops, as when go test is killed.
func TestUnfinishedPackages(t *testing.T) {
	got := report(t, 1, events(t,
		"start p", "run p TestX", "output p TestX so far\n", "start q", "output q  set up\n"))
	assert.Equal(t, `--- UNFINISHED: TestX  p
    so far
--- UNFINISHED: package p: the stream ended before the package
FAIL         -  p  unfinished, 1 unfinished
--- UNFINISHED: package q: the stream ended before the package
    set up
FAIL         -  q  unfinished, no tests

Failed:
    p  TestX: unfinished
    p: the stream ended before the package
    q: the stream ended before the package
Packages:  2 unfinished
Tests:     1 unfinished
`, got)
}

// Two streams in one file, the first of which was broken off.
func TestPackageThatBeginsAgain(t *testing.T) {
	got := report(t, 1, events(t,
		"start p", "run p TestX", "output p TestX first\n",
		"start p", "run p TestX", "output p TestX second\n", "pass p TestX", "pass p"))
	assert.Contains(t, got, "--- UNFINISHED: TestX  p\n    first\n")
	assert.NotContains(t, got, "second")
	assert.Contains(t, got, "p: another run of the package began before this one ended\n")
	assert.Contains(t, got, "Packages:  1 passed, 1 unfinished\nTests:     1 passed, 1 unfinished\n")
}

// Before Go 1.20 there was no start, and the end of a test got lost behind output
// without a newline. go test says that the package has passed, so it has.
func TestOldStreams(t *testing.T) {
	got := report(t, 0, events(t,
		"run p TestX", "output p TestX no newline--- PASS: TestX (0.00s)\n",
		"run p TestY", "pass p TestY", "output p  ok  \tp\t0.1s\n", "pass p"))
	assert.Equal(t, "ok      0.000s  p  1 passed\n\nPackages:  1 passed\nTests:     1 passed\n", got)
}

// What is printed between two tests counts as the first one's for go test. If that
// has passed, it would be let go, and with it the only word on why the package fails.
func TestOutputAfterATestThatPassed(t *testing.T) {
	got := report(t, 1, events(t,
		"start p", "run p TestX", "output p TestX === RUN   TestX\n", "output p TestX harmless\n",
		"output p TestX --- PASS: TestX (0.00s)\n", "output p TestX WARNING: DATA RACE\n", "pass p TestX",
		"output p TestX even later\n", "output p  exit status 66\n", "fail p"))
	assert.Contains(t, got, "--- FAIL: package p (0.00s)\n    WARNING: DATA RACE\n    exit status 66\n    even later\n")
	assert.NotContains(t, got, "harmless")
}

func TestOutputAfterTheEndOfThePackage(t *testing.T) {
	got := report(t, 0, events(t, "start p", "pass p", "output p  a last word\n", "attr p TestX"))
	assert.Contains(t, got, "--- OUTPUT after the end of package p\n    a last word\n")
}

func TestBuildOutputWithoutFailure(t *testing.T) {
	got := report(t, 0, events(t, "build-output c  ld: warning\n", "start p", "pass p"))
	assert.Contains(t, got, "--- OUTPUT of the build of c, which did not fail\n    ld: warning\n")
}

// Benchmarks that pass have no event that says so: the next one does, or a result.
func TestBenchmarksWithoutEnd(t *testing.T) {
	result := "output p BenchmarkB BenchmarkB-2 \t 10\t 5 ns/op\n"
	for name, test := range map[string]struct {
		last []string
		want string
	}{
		"with a result":    {[]string{"run p BenchmarkB", result}, "1 failed, 2 benchmark results"},
		"without":          {[]string{"run p BenchmarkB"}, "1 failed, 1 unfinished, 1 benchmark results"},
		"without, in part": {[]string{"run p BenchmarkB", result, "run p BenchmarkB/x"}, "1 failed, 2 unfinished, 2 benchmark results"},
	} {
		t.Run(name, func(t *testing.T) {
			all := []string{
				"start p", "run p BenchmarkA",
				"output p BenchmarkA BenchmarkA-2 \t", "output p BenchmarkA  10\t 5 ns/op\n",
				"run p BenchmarkF", "output p BenchmarkF wrong\n", "fail p BenchmarkF",
			}
			got := report(t, 1, events(t, append(append(all, test.last...), "fail p")...))
			assert.Contains(t, got, "pkg: p\nBenchmarkA-2 \t 10\t 5 ns/op\n")
			assert.Contains(t, got, "--- FAIL: BenchmarkF (0.00s)  p\n    wrong\n")
			assert.Contains(t, got, "FAIL    0.000s  p  "+test.want+"\n")
		})
	}
}

func TestUnknownActions(t *testing.T) {
	got := report(t, 0, events(t,
		"start p", "run p TestX", "attr p TestX", "artifacts p TestX", "dance p TestX", "dance", "*.# p/# ",
		"pass p TestX", "pass p"))
	assert.Contains(t, got, "Packages:  1 passed\nTests:     1 passed\n")
}

// Many tests fail with much output while the archive drops nearly everything.
func TestNothingOfAFailureIsLost(t *testing.T) {
	const tests, linesEach = 50, 400
	all := []string{"start p"}
	for n := range linesEach + 2 {
		for i := range tests {
			switch n {
			case 0:
				all = append(all, fmt.Sprintf("run p Test%d", i))
			case linesEach + 1:
				all = append(all, fmt.Sprintf("fail p Test%d", i))
			default:
				all = append(all, fmt.Sprintf("output p Test%d line %d of %d\n", i, n, i))
			}
		}
	}
	_, stdout, _ := runOn(t, strings.NewReader(events(t, append(all, "fail p")...)))
	var want strings.Builder
	for i := range tests {
		fmt.Fprintf(&want, "--- FAIL: Test%d (0.00s)  p\n", i)
		for n := 1; n <= linesEach; n++ {
			fmt.Fprintf(&want, "    line %d of %d\n", n, i)
		}
	}
	assert.True(t, strings.HasPrefix(stdout, want.String()))
	var stored, messages, dropped int
	_, line, _ := strings.Cut(stdout, "Archive:")
	_, err := fmt.Sscanf(line, "%d of %d messages stored, %d dropped", &stored, &messages, &dropped)
	require.NoError(t, err)
	assert.Equal(t, len(all)+1, messages)
	assert.Equal(t, messages, stored+dropped)
	assert.Positive(t, dropped)
}

func TestVeryLongOutput(t *testing.T) {
	long := strings.Repeat("0123456789", 200_000)
	_, stdout, _ := runOn(t, strings.NewReader(events(t, "run p TestX", "output p TestX "+long, "fail p TestX")+
		"not JSON "+long))
	assert.True(t, strings.Contains(stdout, "--- FAIL: TestX (0.00s)  p\n    "+long+"\n"))
	assert.True(t, strings.Contains(stdout, "input line 4: not JSON "+long+"\n"))
}
