package main

import "strings"

// This file knows the words that go test prints between the output of tests.

// framing reports whether an output is not the test's own but frames it, as
// "=== RUN   TestX" does and the name of a benchmark before its result, and if so,
// whether it says that the test has ended well.
func framing(ev *event) (frame, passed bool) {
	if isBenchmark(ev.Output) {
		return strings.TrimRight(ev.Output, "\r\n") == ev.Test, false
	}
	line := strings.TrimLeft(ev.Output, " ")
	if len(line) < 4 || line[:4] != "=== " && line[:4] != "--- " {
		return false, false
	}
	kind, rest, _ := strings.Cut(line[4:], " ")
	rest, ok := strings.CutPrefix(strings.TrimLeft(rest, " "), ev.Test)
	if !ok {
		return false, false
	}
	rest = strings.TrimRight(rest, "\r\n")
	switch line[0] {
	case '=':
		switch kind {
		case "RUN", "PAUSE", "CONT", "NAME":
			return rest == "", false
		}
	case '-':
		if rest != "" && !strings.HasPrefix(rest, " (") {
			return false, false
		}
		switch kind {
		case "FAIL:":
			return true, false
		case "PASS:", "SKIP:", "BENCH:":
			return true, true
		}
	}
	return false, false
}

// isVerdict reports whether an output of a package is what go test says of it,
// which the report says in its own words.
func isVerdict(output string) bool {
	switch output {
	case "PASS\n", "FAIL\n":
		return true
	}
	for _, prefix := range []string{"ok  \t", "FAIL\t", "?   \t"} {
		if strings.HasPrefix(output, prefix) {
			return true
		}
	}
	return false
}

func isCached(output string) bool {
	return strings.HasPrefix(output, "ok  \t") && strings.Contains(output, "\t(cached)")
}

func hasNoTestFiles(output string) bool {
	return strings.HasPrefix(output, "?   \t") && strings.Contains(output, "[no test files]")
}

// isNotBuilt reports whether an output of a package says that it has no test
// binary. Before Go 1.24 there was no other sign of that in the stream.
func isNotBuilt(output string) bool {
	return strings.HasPrefix(output, "FAIL\t") &&
		(strings.Contains(output, "[build failed]") || strings.Contains(output, "[setup failed]"))
}

func isBenchmark(test string) bool { return strings.HasPrefix(test, "Benchmark") }

// isResult reports whether an output is the result of a benchmark, or its first
// part: name, tab, the number of iterations and so on. All results but the first
// of a benchmark with -count or -cpu count as the package's output.
func isResult(ev *event) bool {
	if !isBenchmark(ev.Output) || ev.Test != "" && !isBenchmark(ev.Test) {
		return false
	}
	label, _, ok := strings.Cut(ev.Output, "\t")
	return ok && !strings.Contains(strings.TrimRight(label, " "), " ")
}

// parentOf returns the test that a subtest is part of, or "".
func parentOf(test string) string {
	return test[:max(0, strings.LastIndexByte(test, '/'))]
}

// name returns what to call a package in the report: the stream of a test binary
// that was run by go tool test2json has no names.
func name(pkg string) string {
	if pkg == "" {
		return "(no package)"
	}
	return pkg
}
