package main

import "strings"

// benchmarks prints the results of benchmarks as they come, as go test does, so
// that benchstat can read the report. They are what benchmarks are run for, and
// otherwise would be let go with all output of packages that pass.
type benchmarks struct {
	console *console
	results results
	last    *event // that a line was printed for
}

func (b *benchmarks) routes() []route {
	return []route{{"test.output.*", b.output}}
}

func (b *benchmarks) output(ev *event) {
	line, _ := b.results.read(ev)
	if line == "" {
		return
	}
	if b.last == nil || b.last.Package != ev.Package {
		line = "pkg: " + ev.Package + "\n" + line
	}
	b.last = ev
	b.console.print(line)
}

// results finds the results of benchmarks in the output. A benchmark that takes
// its time prints its name first, and the rest of the line in another event.
type results struct {
	parts map[string]string // by package, the first part of a line
}

// maxResult is the longest line that can be a result.
const maxResult = 4096

// read reports whether an output is a result or a part of one, and returns the
// line if this is its end.
func (r *results) read(ev *event) (line string, ok bool) {
	part, begun := "", false
	if len(r.parts) > 0 {
		part, begun = r.parts[ev.Package]
	}
	if !begun && !isResult(ev) {
		return "", false
	}
	line = part + ev.Output
	if !strings.HasSuffix(line, "\n") && len(line) < maxResult {
		if r.parts == nil {
			r.parts = make(map[string]string)
		}
		r.parts[ev.Package] = line
		return "", true
	}
	delete(r.parts, ev.Package)
	return line, true
}
