package scenarios

import (
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/seed-b8032e04/pubsub/benchmarks/peers"
)

func memory(size Size) Scenario {
	n := size.Many / 10
	const burst = 200
	withQueues := append(peers.Asynchronous(), peers.Call, peers.PubsubSync, peers.EventBusSync)
	return Scenario{
		Name:  "memory",
		Title: "Memory and goroutines of an idle subscription",
		About: fmt.Sprintf("Heap and stacks that %s add, each of another pattern, divided by their number; its pattern is included. "+
			"Then the same after %d messages to each have been handled, for those that keep a queue.", plural(n, "subscription"), burst),
		Figures: []Figure{{Name: "memory", Unit: "B"}, {Name: "goroutines", Unit: "goroutines"}},
		Ops:     1,
		Passes:  2,
		Cases: []Case{
			{Name: "idle", X: float64(n),
				Contenders: contenders(withQueues, func(p peers.Peer) (*Trial, error) {
					return openIdle(p, n, 0)
				})},
			{Name: "after a burst", X: float64(n),
				Contenders: contenders([]peers.Peer{peers.Channel, peers.Pubsub, peers.Cskr}, func(p peers.Peer) (*Trial, error) {
					return openIdle(p, n, burst)
				})},
		},
	}
}

// footprint is what a bus and its subscriptions take.
type footprint struct {
	bytes      float64
	goroutines float64
}

// measureFootprint collects garbage twice: what a finalizer or a pool holds goes
// with the second.
func measureFootprint() footprint {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return footprint{bytes: float64(m.HeapAlloc + m.StackInuse), goroutines: float64(runtime.NumGoroutine())}
}

// values are what was added since, for each of n.
func (f footprint) values(since footprint, n int) Values {
	return Values{
		"memory":     (f.bytes - since.bytes) / float64(n),
		"goroutines": max(0, f.goroutines-since.goroutines) / float64(n),
	}
}

func idleTopic(i int) string { return "tenant." + strconv.Itoa(i) + ".orders.created" }

func openIdle(p peers.Peer, n, burst int) (*Trial, error) {
	bus, err := p.Open()
	if err != nil {
		return nil, err
	}
	payload := peers.NewPayload(0, nil)
	var handled atomic.Int64
	h := func(uint64, []byte) { handled.Add(1) }
	publish := func(topics, each int) error {
		want := handled.Load() + int64(topics*each)
		for i := range topics {
			topic := idleTopic(i)
			for range each {
				if err := bus.Publish(topic, &payload); err != nil {
					return err
				}
			}
		}
		return poll(&handled, want)
	}
	subscribed := false
	run := func(int) (Values, error) {
		if subscribed {
			return nil, fmt.Errorf("memory is measured once")
		}
		subscribed = true
		before := measureFootprint()
		for i := range n {
			if _, err := bus.Subscribe(idleTopic(i), h); err != nil {
				return nil, err
			}
		}
		if err := bus.Settle(); err != nil {
			return nil, err
		}
		if burst > 0 {
			if err := publish(n, burst); err != nil {
				return nil, err
			}
			time.Sleep(20 * time.Millisecond) // workers end after their last message
		}
		return measureFootprint().values(before, n), nil
	}
	// They are alive: some get one more, where topics tell them apart.
	end := func() error {
		if p.Traits.Topics {
			if err := publish(min(n, 20), 1); err != nil {
				return err
			}
		}
		return bus.Close()
	}
	return &Trial{Run: run, Close: end}, nil
}

// poll waits until as many were handled as wanted, and fails when it was more.
func poll(handled *atomic.Int64, want int64) error {
	for deadline := time.Now().Add(patience); handled.Load() < want; time.Sleep(200 * time.Microsecond) {
		if time.Now().After(deadline) {
			break
		}
	}
	if got := handled.Load(); got != want {
		return fmt.Errorf("%d messages handled instead of %d", got, want)
	}
	return nil
}
