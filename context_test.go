package pubsub

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

type valueKey struct{}

// publishers are contexts that a publisher may have, with the value "v" of valueKey,
// and a function that ends them.
var publishers = map[string]func() (ctx context.Context, end func()){
	"WithCancel": func() (context.Context, func()) {
		return context.WithCancel(withValue(context.Background()))
	},
	"WithCancelCause": func() (context.Context, func()) {
		ctx, cancel := context.WithCancelCause(withValue(context.Background()))
		return ctx, func() { cancel(errFault) }
	},
	"a value over WithCancelCause": func() (context.Context, func()) {
		ctx, cancel := context.WithCancelCause(context.Background())
		return withValue(ctx), func() { cancel(errFault) }
	},
	"WithTimeout": func() (context.Context, func()) {
		ctx, cancel := context.WithTimeoutCause(withValue(context.Background()), time.Second, errFault)
		return ctx, func() { time.Sleep(2 * time.Second); cancel() }
	},
	"a deadline that has passed": func() (context.Context, func()) {
		return context.WithDeadline(withValue(context.Background()), time.Now().Add(-time.Second))
	},
	"a type that is not comparable": func() (context.Context, func()) {
		ctx, cancel := context.WithCancel(withValue(context.Background()))
		return notComparable{ctx, nil}, cancel
	},
	"another handler's": func() (context.Context, func()) {
		s, _ := New().Subscribe("a", func(context.Context, Message) error { return nil })
		ctx := s.callContext(&envelope{ctx: withValue(context.Background())})
		return ctx, s.Unsubscribe
	},
}

func withValue(ctx context.Context) context.Context { return context.WithValue(ctx, valueKey{}, "v") }

// ended says that ctx is done, and alive that it is not, and in each way in which a
// context can.
func ended(t require.TestingT, ctx context.Context, cause error) {
	select {
	case <-ctx.Done():
	default:
		require.FailNow(t, "Done is not closed")
	}
	require.Equal(t, context.Canceled, ctx.Err())
	require.Equal(t, cause, context.Cause(ctx))
}

func alive(t require.TestingT, ctx context.Context) {
	select {
	case <-ctx.Done():
		require.FailNow(t, "Done is closed")
	default:
	}
	require.NoError(t, ctx.Err())
	require.NoError(t, context.Cause(ctx))
}

// An asynchronous handler's ctx has the publisher's values and follows the
// subscription alone; a synchronous one's is the publisher's.
func TestContext(t *testing.T) {
	// Each ends a subscription one of whose calls runs.
	ends := map[string]func(r *rig, s *Subscription){
		"Unsubscribe":               func(_ *rig, s *Subscription) { s.Unsubscribe() },
		"Close":                     func(r *rig, _ *Subscription) { _ = r.Close() },
		"a Drain whose ctx ended":   func(_ *rig, s *Subscription) { _ = s.Drain(canceled()) },
		"a Shutdown whose ctx ends": func(r *rig, _ *Subscription) { _ = r.Shutdown(canceled()) },
	}
	for kind, publisher := range publishers {
		for how, end := range ends {
			inBubble(t, "values of the publisher, end of the subscription: "+kind+", "+how, func(r *rig) {
				gate := r.turnstile()
				var calls []context.Context
				s := r.on("a", func(ctx context.Context, msg Message) error {
					calls = append(calls, ctx)
					return gate.handle(ctx, msg)
				}, WithDropPolicy(Block))
				ctx, endPublisher := publisher()
				for range 2 {
					_, err := r.Publish(ctx, "a", nil)
					require.NoError(r, err)
				}
				r.pub("a", nil)
				endPublisher()
				gate.let() // The second call starts after the publisher's end.
				require.Len(r, calls, 2)
				derived := make([]context.Context, 0, 3*len(calls))
				var stopped atomic.Int64
				for _, call := range calls {
					alive(r, call)
					_, has := call.Deadline()
					require.False(r, has)
					require.Equal(r, "v", call.Value(valueKey{}))
					child, cancel := context.WithCancel(call)
					defer cancel()
					grandchild, cancel := context.WithTimeout(context.WithValue(child, new(int), 1), time.Hour)
					defer cancel()
					require.Equal(r, "v", grandchild.Value(valueKey{}))
					context.AfterFunc(call, func() { stopped.Add(1) })
					derived = append(derived, child, grandchild)
				}
				synctest.Wait()
				require.Zero(r, stopped.Load())
				end(r, s)
				synctest.Wait()
				require.EqualValues(r, len(calls), stopped.Load())
				for _, ctx := range append(derived, calls...) {
					ended(r, ctx, context.Canceled)
				}
				gate.open()
				<-s.Done()

				// Who keeps it can go on using it.
				for _, call := range calls {
					ended(r, call, context.Canceled)
					require.Equal(r, "v", call.Value(valueKey{}))
					child, cancel := context.WithCancel(call)
					defer cancel()
					ended(r, child, context.Canceled)
				}
			})
		}
	}
	for kind, drain := range map[string]func(r *rig, s *Subscription){
		"Drain":        func(r *rig, s *Subscription) { require.NoError(r, s.Drain(context.Background())) },
		"Shutdown":     func(r *rig, _ *Subscription) { require.NoError(r, r.Shutdown(context.Background())) },
		"max messages": func(_ *rig, s *Subscription) { <-s.Done() },
	} {
		for _, publisher := range []context.Context{nil, context.Background(), withValue(context.Background())} {
			inBubble(t, "done when the subscription ends, not when it starts to drain: "+kind, func(r *rig) {
				gate := r.turnstile()
				var calls []context.Context
				s := r.on("a", func(ctx context.Context, msg Message) error {
					calls = append(calls, ctx)
					err := gate.handle(ctx, msg)
					alive(r, ctx)
					return err
				}, WithMaxMessages(3))
				for range 3 {
					_, err := r.Publish(publisher, "a", nil)
					require.NoError(r, err)
				}
				go drain(r, s)
				synctest.Wait()
				for range 3 {
					alive(r, calls[len(calls)-1])
					gate.let()
				}
				<-s.Done()
				require.Len(r, calls, 3)
				for _, ctx := range calls {
					ended(r, ctx, context.Canceled)
				}
				require.Zero(r, s.Stats().Failed)
			})
		}
	}
	inBubble(t, "each subscription has its own, of one message too", func(r *rig) {
		var calls [2]context.Context
		var subs [2]*Subscription
		for i := range subs {
			subs[i] = r.on("a", func(ctx context.Context, _ Message) error { calls[i] = ctx; return nil })
		}
		_, err := r.Publish(withValue(context.Background()), "a", nil)
		require.NoError(r, err)
		synctest.Wait()
		subs[0].Unsubscribe()
		ended(r, calls[0], context.Canceled)
		alive(r, calls[1])
		subs[1].Unsubscribe()
		ended(r, calls[1], context.Canceled)
	})
	for kind, publisher := range publishers {
		inBubble(t, "a synchronous handler's is the publisher's: "+kind, func(r *rig) {
			ctx, end := publisher()
			calls := 0
			s := r.on("a", func(call context.Context, _ Message) error {
				calls++
				require.Equal(r, ctx.Done(), call.Done())
				require.Equal(r, ctx.Err(), call.Err())
				require.Equal(r, "v", call.Value(valueKey{}))
				at, has := ctx.Deadline()
				callAt, callHas := call.Deadline()
				require.Equal(r, has, callHas)
				require.Equal(r, at, callAt)
				end()
				require.Error(r, call.Err())
				require.Equal(r, ctx.Err(), call.Err())
				require.Equal(r, context.Cause(ctx), context.Cause(call))
				child, cancel := context.WithCancel(call)
				defer cancel()
				require.Equal(r, ctx.Err(), child.Err())
				require.Equal(r, context.Cause(ctx), context.Cause(child))
				return nil
			}, WithSync())
			_, err := r.Publish(ctx, "a", nil)
			require.NoError(r, err)
			require.Equal(r, SubscriptionStats{Matched: 1, Delivered: 1}, s.Stats())
			require.Equal(r, 1, calls)
		})
	}
	for kind, publisher := range publishers {
		inBubble(t, "deriving from an asynchronous handler's starts no goroutine: "+kind, func(r *rig) {
			const n = 200
			started := n
			ctx, end := publisher()
			defer end()
			s := r.on("a", func(ctx context.Context, _ Message) error {
				before := runtime.NumGoroutine()
				for range n / 4 {
					c1, cancel1 := context.WithCancel(ctx)
					c2, cancel2 := context.WithTimeout(withValue(ctx), time.Hour)
					c3, cancel3 := context.WithCancelCause(c2)
					stop := context.AfterFunc(ctx, func() {})
					defer func() { cancel1(); cancel2(); cancel3(nil); stop() }()
					_, _ = c1, c3
				}
				started = runtime.NumGoroutine() - before
				return nil
			})
			_, err := r.Publish(ctx, "a", nil)
			require.NoError(r, err)
			synctest.Wait()
			require.EqualValues(r, 1, s.Stats().Delivered)
			require.Less(r, started, n/8)
		})
	}
	inBubble(t, "nil is a ctx that carries nothing", func(r *rig) {
		var none context.Context
		var async, sync context.Context
		s := r.on("a", func(ctx context.Context, _ Message) error { async = ctx; return nil })
		r.on("a", func(ctx context.Context, _ Message) error { sync = ctx; return nil }, WithSync())
		full, gate := r.full("full", Block)
		_, err := r.Publish(none, "a", nil)
		require.NoError(r, err)
		go func() {
			time.Sleep(time.Second)
			gate.open()
		}()
		_, err = r.Publish(none, "full", nil)
		require.NoError(r, err)
		require.NoError(r, r.Flush(none))
		for _, ctx := range []context.Context{async, sync} {
			require.NotNil(r, ctx)
			require.Nil(r, ctx.Value(valueKey{}))
			alive(r, ctx)
		}
		require.NoError(r, s.Drain(none))
		require.NoError(r, r.Shutdown(none))
		require.EqualValues(r, 3, full.Stats().Delivered)
	})
	inBubble(t, "a chain of hops does not grow the ctx", hops)
}

// Regression: each hop's ctx kept the one before alive, for its values.
func hops(r *rig) {
	for _, publisher := range []context.Context{context.Background(), &deep{Context: context.Background()}} {
		const n = 1000
		hop, depth := 0, 0
		var last context.Context
		relay := func(to string, payload any) Handler {
			return func(ctx context.Context, _ Message) error {
				last = ctx
				if d, ok := ctx.Value(valueKey{}).(int); ok {
					depth = d
				}
				if hop++; hop == n {
					return nil
				}
				_, err := r.Publish(ctx, to, payload)
				return err
			}
		}
		subs := []*Subscription{
			r.on("a", relay("b", nil)), r.on("b", relay("c", nil)), r.on("c", relay("a", nil), WithSync()),
		}
		_, err := r.Publish(publisher, "a", nil)
		require.NoError(r, err)
		synctest.Wait()
		require.Equal(r, n, hop)
		if publisher != context.Background() {
			require.NotZero(r, depth, "the value is lost")
		}
		require.Less(r, depth, 100)
		for ctx, links := last, 0; ctx != nil; links++ {
			require.Less(r, links, 10, "contexts are kept")
			c, ok := ctx.(*call)
			if !ok {
				break
			}
			if ctx = c.values; c.subscription == nil {
				ctx = c.Context
			}
		}
		for _, s := range subs {
			s.Unsubscribe()
		}
	}
}

// deep is a ctx whose value is how deep in the stack it is asked.
type deep struct{ context.Context }

func (d *deep) Value(key any) any {
	if key == (valueKey{}) {
		return runtime.Callers(0, make([]uintptr, 10_000))
	}
	return nil
}

// Regression guard: a ctx may be of a type that panics when it is compared.
func TestContextTypeNotComparable(t *testing.T) {
	require.Panics(t, func() {
		var a, b any = notComparable{}, notComparable{}
		_ = a == b
	})
	ctx := notComparable{context.Background(), nil}
	r := &rig{T: t, Broker: New()}
	s := r.on("a", func(ctx context.Context, _ Message) error {
		_, err := r.Publish(notComparable{ctx, nil}, "b", nil)
		return errors.Join(err, ctx.Err())
	})
	r.on("b", func(context.Context, Message) error { return nil }, WithDropPolicy(Block))
	r.on("#", func(context.Context, Message) error { return nil }, WithSync())
	_, err := r.Publish(ctx, "a", nil)
	require.NoError(t, err)
	require.NoError(t, r.Flush(ctx))
	require.NoError(t, s.Drain(ctx))
	require.NoError(t, r.Shutdown(ctx))
	require.EqualValues(t, 4, r.Stats().Delivered)
}

// What is done wins over a ctx that is done too, also when both end at once.
func TestWaitPrefersWhatIsDone(t *testing.T) {
	for range 100 {
		done := make(chan struct{})
		require.Equal(t, context.Canceled, wait(canceled(), done))
		// Asked for its channel, the ctx has what is waited for end as well.
		require.NoError(t, wait(nosy{canceled(), func() {
			if done != nil {
				close(done)
				done = nil
			}
		}}, done))
		done = make(chan struct{})
		close(done)
		require.NoError(t, wait(canceled(), done))
	}
}
