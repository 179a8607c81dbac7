package pubsub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	errFault   = errors.New("fault")
	untypedNil any // What panic(nil) panics with.
)

// faultyHandlerByName is what a PanicError's stack has to show.
func faultyHandlerByName() error { panic(errFault) }

// failures are the ways in which a call fails, each of which has to become one dead
// letter. Goexit also ends the goroutine.
var failures = []struct {
	name   string
	do     func() error
	reason Reason
	goexit bool
	check  func(t require.TestingT, err error)
}{
	{name: "an error", reason: ReasonError, do: func() error { return errFault }, check: func(t require.TestingT, err error) {
		require.Equal(t, errFault, err) // The very error, not wrapped.
	}},
	{name: "a panic", reason: ReasonPanic, do: func() error { panic(42) }, check: func(t require.TestingT, err error) {
		require.Equal(t, 42, asPanic(t, err).Value)
		require.NoError(t, errors.Unwrap(err))
	}},
	{name: "a panic with an error", reason: ReasonPanic, do: faultyHandlerByName, check: func(t require.TestingT, err error) {
		require.ErrorIs(t, err, errFault)
		require.Contains(t, string(asPanic(t, err).Stack), "faultyHandlerByName")
	}},
	{name: "panic(nil)", reason: ReasonPanic, do: func() error { panic(untypedNil) }, check: func(t require.TestingT, err error) {
		var nilPanic *runtime.PanicNilError
		require.ErrorAs(t, err, &nilPanic)
	}},
	{name: "a panic of the runtime", reason: ReasonPanic, do: func() error {
		return [...]error{nil}[runtime.NumGoroutine()]
	}, check: func(t require.TestingT, err error) {
		var fault runtime.Error
		require.ErrorAs(t, err, &fault)
	}},
	{name: "a panic in a panic", reason: ReasonPanic, do: func() error {
		defer func() { panic("second") }()
		panic("first")
	}, check: func(t require.TestingT, err error) {
		require.Equal(t, "second", asPanic(t, err).Value)
	}},
	{name: "Goexit", reason: ReasonGoexit, goexit: true, do: func() error { runtime.Goexit(); return nil }, check: isGoexit},
	{name: "Goexit, after a panic", reason: ReasonGoexit, goexit: true, do: func() error {
		defer runtime.Goexit()
		panic("first")
	}, check: isGoexit},
	// Regression: it was settled twice, once for the panic and once for the Goexit,
	// which Go resumes after the recover: Delivered underflowed, and a synchronous
	// handler crashed the publisher.
	{name: "Goexit, then a panic", reason: ReasonPanic, goexit: true, do: func() error {
		defer func() { panic("then") }()
		runtime.Goexit()
		return nil
	}, check: func(t require.TestingT, err error) {
		require.Equal(t, "then", asPanic(t, err).Value)
	}},
}

func asPanic(t require.TestingT, err error) *PanicError {
	var p *PanicError
	require.ErrorAs(t, err, &p)
	return p
}

func isGoexit(t require.TestingT, err error) {
	require.Equal(t, ErrGoexit, err) // The very error, as documented.
}

// A stuck, failing or panicking handler affects nobody else, except what its mode
// says.
func TestIsolation(t *testing.T) {
	for _, failure := range failures {
		for mode, opts := range map[string][]SubscribeOption{"synchronous": {WithSync()}, "asynchronous": nil} {
			inBubble(t, failure.name+" is one dead letter and affects nobody: "+mode, func(r *rig) {
				others := [4]sightings{}
				r.on("a", others[0].handle)
				r.on("a", others[1].handle, WithSync())
				var own sightings
				bad := r.on("a", func(ctx context.Context, msg Message) error {
					if msg.Payload == "bad" {
						return failure.do()
					}
					return own.handle(ctx, msg)
				}, opts...)
				r.on("a", others[2].handle)
				r.on("a", others[3].handle, WithSync())

				id := r.pub("a", "first")
				o := r.pubLater(context.Background(), "a", "bad")
				require.True(r, o.done())
				require.NoError(r, o.err)
				exits := failure.goexit && mode == "synchronous"
				require.Equal(r, exits, o.at.IsZero(), "Publish returns, unless its goroutine exits")
				r.pub("a", "next")
				r.pub("a", "last")
				synctest.Wait()

				require.Equal(r, []any{"first", "next", "last"}, own.payloads())
				for i := range others {
					require.Equal(r, []any{"first", "bad", "next", "last"}, others[i].payloads())
				}
				require.Equal(r, SubscriptionStats{Matched: 4, Delivered: 3, Failed: 1}, bad.Stats())
				l := r.letters(1)[0]
				require.Equal(r, failure.reason, l.Reason)
				require.Equal(r, bad.ID(), l.SubscriptionID)
				require.Equal(r, id+1, l.Message.ID)
				failure.check(r, l.Err)
				bad.Unsubscribe()
				<-bad.Done()
			})
		}
	}
	inBubble(t, "a stuck handler holds nobody", func(r *rig) {
		gate := r.turnstile()
		var async, sync, elsewhere sightings
		stuck := r.on("a", gate.handle, WithQueueSize(2))
		r.on("a", async.handle)
		r.on("a", sync.handle, WithSync())
		r.on("b", elsewhere.handle)
		start := time.Now()
		for i := range 100 {
			r.pub("a", i)
			r.pub("b", i)
			synctest.Wait()
		}
		require.Equal(r, start, time.Now())
		for _, s := range []*sightings{&async, &sync, &elsewhere} {
			require.Len(r, s.payloads(), 100)
		}
		gate.open()
		synctest.Wait()
		require.Equal(r, []any{0, 98, 99}, gate.payloads(), "its own later messages")
		require.Zero(r, stuck.Stats().Failed)
	})
	for mode, opt := range map[string]SubscribeOption{"synchronous handler": WithSync(), "Block queue": WithDropPolicy(Block)} {
		inBubble(t, "a stuck "+mode+" holds its publisher and what that serves after it, nobody else", func(r *rig) {
			gate := r.turnstile()
			r.on("a.b", gate.handle, opt, WithQueueSize(1))
			var before, after sightings
			r.on("a.*", before.handle)
			r.on("a.*", after.handle, WithSync())
			held := r.pubLater(context.Background(), "a.b", 1)
			for i := 2; held.done(); i++ { // A queue has to be filled first.
				held = r.pubLater(context.Background(), "a.b", i)
			}
			n := len(before.payloads())
			require.Len(r, after.payloads(), n-1, "served before what holds the publisher")
			r.pub("a.x", "elsewhere")
			require.Len(r, after.payloads(), n)
			gate.open()
			synctest.Wait()
			require.True(r, held.done())
			require.Len(r, after.payloads(), n+1)
		})
	}
	inBubble(t, "after Goexit the remaining synchronous subscriptions are served while the goroutine exits", goexitFanOut)
	t.Run("panic(nil) under GODEBUG=panicnil=1", func(t *testing.T) {
		t.Setenv("GODEBUG", strings.TrimPrefix(os.Getenv("GODEBUG")+",panicnil=1", ","))
		func() {
			defer func() {
				if recover() != nil {
					t.Skip("this Go has no panicnil=1 any more")
				}
			}()
			panic(untypedNil)
		}()
		synctest.Test(t, func(t *testing.T) {
			r := &rig{T: t, Broker: New()}
			var got sightings
			nilPanic := func(ctx context.Context, msg Message) error {
				_ = got.handle(ctx, msg)
				panic(untypedNil)
			}
			async := r.on("a", nilPanic)
			sync := r.on("a", nilPanic, WithSync())
			r.on("a", got.handle, WithSync())
			r.pub("a", 1)
			r.pub("a", 2)
			synctest.Wait()
			require.Len(t, got.payloads(), 6)
			require.EqualValues(t, 2, async.Stats().Failed)
			require.EqualValues(t, 2, sync.Stats().Failed)
			for _, l := range r.letters(4) {
				require.Equal(t, ReasonPanic, l.Reason)
				require.Nil(t, asPanic(t, l.Err).Value)
			}
		})
	})
	inBubble(t, "a publish by a goroutine that panics or exits is served, and the panic goes on", func(r *rig) {
		var got sightings
		r.on("a", func(context.Context, Message) error { panic("the handler's") }, WithSync())
		r.on("a", got.handle, WithSync())
		func() {
			defer func() { require.Equal(r, "the publisher's", recover()) }()
			defer r.pub("a", 1)
			panic("the publisher's")
		}()
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { _, _ = r.Publish(context.Background(), "a", 2) }()
			runtime.Goexit()
		}()
		<-done
		require.Equal(r, []any{1, 2}, got.payloads())
		r.letters(2)
	})
}

// callEverything calls each method of a broker and a subscription of it. ctx is a
// handler's, or done: with another, some would wait.
func callEverything(ctx context.Context, b *Broker, s *Subscription) {
	_ = b.CreateTopic("new")
	_, _ = b.Publish(ctx, "nobody", nil)
	_, _ = b.Publish(ctx, "somebody", nil)
	if n, err := b.Subscribe("new", func(context.Context, Message) error { return nil }); err == nil {
		n.Unsubscribe()
	}
	_, _, _ = b.Topics(), b.Subscriptions(), b.Stats()
	_, _, _, _ = b.DeadLetters().Len(), b.DeadLetters().Total(), b.DeadLetters().Snapshot(), b.DeadLetters().Take()
	_, _, _, _, _ = s.ID(), s.Name(), s.Pattern(), s.Stats(), s.Done()
	_ = b.Flush(ctx)
	_ = b.DeleteTopic("new")
	_ = s.Drain(ctx)
	s.Unsubscribe()
	_ = b.Shutdown(ctx)
	_ = b.Close()
}

// nosy is a ctx whose methods do more than they should.
type nosy struct {
	context.Context
	call func()
}

func (n nosy) Done() <-chan struct{} { n.call(); return n.Context.Done() }
func (n nosy) Err() error            { n.call(); return n.Context.Err() }
func (n nosy) Value(key any) any     { n.call(); return n.Context.Value(key) }

// User code is never called under a lock: it may call everything.
func TestUserCode(t *testing.T) {
	// A bubble notices a wait without end, but not a lock that is never released.
	watchdog := time.AfterFunc(5*time.Minute, func() {
		panic("TestUserCode is stuck:\n" + stacks())
	})
	defer watchdog.Stop()

	var clock, letter hook
	callers := map[string]func(r *rig, s *Subscription, full *Subscription, everything func(context.Context)){
		"the clock, for a message": func(r *rig, _, _ *Subscription, everything func(context.Context)) {
			clock.once = func() { everything(canceled()) }
			r.pub("a", "fine")
		},
		"the clock, for a failure": func(r *rig, _, _ *Subscription, everything func(context.Context)) {
			r.on("c", func(context.Context, Message) error {
				clock.once = func() { everything(canceled()) }
				return errFault
			}, WithSync())
			r.pub("c", nil)
		},
		"the clock, for a copy given up": func(r *rig, _, _ *Subscription, everything func(context.Context)) {
			ctx, cancel := context.WithCancel(context.Background())
			r.pubLater(ctx, "full", nil)
			clock.once = func() { everything(canceled()) }
			cancel()
		},
		"the clock, for an Unsubscribe": func(_ *rig, s, _ *Subscription, everything func(context.Context)) {
			clock.once = func() { everything(canceled()) }
			s.Unsubscribe()
		},
		"the clock, for a Drain": func(_ *rig, s, _ *Subscription, everything func(context.Context)) {
			clock.once = func() { everything(canceled()) }
			_ = s.Drain(canceled())
		},
		"a handler": func(r *rig, _, _ *Subscription, everything func(context.Context)) {
			r.inHandler(func(ctx context.Context, _ *Subscription) { everything(ctx) })
		},
		"a synchronous handler": func(r *rig, _, _ *Subscription, everything func(context.Context)) {
			r.inHandler(func(ctx context.Context, _ *Subscription) { everything(ctx) }, WithSync())
		},
		"a dead-letter handler": func(r *rig, _, _ *Subscription, everything func(context.Context)) {
			letter.once = func() { everything(canceled()) }
			r.pub("a", "fails")
		},
		"a ctx, of Publish": func(r *rig, _, _ *Subscription, everything func(context.Context)) {
			_, _ = r.Publish(nosy{canceled(), func() { everything(canceled()) }}, "full", nil)
		},
		"a ctx, of Flush": func(r *rig, _, _ *Subscription, everything func(context.Context)) {
			_ = r.Flush(nosy{canceled(), func() { everything(canceled()) }})
		},
		"a ctx, of Drain": func(_ *rig, _, full *Subscription, everything func(context.Context)) {
			_ = full.Drain(nosy{canceled(), func() { everything(canceled()) }})
		},
		"a ctx, of Shutdown": func(r *rig, _, _ *Subscription, everything func(context.Context)) {
			_ = r.Shutdown(nosy{canceled(), func() { everything(canceled()) }})
		},
	}
	for caller, provoke := range callers {
		for _, target := range []string{"its own", "a synchronous", "a full"} {
			inBubble(t, caller+", may call everything, on "+target+" subscription", func(r *rig) {
				clock.once, letter.once = nil, nil
				handler := func(_ context.Context, msg Message) error {
					if msg.Payload == "fails" {
						return errFault
					}
					return nil
				}
				full, gate := r.full("full", Block)
				async, sync := r.on("a", handler), r.on("a", handler, WithSync())
				r.on("somebody", handler, WithSync())
				called, calls := map[string]*Subscription{"its own": async, "a synchronous": sync, "a full": full}[target], 0
				provoke(r, async, full, func(ctx context.Context) {
					if calls++; calls == 1 {
						callEverything(ctx, r.Broker, called)
					}
				})
				synctest.Wait()
				require.NotZero(r, calls, "not called: this tests nothing")
				_, err := r.Publish(context.Background(), "a", nil)
				require.ErrorIs(r, err, ErrClosed)
				gate.open()
				require.NoError(r, r.Shutdown(context.Background()))
			}, WithClock(clock.now), WithDeadLetterHandler(func(DeadLetter) { letter.run() }))
		}
	}
	inBubble(t, "the clock is read once for a publish that matches", func(r *rig) {
		for range 3 {
			r.on("a", (&sightings{}).handle)
			r.on("a", (&sightings{}).handle, WithSync())
		}
		_, gate := r.full("full", Block)
		reads := 0
		count := func(publish func()) int {
			before := clockReads.Load()
			publish()
			synctest.Wait()
			reads = int(clockReads.Load() - before)
			return reads
		}
		require.Equal(r, 0, count(func() { r.pub("nobody", nil) }))
		require.Equal(r, 1, count(func() { r.pub("a", nil) }))
		require.Equal(r, 1, count(func() { r.pubLater(context.Background(), "full", nil) }), "while it waits for room")
		require.Equal(r, 0, count(gate.open))

		// A subscription that takes nothing more is no match.
		for i, opts := range [][]SubscribeOption{{WithSync()}, {}, {WithDropPolicy(Block), WithQueueSize(1)}} {
			topic, stuck := fmt.Sprint("taken", i), r.turnstile()
			r.on(topic, stuck.handle, append(opts, WithMaxMessages(3))...)
			for range 3 {
				r.pubLater(context.Background(), topic, nil)
			}
			if i == 2 {
				stuck.let() // The third waited, and is taken by the worker.
			}
			require.Equal(r, 0, count(func() { r.pub(topic, nil) }), "it has had its n messages")
		}
		s := r.on("drains", r.turnstile().handle)
		r.pub("drains", nil)
		go func() { _ = s.Drain(context.Background()) }()
		synctest.Wait()
		require.Equal(r, 0, count(func() { r.pub("drains", nil) }))
	}, WithClock(func() time.Time { clockReads.Add(1); return time.Now() }))
	t.Run("no other lock is held by what waits for a subscription's", func(t *testing.T) { oneLockAtATime(t) })
}

var clockReads atomic.Int64

func stacks() string {
	all := make([]byte, 1<<20)
	return string(all[:runtime.Stack(all, true)])
}
