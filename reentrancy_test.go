package pubsub

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// inHandler publishes to a new subscription, whose handler calls f with its ctx, and
// returns when nothing goes on any more.
func (r *rig) inHandler(f func(ctx context.Context, own *Subscription), opts ...SubscribeOption) *Subscription {
	r.Helper()
	called := false
	var own *Subscription
	own = r.on("handler", func(ctx context.Context, _ Message) error {
		called = true
		f(ctx, own)
		return nil
	}, opts...)
	start := time.Now()
	r.pub("handler", nil)
	synctest.Wait()
	require.True(r, called)
	require.Zero(r, own.Stats().Failed, "the handler panicked: %v", r.DeadLetters().Snapshot())
	require.Equal(r, start, time.Now())
	return own
}

// derived are contexts that still lead to a handler's.
var derived = map[string]func(ctx context.Context) context.Context{
	"its own": func(ctx context.Context) context.Context { return ctx },
	"WithTimeout": func(ctx context.Context) context.Context {
		ctx, cancel := context.WithTimeout(ctx, time.Hour)
		context.AfterFunc(ctx, cancel)
		return ctx
	},
	"WithValue":             func(ctx context.Context) context.Context { return context.WithValue(ctx, new(int), 1) },
	"WithoutCancel":         func(ctx context.Context) context.Context { return context.WithoutCancel(ctx) },
	"a type not comparable": func(ctx context.Context) context.Context { return notComparable{ctx, nil} },
}

type notComparable struct {
	context.Context
	_ []int
}

// A handler may call anything; what would wait for it does not wait.
func TestReentrancy(t *testing.T) {
	modes := map[string]SubscribeOption{"asynchronous": WithName(""), "synchronous": WithSync()}
	for mode, opt := range modes {
		for kind, derive := range derived {
			inBubble(t, "Flush, Drain and Shutdown with the ctx of a handler do not wait: "+mode+", "+kind, func(r *rig) {
				gate := r.turnstile()
				busy := r.on("busy", gate.handle)
				idle := r.on("idle", gate.handle)
				for i := range 3 {
					r.pub("busy", i)
				}
				synctest.Wait()
				own := r.inHandler(func(ctx context.Context, own *Subscription) {
					ctx = derive(ctx)
					require.Equal(r, ErrInHandler, r.Flush(ctx))

					require.NoError(r, idle.Drain(ctx), "nothing is left to wait for")
					<-idle.Done()
					require.Equal(r, ErrInHandler, busy.Drain(ctx))
					require.Equal(r, ErrInHandler, own.Drain(ctx))
					require.True(r, slices.Equal([]*Subscription{busy, own}, r.Subscriptions()), "draining, and not done")
					r.pub("busy", "late")
					r.pub("handler", "late")

					require.Equal(r, ErrInHandler, r.Shutdown(ctx))
					_, err := r.Publish(ctx, "x", nil)
					require.ErrorIs(r, err, ErrClosed)
				}, opt)
				<-own.Done()
				require.Equal(r, 2, busy.Stats().Queued, "a drain discards nothing")
				gate.open()
				<-busy.Done()
				require.Equal(r, []any{0, 1, 2}, gate.payloads())
				require.EqualValues(r, 1, own.Stats().Matched)
				r.letters(0)
				require.NoError(r, r.Shutdown(context.Background()))
			})
		}
		inBubble(t, "Shutdown with the ctx of a handler starts all: "+mode, func(r *rig) {
			gate := r.turnstile()
			busy := r.on("busy", gate.handle)
			r.pub("busy", 1)
			r.pub("busy", 2)
			own := r.inHandler(func(ctx context.Context, _ *Subscription) {
				require.Equal(r, ErrInHandler, r.Shutdown(ctx))
			}, opt)
			<-own.Done()
			gate.open()
			<-busy.Done()
			require.Equal(r, []any{1, 2}, gate.payloads())
		})
		inBubble(t, "with the ctx of a handler long returned and nothing to wait for, they return nil: "+mode, func(r *rig) {
			var stale context.Context
			own := r.inHandler(func(ctx context.Context, _ *Subscription) { stale = ctx }, opt)
			for _, ctx := range []context.Context{stale, context.WithoutCancel(stale)} {
				require.NoError(r, r.Flush(ctx))
			}
			gate := r.turnstile()
			s := r.on("a", gate.handle)
			r.pub("a", nil)
			require.Equal(r, ErrInHandler, r.Flush(context.WithoutCancel(stale)), "the mark stays")
			require.Equal(r, ErrInHandler, s.Drain(stale))
			gate.open()
			<-s.Done()
			require.NoError(r, s.Drain(stale))
			require.NoError(r, own.Drain(stale))
			require.NoError(r, r.Shutdown(stale))
		})
		inBubble(t, "a handler may end its own subscription and all others: "+mode, func(r *rig) {
			other := r.on("handler", (&sightings{}).handle, WithSync())
			own := r.inHandler(func(ctx context.Context, own *Subscription) {
				own.Unsubscribe()
				require.False(r, slices.Contains(r.Subscriptions(), own))
				r.pub("handler", "again")
				require.NoError(r, r.Close())
				require.Empty(r, r.Subscriptions())
				select {
				case <-own.Done():
					r.Error("done while its call runs")
				default:
				}
			}, opt)
			<-own.Done()
			<-other.Done()
			require.EqualValues(r, 1, own.Stats().Matched)
		})
	}
	inBubble(t, "another broker's Flush, Drain and Shutdown wait", func(r *rig) {
		other := &rig{T: r.T, Broker: New()}
		gate := r.turnstile()
		s := other.on("a", gate.handle)
		other.pub("a", nil)
		returned := 0
		own := r.on("handler", func(ctx context.Context, _ Message) error {
			require.NoError(r, other.Flush(ctx))
			require.NoError(r, s.Drain(ctx))
			require.NoError(r, other.Shutdown(ctx))
			returned++
			return nil
		})
		r.pub("handler", nil)
		synctest.Wait()
		require.Equal(r, 1, own.Stats().Running)
		gate.open()
		synctest.Wait()
		require.EqualValues(r, 1, own.Stats().Delivered)
		require.Equal(r, 1, returned)
	})
	t.Run("Publish into the full queue of a handler on the chain", func(t *testing.T) { ownQueue(t) })
	for kind, derive := range derived {
		for _, via := range []string{"asynchronous", "synchronous, then asynchronous"} {
			inBubble(t, "an asynchronous call replaces the chain, so that its publisher's queue is waited for: "+via+", "+kind, func(r *rig) {
				gate := r.turnstile()
				a := r.on("a", func(ctx context.Context, msg Message) error {
					if msg.Payload == "start" {
						_, err := r.Publish(derive(ctx), via, nil)
						require.NoError(r, err)
					}
					return gate.handle(ctx, msg)
				}, WithQueueSize(1), WithDropPolicy(Block))
				r.on("synchronous, then asynchronous", func(ctx context.Context, _ Message) error {
					_, err := r.Publish(derive(ctx), "asynchronous", nil)
					return err
				}, WithSync())
				published := 0
				r.on("asynchronous", func(ctx context.Context, _ Message) error {
					for _, payload := range []string{"has room", "waits"} {
						_, err := r.Publish(derive(ctx), "a", payload)
						require.NoError(r, err)
						published++
					}
					return nil
				})
				r.pub("a", "start")
				synctest.Wait()
				require.Equal(r, SubscriptionStats{Matched: 2, Queued: 1, Running: 1}, a.Stats())
				gate.open()
				synctest.Wait()
				require.Equal(r, []any{"start", "has room", "waits"}, gate.payloads())
				require.Equal(r, 2, published)
				r.letters(0)
			})
		}
	}
	inBubble(t, "a synchronous handler may publish to itself, as deep as the stack goes", func(r *rig) {
		depth := 0
		s := r.on("a", func(ctx context.Context, _ Message) error {
			if depth++; depth < 1000 {
				_, err := r.Publish(ctx, "a", nil)
				return err
			}
			return nil
		}, WithSync())
		r.pub("a", nil)
		require.Equal(r, SubscriptionStats{Matched: 1000, Delivered: 1000}, s.Stats())
	})
	inBubble(t, "two handlers that publish into each other's full queues wait, until ctx ends it", func(r *rig) {
		var errs []error
		forward := func(from, to string) {
			r.on(from, func(ctx context.Context, msg Message) error {
				if msg.Payload == "stop" {
					return nil
				}
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				for _, payload := range []string{"start", "stop", "stop"} { // One runs, one is queued.
					_, err := r.Publish(ctx, to, payload)
					errs = append(errs, err)
				}
				return nil
			}, WithQueueSize(1), WithDropPolicy(Block))
		}
		forward("a", "b")
		r.on("b", func(ctx context.Context, _ Message) error {
			for range 2 {
				_, _ = r.Publish(ctx, "a", "stop")
			}
			return nil
		}, WithQueueSize(1), WithDropPolicy(Block))
		start := time.Now()
		r.pub("a", "start")
		synctest.Wait()
		require.Equal(r, []error{nil, nil}, errs)
		require.Equal(r, 2, r.Stats().Running, "they do not wait for each other")
		require.NoError(r, r.Flush(context.Background()))
		require.Equal(r, start.Add(time.Second), time.Now())
		require.Equal(r, []error{nil, nil, context.DeadlineExceeded}, errs)
	})
}

// ownQueue checks a Publish that would wait for room in a queue whose handler it is
// called from, in every way that leads there.
func ownQueue(t *testing.T) {
	type publish func(ctx context.Context, topic string, payload any) (uint64, error)
	// hop makes a synchronous handler of b the next to publish.
	hop := func(via string, b *rig, next publish) publish {
		return func(ctx context.Context, topic string, payload any) (id uint64, err error) {
			s := b.on(via, func(ctx context.Context, _ Message) error {
				id, err = next(ctx, topic, payload)
				return nil
			}, WithSync())
			defer s.Unsubscribe()
			_, hopErr := b.Publish(ctx, via, nil)
			require.NoError(t, hopErr)
			return id, err
		}
	}
	ways := map[string]func(r, other *rig) publish{
		"directly":                      func(r, _ *rig) publish { return r.Publish },
		"through a synchronous handler": func(r, _ *rig) publish { return hop("h1", r, r.Publish) },
		"through two":                   func(r, _ *rig) publish { return hop("h1", r, hop("h2", r, r.Publish)) },
		"through another broker's":      func(r, other *rig) publish { return hop("h1", other, r.Publish) },
		"there and back":                func(r, other *rig) publish { return hop("h1", r, hop("h2", other, hop("h3", r, r.Publish))) },
	}
	for way, via := range ways {
		for kind, derive := range derived {
			inBubble(t, way+", "+kind, func(r *rig) {
				publish := via(r, &rig{T: r.T, Broker: New()})
				var handled, after, dropping sightings
				own := r.on("own", func(ctx context.Context, msg Message) error {
					_ = handled.handle(ctx, msg)
					if msg.Payload != "start" {
						return nil
					}
					ctx = derive(ctx)
					id, err := publish(ctx, "own", "room")
					require.NoError(r, err)
					start := time.Now()
					refused, err := publish(ctx, "own", "no room")
					require.ErrorIs(r, err, ErrInHandler)
					require.Greater(r, refused, id)
					require.Equal(r, start, time.Now())
					return nil
				}, WithQueueSize(1), WithDropPolicy(Block))
				r.on("own", after.handle, WithSync())
				r.on("own", dropping.handle)
				r.pub("own", "start")
				synctest.Wait()
				require.Equal(r, []any{"start", "room"}, handled.payloads())
				require.Equal(r, SubscriptionStats{Matched: 3, Delivered: 2, Dropped: 1}, own.Stats())
				want := []any{"start", "room", "no room"}
				require.ElementsMatch(r, want, after.payloads())
				require.Equal(r, want, dropping.payloads())
				l := r.letters(1)[0]
				require.Equal(r, "no room", l.Message.Payload)
				require.True(r, l.Time.Equal(time.Now()), "not the moment it was refused")
				require.Equal(r, ReasonCanceled, l.Reason)
				require.ErrorIs(r, l.Err, ErrInHandler)
				require.Equal(r, own.ID(), l.SubscriptionID)
			})
		}
	}
	for _, first := range []string{"own", "other"} {
		inBubble(t, "beside a full queue that ctx gives up, both errors: first its "+first, func(r *rig) {
			gate := r.turnstile()
			var own *Subscription
			subscribe := map[string]func(){
				"other": func() { r.on("*", gate.handle, WithQueueSize(1), WithDropPolicy(Block)) },
				"own": func() {
					own = r.on("own", func(ctx context.Context, msg Message) error {
						if msg.Payload != "start" {
							return nil
						}
						ctx, cancel := context.WithCancel(ctx)
						cancel()
						_, err := r.Publish(ctx, "own", "room in one")
						require.Equal(r, context.Canceled, err)
						_, err = r.Publish(ctx, "own", "room in none")
						require.ErrorIs(r, err, context.Canceled)
						require.ErrorIs(r, err, ErrInHandler)
						return nil
					}, WithQueueSize(1), WithDropPolicy(Block))
				},
			}
			subscribe[first]()
			delete(subscribe, first)
			for _, f := range subscribe {
				f()
			}
			r.fill("z") // Which only the other takes.
			_, err := r.Publish(canceled(), "own", "start")
			require.ErrorIs(r, err, context.Canceled)
			synctest.Wait()
			require.Equal(r, SubscriptionStats{Matched: 3, Delivered: 2, Dropped: 1}, own.Stats())
			r.letters(4)
		})
	}
}

// oneLockAtATime has each method wait for one subscription's lock, and looks for
// another that it holds meanwhile: the broker's, the dead letters' or another
// subscription's.
func oneLockAtATime(t *testing.T) {
	methods := map[string]func(b *Broker, s *Subscription){
		"Publish":     func(b *Broker, _ *Subscription) { _, _ = b.Publish(canceled(), "a", nil) },
		"Stats":       func(b *Broker, _ *Subscription) { _ = b.Stats() },
		"Flush":       func(b *Broker, _ *Subscription) { _ = b.Flush(canceled()) },
		"Shutdown":    func(b *Broker, _ *Subscription) { _ = b.Shutdown(canceled()) },
		"Close":       func(b *Broker, _ *Subscription) { _ = b.Close() },
		"Unsubscribe": func(_ *Broker, s *Subscription) { s.Unsubscribe() },
		"Drain":       func(_ *Broker, s *Subscription) { _ = s.Drain(canceled()) },
	}
	// eventually fails when a condition stays false for long.
	eventually := func(what string, condition func() bool) {
		for start := time.Now(); !condition(); runtime.Gosched() {
			if time.Since(start) > 5*time.Minute {
				t.Fatalf("%s:\n%s", what, stacks())
			}
		}
	}
	for name, method := range methods {
		waited := 0
		for i := range 3 {
			r := &rig{T: t, Broker: New()}
			handler := func(context.Context, Message) error { return errFault }
			subs := []*Subscription{
				r.on("a", handler), r.on("a", handler, WithDropPolicy(Block)), r.on("a", handler, WithSync(), WithMaxMessages(9)),
			}
			done := make(chan struct{})
			subs[i].mu.Lock()
			go func() {
				defer close(done)
				waitsForALock(func() { method(r.Broker, subs[i]) })
			}()
			blocked := false
			eventually(name+" neither waits nor returns", func() bool {
				blocked = isWaitingForALock()
				select {
				case <-done:
					return true
				default:
					return blocked
				}
			})
			if blocked {
				waited++
				eventually(name+" holds the dead letters' lock", func() bool { return freeLock(&r.deadLetters.mu) })
				eventually(name+" holds the broker's lock", func() bool { return freeLock(&r.mu) })
				for j, s := range subs {
					eventually(name+" holds another subscription's lock", func() bool { return j == i || freeLock(&s.mu) })
				}
			}
			subs[i].mu.Unlock()
			<-done
			require.NoError(t, r.Shutdown(context.Background()))
		}
		require.Equal(t, 3, waited, "%s did not wait for the lock: this tests nothing", name)
	}
}

func waitsForALock(f func()) { f() }

func isWaitingForALock() bool {
	for _, goroutine := range strings.Split(stacks(), "\n\n") {
		if strings.Contains(goroutine, "waitsForALock") {
			header, _, _ := strings.Cut(goroutine, "\n")
			return strings.Contains(header, "sync.Mutex.Lock")
		}
	}
	return false
}

func freeLock(mu interface {
	TryLock() bool
	Unlock()
}) bool {
	if mu.TryLock() {
		mu.Unlock()
		return true
	}
	return false
}

// A ctx that a goroutine has kept from a handler's call, now over, still marks it: room
// that comes while Publish looks at that ctx is taken all the same.
func TestPublishWithAKeptCtxTakesTheRoomThereIs(t *testing.T) {
	bubble(t, "its own queue", func(t *testing.T, r testRig) {
		g := newGate(t)
		var kept context.Context
		r.sub("a", func(ctx context.Context, msg Message) error {
			if kept == nil {
				kept = ctx
				return nil
			}
			return g.handle(ctx, msg)
		}, WithQueueSize(1), WithDropPolicy(Block))
		for i := range 3 {
			r.pub("a", i)
			synctest.Wait()
		}
		ctx := &askedCtx{Context: kept, once: func() { g.one(nil) }}
		_, err := r.Publish(ctx, "a", 3)
		require.NoError(t, err)
		_, err = r.Publish(kept, "a", 4)
		require.ErrorIs(t, err, ErrInHandler)
		g.open()
		require.Equal(t, []any{1, 2, 3}, g.calls())
	})
}
