// Package scenario is what the explorer runs: publishers, subscribers and those
// who end them, composed at random from a seed, and what must be true of each
// run. It needs a copy of package pubsub whose locks and channels belong to
// package schedule, which the explorer compiles it with.
package scenario

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-b8032e04/pubsub/internal/explore/schedule"
)

// rewritten is set by the explorer when it links this program.
var rewritten string

var (
	from  = flag.Uint64("from", 1, "the first `seed`")
	seeds = flag.Uint64("seeds", 0, "how many seeds to run")
	only  = flag.String("scenario", "", "run this scenario, whatever the seed says")
	trace = flag.Bool("traced", false, "print every step")
	all   = flag.Bool("all", false, "go on after a failure")
	left  = flag.Int("without", 0, "leave out the statement of this `number`")
	each  = flag.Bool("prints", false, "print what each run's order comes to")
)

// patience is how long one run may take before the program gives up on it: it
// takes a fraction of a millisecond, a slow machine's interruptions apart.
const patience = time.Minute

// TestExplore runs seeds and prints lines for the explorer to read:
//
//	fail SEED SCENARIO WHAT  a run that went wrong
//	done FROM SEEDS STEPS SLEPT PRINT
//
// PRINT depends on the order of everything that was done.
func TestExplore(t *testing.T) {
	if rewritten == "" {
		t.Skip("runs in the explorer only: go run ./internal/explore")
	}
	schedule.Left = *left
	runtime.GOMAXPROCS(1)       // A run has one goroutine at a time anyway.
	debug.SetGCPercent(-1)      // A collection would preempt whoever runs,
	defer debug.SetGCPercent(1) // so it is done between runs.
	var steps, slept int
	var print uint64
	begun := make(chan uint64, 1)
	go watch(begun)
	failed := 0
	for seed := *from; seed < *from+*seeds; seed++ {
		if (seed-*from)%256 == 0 {
			collect()
		}
		select {
		case begun <- seed:
		default:
		}
		r := run(t, seed, *only)
		steps += r.steps
		slept += r.slept
		print = print*31 + r.print
		if *each {
			fmt.Printf("print %d %s %016x %d\n", seed, r.scenario, r.print, r.steps)
		}
		if r.failure != "" {
			failed++
			fmt.Printf("fail %d %s %s\n", seed, r.scenario, strings.ReplaceAll(r.failure, "\n", "\n\t"))
			if !*all {
				os.Exit(1) // What is left of the bubble never ends.
			}
		}
	}
	fmt.Printf("done %d %d %d %d %016x\n", *from, *seeds, steps, slept, print)
	if failed > 0 {
		os.Exit(1)
	}
}

// collect frees what the runs since the last time have left.
func collect() {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > 64<<20 {
		runtime.GC()
	}
}

// watch ends the program when a run does not end.
func watch(begun <-chan uint64) {
	last := *from
	for {
		select {
		case last = <-begun:
		case <-time.After(patience):
			fmt.Printf("fail %d ? no end: it loops, or waits for something that no schedule can give\n", last)
			os.Exit(1)
		}
	}
}

// result is what came of one run.
type result struct {
	scenario     string
	failure      string
	steps, slept int
	print        uint64
}

// run runs one seed in a bubble of its own.
func run(t *testing.T, seed uint64, name string) (r result) {
	chosen := chooseComposition(seed, name)
	r.scenario = chosen.name
	var s *schedule.Schedule
	defer func() {
		v := recover() // The bubble's, when goroutines are left that wait for each other.
		if s == nil {
			panic(v)
		}
		if r.failure = s.Failure(); r.failure == "" && v != nil {
			r.failure = fmt.Sprint(v)
		}
		r.steps, r.slept = s.Steps()
		r.print = s.Fingerprint()
	}()
	synctest.Test(t, func(*testing.T) {
		var line func(string)
		if *trace {
			line = func(text string) { fmt.Println("trace", text) }
		}
		s = schedule.Begin(seed, line)
		w := newWorld(s, chosen)
		chosen.compose(w)
		w.finish()
	})
	return r
}
