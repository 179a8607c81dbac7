// Command benchmarks compares pubsub with other publish/subscribe libraries.
//
// It measures in interleaved passes, each of which runs every contender of every
// scenario in turn, and writes RESULTS.md, results.json and charts.
//
//	go run .                      everything, in less than twelve minutes
//	go run . -only 'async|wake'   some scenarios, to the terminal
//	go run . -render results.json tables and charts again, without measuring
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/seed-b8032e04/pubsub/benchmarks/report"
	"github.com/seed-b8032e04/pubsub/benchmarks/scenarios"
)

func main() {
	var o options
	flag.IntVar(&o.passes, "passes", 6, "passes over all contenders")
	flag.DurationVar(&o.time, "time", 60*time.Millisecond, "how long one measurement lasts, about")
	flag.StringVar(&o.only, "only", "", "measure the scenarios whose names match this `regexp`, and print instead of writing files")
	flag.StringVar(&o.out, "out", "", "`folder` for the report; here, unless -only is given")
	flag.StringVar(&o.render, "render", "", "measure nothing; make the report again from this `file`")
	flag.BoolVar(&o.quick, "quick", false, "small sizes, to see that everything works")
	flag.BoolVar(&o.list, "list", false, "list the scenarios")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		stop()
		os.Exit(1)
	}
}

type options struct {
	passes            int
	time              time.Duration
	only, out, render string
	quick, list       bool
}

func (o options) run(ctx context.Context) error {
	size := scenarios.Full
	if o.quick {
		size = scenarios.Quick
	}
	if o.list {
		for _, s := range scenarios.All(size) {
			fmt.Printf("%-14s %s\n", s.Name, s.Title)
		}
		return nil
	}
	if o.out == "" && o.only == "" {
		o.out = "."
	}
	if o.render != "" {
		results, err := report.Load(o.render)
		if err != nil {
			return err
		}
		return o.write(results)
	}
	return o.compare(ctx, size)
}

func (o options) compare(ctx context.Context, size scenarios.Size) error {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return err
	}
	var chosen []scenarios.Scenario
	for _, s := range scenarios.All(size) {
		if only.MatchString(s.Name) {
			chosen = append(chosen, s)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("no scenario matches %q; -list names them", o.only)
	}
	results := &report.Results{
		Date:    time.Now().UTC(),
		Command: command(),
		Machine: thisMachine(),
		Modules: moduleVersions(),
		Size:    size,
	}
	if o.out != "" {
		if err := os.MkdirAll(o.out, 0o755); err != nil {
			return err
		}
	}
	m := measurer{results: results, time: o.time, log: os.Stderr}
	for pass := 0; pass < o.passes && ctx.Err() == nil; pass++ {
		m.pass(ctx, chosen, pass)
		if ctx.Err() == nil {
			results.Passes = pass + 1
		}
		if err := o.save(results); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		results.CutShort = true
		if err := o.save(results); err != nil {
			return err
		}
	}
	if err := o.write(results); err != nil {
		return err
	}
	if n := len(results.Failures); n > 0 {
		return fmt.Errorf("%d measurements failed; the report lists them", n)
	}
	return ctx.Err()
}

// save keeps the figures, after each pass and at the end.
func (o options) save(results *report.Results) error {
	if o.out == "" {
		return nil
	}
	return results.Save(filepath.Join(o.out, "results.json"))
}

// write makes the report's files, or prints it.
func (o options) write(results *report.Results) error {
	if o.out == "" {
		fmt.Println(results.Markdown(nil))
		return nil
	}
	charts, err := results.Charts(o.out)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.out, "RESULTS.md"), []byte(results.Markdown(charts)), 0o644)
}

// command is how to repeat the run.
func command() string {
	words := []string{"go", "run", "."}
	for _, a := range os.Args[1:] {
		if strings.ContainsAny(a, " |*()[]$'\"\\") {
			a = "'" + a + "'"
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}
