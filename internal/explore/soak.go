package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// chunk is how many seeds one process runs.
const chunk = 5000

// soak runs seeds on all processors, and says what came of it.
func (p *program) soak(c *core, o options) error {
	t := &tally{hash: c.hash(), begun: time.Now(), want: o.seeds}
	if o.state != "" {
		if err := t.resume(o); err != nil {
			return err
		}
		defer func() { _ = t.state.Close() }()
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	chunks := make(chan uint64)
	var workers sync.WaitGroup
	for range o.processes {
		workers.Go(func() {
			for from := range chunks {
				if err := p.chunk(ctx, t, from, min(chunk, o.from+o.seeds-from), o); err != nil {
					cancel(err)
				}
			}
		})
	}
	for from := o.from; from < o.from+o.seeds && ctx.Err() == nil; from += chunk {
		if !t.done[t.key(from, min(chunk, o.from+o.seeds-from), o.scenario)] {
			chunks <- from
		}
	}
	close(chunks)
	workers.Wait()
	t.report()
	err := context.Cause(ctx)
	var f *failure
	if errors.As(err, &f) {
		return fmt.Errorf("%w\nto see it again:\n\tgo run ./internal/explore -seed %d -scenario %s -trace", err, f.seed, f.scenario)
	}
	return err
}

// chunk runs some seeds and adds them to the tally.
func (p *program) chunk(ctx context.Context, t *tally, from, seeds uint64, o options) error {
	r, err := p.run(ctx, from, seeds, o.scenario)
	if err == nil && r.failure != nil {
		err = r.failure
	}
	if err == nil && o.twice {
		var again result
		again, err = p.run(ctx, from, seeds, o.scenario)
		if err == nil && again.print != r.print {
			err = fmt.Errorf("seeds %d to %d ran differently the second time", from, from+seeds-1)
		}
	}
	if err != nil {
		return err
	}
	return t.add(from, r, o)
}

// tally is what has been run so far.
type tally struct {
	hash  string
	begun time.Time
	want  uint64
	state *os.File
	done  map[string]bool // the lines of state

	mu      sync.Mutex
	sum     result
	earlier uint64 // seeds run by an earlier process
	shown   time.Time
}

// key is the line for a chunk in the state file: the result of other sources is not
// ours.
func (t *tally) key(from, seeds uint64, scenario string) string {
	return strings.TrimSpace(fmt.Sprintf("%s %d %d %s", t.hash, from, seeds, scenario))
}

// resume reads what has been run before, and opens the file for more.
func (t *tally) resume(o options) error {
	text, err := os.ReadFile(o.state)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	t.done = make(map[string]bool)
	for line := range strings.Lines(string(text)) {
		t.done[strings.TrimSpace(line)] = true
	}
	for from := o.from; from < o.from+o.seeds; from += chunk {
		if seeds := min(chunk, o.from+o.seeds-from); t.done[t.key(from, seeds, o.scenario)] {
			t.earlier += seeds
		}
	}
	t.state, err = os.OpenFile(o.state, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	return err
}

func (t *tally) add(from uint64, r result, o options) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.seeds += r.seeds
	t.sum.steps += r.steps
	t.sum.slept += r.slept
	t.sum.cpu += r.cpu
	if time.Since(t.shown) > 30*time.Second {
		t.shown = time.Now()
		fmt.Fprintf(os.Stderr, "%d of %d seeds\n", t.earlier+t.sum.seeds, t.want)
	}
	if t.state == nil {
		return nil
	}
	_, err := fmt.Fprintln(t.state, t.key(from, r.seeds, o.scenario))
	return err
}

// report prints the result.
func (t *tally) report() {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Printf("sources %s: %d seeds run", t.hash, t.earlier+t.sum.seeds)
	if t.earlier > 0 {
		fmt.Printf(", %d of them earlier", t.earlier)
	}
	if n := t.sum.seeds; n > 0 {
		fmt.Printf("; %d steps and %d switches a seed, %.0f seeds a second of processor time, %.0f a second",
			t.sum.steps/n, t.sum.slept/n, float64(n)/t.sum.cpu.Seconds(), float64(n)/time.Since(t.begun).Seconds())
	}
	fmt.Println()
}
