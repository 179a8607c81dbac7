package report

import (
	"cmp"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-b8032e04/pubsub/benchmarks/peers"
	"github.com/seed-b8032e04/pubsub/benchmarks/scenarios"

	"gonum.org/v1/plot/plotter"
)

// Chart is one picture and the scenario that it belongs to.
type Chart struct {
	Scenario string
	Title    string
	File     string
}

// errNothing says that a run did not measure what a chart shows.
var errNothing = errors.New("nothing to show")

// Charts draws all charts into a folder below dir, and returns those that this
// run had figures for.
func (r *Results) Charts(dir string) ([]Chart, error) {
	all := []struct {
		Chart
		draw func() (picture, error)
	}{
		{Chart{"async", "Median ratio to a channel, by subscribers", "charts/peers.svg"}, r.drawPeers},
		{Chart{"wake", "Throughput against latency", "charts/frontier.svg"}, r.drawFrontier},
		{Chart{"subscriptions", "Publish cost against number of subscriptions", "charts/subscriptions.svg"},
			func() (picture, error) { return r.drawCurves("subscriptions", "subscriptions, three of which match") }},
		{Chart{"matches", "Publish cost against number of matches", "charts/matches.svg"},
			func() (picture, error) { return r.drawCurves("matches", "matching subscriptions") }},
	}
	var made []Chart
	for _, c := range all {
		path := filepath.Join(dir, filepath.FromSlash(c.File))
		p, err := c.draw()
		if errors.Is(err, errNothing) {
			// A picture of another run must not stay beside this one's tables.
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		p.plot.Title.Text = c.Title
		if err := p.save(path); err != nil {
			return nil, err
		}
		made = append(made, c.Chart)
	}
	return made, nil
}

// scenario finds one by its name.
func (r *Results) scenario(name string) scenarios.Scenario {
	all := scenarios.All(r.Size)
	return all[slices.IndexFunc(all, func(s scenarios.Scenario) bool { return s.Name == name })]
}

// shortfall is what a peer lacks of what the others offer, for a label.
func shortfall(p peers.Peer) string {
	var lacks []string
	if !p.Traits.Topics {
		lacks = append(lacks, "no topics")
	}
	if !p.Traits.Ordered {
		lacks = append(lacks, "unordered")
	}
	if !p.Traits.WakesAtOnce {
		lacks = append(lacks, "wakes by timer")
	}
	if len(lacks) == 0 {
		return ""
	}
	return " (" + strings.Join(lacks, ", ") + ")"
}

// drawPeers has a row for each peer and a mark for each number of subscribers.
func (r *Results) drawPeers() (picture, error) {
	s := r.scenario("async")
	type row struct {
		label  string
		name   string
		ratios map[string]float64
		order  float64
	}
	var rows []row
	for _, p := range peers.Asynchronous() {
		if p.Name == s.Baseline {
			continue
		}
		w := row{label: p.Name + shortfall(p), name: p.Name, ratios: make(map[string]float64)}
		for _, c := range s.Cases {
			of := scenarios.Ref{Scenario: s.Name, Case: c.Name, Contender: p.Name, Figure: "publish"}
			to := of
			to.Contender = s.Baseline
			if v, ok := r.Ratio(of, to); ok {
				w.ratios[c.Name] = v
				w.order += math.Log(v)
			}
		}
		if len(w.ratios) > 0 {
			w.order /= float64(len(w.ratios))
			rows = append(rows, w)
		}
	}
	if len(rows) == 0 {
		return picture{}, errNothing
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(b.order, a.order) })

	p := newPicture(760, 420)
	names := make([]string, len(rows))
	for i, w := range rows {
		names[i] = w.label
	}
	p.plot.NominalY(names...)
	p.logX("time per publish, as a multiple of the channel's (less is better)")
	p.plot.Add(plotter.NewGrid())
	p.vertical(1, -0.5, float64(len(rows))-0.5)
	for i, c := range s.Cases {
		var points plotter.XYs
		for y, w := range rows {
			if v, ok := w.ratios[c.Name]; ok {
				points = append(points, plotter.XY{X: v, Y: float64(y)})
			}
		}
		if err := p.marks(c.Name, points, i); err != nil {
			return picture{}, err
		}
	}
	p.plot.Y.Min, p.plot.Y.Max = -0.5, float64(len(rows))-0.5
	return p, nil
}

// drawFrontier has a labelled mark for each peer.
func (r *Results) drawFrontier() (picture, error) {
	var points plotter.XYs
	var labels []string
	for _, peer := range append([]peers.Peer{peers.Pubsub}, peers.Asynchronous()...) {
		if len(labels) > 0 && peer.Name == peers.Pubsub.Name {
			continue // it is the first
		}
		cost, measured := r.Median(scenarios.Ref{Scenario: "async", Case: "10 subscribers", Contender: peer.Name, Figure: "publish"})
		latency, woken := r.Median(scenarios.Ref{Scenario: "wake", Case: "1 subscriber", Contender: peer.Name, Figure: "p50"})
		if measured && woken {
			points = append(points, plotter.XY{X: cost, Y: latency})
			labels = append(labels, peer.Name+shortfall(peer))
		}
	}
	if len(points) == 0 {
		return picture{}, errNothing
	}
	p := newPicture(760, 460)
	p.logX("publish to 10 subscribers, end to end, ns")
	p.logY("idle wake, median, ns")
	p.plot.Add(plotter.NewGrid())
	if err := p.labelled(points, labels); err != nil {
		return picture{}, err
	}
	return p, nil
}

// drawCurves has a line for each contender of a scenario.
func (r *Results) drawCurves(name, x string) (picture, error) {
	s := r.scenario(name)
	p := newPicture(760, 420)
	p.logX(x)
	p.logY("ns per publish or look-up")
	p.plot.Add(plotter.NewGrid())
	names := contenderNames(s)
	notFirst := func(name string) int {
		if name == peers.PubsubSync.Name {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Compare(notFirst(a), notFirst(b))
	})
	drawn := 0
	for _, contender := range names {
		var points plotter.XYs
		for _, c := range s.Cases {
			ref := scenarios.Ref{Scenario: name, Case: c.Name, Contender: contender, Figure: "publish"}
			if v, ok := r.Median(ref); ok {
				points = append(points, plotter.XY{X: c.X, Y: v})
			}
		}
		if len(points) == 0 {
			continue
		}
		if err := p.line(contender, points, drawn); err != nil {
			return picture{}, err
		}
		drawn++
	}
	if drawn == 0 {
		return picture{}, errNothing
	}
	return p, nil
}
