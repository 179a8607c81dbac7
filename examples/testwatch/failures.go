package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// failures prints the output of what fails as soon as it has failed, and lists it
// at the end. It keeps the output of what runs, since that may fail, and lets it
// go when it passes.
//
// Its handlers are synchronous and the stream has one reader, so they need no
// lock, see the events in order and miss none.
type failures struct {
	console *console
	publish func(*event)

	packages map[string]*packageRun // that run now
	ended    map[string]bool        // that ran before
	builds   map[string]*transcript // by import path, of builds that have not failed
	begun    int                    // packages and tests, to order them
	results  results

	list []*failure // in the order they failed
	byID map[failureID]*failure
}

type failureID struct{ pkg, test string }

// failure is an entry of the list at the end. With -count, one test can fail
// several times, and pass in between: it stays failed.
type failure struct {
	failureID
	note           string
	counts         bool // not only in packages that passed
	failed, passed int
}

func newFailures(c *console, publish func(*event)) *failures {
	return &failures{
		console:  c,
		publish:  publish,
		packages: make(map[string]*packageRun),
		ended:    make(map[string]bool),
		builds:   make(map[string]*transcript),
		byID:     make(map[failureID]*failure),
	}
}

func (f *failures) routes() []route {
	return []route{
		{"test.start.*", f.start},
		{"test.run.*", f.run},
		{"test.pause.*", f.pause},
		{"test.cont.*", f.pause},
		{"test.output.*", f.output},
		{"test.pass.*", f.pass},
		{"test.bench.*", f.pass},
		{"test.skip.*", f.pass},
		{"test.fail.*", f.fail},
		{"test.build-output.*", f.buildOutput},
		{"test.build-fail.*", f.buildFail},
	}
}

// of returns the run of the event's package.
func (f *failures) of(ev *event) *packageRun {
	p := f.packages[ev.Package]
	if p == nil {
		f.begun++
		p = &packageRun{name: ev.Package, number: f.begun, tests: make(map[string]*testRun)}
		f.packages[ev.Package] = p
	}
	return p
}

// test returns the run of the event's test.
func (f *failures) test(p *packageRun, ev *event) *testRun {
	t := p.tests[ev.Test]
	if t == nil {
		f.begun++
		t = &testRun{name: ev.Test, number: f.begun}
		p.tests[ev.Test] = t
	}
	return t
}

// start is the first event of a package, since Go 1.20. If it runs already, then
// that run was killed, and the stream goes on with another one.
func (f *failures) start(ev *event) {
	if p := f.packages[ev.Package]; p != nil && p.begun {
		f.abandon(p, "another run of the package began before this one ended")
	}
	f.of(ev).begun = true
}

func (f *failures) run(ev *event) {
	p := f.of(ev)
	p.begun = true
	if ev.Test == "" {
		return
	}
	if isBenchmark(ev.Test) {
		p.nextBenchmark(ev.Test)
	}
	t := f.test(p, ev)
	t.begun, t.paused, t.passed = true, false, false
}

func (f *failures) pause(ev *event) {
	f.test(f.of(ev), ev).paused = ev.Action == "pause"
}

func (f *failures) output(ev *event) {
	p := f.of(ev)
	if _, ok := f.results.read(ev); ok {
		p.measured = true // and printed by benchmarks
		return
	}
	if ev.Test == "" {
		f.packageOutput(p, ev.Output)
		return
	}
	t := f.test(p, ev)
	frame, passed := framing(ev)
	t.passed = t.passed || passed
	switch {
	case frame:
	case t.passed:
		// Until the next test begins, what the package prints counts as the
		// last one's: a data race that nobody was there to answer for, say.
		p.output.add(ev.Output)
	default:
		t.output.add(ev.Output)
	}
}

// packageOutput keeps what tells more than that the package failed.
func (f *failures) packageOutput(p *packageRun, output string) {
	switch {
	case isNotBuilt(output):
		p.notBuilt = true
	case isVerdict(output):
	case len(p.failed) > 0 && strings.HasPrefix(output, "exit status "):
	default:
		p.output.add(output)
	}
}

func (f *failures) pass(ev *event) {
	if ev.Test == "" {
		f.end(f.of(ev))
		return
	}
	delete(f.of(ev).tests, ev.Test)
	if len(f.byID) > 0 {
		if known := f.byID[failureID{ev.Package, ev.Test}]; known != nil && ev.Action == "pass" {
			known.passed++
		}
	}
}

func (f *failures) fail(ev *event) {
	p := f.of(ev)
	if ev.Test == "" {
		f.failPackage(p, ev)
		return
	}
	t := f.test(p, ev)
	f.failTest(p, t, fmt.Sprintf("--- FAIL: %s (%.2fs)", ev.Test, ev.Elapsed), "")
}

// failTest prints a test that failed or is unfinished, and lets it go.
func (f *failures) failTest(p *packageRun, t *testRun, heading, note string) {
	p.markParents(t)
	// A test has nothing to add when it is one of its subtests that failed, or
	// when it waited for others.
	if !t.output.empty() || !t.subtestFailed && !t.paused {
		f.print(heading+"  "+name(p.name), &t.output)
	}
	p.failed = append(p.failed, f.add(p.name, t.name, note))
	delete(p.tests, t.name)
}

// failPackage prints what is left of a package that failed.
func (f *failures) failPackage(p *packageRun, ev *event) {
	f.leaveUnfinished(p)
	p.countFailed()
	notBuilt := ev.FailedBuild != "" || p.notBuilt
	note := "failed without a failing test"
	switch cause, _, _ := strings.Cut(ev.FailedBuild, " "); {
	case notBuilt && (cause == "" || cause == p.name): // which may be a variant for tests
		note = "not built"
	case notBuilt:
		note = "not built, because of " + ev.FailedBuild
	}
	if notBuilt || len(p.failed) == 0 {
		f.add(p.name, "", note).counts = true
	}
	if !p.output.empty() || len(p.failed) == 0 && !notBuilt {
		f.print(fmt.Sprintf("--- FAIL: package %s (%.2fs)", name(p.name), ev.Elapsed), &p.output)
	}
	f.end(p)
}

// abandon prints a package that will not end.
func (f *failures) abandon(p *packageRun, why string) {
	f.leaveUnfinished(p)
	p.countFailed()
	f.add(p.name, "", why).counts = true
	f.print("--- UNFINISHED: package "+name(p.name)+": "+why, &p.output)
	f.publish(&event{Action: unfinished, Package: p.name})
	f.end(p)
}

// leaveUnfinished prints the tests that will not end: a panic or a timeout has
// ended their package, or the stream stops here.
func (f *failures) leaveUnfinished(p *packageRun) {
	for _, t := range p.unfinished() {
		note := unfinished
		if t.paused {
			note = "unfinished, it waited to run in parallel"
		}
		f.failTest(p, t, "--- UNFINISHED: "+t.name, note)
		f.publish(&event{Action: unfinished, Package: p.name, Test: t.name})
	}
}

func (f *failures) end(p *packageRun) {
	delete(f.packages, p.name)
	f.ended[p.name] = true
}

func (f *failures) buildOutput(ev *event) {
	build := f.builds[ev.ImportPath]
	if build == nil {
		build = new(transcript)
		f.builds[ev.ImportPath] = build
	}
	build.add(ev.Output)
}

func (f *failures) buildFail(ev *event) {
	build := f.builds[ev.ImportPath]
	if build == nil {
		build = new(transcript)
	}
	delete(f.builds, ev.ImportPath)
	f.print("--- BUILD FAILED: "+name(ev.ImportPath), build)
}

// finish is for the end of the stream: what runs now never ends.
func (f *failures) finish() {
	packages := slices.SortedFunc(maps.Values(f.packages), func(a, b *packageRun) int {
		return cmp.Compare(a.number, b.number)
	})
	for _, p := range packages {
		if p.begun || !f.ended[p.name] {
			f.abandon(p, "the stream ended before the package")
			continue
		}
		f.leaveUnfinished(p) // which moves all there is to the package
		if p.output.empty() {
			continue
		}
		f.print("--- OUTPUT after the end of package "+name(p.name), &p.output)
	}
	for _, path := range slices.Sorted(maps.Keys(f.builds)) {
		f.print("--- OUTPUT of the build of "+name(path)+", which did not fail", f.builds[path])
	}
}

// add puts a failure on the list, or counts it if it is there already.
func (f *failures) add(pkg, test, note string) *failure {
	id := failureID{pkg, test}
	known := f.byID[id]
	if known == nil {
		known = &failure{failureID: id}
		f.byID[id] = known
		f.list = append(f.list, known)
	}
	known.note = note
	known.failed++
	return known
}

func (f *failures) print(heading string, output *transcript) {
	text := heading + "\n"
	if !output.empty() {
		text += output.indented()
	}
	f.console.print(text)
}

// summary lists what failed. What failed in a package that passed, for go test has
// the last word, comes by itself: test frameworks run tests that must fail.
func (f *failures) summary() string {
	var failed, passed strings.Builder
	for _, one := range f.list {
		if one.counts {
			failed.WriteString(one.String())
		} else {
			passed.WriteString(one.String())
		}
	}
	summary := ""
	if failed.Len() > 0 {
		summary += "Failed:\n" + failed.String()
	}
	if passed.Len() > 0 {
		summary += "Failed in a package that passed:\n" + passed.String()
	}
	return summary
}

// String returns the line of the list.
func (f *failure) String() string {
	line := "    " + strings.TrimSpace(name(f.pkg)+"  "+f.test)
	if f.note != "" {
		line += ": " + f.note
	}
	if f.failed > 1 {
		line += fmt.Sprintf(" (%d times)", f.failed)
	}
	if f.passed > 0 {
		line += fmt.Sprintf(" (and passed %d times after that)", f.passed)
	}
	return line + "\n"
}
