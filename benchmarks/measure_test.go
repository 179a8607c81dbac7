package main

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-b8032e04/pubsub/benchmarks/report"
	"github.com/seed-b8032e04/pubsub/benchmarks/scenarios"
)

func TestFill(t *testing.T) {
	const d, each = 20 * time.Millisecond, 100 * time.Microsecond
	synctest.Test(t, func(t *testing.T) { // where sleeping takes as long as it says
		last := 0
		values, err := fill(func(n int) (scenarios.Values, error) {
			last = n
			time.Sleep(time.Duration(n) * each)
			return scenarios.Values{"n": float64(n)}, nil
		}, d)
		if err != nil {
			t.Fatal(err)
		}
		if values["n"] != float64(last) {
			t.Errorf("the figures of %v operations, not of the last %d", values["n"], last)
		}
		if spent := time.Duration(last) * each; spent < d || spent > 2*d {
			t.Errorf("the last took %v instead of about %v", spent, d)
		}
	})
}

func TestFillReturnsErrors(t *testing.T) {
	broken := errors.New("broken")
	if _, err := fill(func(int) (scenarios.Values, error) { return nil, broken }, time.Second); !errors.Is(err, broken) {
		t.Error(err)
	}
}

func contender(name string, prepare func() (*scenarios.Trial, error)) scenarios.Contender {
	return scenarios.Contender{Name: name, Prepare: prepare}
}

func trial(run func(n int) (scenarios.Values, error), closed error) func() (*scenarios.Trial, error) {
	return func() (*scenarios.Trial, error) {
		return &scenarios.Trial{Run: run, Close: func() error { return closed }}, nil
	}
}

func TestPassSurvivesContenders(t *testing.T) {
	good := func(int) (scenarios.Values, error) { return scenarios.Values{"a": 1, "b": 2}, nil }
	broken := errors.New("broken")
	s := scenarios.Scenario{
		Name: "s", Ops: 1,
		Figures: []scenarios.Figure{{Name: "a"}, {Name: "b"}, {Name: "c"}},
		Cases: []scenarios.Case{{Name: "c", Contenders: []scenarios.Contender{
			contender("unprepared", func() (*scenarios.Trial, error) { return nil, broken }),
			contender("failing", trial(func(int) (scenarios.Values, error) { return nil, broken }, nil)),
			contender("panicking", trial(func(int) (scenarios.Values, error) { panic("oh") }, nil)),
			contender("failing at the end", trial(good, broken)),
			contender("good", trial(good, nil)),
		}}},
	}
	m := measurer{results: new(report.Results), log: io.Discard}
	for pass := range 2 {
		m.pass(context.Background(), []scenarios.Scenario{s}, pass)
	}
	if n := len(m.results.Failures); n != 8 {
		t.Errorf("%d failures: %v", n, m.results.Failures)
	}
	if n := len(m.results.Samples); n != 4 {
		t.Errorf("%d samples: %v", n, m.results.Samples)
	}
	for _, sample := range m.results.Samples {
		if sample.Contender != "good" {
			t.Errorf("%+v", sample)
		}
	}
}

func TestPassesAreBounded(t *testing.T) {
	runs := 0
	s := scenarios.Scenario{Name: "s", Ops: 1, Passes: 1, Cases: []scenarios.Case{{Contenders: []scenarios.Contender{
		contender("one", trial(func(int) (scenarios.Values, error) { runs++; return nil, nil }, nil)),
	}}}}
	m := measurer{results: new(report.Results), log: io.Discard}
	for pass := range 3 {
		m.pass(context.Background(), []scenarios.Scenario{s}, pass)
	}
	if runs != 1 {
		t.Errorf("%d runs instead of 1", runs)
	}
}
