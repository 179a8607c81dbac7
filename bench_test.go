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

// BenchmarkPublishUnrouted is a publish that nobody is subscribed to.
func BenchmarkPublishUnrouted(b *testing.B) {
	broker := New()
	b.ReportAllocs()
	for b.Loop() {
		mustPublish(b, broker, hot)
	}
	if st := broker.Stats(); st.Unrouted != uint64(b.N) {
		b.Fatalf("%d of %d unrouted", st.Unrouted, b.N)
	}
}

// crowd subscribes n times to patterns that the hot topic does not match.
func crowd(b *testing.B, broker *Broker, n int) {
	b.Helper()
	handler := func(context.Context, Message) error { return nil }
	for i := range n {
		if _, err := broker.Subscribe(fmt.Sprintf("orders.created.%d", i), handler); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPublishAmongMany is a publish that three subscriptions match among ever more
// that do not: to one hot topic, and to topics that the cache has never seen, which is
// what the index costs.
func BenchmarkPublishAmongMany(b *testing.B) {
	for _, n := range []int{10, 100_000} {
		for _, topics := range []int{1, 1_000_000} {
			b.Run(fmt.Sprintf("subscriptions=%d/topics=%d", n, topics), func(b *testing.B) {
				broker := New()
				all := make([]received, 3)
				subscribeAll(b, broker, "orders.#", all, WithSync())
				crowd(b, broker, n-len(all))
				names := []string{hot}
				for i := 1; i < topics; i++ {
					names = append(names, fmt.Sprintf("orders.paid.%d", i))
				}
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					mustPublish(b, broker, names[i])
					if i++; i == len(names) {
						i = 0
					}
				}
				check(b, all, b.N)
			})
		}
	}
}

// BenchmarkPublishFull is a publish to a queue that is full because its handler is
// stuck: every one is a dead letter.
func BenchmarkPublishFull(b *testing.B) {
	for _, policy := range []DropPolicy{DropOldest, DropNewest} {
		b.Run("policy="+policy.String(), func(b *testing.B) {
			broker := New()
			started, release := make(chan struct{}), make(chan struct{})
			sub, err := broker.Subscribe("orders.*.eu", func(context.Context, Message) error {
				started <- struct{}{}
				<-release
				return nil
			}, WithQueueSize(1), WithDropPolicy(policy))
			if err != nil {
				b.Fatal(err)
			}
			mustPublish(b, broker, hot)
			<-started // One runs,
			mustPublish(b, broker, hot)
			b.ReportAllocs() // one is queued, and all that follow are dropped.
			for b.Loop() {
				mustPublish(b, broker, hot)
			}
			if st := sub.Stats(); st.Dropped != uint64(b.N) {
				b.Fatalf("%d of %d dropped", st.Dropped, b.N)
			}
			sub.Unsubscribe()
			close(release)
			<-sub.Done()
		})
	}
}

// BenchmarkPublishParallel is a publish by all processors at once to one subscriber
// that keeps up, beside the channel baseline.
func BenchmarkPublishParallel(b *testing.B) {
	b.Run("bus=channel", func(b *testing.B) {
		var bus channelBus
		n := 0
		bus.subscribe(hot, func(Message) { n++ })
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				bus.publish(hot, nil)
			}
		})
		bus.close()
		if n != b.N {
			b.Fatalf("%d of %d messages", n, b.N)
		}
	})
	b.Run("bus=pubsub", func(b *testing.B) {
		broker := New()
		n := 0
		_, err := broker.Subscribe(hot, func(context.Context, Message) error {
			n++
			return nil
		}, WithDropPolicy(Block))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := broker.Publish(context.Background(), hot, nil); err != nil {
					b.Error(err)
				}
			}
		})
		if err := broker.Shutdown(context.Background()); err != nil {
			b.Fatal(err)
		}
		if n != b.N {
			b.Fatalf("%d of %d messages", n, b.N)
		}
	})
}

// BenchmarkSubscribe is one subscribe and unsubscribe beside others: with a pattern of
// its own, and with the pattern that all have.
func BenchmarkSubscribe(b *testing.B) {
	handler := func(context.Context, Message) error { return nil }
	for _, n := range []int{10, 100_000} {
		for _, pattern := range []string{"own", "shared"} {
			b.Run(fmt.Sprintf("subscriptions=%d/pattern=%s", n, pattern), func(b *testing.B) {
				broker := New()
				if pattern == "own" {
					crowd(b, broker, n)
				} else {
					subscribeAll(b, broker, "shared", make([]received, n), WithSync())
				}
				b.ReportAllocs()
				for b.Loop() {
					sub, err := broker.Subscribe(pattern, handler)
					if err != nil {
						b.Fatal(err)
					}
					sub.Unsubscribe()
				}
				if st := broker.Stats(); st.Subscriptions != n {
					b.Fatalf("%d of %d subscriptions left", st.Subscriptions, n)
				}
			})
		}
	}
}
