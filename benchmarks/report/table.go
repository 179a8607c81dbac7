package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-b8032e04/pubsub/benchmarks/peers"
	"github.com/seed-b8032e04/pubsub/benchmarks/scenarios"
)

// Markdown writes the whole report. Charts are linked when there are any.
func (r *Results) Markdown(charts []Chart) string {
	var out strings.Builder
	out.WriteString("# Results\n\n")
	r.writeFacts(&out)
	if len(r.Failures) > 0 {
		r.writeFailures(&out)
	}
	out.WriteString("\n## Goals\n\nThe worst comparison stands for all of a goal, in brackets when there are several.\n\n")
	out.WriteString(r.goalTable())
	for _, s := range scenarios.All(r.Size) {
		if !r.has(s) {
			continue
		}
		fmt.Fprintf(&out, "\n## %s\n\n%s%s\n\n", s.Title, s.About, comparison(s))
		for _, c := range charts {
			if c.Scenario == s.Name {
				fmt.Fprintf(&out, "![%s](%s)\n\n", c.Title, c.File)
			}
		}
		out.WriteString(r.scenarioTable(s))
	}
	out.WriteString("\n## Who is compared\n\n")
	out.WriteString(r.peerTable())
	return out.String()
}

func (r *Results) writeFacts(out *strings.Builder) {
	fmt.Fprintf(out, "Made by `%s` on %s.\n\n", r.Command, r.Date.Format("2 January 2006"))
	fmt.Fprintf(out, "- Machine: %s, %d cores, %s\n- Go: %s\n", r.Machine.CPU, r.Machine.Cores, r.Machine.System, r.Machine.Go)
	fmt.Fprintf(out, "- Medians of %d passes. Each pass runs every contender of a scenario in turn; "+
		"ratios are made within a pass, and the median of those is shown.\n", r.Passes)
	if r.CutShort {
		out.WriteString("- The run was cut short: of the pass after those, only some contenders are here.\n")
	}
}

func (r *Results) writeFailures(out *strings.Builder) {
	out.WriteString("\n## Failures\n\nThese gave no figures:\n\n")
	for _, f := range r.Failures {
		fmt.Fprintf(out, "- %s, %s, %s, pass %d: %s\n", f.Scenario, f.Case, f.Contender, f.Pass+1,
			strings.ReplaceAll(f.Error, "\n", "; "))
	}
}

func (r *Results) has(s scenarios.Scenario) bool {
	return slices.ContainsFunc(r.Samples, func(sample Sample) bool { return sample.Scenario == s.Name })
}

func comparison(s scenarios.Scenario) string {
	switch {
	case s.Baseline != "":
		return " In brackets: the ratio to " + s.Baseline + "."
	case len(s.Cases) > 1:
		return " In brackets: the ratio to the first column that has the contender."
	}
	return ""
}

// column is one figure of one case.
type column struct {
	c     scenarios.Case
	f     scenarios.Figure
	title string
}

func columns(s scenarios.Scenario) []column {
	var cs []column
	for _, c := range s.Cases {
		for _, f := range s.Figures {
			title := c.Name
			switch {
			case len(s.Figures) > 1 && len(s.Cases) > 1:
				title += ": " + f.Name
			case len(s.Figures) > 1:
				title = f.Name
			}
			cs = append(cs, column{c, f, title})
		}
	}
	return cs
}

func (r *Results) scenarioTable(s scenarios.Scenario) string {
	var out strings.Builder
	cs := columns(s)
	out.WriteString("| |")
	for _, c := range cs {
		out.WriteString(" " + c.title + " |")
	}
	out.WriteString("\n|---|" + strings.Repeat("---:|", len(cs)) + "\n")
	for _, name := range contenderNames(s) {
		cells, any := "", false
		for _, c := range cs {
			text := r.cell(s, c, name)
			any = any || text != ""
			cells += " " + text + " |"
		}
		if any {
			out.WriteString("| " + name + " |" + cells + "\n")
		}
	}
	return out.String()
}

// cell is a median and the ratio that the scenario compares by.
func (r *Results) cell(s scenarios.Scenario, c column, name string) string {
	ref := scenarios.Ref{Scenario: s.Name, Case: c.c.Name, Contender: name, Figure: c.f.Name}
	value, ok := r.Median(ref)
	if !ok {
		return ""
	}
	text := quantity(value, c.f.Unit)
	to := ref
	if s.Baseline != "" {
		to.Contender = s.Baseline
	} else {
		to.Case = r.firstCase(s, ref)
	}
	if c.f.Unit != "ns" && c.f.Unit != "ms" && c.f.Unit != "B" {
		return text
	}
	if multiple, ok := r.Ratio(ref, to); ok && to != ref {
		text += " (" + ratio(multiple) + ")"
	}
	return text
}

// firstCase is the first one in which the figure was measured.
func (r *Results) firstCase(s scenarios.Scenario, ref scenarios.Ref) string {
	for _, c := range s.Cases {
		ref.Case = c.Name
		if _, ok := r.Median(ref); ok {
			return c.Name
		}
	}
	return ""
}

// contenderNames are all names of a scenario, in the order of their first case.
func contenderNames(s scenarios.Scenario) []string {
	var names []string
	for _, c := range s.Cases {
		for _, contender := range c.Contenders {
			if !slices.Contains(names, contender.Name) {
				names = append(names, contender.Name)
			}
		}
	}
	return names
}

// peerTable says what each peer is, does and does not do.
func (r *Results) peerTable() string {
	var out strings.Builder
	out.WriteString("| | version | topics | wildcards | ids | time | ordered | bounded | wakes at once | a stuck subscriber | what else differs |\n" +
		"|---|---|---|---|---|---|---|---|---|---|---|\n")
	yes := map[bool]string{true: "yes", false: "no"}
	for _, p := range peers.All() {
		t := p.Traits
		stuck := "is piled up for"
		switch {
		case t.BlocksEveryone:
			stuck = "blocks everyone"
		case t.Drops:
			stuck = "loses messages"
		}
		cells := []string{
			p.Name, r.Modules[p.Module], yes[t.Topics], yes[t.Wildcards], yes[t.IDs], yes[t.Time],
			yes[t.Ordered], yes[t.Bounded], yes[t.WakesAtOnce], stuck, p.Note,
		}
		out.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
	out.WriteString("\nIndexes, for matching alone:\n\n| | version | what differs |\n|---|---|---|\n")
	for _, m := range peers.Matchers() {
		out.WriteString("| " + strings.Join([]string{m.Name, r.Modules[m.Module], m.Note}, " | ") + " |\n")
	}
	return out.String()
}
