package scenarios

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed-b8032e04/pubsub/benchmarks/peers"
)

// match makes a trial of an index; each operation finds the subscriptions of the
// hot topic.
func match(m peers.Matcher, patterns, others []string) (*Trial, error) {
	index, err := m.Open()
	if err != nil {
		return nil, err
	}
	return matchHot(index, patterns, others)
}

func matchHot(index peers.Index, patterns, others []string) (*Trial, error) {
	if err := insert(index, slices.Concat(patterns, others)); err != nil {
		return nil, err
	}
	topic := index.Topic(hotTopic)
	run := func(n int) (Values, error) {
		found, start := 0, time.Now()
		for range n {
			found += index.Match(topic)
		}
		values := Values{"publish": nsPerOp(start, n)}
		if want := n * len(patterns); found != want {
			return nil, fmt.Errorf("%d matches instead of %d", found, want)
		}
		return values, nil
	}
	return &Trial{Run: run, Close: func() error { return nil }}, nil
}

func insert(index peers.Index, patterns []string) error {
	for _, p := range patterns {
		if _, err := index.Insert(index.Pattern(p)); err != nil {
			return err
		}
	}
	return nil
}

// Peers with a goroutine for each subscription, or for each look at one, are
// measured up to this many.
const crowd = 10_000

func subscriptions(size Size) Scenario {
	s := Scenario{
		Name:  "subscriptions",
		Title: "Hot topic among many subscriptions, three matching",
		About: "Time of a publish to three subscribers while the other patterns, literal and with wildcards, do not match. " +
			"Indexes find the three and deliver nothing. Peers without wildcards have literal patterns only.",
		Figures: publishFigure,
	}
	buses := []peers.Peer{peers.PubsubSync, peers.Call, peers.EventBusSync, peers.NATS, peers.Moby}
	for n := 10; n <= size.Many; n *= 10 {
		c := Case{Name: plural(n, "subscription"), X: float64(n)}
		for _, p := range buses {
			goroutines := p.Name == peers.NATS.Name || p.Name == peers.Moby.Name
			if goroutines && n > crowd {
				continue
			}
			wildcards := p.Traits.Wildcards
			c.Contenders = append(c.Contenders, Contender{p.Name, func() (*Trial, error) {
				return deliver(plan{
					peer: p, patterns: hotPatterns(wildcards), others: unrelated(n-3, wildcards), batch: roundOf(3),
				})
			}})
		}
		c.Contenders = append(c.Contenders, matchers(peers.Matchers(), func(m peers.Matcher) (*Trial, error) {
			return match(m, hotPatterns(true), unrelated(n-3, true))
		})...)
		s.Cases = append(s.Cases, c)
	}
	return s
}

func matches(size Size) Scenario {
	others := min(size.Many, crowd)
	s := Scenario{
		Name:  "matches",
		Title: "Publish cost against number of matches",
		About: "Time of a publish to so many subscribers of the topic, handlers in the publisher's goroutine, among " +
			plural(others, "subscription") + " that do not match. Indexes find and deliver nothing.",
		Figures: publishFigure, Baseline: peers.Call.Name,
	}
	for n := 1; n <= min(size.Many, crowd); n *= 10 {
		c := Case{Name: plural(n, "match"), X: float64(n)}
		if n > 1 {
			c.Name = count(n) + " matches"
		}
		for _, p := range peers.Synchronous() {
			c.Contenders = append(c.Contenders, Contender{p.Name, func() (*Trial, error) {
				return deliver(plan{peer: p, patterns: repeat(n), others: unrelated(others, p.Traits.Wildcards)})
			}})
		}
		c.Contenders = append(c.Contenders, matchers(peers.Matchers(), func(m peers.Matcher) (*Trial, error) {
			return match(m, repeat(n), unrelated(others, true))
		})...)
		s.Cases = append(s.Cases, c)
	}
	return s
}

func onePattern(size Size) Scenario {
	return Scenario{
		Name:    "onepattern",
		Title:   "Many subscriptions of one pattern",
		About:   "Time of a publish to all of them, end to end where they have queues.",
		Figures: publishFigure, Baseline: peers.Call.Name,
		Cases: []Case{{
			Name: plural(size.Many, "subscription"), X: float64(size.Many),
			Contenders: append(
				contenders([]peers.Peer{peers.Call, peers.PubsubSync, peers.EventBusSync, peers.Pubsub},
					func(p peers.Peer) (*Trial, error) {
						return deliver(plan{peer: p, patterns: repeat(size.Many), batch: 10})
					}),
				matchers(peers.Matchers(), func(m peers.Matcher) (*Trial, error) {
					return match(m, repeat(size.Many), nil)
				})...),
		}},
	}
}
