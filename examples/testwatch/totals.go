package main

import (
	"fmt"
	"strings"
)

// totals prints a line for each package that has ended, with what its tests came
// to, and the sums at the end. A test that runs more than once counts each time.
type totals struct {
	console  *console
	packages map[string]*tally // that run now
	tests    tally             // of all packages

	passed, cached, failed, notBuilt, unfinished, skipped, noTestFiles int // packages
	failedBuilds                                                       int
}

// tally counts tests.
type tally struct {
	passed, failed, skipped, unfinished int
	results                             int // of benchmarks

	cached, notBuilt, noTestFiles bool // of one package
}

func newTotals(c *console) *totals {
	return &totals{console: c, packages: make(map[string]*tally)}
}

func (t *totals) routes() []route {
	return []route{
		{"test.output.*", t.output},
		{"test.pass.*", t.end},
		{"test.fail.*", t.end},
		{"test.skip.*", t.end},
		{"test." + unfinished + ".*", t.end},
		{"test.build-fail.*", func(*event) { t.failedBuilds++ }},
	}
}

func (t *totals) of(ev *event) *tally {
	p := t.packages[ev.Package]
	if p == nil {
		p = new(tally)
		t.packages[ev.Package] = p
	}
	return p
}

// output looks for what has no event of its own.
func (t *totals) output(ev *event) {
	if isResult(ev) {
		t.of(ev).results++
	}
	if ev.Test != "" {
		return
	}
	switch {
	case isCached(ev.Output):
		t.of(ev).cached = true
	case isNotBuilt(ev.Output):
		t.of(ev).notBuilt = true
	case hasNoTestFiles(ev.Output):
		t.of(ev).noTestFiles = true
	}
}

// end counts a test or a package that has ended.
func (t *totals) end(ev *event) {
	p := t.of(ev)
	if ev.Test == "" {
		delete(t.packages, ev.Package)
		t.tests.add(p)
		t.endPackage(ev, p)
		return
	}
	switch ev.Action {
	case "pass":
		p.passed++
	case "fail":
		p.failed++
	case "skip":
		p.skipped++
	case unfinished:
		p.unfinished++
	}
}

func (t *totals) endPackage(ev *event, p *tally) {
	mark, took, what := "ok", fmt.Sprintf("%.3fs", ev.Elapsed), p.String()
	switch ev.Action {
	case "pass":
		t.passed++
		if p.cached {
			t.cached++
			took = "(cached)"
		}
	case "fail":
		t.failed++
		mark = "FAIL"
		if p.notBuilt || ev.FailedBuild != "" {
			t.notBuilt++
			what = "not built"
		}
	case "skip":
		mark = "?"
		if p.noTestFiles {
			t.noTestFiles++
			what = "no test files"
		} else {
			t.skipped++
			what = "skipped"
		}
	case unfinished:
		t.unfinished++
		mark, took = "FAIL", "-"
		what = "unfinished, " + what
	}
	t.console.print(fmt.Sprintf("%-4s %9s  %s  %s", mark, took, name(ev.Package), what))
}

func (p *tally) add(q *tally) {
	p.passed += q.passed
	p.failed += q.failed
	p.skipped += q.skipped
	p.unfinished += q.unfinished
	p.results += q.results
}

func (p *tally) String() string {
	return list("no tests",
		count{p.passed, "passed"},
		count{p.failed, "failed"},
		count{p.skipped, "skipped"},
		count{p.unfinished, "unfinished"},
		count{p.results, "benchmark results"})
}

// seen is how many packages have been in the input.
func (t *totals) seen() int {
	return t.passed + t.failed + t.unfinished + t.skipped + t.noTestFiles
}

// ok reports whether something was tested and nothing failed. As for go test,
// a package that passes has no failed tests that matter.
func (t *totals) ok() bool {
	return t.seen() > 0 &&
		t.failed+t.unfinished+t.failedBuilds == 0
}

func (t *totals) summary() string {
	packages := list("none",
		count{t.passed, "passed"},
		count{t.cached, "of them cached"},
		count{t.failed, "failed"},
		count{t.notBuilt, "of them not built"},
		count{t.unfinished, "unfinished"},
		count{t.skipped, "skipped"},
		count{t.noTestFiles, "without test files"})
	return "Packages:  " + packages + "\nTests:     " + t.tests.String() + "\n"
}

// count is a number of things that are in some state.
type count struct {
	n     int
	state string
}

// list puts the counts that are not zero in a row.
func list(none string, counts ...count) string {
	var some []string
	for _, c := range counts {
		if c.n != 0 {
			some = append(some, fmt.Sprintf("%d %s", c.n, c.state))
		}
	}
	if len(some) == 0 {
		return none
	}
	return strings.Join(some, ", ")
}
