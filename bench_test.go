package pubsub

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The baselines are what a service would write by hand: a map under an RWMutex, an
// id and a time, and then a direct call ("call") or a buffered channel and a
// goroutine per subscriber ("channel"). They have no wildcards, no dead letters, and
// no way to unsubscribe.

type callBus struct {
	mu     sync.RWMutex
	topics map[string][]func(Message)
	lastID atomic.Uint64
}

func (b *callBus) subscribe(topic string, h func(Message)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.topics == nil {
		b.topics = make(map[string][]func(Message))
	}
	b.topics[topic] = append(b.topics[topic], h)
}

func (b *callBus) publish(topic string, payload any) {
	b.mu.RLock()
	handlers := b.topics[topic]
	b.mu.RUnlock()
	msg := Message{ID: b.lastID.Add(1), Topic: topic, Payload: payload, Time: time.Now()}
	for _, h := range handlers {
		h(msg)
	}
}

type channelBus struct {
	mu     sync.RWMutex
	topics map[string][]chan Message
	lastID atomic.Uint64
	wg     sync.WaitGroup
}

func (b *channelBus) subscribe(topic string, h func(Message)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.topics == nil {
		b.topics = make(map[string][]chan Message)
	}
	c := make(chan Message, defaultQueueSize)
	b.topics[topic] = append(b.topics[topic], c)
	b.wg.Go(func() {
		for msg := range c {
			h(msg)
		}
	})
}

func (b *channelBus) publish(topic string, payload any) {
	b.mu.RLock()
	channels := b.topics[topic]
	b.mu.RUnlock()
	msg := Message{ID: b.lastID.Add(1), Topic: topic, Payload: payload, Time: time.Now()}
	for _, c := range channels {
		c <- msg
	}
}

// close waits until all is handled.
func (b *channelBus) close() {
	for _, channels := range b.topics {
		for _, c := range channels {
			close(c)
		}
	}
	b.wg.Wait()
}

// received counts one subscriber's messages on a cache line of its own, and checks
// their order.
type received struct {
	n, lastID uint64
	disorder  bool
	_         [104]byte
}

func (r *received) handle(msg Message) {
	r.n++
	r.disorder = r.disorder || msg.ID <= r.lastID
	r.lastID = msg.ID
}

func (r *received) handler() Handler {
	return func(_ context.Context, msg Message) error {
		r.handle(msg)
		return nil
	}
}

func check(b *testing.B, all []received, want int) {
	b.Helper()
	for i := range all {
		if all[i].n != uint64(want) || all[i].disorder {
			b.Fatalf("subscriber %d: %d of %d messages, out of order: %v", i, all[i].n, want, all[i].disorder)
		}
	}
}

func subscribeAll(b *testing.B, broker *Broker, pattern string, all []received, opts ...SubscribeOption) {
	b.Helper()
	for i := range all {
		if _, err := broker.Subscribe(pattern, all[i].handler(), opts...); err != nil {
			b.Fatal(err)
		}
	}
}

func mustPublish(b *testing.B, broker *Broker, topic string) {
	if _, err := broker.Publish(context.Background(), topic, nil); err != nil {
		b.Fatal(err)
	}
}

const hot = "orders.created.eu"

// BenchmarkPublishSync is a publish to synchronous subscribers, beside the call
// baseline.
func BenchmarkPublishSync(b *testing.B) {
	for _, n := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("bus=call/subscribers=%d", n), func(b *testing.B) {
			var bus callBus
			all := make([]received, n)
			for i := range all {
				bus.subscribe(hot, all[i].handle)
			}
			b.ReportAllocs()
			for b.Loop() {
				bus.publish(hot, nil)
			}
			check(b, all, b.N)
		})
		b.Run(fmt.Sprintf("bus=pubsub/subscribers=%d", n), func(b *testing.B) {
			broker := New()
			all := make([]received, n)
			subscribeAll(b, broker, "orders.*.eu", all, WithSync())
			b.ReportAllocs()
			for b.Loop() {
				mustPublish(b, broker, hot)
			}
			check(b, all, b.N)
		})
	}
}

// BenchmarkPublishAsync is a lossless publish to asynchronous subscribers, until the
// last has handled the last message, beside the channel baseline.
func BenchmarkPublishAsync(b *testing.B) {
	for _, n := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("bus=channel/subscribers=%d", n), func(b *testing.B) {
			var bus channelBus
			all := make([]received, n)
			for i := range all {
				bus.subscribe(hot, all[i].handle)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				bus.publish(hot, nil)
			}
			bus.close()
			b.StopTimer()
			check(b, all, b.N)
		})
		b.Run(fmt.Sprintf("bus=pubsub/subscribers=%d", n), func(b *testing.B) {
			broker := New()
			all := make([]received, n)
			subscribeAll(b, broker, "orders.*.eu", all, WithDropPolicy(Block))
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				mustPublish(b, broker, hot)
			}
			if err := broker.Shutdown(context.Background()); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			check(b, all, b.N)
		})
	}
}
