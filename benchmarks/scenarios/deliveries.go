package scenarios

import (
	"fmt"
	"sync"

	"github.com/seed-b8032e04/pubsub/benchmarks/peers"
)

// deliveriesPerRound is how many deliveries are under way at a time where a
// peer has no limit of its own.
const deliveriesPerRound = 20_000

// roundOf keeps a round well above a queue's length, so that queues fill.
func roundOf(subscribers int) int { return max(min(deliveriesPerRound/subscribers, 10_000), 200) }

func synchronous() Scenario {
	s := Scenario{
		Name:  "sync",
		Title: "Synchronous publish",
		About: "One publisher, one hot topic; handlers run in the publisher's goroutine. " +
			"Time of a publish, its handlers included.",
		Figures: publishFigure, Baseline: peers.Call.Name,
	}
	for _, n := range []int{1, 10} {
		s.Cases = append(s.Cases, Case{
			Name: plural(n, "subscriber"), X: float64(n),
			Contenders: contenders(peers.Synchronous(), func(p peers.Peer) (*Trial, error) {
				return deliver(plan{peer: p, patterns: repeat(n)})
			}),
		})
	}
	return s
}

func asynchronous() Scenario {
	s := Scenario{
		Name:  "async",
		Title: "Asynchronous, lossless, end to end",
		About: "One publisher, one hot topic; each subscriber has a queue of 128 and a goroutine. " +
			"Time until all deliveries were handled, divided by publishes.",
		Figures: publishFigure, Baseline: peers.Channel.Name,
	}
	for _, n := range []int{1, 10, 100, 1000} {
		s.Cases = append(s.Cases, Case{
			Name: plural(n, "subscriber"), X: float64(n),
			Contenders: contenders(peers.Asynchronous(), func(p peers.Peer) (*Trial, error) {
				return deliver(plan{peer: p, patterns: repeat(n), batch: roundOf(n)})
			}),
		})
	}
	return s
}

func stuck() Scenario {
	s := Scenario{
		Name:  "stuck",
		Title: "Publish past a stuck subscriber",
		About: "One publisher and two subscribers of one topic, used so that a full subscriber stops nobody. " +
			"Time until the first has handled all, divided by publishes, while the second is healthy and while its handler never returns. " +
			"Peers that are missing stop everyone.",
		Figures: publishFigure,
	}
	for _, name := range []string{"healthy", "stuck"} {
		s.Cases = append(s.Cases, Case{
			Name: name,
			Contenders: contenders(peers.Unstoppable(), func(p peers.Peer) (*Trial, error) {
				return publishPast(p, name == "stuck")
			}),
		})
	}
	return s
}

// publishPast keeps what is under way to less than a queue, so that the healthy
// subscriber loses nothing.
func publishPast(p peers.Peer, stuck bool) (*Trial, error) {
	release := make(chan struct{})
	neighbour := func(uint64, []byte) {}
	if stuck {
		neighbour = func(uint64, []byte) { <-release }
	}
	return deliver(plan{
		peer: p, patterns: repeat(1), batch: peers.QueueSize / 2,
		extra: neighbour, release: sync.OnceFunc(func() { close(release) }),
	})
}

func parallel() Scenario {
	s := Scenario{
		Name:  "parallel",
		Title: "Parallel publishers",
		About: "Several publishers share one topic with one subscriber, or each has a topic and a subscriber of its own. " +
			"Asynchronous, lossless; time until all was handled, divided by all publishes.",
		Figures: publishFigure, Baseline: peers.Channel.Name,
	}
	own := []peers.Peer{peers.Channel, peers.Pubsub, peers.Cskr, peers.EventBusTransactional}
	for _, n := range []int{2, 4, 8} {
		s.Cases = append(s.Cases, Case{
			Name: fmt.Sprintf("%d publishers", n), X: float64(n),
			Contenders: contenders(peers.Asynchronous(), func(p peers.Peer) (*Trial, error) {
				return deliver(plan{peer: p, patterns: repeat(1), publishers: n, batch: roundOf(1)})
			}),
		})
	}
	for _, n := range []int{2, 4, 8} {
		s.Cases = append(s.Cases, Case{
			Name: fmt.Sprintf("%d, own topics", n), X: float64(n),
			Contenders: contenders(own, func(p peers.Peer) (*Trial, error) {
				return deliver(plan{peer: p, patterns: repeat(1), publishers: n, ownTopics: true, batch: roundOf(1)})
			}),
		})
	}
	return s
}

func payloads() Scenario {
	s := Scenario{
		Name:  "payload",
		Title: "Payload sizes",
		About: "One publisher, one subscriber, asynchronous, end to end. " +
			"Peers that take any value carry a pointer, whatever it points to; the others carry bytes, encoded beforehand.",
		Figures: publishFigure, Baseline: peers.Channel.Name,
	}
	for _, size := range []int{0, 256, 4 << 10, 64 << 10} {
		// Rounds of at most 8 MiB, and always less than the ring of payloads.
		batch := min(roundOf(1), (8<<20)/max(size, 1))
		s.Cases = append(s.Cases, Case{
			Name: count(size) + " bytes", X: float64(size),
			Contenders: contenders(
				[]peers.Peer{peers.Channel, peers.Pubsub, peers.Cskr, peers.NATS, peers.WatermillAcked},
				func(p peers.Peer) (*Trial, error) {
					return deliver(plan{peer: p, patterns: repeat(1), body: size, batch: batch})
				}),
		})
	}
	return s
}
