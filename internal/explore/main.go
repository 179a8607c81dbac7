// Command explore runs package pubsub under many schedules, each determined by a
// seed, and checks what the package promises.
//
//	go run ./internal/explore                          50,000 seeds, as CI does
//	go run ./internal/explore -seeds 10000000 -state F the soak; goes on where it was stopped
//	go run ./internal/explore -seed N -scenario S -trace  one of them again, step by step
//	go run ./internal/explore -planted -seeds 200000   after how many seeds planted bugs are found
//	go run ./internal/explore -deletions               the same for each statement left out
//
// It rewrites the package's sources into a temporary directory and compiles the
// scenarios with them through an overlay; the sources themselves are not touched.
// See rewrite.go for what is rewritten, package schedule for how a seed determines
// the order of everything, and package scenario for what is run and checked.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
)

// options are the command's flags.
type options struct {
	seeds, from, seed uint64
	scenario          string
	trace, twice      bool
	planted           bool
	deletions         bool
	match             string
	processes         int
	state             string
	keep              string
}

func main() {
	var o options
	flag.Uint64Var(&o.seeds, "seeds", 50_000, "how many seeds to run; with a planted bug, at most")
	flag.Uint64Var(&o.from, "from", 1, "the first seed")
	flag.Uint64Var(&o.seed, "seed", 0, "run this seed only")
	flag.StringVar(&o.scenario, "scenario", "", "run this scenario only, whatever the seed says")
	flag.BoolVar(&o.trace, "trace", false, "print every step")
	flag.BoolVar(&o.twice, "twice", false, "run every seed twice, and compare the order of everything")
	flag.BoolVar(&o.planted, "planted", false, "run with each planted bug until it is found")
	flag.BoolVar(&o.deletions, "deletions", false, "run with each statement left out until that is found")
	flag.StringVar(&o.match, "match", "", "with -planted or -deletions: only those whose name matches")
	flag.IntVar(&o.processes, "processes", runtime.GOMAXPROCS(0), "how many to run at once")
	flag.StringVar(&o.state, "state", "", "a file in which to note what has been run, and not to run that again")
	flag.StringVar(&o.keep, "keep", "", "a directory to keep the rewritten sources in")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := explore(o); err != nil {
		fmt.Fprintln(os.Stderr, "explore:", err)
		os.Exit(1)
	}
}

func explore(o options) error {
	dir := o.keep
	if dir == "" {
		temporary, err := os.MkdirTemp("", "explore")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(temporary) }()
		dir = temporary
	}
	c, err := load()
	if err != nil {
		return err
	}
	switch {
	case o.planted:
		return findPlanted(c, dir, o)
	case o.deletions:
		return findDeletions(c, dir, o)
	}
	sources, err := c.rewritten(nil)
	if err != nil {
		return err
	}
	p, err := c.build(dir, sources)
	if err != nil {
		return err
	}
	if o.seed > 0 {
		return p.replay(o)
	}
	return p.soak(c, o)
}
