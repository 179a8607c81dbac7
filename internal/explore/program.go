package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// program is the scenarios compiled with rewritten sources.
type program struct {
	path string
	// args are added to every run's.
	args []string
}

// result is what runs of some seeds have come to.
type result struct {
	seeds        uint64
	steps, slept uint64
	print        string
	cpu          time.Duration
	failure      *failure
}

// failure is one run that went wrong.
type failure struct {
	seed     uint64
	scenario string
	what     string
}

func (f *failure) Error() string {
	return fmt.Sprintf("seed %d, scenario %s: %s", f.seed, f.scenario, f.what)
}

// run runs seeds until one goes wrong.
func (p *program) run(ctx context.Context, from, seeds uint64, scenario string) (result, error) {
	r, out, err := p.start(ctx, "-from", strconv.FormatUint(from, 10), "-seeds", strconv.FormatUint(seeds, 10), "-scenario", scenario)
	if err == nil || r.failure != nil || ctx.Err() != nil {
		return r, err
	}
	if seeds == 1 {
		// The program broke down without a word of its own.
		r.failure = &failure{seed: from, scenario: cmpOr(scenario, "?"), what: out}
		return r, nil
	}
	// Find out which seed it was.
	for seed := from; seed < from+seeds; seed++ {
		if one, err := p.run(ctx, seed, 1, scenario); err != nil || one.failure != nil {
			return one, err
		}
	}
	return r, fmt.Errorf("seeds %d to %d break down together only: %w\n%s", from, from+seeds-1, err, out)
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// start runs the program once, and reads what it prints.
func (p *program) start(ctx context.Context, args ...string) (r result, out string, err error) {
	cmd := exec.CommandContext(ctx, p.path, append(append([]string{"-test.run", "^TestExplore$"}, p.args...), args...)...)
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState != nil {
		r.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	r.read(strings.NewReader(string(text)))
	if r.failure != nil {
		err = nil
	}
	return r, string(text), err
}

// read reads the lines of package scenario's TestExplore.
func (r *result) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "fail ") && r.failure == nil:
			fields := strings.SplitN(line, " ", 4)
			seed, _ := strconv.ParseUint(fields[1], 10, 64)
			r.failure = &failure{seed: seed, scenario: fields[2], what: fields[3]}
		case strings.HasPrefix(line, "\t") && r.failure != nil:
			r.failure.what += "\n" + line
		case strings.HasPrefix(line, "done "):
			var from uint64
			_, _ = fmt.Sscanf(line, "done %d %d %d %d %s", &from, &r.seeds, &r.steps, &r.slept, &r.print)
		}
	}
}

// replay runs one seed for somebody to look at.
func (p *program) replay(o options) error {
	args := append([]string{"-test.run", "^TestExplore$", "-from", strconv.FormatUint(o.seed, 10), "-seeds", "1", "-scenario", o.scenario}, p.args...)
	if o.trace {
		args = append(args, "-traced")
	}
	cmd := exec.Command(p.path, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return errors.New("the run went wrong")
	}
	return nil
}
