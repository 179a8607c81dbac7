package pubsub

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
)

// Messages from one goroutine reach a subscription in the order published.
func TestOrder(t *testing.T) {
	for _, size := range []int{1, 3, 128, 5000} {
		for _, p := range []DropPolicy{DropOldest, DropNewest, Block} {
			t.Run(fmt.Sprintf("FIFO from each goroutine, whatever happens: queue of %d, %s", size, p), func(t *testing.T) {
				orderUnderLoad(t, WithQueueSize(size), WithDropPolicy(p))
			})
		}
	}
	inBubble(t, "FIFO through growth and the worker's exchanges", func(r *rig) {
		gate := r.turnstile()
		r.on("a", gate.handle, WithQueueSize(1000))
		var want []any
		for len(want) < 500 {
			for range 1 + len(want)%67 { // So many come in while one call runs.
				want = append(want, len(want))
				r.pub("a", len(want)-1)
			}
			synctest.Wait()
			for range len(want) % 41 {
				if len(gate.payloads()) < len(want) {
					gate.let()
				}
			}
		}
		gate.open()
		synctest.Wait()
		require.Equal(r, want, gate.payloads())
	})
	inBubble(t, "FIFO through evictions", func(r *rig) {
		gate := r.turnstile()
		r.on("a", gate.handle, WithQueueSize(3))
		for i := range 10 {
			r.pub("a", i)
			synctest.Wait()
		}
		gate.let()
		r.pub("a", 10)
		r.pub("a", 11)
		gate.open()
		synctest.Wait()
		require.Equal(r, []any{0, 7, 9, 10, 11}, gate.payloads())
		var evicted []any
		for _, l := range r.letters(7) {
			evicted = append(evicted, l.Message.Payload)
		}
		require.Equal(r, []any{1, 2, 3, 4, 5, 6, 8}, evicted)
	})
	inBubble(t, "a synchronous handler runs in its publishers' goroutines, which can overlap", func(r *rig) {
		gate := r.turnstile()
		var stack []byte
		s := r.on("a", func(ctx context.Context, msg Message) error {
			stack = make([]byte, 1<<14)
			stack = stack[:runtime.Stack(stack, false)]
			return gate.handle(ctx, msg)
		}, WithSync())
		first := r.pubLater(context.Background(), "a", 1)
		require.True(r, strings.Contains(string(stack), "pubLater"), "not the publisher's stack:\n%s", stack)
		second := r.pubLater(context.Background(), "a", 2)
		require.Equal(r, 2, s.Stats().Running)
		require.False(r, first.done() || second.done())
		gate.open()
		synctest.Wait()
		require.True(r, first.done() && second.done())
	})
	inBubble(t, "what a synchronous handler publishes can overtake the message being handled", func(r *rig) {
		var later sightings
		r.on("outer", func(ctx context.Context, _ Message) error {
			_, err := r.Publish(ctx, "inner", "inner")
			return err
		}, WithSync())
		r.on("*", later.handle, WithSync())
		r.pub("outer", "outer")
		require.Equal(r, []any{"inner", "outer"}, later.payloads())
	})
}

// orderUnderLoad sends from several goroutines to a handler that returns, fails,
// panics and exits, and checks the order, that no two calls overlap, and that every
// message was either handled or dropped, once.
func orderUnderLoad(t *testing.T, opts ...SubscribeOption) {
	const publishers, each = 3, 1200
	type numbered struct{ publisher, n int }
	r := &rig{T: t, Broker: New(WithDeadLetterCapacity(publishers * each))}
	var inside atomic.Int32
	var handled []numbered // Not guarded: calls must not overlap.
	s := r.on("a", func(ctx context.Context, msg Message) error {
		if inside.Add(1) != 1 {
			t.Error("two calls at once")
		}
		defer inside.Add(-1)
		m := msg.Payload.(numbered)
		if v := ctx.Value(valueKey{}); m.n%3 == 0 && v != m || m.n%3 != 0 && v != nil {
			t.Errorf("message %v has the ctx of %v", m, v)
		}
		handled = append(handled, m)
		switch m.n % 50 {
		case 3:
			return errors.New("fault")
		case 13:
			panic("fault")
		case 23:
			runtime.Goexit()
		case 33, 34:
			runtime.Gosched()
		}
		return nil
	}, opts...)
	var wg sync.WaitGroup
	for p := range publishers {
		wg.Go(func() {
			for n := range each {
				ctx := context.Background()
				if n%20 == 7 {
					ctx = canceled() // With Block it may give up.
				}
				if n%3 == 0 {
					ctx = context.WithValue(ctx, valueKey{}, numbered{p, n})
				}
				_, _ = r.Publish(ctx, "a", numbered{p, n})
				if n%100 == 50 {
					runtime.Gosched()
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, r.Flush(context.Background()))

	var last [publishers]int
	times := map[numbered]int{}
	for _, m := range handled {
		times[m]++
		require.GreaterOrEqual(t, m.n, last[m.publisher], "overtaken")
		last[m.publisher] = m.n
	}
	var lastDropped [publishers]int
	for _, l := range r.DeadLetters().Take() {
		m := l.Message.Payload.(numbered)
		switch l.Reason {
		case ReasonError:
			require.Equal(t, 3, m.n%50)
		case ReasonPanic:
			require.Equal(t, 13, m.n%50)
		case ReasonGoexit:
			require.Equal(t, 23, m.n%50)
		default:
			times[m]++
			require.GreaterOrEqual(t, m.n, lastDropped[m.publisher], "dropped in another order")
			lastDropped[m.publisher] = m.n
		}
	}
	for p := range publishers {
		for n := range each {
			require.Equal(t, 1, times[numbered{p, n}], "message %d of publisher %d", n, p)
		}
	}
	st := s.Stats()
	require.EqualValues(t, publishers*each, st.Matched)
	require.EqualValues(t, len(handled), st.Delivered+st.Failed)
}

// A copy that finds its subscription ended, draining or full of its n was not
// matched.
func TestLateCopies(t *testing.T) {
	modes := map[string]SubscribeOption{
		"drop_oldest": WithDropPolicy(DropOldest),
		"drop_newest": WithDropPolicy(DropNewest),
		"block":       WithDropPolicy(Block),
		"synchronous": WithSync(),
	}
	ends := map[string]func(r *rig, s *Subscription, running context.Context){
		"ended":         func(_ *rig, s *Subscription, _ context.Context) { s.Unsubscribe() },
		"draining":      func(r *rig, s *Subscription, ctx context.Context) { require.Equal(r, ErrInHandler, s.Drain(ctx)) },
		"full of its n": func(r *rig, _ *Subscription, _ context.Context) { r.pubLater(context.Background(), "a", "n-th") },
	}
	for mode, opt := range modes {
		for how, end := range ends {
			var clock hook
			inBubble(t, how+", "+mode, func(r *rig) {
				gate := r.turnstile()
				var running context.Context
				s := r.on("a", func(ctx context.Context, msg Message) error {
					running = ctx
					return gate.handle(ctx, msg)
				}, opt, WithMaxMessages(2))
				r.pubLater(context.Background(), "a", "first")
				var after SubscriptionStats
				clock.once = func() { // A Publish has looked up whom its message goes to.
					end(r, s, running)
					after = s.Stats()
				}
				r.pub("a", "late")
				require.Nil(r, clock.once, "the clock was not read: this tests nothing")
				require.Equal(r, after, s.Stats())
				require.EqualValues(r, 1, r.Stats().Unrouted, "nobody took it")
				gate.open()
				<-s.Done()
				require.NotContains(r, gate.payloads(), "late")
				require.EqualValues(r, after.Matched, s.Stats().Delivered)
				r.letters(0)

				var other sightings
				r.on("b", other.handle, WithSync())
				s = r.on("b", other.handle, opt)
				clock.once = s.Unsubscribe
				r.pub("b", nil)
				require.Len(r, other.payloads(), 1)
				require.EqualValues(r, 1, r.Stats().Unrouted, "somebody took it")
			}, WithClock(clock.now))
		}
	}
	inBubble(t, "a publisher that waits when the n-th is taken goes on, and its copy was not matched", func(r *rig) {
		gate := r.turnstile()
		s := r.on("a", gate.handle, WithQueueSize(1), WithDropPolicy(Block), WithMaxMessages(3))
		r.fill("a")
		third := r.pubLater(context.Background(), "a", "third")
		fourth := r.pubLater(context.Background(), "a", "fourth")
		fifth := r.pubLater(context.Background(), "a", "fifth")
		require.EqualValues(r, 2, s.Stats().Matched, "matched while they wait")
		gate.let()
		for _, o := range []*outcome{third, fourth, fifth} {
			require.True(r, o.done())
			require.NoError(r, o.err)
		}
		require.EqualValues(r, 3, s.Stats().Matched)
		require.EqualValues(r, 2, r.Stats().Unrouted)
		gate.open()
		<-s.Done()
		require.Equal(r, []any{"running", "queued", "third"}, gate.payloads())
		r.letters(0)
	})
	inBubble(t, "a queue that ends while its publisher waits for another", func(r *rig) {
		gate := r.turnstile()
		first := r.on("a", gate.handle, WithQueueSize(1), WithDropPolicy(Block))
		r.fill("a")
		second := r.on("a", gate.handle, WithQueueSize(1), WithDropPolicy(Block))
		o := r.pubLater(context.Background(), "a", "x")
		require.False(r, o.done())
		second.Unsubscribe()
		gate.let()
		require.True(r, o.done())
		require.EqualValues(r, 3, first.Stats().Matched)
		require.Zero(r, second.Stats().Matched)
		r.letters(0)
		gate.open()
	})
	for what, meanwhile := range map[string]func(s *Subscription, g *turnstile){
		"the end":  func(s *Subscription, _ *turnstile) { s.Unsubscribe() },
		"new room": func(_ *Subscription, g *turnstile) { g.let() },
	} {
		inBubble(t, what+" comes after the queue was found full and before the wait", func(r *rig) {
			s, gate := r.full("a", Block)
			ctx := &hook{Context: context.Background(), once: func() { meanwhile(s, gate) }}
			start := time.Now()
			_, err := r.Publish(ctx, "a", "x")
			require.NoError(r, err)
			require.Nil(r, ctx.once, "the ctx was not asked: this tests nothing")
			require.Equal(r, start, time.Now())
			gate.open()
			synctest.Wait()
			if what == "the end" {
				require.Equal(r, ReasonUnsubscribed, r.letters(1)[0].Reason, "of the one queued before")
				require.EqualValues(r, 2, s.Stats().Matched)
				require.EqualValues(r, 1, r.Stats().Unrouted)
			} else {
				require.Equal(r, []any{"running", "queued", "x"}, gate.payloads())
				require.EqualValues(r, 3, s.Stats().Delivered)
			}
		})
	}
	inBubble(t, "a copy counts when it is queued, started, refused or given up", func(r *rig) {
		newest, _ := r.full("a", DropNewest)
		block, gate := r.full("b", Block)
		r.pub("a", "refused")
		require.EqualValues(r, 3, newest.Stats().Matched)
		ctx, cancel := context.WithCancel(context.Background())
		o := r.pubLater(ctx, "b", "given up")
		require.EqualValues(r, 2, block.Stats().Matched)
		cancel()
		<-o.end
		require.EqualValues(r, 3, block.Stats().Matched)
		r.pubLater(context.Background(), "b", "queued")
		require.EqualValues(r, 3, block.Stats().Matched)
		gate.let()
		require.EqualValues(r, 4, block.Stats().Matched)
		require.Zero(r, r.Stats().Unrouted)
	})
}

// The tests of this table run with the race detector: the variables are plain.
func TestMemoryModel(t *testing.T) {
	const rounds = 100
	ctx := context.Background()
	waits := map[string]func(r *rig, s *Subscription) error{
		"Flush":    func(r *rig, _ *Subscription) error { return r.Flush(ctx) },
		"Drain":    func(_ *rig, s *Subscription) error { return s.Drain(ctx) },
		"Shutdown": func(r *rig, _ *Subscription) error { return r.Shutdown(ctx) },
		"Done": func(_ *rig, s *Subscription) error {
			<-s.Done()
			return nil
		},
	}
	for name, wait := range waits {
		t.Run("Publish before its handler, one call before the next, all before "+name, func(t *testing.T) {
			for round := range rounds {
				r := &rig{T: t, Broker: New()}
				written, read, calls := 0, 0, 0
				const messages = 5
				s := r.on("a", func(context.Context, Message) error {
					calls++
					if calls == 1 {
						read = written
					}
					switch calls % 3 { // Each ends the worker's hold in another way.
					case 1:
						panic("fault")
					case 2:
						runtime.Goexit()
					}
					return nil
				}, WithMaxMessages(messages))
				written = 1
				for range messages {
					r.pub("a", nil)
					if round%3 == 1 {
						runtime.Gosched()
					}
				}
				for round%3 == 2 && r.Stats().Running+r.Stats().Queued > 0 {
					runtime.Gosched() // Then nothing is left to wait for.
				}
				require.NoError(t, wait(r, s))
				require.Equal(t, messages, calls)
				require.Equal(t, written, read)
				calls++ // A race if a call is not before this.
			}
		})
	}
	t.Run("through a queue between two handlers", func(t *testing.T) {
		r := &rig{T: t, Broker: New()}
		passed, got := 0, 0
		r.on("a", func(ctx context.Context, _ Message) error {
			passed++
			_, err := r.Publish(ctx, "b", &passed)
			return err
		}, WithDropPolicy(Block), WithQueueSize(2))
		r.on("b", func(_ context.Context, msg Message) error {
			if msg.Payload != &passed {
				t.Error("another payload")
			}
			got++
			return nil
		}, WithDropPolicy(Block), WithQueueSize(2))
		for range rounds {
			r.pub("a", nil)
		}
		require.NoError(t, r.Flush(ctx))
		require.NoError(t, r.Flush(ctx)) // One for each hop.
		require.Equal(t, rounds, passed)
		require.Equal(t, rounds, got)
	})
}

// Bounded, for what a worker has handled: while it goes on, it keeps no payload and no
// context of before, in envelopes of a lone queue and in shared ones.
func TestHandledMessageIsNotKept(t *testing.T) {
	for _, queues := range []int{1, 2} {
		inBubble(t, fmt.Sprint(queues, " queues"), func(r *rig) {
			gates := make([]*turnstile, queues)
			for i := range gates {
				gates[i] = r.turnstile()
				r.on("a", func(ctx context.Context, msg Message) error {
					msg.Payload = nil
					return gates[i].handle(ctx, msg)
				}, WithQueueSize(2))
			}
			var kept []weak.Pointer[[64]byte]
			publish := func() {
				payload, value := new([64]byte), new([64]byte)
				kept = append(kept, weak.Make(payload), weak.Make(value))
				_, err := r.Publish(context.WithValue(context.Background(), valueKey{}, value), "a", payload)
				require.NoError(r, err)
				synctest.Wait()
			}
			for range 5 { // One runs, two are evicted, two are queued.
				publish()
			}
			for _, g := range gates {
				g.let()
				g.let()
			}
			runtime.GC()
			runtime.GC()
			for i, p := range kept[:2*4] {
				require.Nil(r, p.Value(), "payload or context value %d of message %d", i%2, i/2)
			}
			require.NotNil(r, kept[2*4].Value(), "the last one is being handled")
		}, WithDeadLetterCapacity(0))
	}
}
