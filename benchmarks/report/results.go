// Package report keeps what was measured and makes tables and charts of it.
package report

import (
	"encoding/json"
	"os"
	"slices"
	"time"

	"github.com/seed-b8032e04/pubsub/benchmarks/scenarios"
)

// Results are one run. They hold every single figure, so that tables and charts
// can be made again without measuring again.
type Results struct {
	Date     time.Time         `json:"date"`
	Command  string            `json:"command"`
	Machine  Machine           `json:"machine"`
	Modules  map[string]string `json:"modules"`             // version by path
	Passes   int               `json:"passes"`              // whole ones
	CutShort bool              `json:"cut_short,omitempty"` // by an interrupt, within a pass
	Size     scenarios.Size    `json:"size"`
	Samples  []Sample          `json:"samples"`
	Failures []Failure         `json:"failures,omitempty"`
}

// Machine is where it was.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	System string `json:"system"`
	Go     string `json:"go"`
}

// Sample is one figure of one pass.
type Sample struct {
	Scenario  string  `json:"scenario"`
	Case      string  `json:"case"`
	Contender string  `json:"contender"`
	Figure    string  `json:"figure"`
	Pass      int     `json:"pass"`
	Value     float64 `json:"value"`
}

// Failure is a measurement that gave no figures: something was lost, doubled,
// out of order, or never came back.
type Failure struct {
	Scenario  string `json:"scenario"`
	Case      string `json:"case"`
	Contender string `json:"contender"`
	Pass      int    `json:"pass"`
	Error     string `json:"error"`
}

// Load reads what [Results.Save] wrote.
func Load(path string) (*Results, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := new(Results)
	return r, json.Unmarshal(data, r)
}

// Save writes to a temporary file first, so that a run that is cut short leaves
// the last whole one.
func (r *Results) Save(path string) error {
	data, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".tmp", append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// values are a figure's values by pass.
func (r *Results) values(ref scenarios.Ref) map[int]float64 {
	values := make(map[int]float64)
	for _, s := range r.Samples {
		if s.Scenario == ref.Scenario && s.Case == ref.Case && s.Contender == ref.Contender && s.Figure == ref.Figure {
			values[s.Pass] = s.Value
		}
	}
	return values
}

// Median returns the median of a figure over the passes; false when it was not
// measured.
func (r *Results) Median(ref scenarios.Ref) (float64, bool) {
	values := r.values(ref)
	if len(values) == 0 {
		return 0, false
	}
	all := make([]float64, 0, len(values))
	for _, v := range values {
		all = append(all, v)
	}
	return Median(all), true
}

// Ratios returns one figure divided by another, pass by pass: a pass that a busy
// machine slowed has slowed both. They are sorted.
func (r *Results) Ratios(of, to scenarios.Ref) []float64 {
	divisors := r.values(to)
	var ratios []float64
	for pass, v := range r.values(of) {
		if d, ok := divisors[pass]; ok && d > 0 {
			ratios = append(ratios, v/d)
		}
	}
	slices.Sort(ratios)
	return ratios
}

// Ratio returns the median of [Results.Ratios].
func (r *Results) Ratio(of, to scenarios.Ref) (float64, bool) {
	ratios := r.Ratios(of, to)
	if len(ratios) == 0 {
		return 0, false
	}
	return Median(ratios), true
}
