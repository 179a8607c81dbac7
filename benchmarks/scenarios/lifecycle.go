package scenarios

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed-b8032e04/pubsub/benchmarks/peers"
)

func lifecycle(size Size) Scenario {
	const few = 10
	visitors := fresh()
	light := []peers.Peer{peers.Pubsub, peers.Call, peers.EventBusSync}
	different := func(present int, buses []peers.Peer) []Contender {
		return append(
			contenders(buses, func(p peers.Peer) (*Trial, error) {
				return openLifecycle(p, unrelated(present, p.Traits.Wildcards), visitors)
			}),
			matchers(peers.Matchers(), func(m peers.Matcher) (*Trial, error) {
				return openInsertion(m, unrelated(present, true), visitors)
			})...)
	}
	// EventBus is left out where all are alike: it would end another one.
	alike := append(
		contenders([]peers.Peer{peers.Pubsub, peers.Call}, func(p peers.Peer) (*Trial, error) {
			return openLifecycle(p, repeat(size.Many), repeat(1))
		}),
		matchers(peers.Matchers(), func(m peers.Matcher) (*Trial, error) {
			return openInsertion(m, repeat(size.Many), repeat(1))
		})...)
	return Scenario{
		Name:  "subscribe",
		Title: "Subscribe and unsubscribe",
		About: "Time of one subscribe and one unsubscribe while others are present: different patterns, then all of one pattern. " +
			"Peers with a goroutine for each subscription are measured with few present.",
		Figures: []Figure{{Name: "pair", Unit: "ns"}},
		Cases: []Case{
			{Name: count(few) + " present", X: few,
				Contenders: different(few, append(peers.Asynchronous(), peers.Call, peers.EventBusSync))},
			{Name: count(size.Many) + " present", X: float64(size.Many),
				Contenders: different(size.Many, light)},
			{Name: count(size.Many) + " of one pattern", X: float64(size.Many),
				Contenders: alike},
		},
	}
}

// fresh are patterns that come and go, none of them among the unrelated ones.
func fresh() []string {
	patterns := make([]string, 1024)
	for i := range patterns {
		patterns[i] = fmt.Sprintf("visitor.%d.orders.created", i)
	}
	return patterns
}

// openLifecycle has some subscriptions present for as long as others come and
// go.
func openLifecycle(p peers.Peer, present, visitors []string) (*Trial, error) {
	bus, err := p.Open()
	if err != nil {
		return nil, err
	}
	var stayed, gone atomic.Int64
	for _, pattern := range present {
		if _, err := bus.Subscribe(pattern, func(uint64, []byte) { stayed.Add(1) }); err != nil {
			return nil, err
		}
	}
	i := 0
	run := func(n int) (Values, error) {
		start := time.Now()
		for range n {
			cancel, err := bus.Subscribe(visitors[i%len(visitors)], func(uint64, []byte) { gone.Add(1) })
			if err != nil {
				return nil, err
			}
			if err := bus.Settle(); err != nil {
				return nil, err
			}
			cancel()
			i++
		}
		return Values{"pair": nsPerOp(start, n)}, bus.Settle()
	}
	// What went gets nothing; what stayed is still there.
	end := func() error {
		payload := peers.NewPayload(0, nil)
		for _, topic := range []string{visitors[0], present[0]} {
			if err := bus.Publish(topic, &payload); err != nil {
				return err
			}
		}
		for deadline := time.Now().Add(patience); stayed.Load() == 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				return errors.New("subscriptions that stayed get nothing")
			}
		}
		if err := bus.Close(); err != nil {
			return err
		}
		if n := gone.Load(); n != 0 {
			return fmt.Errorf("%d deliveries to subscriptions that had ended", n)
		}
		return nil
	}
	return &Trial{Run: run, Close: end}, bus.Settle()
}

// openInsertion is the same for an index.
func openInsertion(m peers.Matcher, present, visitors []string) (*Trial, error) {
	index, err := m.Open()
	if err != nil {
		return nil, err
	}
	if err := insert(index, present); err != nil {
		return nil, err
	}
	patterns := make([]string, len(visitors))
	for i, visitor := range visitors {
		patterns[i] = index.Pattern(visitor)
	}
	topic := index.Topic(visitors[0])
	before := index.Match(topic)
	i := 0
	run := func(n int) (Values, error) {
		start := time.Now()
		for range n {
			remove, err := index.Insert(patterns[i%len(patterns)])
			if err != nil {
				return nil, err
			}
			remove()
			i++
		}
		return Values{"pair": nsPerOp(start, n)}, nil
	}
	end := func() error {
		if after := index.Match(topic); after != before {
			return fmt.Errorf("%d matches instead of %d", after, before)
		}
		return nil
	}
	return &Trial{Run: run, Close: end}, nil
}
