package main

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// packageRun is what is known of a package that runs.
type packageRun struct {
	name   string
	number int // of those that have begun
	begun  bool
	failed []*failure // its tests
	// Before Go 1.24 only the output of the package says so.
	notBuilt bool
	output   transcript
	tests    map[string]*testRun // that run now

	// Passing benchmarks have no event at their end. Only one runs at a time, so
	// this is the current one below those it is a part of.
	benchmarks []string
	measured   bool // the current one has a result
}

// testRun is what is known of a test that runs.
type testRun struct {
	name          string
	number        int
	begun         bool
	paused        bool // waits to run in parallel
	passed        bool // it said so: what follows is not its own
	subtestFailed bool
	output        transcript
}

// countFailed is called when the package fails, and so do its tests that failed.
func (p *packageRun) countFailed() {
	for _, failed := range p.failed {
		failed.counts = true
	}
}

// unfinished returns the tests that have begun and not ended, in the order they
// began. There can be output of others, which has come after their end: it goes to
// the package.
func (p *packageRun) unfinished() []*testRun {
	if p.measured {
		for _, benchmark := range p.benchmarks {
			if t := p.tests[benchmark]; t != nil {
				t.begun = false // it has ended
			}
		}
	}
	var tests []*testRun
	for _, t := range slices.SortedFunc(maps.Values(p.tests), func(a, b *testRun) int {
		return cmp.Compare(a.number, b.number)
	}) {
		if t.begun {
			tests = append(tests, t)
			p.markParents(t)
		} else {
			p.output.add(string(t.output.head) + string(t.output.tail))
		}
	}
	return tests
}

// markParents says to the tests that t is a part of that it has failed.
func (p *packageRun) markParents(t *testRun) {
	for parent := parentOf(t.name); parent != ""; parent = parentOf(parent) {
		if above := p.tests[parent]; above != nil {
			above.subtestFailed = true
		}
	}
}

// nextBenchmark is called when another benchmark begins: those that it is not a
// part of have ended.
func (p *packageRun) nextBenchmark(next string) {
	for n := len(p.benchmarks); n > 0; n-- {
		current := p.benchmarks[n-1]
		if strings.HasPrefix(next, current+"/") {
			break
		}
		delete(p.tests, current)
		p.benchmarks = p.benchmarks[:n-1]
	}
	p.benchmarks = append(p.benchmarks, next)
	p.measured = false
}
