package pubsub

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// allocates checks how many allocations a publish to a hot topic makes at most, when
// settle is called after each. AllocsPerRun rounds down: of publishes in batches, one
// allocation in twenty is still seen. What something else in the process allocates
// meanwhile does not count: such a thing is not there every time.
func (r *rig) allocates(most float64, ctx context.Context, topic string, settle func()) {
	r.Helper()
	const batch = 20
	payload := new(int)
	publishes := func() {
		for range batch {
			if _, err := r.Publish(ctx, topic, payload); err != nil {
				r.Error(err)
			}
			settle()
		}
	}
	for range 5 { // All that grows has grown then: queues, the dead letters' ring.
		publishes()
	}
	var got float64
	for range 5 {
		if got = testing.AllocsPerRun(10, publishes) / batch; got <= most {
			return
		}
	}
	require.LessOrEqual(r, got, most)
}

// allocationRig returns a broker outside of a bubble whose ring of dead letters is soon full.
func allocationRig(t *testing.T, opts ...Option) *rig {
	return &rig{T: t, Broker: New(append(opts, WithDeadLetterCapacity(50))...)}
}

// settled waits until the workers of all subscriptions have ended, so that the next
// publish starts them again.
func (r *rig) settled(subs []*Subscription) {
	for _, s := range subs {
		for active := true; active; {
			s.mu.Lock()
			active = s.queue.active
			s.mu.Unlock()
			if active {
				runtime.Gosched()
			}
		}
	}
}

// For a topic whose route is cached and a ctx that carries nothing, Publish allocates
// nothing when no queue takes the message, and at most the message when queues do.
func TestAllocation(t *testing.T) {
	nothing := func() {}
	ignore := func(context.Context, Message) error { return nil }
	backgrounds := map[string]context.Context{"Background": context.Background(), "TODO": context.TODO(), "nil": nil}
	for name, ctx := range backgrounds {
		t.Run("nothing without a subscriber: "+name, func(t *testing.T) {
			r := allocationRig(t)
			r.on("other", ignore)
			r.allocates(0, ctx, "orders.created.eu", nothing)
		})
		for _, n := range []int{1, 10} {
			t.Run(fmt.Sprintf("nothing with %d synchronous subscribers: %s", n, name), func(t *testing.T) {
				r := allocationRig(t)
				for i := range n {
					r.on([]string{"orders.*.eu", "#", "orders.created.eu"}[i%3], ignore, WithSync())
				}
				r.allocates(0, ctx, "orders.created.eu", nothing)
			})
		}
		for _, n := range []int{1, 10, 100} {
			if n == 100 && ctx != context.Background() {
				continue
			}
			t.Run(fmt.Sprintf("the message with %d queues, the workers' start included: %s", n, name), func(t *testing.T) {
				r := allocationRig(t)
				var subs []*Subscription
				for i := range n {
					subs = append(subs, r.on("orders.#", ignore, WithDropPolicy(DropPolicy(i%3))))
				}
				r.on("orders.#", ignore, WithSync())
				r.allocates(1, ctx, "orders.created.eu", func() { r.settled(subs) })
				require.NoError(t, r.Flush(context.Background()))
				require.Equal(t, r.Stats().Matched, r.Stats().Delivered)
			})
		}
	}
	t.Run("nothing for several topics in turn", func(t *testing.T) {
		r := apart(t, nil, "orders.created", "orders.paid")
		r.on("orders.#", ignore, WithSync())
		r.allocates(0, context.Background(), "orders.created", func() {
			_, _ = r.Publish(context.Background(), "orders.paid", nil)
		})
	})
	for _, n := range []int{1, 10} {
		for policy, most := range map[DropPolicy]float64{DropNewest: 0, DropOldest: 1} {
			if n == 1 {
				most = 0 // The message that a lone queue evicts makes room for the new one.
			}
			for announced, opts := range map[string][]Option{
				"":            nil,
				", announced": {WithDeadLetterHandler(func(DeadLetter) {})},
			} {
				if opts != nil && n > smallBuffer {
					continue // So many letters at once make the announcements' queue grow.
				}
				t.Run(fmt.Sprintf("at most %v with %d full queues, %s%s", most, n, policy, announced), func(t *testing.T) {
					r := allocationRig(t, opts...)
					stuck := make(chan struct{})
					var subs []*Subscription
					for range n {
						subs = append(subs, r.on("orders.#", func(context.Context, Message) error {
							<-stuck
							return nil
						}, WithQueueSize(3), WithDropPolicy(policy)))
					}
					r.on("orders.#", ignore, WithSync())
					r.allocates(most, context.Background(), "orders.created.eu", func() {
						for !r.deadLetters.announced() {
							runtime.Gosched()
						}
					})
					for _, s := range subs {
						require.Greater(t, s.Stats().Dropped, uint64(250), "not full: this tests nothing")
					}
					close(stuck)
					require.NoError(t, r.Shutdown(context.Background()))
				})
			}
		}
	}
	t.Run("nothing for a lone queue that is kept busy", func(t *testing.T) {
		r := allocationRig(t)
		s := r.on("orders.#", ignore)
		r.pub("orders.created.eu", nil)
		r.allocates(0, context.Background(), "orders.created.eu", runtime.Gosched)
		require.NoError(t, r.Flush(context.Background()))
		require.Zero(t, s.Stats().Dropped)
	})
	t.Run("the message while it waits for room, again and again", func(t *testing.T) {
		r := allocationRig(t)
		s := r.on("orders.#", ignore, WithQueueSize(2), WithDropPolicy(Block))
		waited := 0
		r.allocates(1, context.Background(), "orders.created.eu", func() {
			s.mu.Lock()
			if s.queue.spare != nil { // What it waited with.
				waited++
			}
			s.mu.Unlock()
		})
		require.Greater(t, waited, 200, "it seldom waited: this tests nothing")
		require.NoError(t, r.Shutdown(context.Background()))
	})
	t.Run("one more for each handler's ctx when the publisher's carries something", func(t *testing.T) {
		ctx := withValue(context.Background())
		r := allocationRig(t)
		r.on("sync", ignore, WithSync())
		r.on("sync", ignore, WithSync())
		r.allocates(1, ctx, "sync", nothing) // For all synchronous handlers.
		const n = 10
		var subs []*Subscription
		for range n {
			subs = append(subs, r.on("async", ignore))
		}
		r.allocates(1+n, ctx, "async", func() { r.settled(subs) })
	})
}
