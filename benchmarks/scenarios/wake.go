package scenarios

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-b8032e04/pubsub/benchmarks/peers"
)

// wakePeriod is long enough for the subscriber to have parked and, where a
// worker ends when its queue is empty, for it to have ended. An idle Go process
// sleeps no shorter on Linux.
const wakePeriod = time.Millisecond

func wake() Scenario {
	return Scenario{
		Name:  "wake",
		Title: "Idle wake",
		About: fmt.Sprintf("A publisher that sleeps %v before each message, and one idle subscriber. "+
			"Time from before the publish to the first line of the handler. The publisher parks: a spinning one would hold a core.", wakePeriod),
		Figures:  []Figure{{"p50", "ns"}, {"p99", "ns"}},
		Baseline: peers.Channel.Name,
		Ops:      600,
		Cases: []Case{{
			Name: "1 subscriber", X: 1,
			Contenders: contenders(peers.Asynchronous(), func(p peers.Peer) (*Trial, error) {
				return openWake(p)
			}),
		}},
	}
}

// waker has a slot for each message of a turn.
type waker struct {
	bus     peers.Bus
	ring    []peers.Payload
	sent    []time.Time
	latency []time.Duration
	handled atomic.Int64
	all     *rendezvous
	want    atomic.Int64
}

func openWake(p peers.Peer) (*Trial, error) {
	bus, err := p.Open()
	if err != nil {
		return nil, err
	}
	w := &waker{bus: bus, ring: newRing(0, 0), all: newRendezvous()}
	w.sent = make([]time.Time, len(w.ring))
	w.latency = make([]time.Duration, len(w.ring))
	if _, err := bus.Subscribe(hotTopic, w.handle); err != nil {
		return nil, err
	}
	return &Trial{Run: w.run, Close: w.close}, bus.Settle()
}

func (w *waker) handle(seq uint64, _ []byte) {
	now := time.Now()
	w.latency[seq] += now.Sub(w.sent[seq])
	if w.handled.Add(1) == w.want.Load() {
		w.all.arrive()
	}
}

func (w *waker) run(n int) (Values, error) {
	var latencies []time.Duration
	for left := n; left > 0; left -= len(w.ring) {
		turn, err := w.turn(min(left, len(w.ring)))
		if err != nil {
			return nil, err
		}
		latencies = append(latencies, turn...)
	}
	slices.Sort(latencies)
	if latencies[0] <= 0 {
		return nil, errors.New("a message was lost and another doubled")
	}
	return Values{
		"p50": float64(latencies[n/2].Nanoseconds()),
		"p99": float64(latencies[n*99/100].Nanoseconds()),
	}, nil
}

// turn sends so many messages and returns how long each took to be handled.
func (w *waker) turn(n int) ([]time.Duration, error) {
	clear(w.latency)
	w.all.missing.Store(1)
	w.want.Store(w.handled.Load() + int64(n))
	for i := range n {
		time.Sleep(wakePeriod)
		w.sent[i] = time.Now()
		if err := w.bus.Publish(hotTopic, &w.ring[i]); err != nil {
			return nil, err
		}
	}
	return w.latency[:n], w.all.wait()
}

func (w *waker) close() error {
	if err := w.bus.Close(); err != nil {
		return err
	}
	if w.handled.Load() != w.want.Load() {
		return fmt.Errorf("%d messages handled, %d published", w.handled.Load(), w.want.Load())
	}
	return nil
}
