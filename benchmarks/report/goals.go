package report

import (
	"fmt"
	"strings"

	"github.com/seed-b8032e04/pubsub/benchmarks/scenarios"
)

// verdict is how one goal came out.
type verdict struct {
	value    float64 // of the worst pair
	low      float64 // the least and
	high     float64 // the most that a pass gave for that pair
	worst    scenarios.Pair
	measured bool
	reached  bool
}

func (r *Results) judge(g scenarios.Goal) verdict {
	var v verdict
	for _, p := range g.Pairs {
		value, low, high, ok := r.compare(p)
		if !ok {
			continue
		}
		if !v.measured || value > v.value {
			v = verdict{value: value, low: low, high: high, worst: p, measured: true}
		}
	}
	v.reached = v.measured && v.value <= g.Limit
	return v
}

// compare returns the median of a pair and its range over the passes.
func (r *Results) compare(p scenarios.Pair) (median, low, high float64, ok bool) {
	var each []float64
	if p.To == (scenarios.Ref{}) {
		for _, v := range r.values(p.Of) {
			each = append(each, v)
		}
	} else {
		each = r.Ratios(p.Of, p.To)
	}
	if len(each) == 0 {
		return 0, 0, 0, false
	}
	low, high = each[0], each[0]
	for _, v := range each {
		low, high = min(low, v), max(high, v)
	}
	return Median(each), low, high, true
}

// goalTable has a row for each goal. Where a goal has several comparisons, the
// worst stands for all and is named.
func (r *Results) goalTable() string {
	var out strings.Builder
	out.WriteString("| work | compared to | goal | measured | of the passes | reached |\n|---|---|---|---|---|---|\n")
	for _, g := range scenarios.Goals(r.Size) {
		v := r.judge(g)
		spell := ratio
		if g.Than == "" {
			spell = func(value float64) string { return quantity(value, g.Unit) }
		}
		measured, passes, reached := "", "", "not measured"
		if v.measured {
			measured = spell(v.value)
			if len(g.Pairs) > 1 {
				measured += " (" + label(v.worst, g) + ")"
			}
			passes = spell(v.low) + " to " + spell(v.high)
			reached = map[bool]string{true: "yes", false: "**no**"}[v.reached]
		}
		fmt.Fprintf(&out, "| %s | %s | at most %s | %s | %s | %s |\n", g.Work, g.Than, spell(g.Limit), measured, passes, reached)
	}
	return out.String()
}

// label says which of a goal's comparisons one is: the part that differs.
func label(p scenarios.Pair, g scenarios.Goal) string {
	var parts []string
	differ := func(part func(scenarios.Pair) string) {
		for _, other := range g.Pairs {
			if part(other) != part(p) {
				parts = append(parts, part(p))
				return
			}
		}
	}
	differ(func(p scenarios.Pair) string { return p.Of.Contender })
	if p.To.Contender != p.Of.Contender {
		differ(func(p scenarios.Pair) string { return p.To.Contender })
	}
	differ(func(p scenarios.Pair) string { return p.Of.Case })
	return strings.Join(parts, ", ")
}
