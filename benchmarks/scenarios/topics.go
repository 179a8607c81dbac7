package scenarios

import (
	"fmt"
	"sync"
	"time"

	"github.com/seed-b8032e04/pubsub/benchmarks/peers"
)

func topics(size Size) Scenario {
	// Shared by all contenders, and made only when one runs.
	field := sync.OnceValue(func() *grid { return newGrid(size.Side) })
	many := size.Side * size.Side * size.Side
	return Scenario{
		Name:  "topics",
		Title: "Many distinct topics, many subscriptions",
		About: fmt.Sprintf("Every publish is to another of %s topics, in random order, among %s subscriptions: "+
			"85%% literal, 15%% with a wildcard in the middle, at the start or at the end. Each topic matches two to four. "+
			"pubsub calls their handlers; the indexes find them and deliver nothing.",
			count(many), count(size.Side*size.Side*10)),
		Figures: publishFigure, Baseline: peers.SublistUncached.Name,
		Cases: []Case{{
			Name: plural(many, "topic"), X: float64(many),
			Contenders: append(
				contenders([]peers.Peer{peers.PubsubSync}, func(p peers.Peer) (*Trial, error) {
					return publishEach(p, field())
				}),
				matchers(peers.Matchers(), func(m peers.Matcher) (*Trial, error) {
					return matchEach(m, field())
				})...),
		}},
	}
}

// publishEach publishes to one topic of the grid after another and counts calls.
func publishEach(p peers.Peer, g *grid) (*Trial, error) {
	bus, err := p.Open()
	if err != nil {
		return nil, err
	}
	found := 0
	for _, pattern := range g.patterns {
		if _, err := bus.Subscribe(pattern, func(uint64, []byte) { found++ }); err != nil {
			return nil, err
		}
	}
	payload := peers.NewPayload(0, nil)
	visit := func(topic string) error { return bus.Publish(topic, &payload) }
	return &Trial{Run: visitGrid(g, g.topics, visit, &found), Close: bus.Close}, bus.Settle()
}

// matchEach looks up one topic of the grid after another.
func matchEach(m peers.Matcher, g *grid) (*Trial, error) {
	index, err := m.Open()
	if err != nil {
		return nil, err
	}
	if err := insert(index, g.patterns); err != nil {
		return nil, err
	}
	names := make([]string, len(g.topics))
	for i, t := range g.topics {
		names[i] = index.Topic(t)
	}
	found := 0
	visit := func(topic string) error {
		found += index.Match(topic)
		return nil
	}
	return &Trial{Run: visitGrid(g, names, visit, &found), Close: func() error { return nil }}, nil
}

// visitGrid returns a Run that visits topics in random order, all of them
// before any again, and compares what was found with what the grid knows.
func visitGrid(g *grid, names []string, visit func(topic string) error, found *int) func(n int) (Values, error) {
	order := g.shuffled()
	next := 0
	return func(n int) (Values, error) {
		first := next
		*found = 0
		start := time.Now()
		for range n {
			if err := visit(names[order[next]]); err != nil {
				return nil, err
			}
			if next++; next == len(order) {
				next = 0
			}
		}
		values := Values{"publish": nsPerOp(start, n)}

		want := 0
		for i := range n {
			want += g.matching(order[(first+i)%len(order)])
		}
		if *found != want {
			return nil, fmt.Errorf("%d matches instead of %d", *found, want)
		}
		return values, nil
	}
}
