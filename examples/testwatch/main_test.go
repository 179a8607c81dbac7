package main

import (
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// The streams in testdata are what go test -json wrote for small modules (Go 1.26,
// GOFLAGS=-trimpath), with a neutral name for the CPU; text-fail.jsonl has both
// standard output and standard error of GODEBUG=gotestjsonbuildtext=1, as before
// Go 1.24, and test2json-fail.jsonl is of go tool test2json without -p. Those with
// "fail" in their name are of runs that failed: .ci/run relies on that.
var update = flag.Bool("update", false, "write the reports in testdata/golden")

func TestMain(m *testing.M) {
	// On js the runtime has a goroutine of its own, for what the host calls.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("runtime.handleEvent"))
}

// runOn runs testwatch in virtual time, in which the archive's is no time at all.
func runOn(t *testing.T, stdin io.Reader, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, log strings.Builder
	synctest.Test(t, func(*testing.T) {
		status = run(args, stdin, &out, &log)
	})
	return status, out.String(), log.String()
}

func TestRecordedStreams(t *testing.T) {
	streams, err := filepath.Glob("testdata/*.jsonl")
	require.NoError(t, err)
	require.NotEmpty(t, streams)
	archived := regexp.MustCompile(`(?m)^Archive: .*`) // how many is a matter of timing
	for _, stream := range streams {
		name := strings.TrimSuffix(filepath.Base(stream), ".jsonl")
		t.Run(name, func(t *testing.T) {
			status, stdout, stderr := runOn(t, nil, stream)
			assert.Empty(t, stderr)
			assert.Equal(t, strings.Contains(name, "fail"), status == 1, "status %d", status)
			report := archived.ReplaceAllLiteralString(stdout, "Archive:   (any)")
			golden := filepath.Join("testdata", "golden", name+".txt")
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(report), 0o666))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			assert.Equal(t, string(want), report)

			file, err := os.Open(stream)
			require.NoError(t, err)
			defer file.Close()
			again, piped, _ := runOn(t, iotest.OneByteReader(file), "-")
			assert.Equal(t, status, again)
			assert.Equal(t, report, archived.ReplaceAllLiteralString(piped, "Archive:   (any)"), "piped slowly")
		})
	}
}

// A stream that breaks off anywhere is never taken for success, unless it is at the
// end of a package: then nobody can know.
func TestTruncatedStreams(t *testing.T) {
	whole, err := os.ReadFile("testdata/pass.jsonl")
	require.NoError(t, err)
	ends := regexp.MustCompile(`\{"[^\n]*"Action":"(pass|skip)","Package":"[^"]*","Elapsed":[0-9.]+\}\n`)
	complete := map[int]bool{}
	for _, end := range ends.FindAllIndex(whole, -1) {
		complete[end[1]] = true
		complete[end[1]-1] = true // but for the last newline
	}
	require.NotEmpty(t, complete)
	for n := 0; n <= len(whole); n++ {
		if n%101 != 0 && !complete[n] {
			continue
		}
		status, stdout, _ := runOn(t, strings.NewReader(string(whole[:n])))
		if complete[n] {
			assert.Equal(t, 0, status, "%d bytes", n)
		} else {
			assert.Equal(t, 1, status, "%d bytes", n)
			assert.Contains(t, stdout, "\nFAIL", "%d bytes", n)
		}
	}
}

// Whatever is done to a stream, no subscriber fails, and there is a report.
func TestDamagedStreams(t *testing.T) {
	streams, err := filepath.Glob("testdata/*.jsonl")
	require.NoError(t, err)
	random := rand.New(rand.NewPCG(3, 4))
	for _, stream := range streams {
		whole, err := os.ReadFile(stream)
		require.NoError(t, err)
		for range 10 {
			lines := strings.SplitAfter(string(whole), "\n")
			for range 1 + random.IntN(20) {
				i, j := random.IntN(len(lines)), random.IntN(len(lines))
				switch at := random.IntN(len(lines[i]) + 1); random.IntN(5) {
				case 0:
					lines[i], lines[j] = lines[j], lines[i]
				case 1:
					lines[i] = lines[j]
				case 2:
					lines[i] = ""
				case 3:
					lines[i] = lines[i][:at]
				case 4:
					lines[i] = lines[i][:at] + string(rune(random.IntN(256))) + lines[i][at:]
				}
			}
			damaged := strings.Join(lines, "")
			status, stdout, stderr := runOn(t, strings.NewReader(damaged))
			require.Contains(t, []int{0, 1}, status, "%s\n%s", stderr, damaged)
			require.Empty(t, stderr, damaged)
			require.Contains(t, stdout, "\nInput: ", damaged)
		}
	}
}

func TestExitStatus(t *testing.T) {
	passes := `{"Action":"start","Package":"p"}` + "\n" + `{"Action":"pass","Package":"p","Elapsed":0.1}` + "\n"
	for _, test := range []struct {
		name, stdin string
		args        []string
		want        int
		says        string // on either output
	}{
		{"nothing", "", nil, 1, "no package in the input"},
		{"blank lines", "\n \n\r\n", nil, 1, "Input:     nothing"},
		{"only text", "go: go.mod file not found\n", nil, 1, "go: go.mod file not found"},
		{"a package", passes, nil, 0, "PASS"},
		{"dash", passes, []string{"-"}, 0, "PASS"},
		{"no last newline", strings.TrimSpace(passes), nil, 0, "PASS"},
		{"CRLF", strings.ReplaceAll(passes, "\n", "\r\n"), nil, 0, "Input:     2 events\n"},
		{"byte order mark", "\ufeff" + passes, nil, 0, "Input:     2 events\n"},
		{"text around", "before\n" + passes + "after", nil, 0, "input line 4: after"},
		{"NUL", "a\x00b\n\x00\n" + passes, nil, 0, "input line 1: a\x00b\ninput line 2: \x00\n"},
		{"no test files", `{"Action":"skip","Package":"p"}`, nil, 0, "PASS"},
		{"failed test", `{"Action":"fail","Package":"p","Test":"T"}`, nil, 1, "p  T"},
		{"failed package", `{"Action":"fail","Package":"p"}`, nil, 1, "failed without a failing test"},
		{"failed build alone", `{"ImportPath":"q","Action":"build-fail"}` + "\n" + passes, nil, 1, "BUILD FAILED: q"},
		{"package without end", `{"Action":"start","Package":"q"}` + "\n" + passes, nil, 1, "UNFINISHED: package q"},
		{"help", "", []string{"-h"}, 0, "usage:"},
		{"unknown flag", "", []string{"-x"}, 2, "usage:"},
		{"two files", "", []string{"a", "b"}, 2, "usage:"},
		{"no such file", "", []string{"testdata/absent"}, 2, "testdata"},
		{"a folder", "", []string{"testdata"}, 2, "testdata"},
	} {
		t.Run(test.name, func(t *testing.T) {
			status, stdout, stderr := runOn(t, strings.NewReader(test.stdin), test.args...)
			assert.Equal(t, test.want, status, "%s%s", stdout, stderr)
			assert.Contains(t, stdout+stderr, test.says)
		})
	}
}

func TestReadErrorComesAfterTheReport(t *testing.T) {
	stdin := io.MultiReader(
		strings.NewReader(`{"Action":"fail","Package":"p","Test":"T"}`+"\n"),
		iotest.ErrReader(errors.New("cable cut")))
	status, stdout, stderr := runOn(t, stdin)
	assert.Equal(t, 2, status)
	assert.Contains(t, stdout, "--- FAIL: T")
	assert.Contains(t, stderr, "cable cut")
}

func TestWriteErrorIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		stdin := strings.NewReader(`{"Action":"pass","Package":"p"}`)
		assert.Equal(t, 2, run(nil, stdin, fullDisk{}, &log))
		assert.Contains(t, log.String(), "disk full")
	})
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("disk full") }
