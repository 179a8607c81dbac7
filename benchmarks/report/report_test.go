package report

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed-b8032e04/pubsub/benchmarks/peers"
	"github.com/seed-b8032e04/pubsub/benchmarks/scenarios"
)

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{3}, 3},
		{[]float64{5, 1, 3}, 3},
		{[]float64{4, 1, 3, 2}, 2.5},
		{[]float64{1, 1, 1, 1000}, 1},
	} {
		before := slices.Clone(test.values)
		if got := Median(test.values); got != test.want {
			t.Errorf("%v: %v instead of %v", test.values, got, test.want)
		}
		if !slices.Equal(before, test.values) {
			t.Errorf("%v was changed to %v", before, test.values)
		}
	}
}

var (
	ours   = scenarios.Ref{Scenario: "sync", Case: "1 subscriber", Contender: peers.PubsubSync.Name, Figure: "publish"}
	theirs = scenarios.Ref{Scenario: "sync", Case: "1 subscriber", Contender: peers.Call.Name, Figure: "publish"}
)

// sampled has a pass in which all was slow, and one in which only ours was
// measured.
func sampled() *Results {
	r := &Results{Size: scenarios.Quick, Passes: 4}
	add := func(ref scenarios.Ref, values ...float64) {
		for pass, v := range values {
			r.Samples = append(r.Samples, Sample{ref.Scenario, ref.Case, ref.Contender, ref.Figure, pass, v})
		}
	}
	add(ours, 120, 1100, 90, 5000)
	add(theirs, 100, 1000, 100)
	return r
}

func TestRatioIsMadeWithinPasses(t *testing.T) {
	r := sampled()
	if got := r.Ratios(ours, theirs); len(got) != 3 || got[0] != 0.9 || got[1] != 1.1 || got[2] != 1.2 {
		t.Errorf("%v", got)
	}
	if got, ok := r.Ratio(ours, theirs); !ok || got != 1.1 {
		t.Errorf("%v %v", got, ok)
	}
	if got, ok := r.Median(ours); !ok || got != 610 {
		t.Errorf("%v %v", got, ok)
	}
	if _, ok := r.Ratio(ours, scenarios.Ref{}); ok {
		t.Error("there is a ratio to nothing")
	}
}

func TestJudge(t *testing.T) {
	r := sampled()
	pair := scenarios.Pair{Of: ours, To: theirs}
	for _, test := range []struct {
		goal     scenarios.Goal
		value    float64
		measured bool
		reached  bool
	}{
		{scenarios.Goal{Limit: 1.25, Than: "call", Pairs: []scenarios.Pair{pair}}, 1.1, true, true},
		{scenarios.Goal{Limit: 1, Than: "call", Pairs: []scenarios.Pair{pair}}, 1.1, true, false},
		{scenarios.Goal{Limit: 1, Unit: "ns", Pairs: []scenarios.Pair{{Of: theirs}, {Of: ours}}}, 610, true, false},
		{scenarios.Goal{Limit: 0, Unit: "ns"}, 0, false, false},
	} {
		v := r.judge(test.goal)
		if math.Abs(v.value-test.value) > 1e-9 || v.measured != test.measured || v.reached != test.reached {
			t.Errorf("%+v: %+v", test.goal, v)
		}
	}
	if v := r.judge(scenarios.Goal{Pairs: []scenarios.Pair{{Of: theirs}, {Of: ours}}}); v.low != 90 || v.high != 5000 {
		t.Errorf("%+v", v)
	}
}

func TestQuantity(t *testing.T) {
	for _, test := range []struct {
		value float64
		unit  string
		want  string
	}{
		{0.5, "ns", "0.50 ns"}, {12.34, "ns", "12.3 ns"}, {123.4, "ns", "123 ns"}, {1234, "ns", "1.23 us"},
		{2.5e6, "ns", "2.50 ms"}, {1e9, "ns", "1 s"}, {12345, "ns", "12.3 us"},
		{1500, "ms", "1.50 s"}, {12, "ms", "12 ms"},
		{512, "B", "512 B"}, {1024, "B", "1 KiB"}, {1536, "B", "1.50 KiB"},
		{0, "goroutines", "0"}, {2, "goroutines", "2"}, {9987.6, "pairs/s", "9,988/s"},
	} {
		if got := quantity(test.value, test.unit); got != test.want {
			t.Errorf("%v %s is %s instead of %s", test.value, test.unit, got, test.want)
		}
	}
	for value, want := range map[float64]string{0.004: "0.004x", 0.5: "0.50x", 1.254: "1.25x", 25.04: "25x", 123.4: "123x", 1234.5: "1,234x"} {
		if got := ratio(value); got != want {
			t.Errorf("%v is %s instead of %s", value, got, want)
		}
	}
}

func TestSaveLoadAndWrite(t *testing.T) {
	dir := t.TempDir()
	r := sampled()
	r.Command = "go run . -quick"
	r.Failures = []Failure{{Scenario: "async", Case: "1 subscriber", Contender: "channel", Pass: 1, Error: "lost\ntwo"}}
	path := filepath.Join(dir, "results.json")
	if err := r.Save(path); err != nil {
		t.Fatal(err)
	}
	again, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	charts, err := again.Charts(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(charts) != 0 {
		t.Errorf("charts of nothing: %v", charts)
	}
	text := again.Markdown(charts)
	for _, want := range []string{"go run . -quick", "## Failures", "lost; two", "## Synchronous publish", "1.10x", "0.90x to 1.20x", "not measured"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	if text != r.Markdown(nil) {
		t.Error("the report differs after a reload")
	}
}

func TestCharts(t *testing.T) {
	r := &Results{Size: scenarios.Quick, Passes: 1}
	for _, s := range scenarios.All(scenarios.Quick) {
		for _, c := range s.Cases {
			for i, contender := range c.Contenders {
				for _, f := range s.Figures {
					r.Samples = append(r.Samples, Sample{s.Name, c.Name, contender.Name, f.Name, 0, float64(100 + i)})
				}
			}
		}
	}
	dir := t.TempDir()
	charts, err := r.Charts(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(charts) != 4 {
		t.Errorf("%d charts", len(charts))
	}
	for _, c := range charts {
		svg, err := os.ReadFile(filepath.Join(dir, c.File))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(svg), "</svg>") || !strings.Contains(string(svg), "pubsub") {
			t.Errorf("%s shows nothing of pubsub", c.File)
		}
	}
	// Another run without figures takes them away.
	if _, err := (&Results{Size: scenarios.Quick}).Charts(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, charts[0].File)); !os.IsNotExist(err) {
		t.Errorf("an old chart is still there: %v", err)
	}
}
