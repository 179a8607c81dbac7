package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/seed-b8032e04/pubsub/benchmarks/report"
	"github.com/seed-b8032e04/pubsub/benchmarks/scenarios"
)

// limit is when a measurement that does not come back is given up.
const limit = 5 * time.Minute

// measurer runs passes and keeps what they gave.
type measurer struct {
	results *report.Results
	time    time.Duration
	log     io.Writer
	givenUp map[string]bool // contenders that never came back, by scenario and case
}

// pass measures every contender of every scenario once. Who goes first changes
// from pass to pass.
func (m *measurer) pass(ctx context.Context, chosen []scenarios.Scenario, pass int) {
	for _, s := range chosen {
		if s.Passes > 0 && pass >= s.Passes {
			continue
		}
		start := time.Now()
		for _, c := range s.Cases {
			for i := range c.Contenders {
				if ctx.Err() != nil {
					return
				}
				m.measure(ctx, s, c, c.Contenders[(i+pass)%len(c.Contenders)], pass)
			}
		}
		fmt.Fprintf(m.log, "pass %d: %-14s %.1fs\n", pass+1, s.Name, time.Since(start).Seconds())
	}
}

type outcome struct {
	values scenarios.Values
	err    error
}

// measure keeps a contender's figures, or why there are none. Nothing that one
// contender does ends the run.
func (m *measurer) measure(ctx context.Context, s scenarios.Scenario, c scenarios.Case, who scenarios.Contender, pass int) {
	key := s.Name + "/" + c.Name + "/" + who.Name
	if m.givenUp[key] {
		return
	}
	result := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			if r := recover(); r != nil {
				o.err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
				fmt.Fprintln(m.log, o.err)
			}
			result <- o
		}()
		o.values, o.err = attempt(s, who, m.time)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	var o outcome
	select {
	case o = <-result:
	case <-ctx.Done():
		return
	case <-timer.C:
		o.err = fmt.Errorf("it has not come back after %v", limit)
		if m.givenUp == nil {
			m.givenUp = make(map[string]bool)
		}
		m.givenUp[key] = true
	}
	if o.err != nil {
		fmt.Fprintf(m.log, "%s: %v\n", key, o.err)
		m.results.Failures = append(m.results.Failures, report.Failure{
			Scenario: s.Name, Case: c.Name, Contender: who.Name, Pass: pass, Error: o.err.Error(),
		})
		return
	}
	for _, f := range s.Figures {
		if v, ok := o.values[f.Name]; ok {
			m.results.Samples = append(m.results.Samples, report.Sample{
				Scenario: s.Name, Case: c.Name, Contender: who.Name, Figure: f.Name, Pass: pass, Value: v,
			})
		}
	}
}

// attempt makes one contender ready, measures it and closes it. The garbage of
// making it ready is not its own to pay for.
func attempt(s scenarios.Scenario, who scenarios.Contender, d time.Duration) (values scenarios.Values, err error) {
	trial, err := who.Prepare()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, trial.Close()) }()
	runtime.GC()
	if s.Ops > 0 {
		return trial.Run(s.Ops)
	}
	return fill(trial.Run, d)
}

// fill runs more and more operations until they show how many fit into d, and
// returns the figures of as many. What came before was warming up.
func fill(run func(n int) (scenarios.Values, error), d time.Duration) (scenarios.Values, error) {
	for n := 1; ; {
		start := time.Now()
		values, err := run(n)
		elapsed := time.Since(start)
		if err != nil || elapsed >= d {
			return values, err
		}
		fits := int(float64(n) * float64(d) / float64(max(elapsed, time.Microsecond)))
		if elapsed >= d/4 {
			return run(max(fits, n))
		}
		n = min(fits, 50*n) + 1
	}
}
