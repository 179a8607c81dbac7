package scenarios

import (
	"flag"
	"testing"
)

var full = flag.Bool("full", false, "benchmark at the comparison's own sizes instead of small ones")

// BenchmarkScenarios runs every contender of every case. With -benchtime 1x it
// shows within a minute that all of them still work.
func BenchmarkScenarios(b *testing.B) {
	size := Quick
	if *full {
		size = Full
	}
	for _, s := range All(size) {
		for _, c := range s.Cases {
			for _, contender := range c.Contenders {
				b.Run(s.Name+"/"+c.Name+"/"+contender.Name, func(b *testing.B) { benchmark(b, s, contender) })
			}
		}
	}
}

func benchmark(b *testing.B, s Scenario, c Contender) {
	trial, err := c.Prepare()
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	values, err := trial.Run(b.N)
	b.StopTimer()
	if err != nil {
		b.Error(err)
	}
	if err := trial.Close(); err != nil {
		b.Error(err)
	}
	for _, f := range s.Figures {
		if v, ok := values[f.Name]; ok {
			b.ReportMetric(v, f.Name+"-"+f.Unit)
		}
	}
	b.ReportMetric(0, "ns/op") // the figures say it, each with its own name
}
