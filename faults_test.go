package pubsub

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// leaping returns a clock that gives these distances from now in turn, and then from the
// first again.
func leaping(distances ...time.Duration) func() time.Time {
	var reads atomic.Int64
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	return func() time.Time {
		n := int(reads.Add(1) - 1)
		return start.Add(distances[n%len(distances)])
	}
}

const tenYears = 10 * 365 * 24 * time.Hour

// A clock that jumps back, and ten years ahead, is in the stamps and nowhere else: not
// in the order of messages and letters, not in what is kept, not in any wait.
func TestClockJumps(t *testing.T) {
	jumps := []time.Duration{0, -time.Hour, tenYears, -tenYears, time.Nanosecond, 0, tenYears}
	for _, m := range modes {
		inBubble(t, "order, counts and letters do not follow it: "+m.name, func(r *rig) {
			var got sightings
			s := r.on("a", func(ctx context.Context, msg Message) error {
				_ = got.handle(ctx, msg)
				return errFault
			}, m.opts...)
			const n = 3 * 7
			var want, stamps []any
			for i := range n {
				r.pub("a", i)
				synctest.Wait()
				want = append(want, i)
			}
			require.Equal(r, want, got.payloads())
			letters := r.letters(n)
			require.Equal(r, want, payloadsOf(letters), "as recorded, whatever their Time")
			back, ahead := false, false
			for i, l := range letters {
				require.Equal(r, got.msgs[i].Time, l.Message.Time)
				stamps = append(stamps, l.Message.Time, l.Time)
				back = back || l.Time.Before(l.Message.Time)
				ahead = ahead || l.Time.Sub(l.Message.Time) > tenYears/2
			}
			clock := leaping(jumps...)
			for i := range stamps {
				require.Equal(r, clock(), stamps[i], "each reading is used once, as it is")
			}
			require.True(r, back && ahead)
			require.Equal(r, SubscriptionStats{Matched: n, Failed: n}, s.Stats())
		}, WithClock(leaping(jumps...)))
	}
	inBubble(t, "waits are as long as their ctx says", func(r *rig) {
		stuck, gate := r.full("a", Block)
		began := time.Now()
		minute := func() context.Context {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			r.Cleanup(cancel)
			return ctx
		}
		_, err := r.Publish(minute(), "a", "no room")
		require.Equal(r, context.DeadlineExceeded, err)
		require.Equal(r, context.DeadlineExceeded, r.Flush(minute()))
		require.Equal(r, context.DeadlineExceeded, stuck.Drain(minute()))
		require.Equal(r, context.DeadlineExceeded, r.Shutdown(minute()))
		require.Equal(r, 4*time.Minute, time.Since(began))
		gate.open()
		require.NoError(r, r.Shutdown(context.Background()))
		require.Equal(r, 4*time.Minute, time.Since(began))
		require.EqualValues(r, 2, r.Stats().Dropped)
	}, WithClock(leaping(tenYears, -tenYears, 0)))
	t.Run("a log of dead letters counts by its own", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			logger, lines := logOf()
			log := DeadLetterLog{Logger: logger, Interval: time.Hour, Burst: 2}
			r := &rig{T: t, Broker: New(WithClock(leaping(jumps...)), WithDeadLetterHandler(log.Handle))}
			r.on("a", failing[ReasonError], WithSync())
			for i := range 100 {
				r.pub("a", i)
			}
			require.NoError(t, r.Shutdown(context.Background()))
			log.Flush()
			require.Len(t, lines(), 3, "two in full and a count")
		})
	})
}

// Handlers of every kind are stuck past the deadline of Shutdown, and so is a dead-letter
// handler: it returns at the deadline, everything is accounted for but the calls that
// run, and when they return nothing is left.
func TestStuckPastTheDeadline(t *testing.T) {
	hook := make(chan struct{})
	inBubble(t, "Shutdown", func(r *rig) {
		gate, release := r.turnstile(), make(chan struct{})
		hook = release
		var healthy sightings
		last := r.on("a", healthy.handle)
		var stuck []*Subscription
		for _, m := range modes[1:] {
			stuck = append(stuck, r.on("a", gate.handle, m.opts...))
		}
		pulled, err := r.Pull("a")
		require.NoError(r, err)
		body := make(chan struct{})
		go func() {
			defer close(body)
			for range pulled.Messages(context.Background()) {
				<-release
			}
		}()
		for i := range 4 {
			r.pub("a", i)
			synctest.Wait()
		}
		r.on("a", failing[ReasonPanic], WithSync()) // Its letter sticks in the hook.
		held := r.on("a", gate.handle, WithSync())
		o := r.pubLater(context.Background(), "a", 4)
		require.False(r, o.done())

		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		began := time.Now()
		require.Equal(r, context.DeadlineExceeded, r.Shutdown(ctx))
		require.Equal(r, time.Second, time.Since(began))
		require.Equal(r, []any{0, 1, 2, 3, 4}, healthy.payloads())
		<-last.Done()
		for _, s := range append(stuck, pulled, held) {
			st := s.Stats()
			require.Equal(r, 1, st.Running)
			require.Zero(r, st.Queued)
			require.Equal(r, st.Matched, st.Dropped+1)
		}
		requireClosed(r.T, r.Broker)

		close(release)
		gate.open()
		require.NoError(r, r.Shutdown(context.Background()))
		<-body
		require.True(r, o.done())
		for _, s := range append(stuck, pulled, held) {
			<-s.Done()
			require.EqualValues(r, 1, s.Stats().Delivered)
		}
		st := r.Stats()
		require.Equal(r, st.Matched, st.Delivered+st.Failed+st.Dropped)
		require.Equal(r, st.Failed+st.Dropped, r.DeadLetters().Total())
		require.Zero(r, announcers())
	}, WithDeadLetterHandler(func(DeadLetter) { <-hook }))
}

// Every way to fail, in every mode, dead-letter handlers that fail in every way and
// publish, and Close in the midst: with one thread and with many, and with a collector
// that never rests.
func TestFaultsAtOnce(t *testing.T) {
	for _, c := range []struct{ procs, gc int }{{1, 100}, {16, 100}, {1, 1}, {16, 1}} {
		t.Run(fmt.Sprintf("GOMAXPROCS=%d GOGC=%d", c.procs, c.gc), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(c.procs))
			defer debug.SetGCPercent(debug.SetGCPercent(c.gc))
			faultsAtOnce(t)
		})
	}
}

func faultsAtOnce(t *testing.T) {
	var b *Broker
	var announced, alerts atomic.Uint64
	b = New(
		WithDeadLetterCapacity(10),
		WithDeadLetterHandler(func(l DeadLetter) {
			n := announced.Add(1)
			// A synchronous subscription drops nothing: no letter leads to another.
			_, err := b.Publish(context.Background(), "alerts", l.Reason)
			if err != nil && !errors.Is(err, ErrClosed) {
				t.Errorf("Publish in a dead-letter handler: %v", err)
			}
			if f := failures[n%uint64(len(failures))]; n%2 == 0 {
				_ = f.do()
			}
		}),
		WithDeadLetterHandler(func(DeadLetter) { panic(errFault) }),
	)
	subscribe := func(pattern string, h Handler, opts ...SubscribeOption) *Subscription {
		s, err := b.Subscribe(pattern, h, opts...)
		require.NoError(t, err)
		return s
	}
	subscribe("alerts", func(context.Context, Message) error { alerts.Add(1); return nil }, WithSync())

	// Those whose calls all fail, and beside them, in each mode, one whose do not.
	var faulty, healthy []*Subscription
	handled := make([]atomic.Uint64, len(modes))
	for i, m := range modes {
		for _, f := range failures {
			faulty = append(faulty, subscribe("a", func(context.Context, Message) error { return f.do() }, m.opts...))
		}
		healthy = append(healthy, subscribe("a", func(context.Context, Message) error { handled[i].Add(1); return nil }, m.opts...))
	}

	var served atomic.Uint64
	var publishers sync.WaitGroup
	warm := make(chan struct{})
	for range 4 {
		publishers.Go(func() {
			for open := true; open; {
				var one sync.WaitGroup
				one.Go(func() { // whom a synchronous Goexit ends
					_, err := b.Publish(context.Background(), "a", nil)
					open = !errors.Is(err, ErrClosed)
				})
				one.Wait()
				if served.Add(1) == 200 {
					close(warm)
				}
				runtime.Gosched()
			}
		})
	}
	await(t, warm, "200 messages")
	require.NoError(t, b.Close())
	id, err := b.Publish(context.Background(), "a", nil)
	require.Equal(t, ErrClosed, err)
	require.Zero(t, id)
	publishers.Wait()
	require.NoError(t, b.Shutdown(context.Background())) // All calls have returned.

	var sum SubscriptionStats
	for _, s := range append(faulty, healthy...) {
		await(t, s.Done(), "Done")
		st := s.Stats()
		require.Equal(t, st.Matched, st.Delivered+st.Failed+st.Dropped)
		require.GreaterOrEqual(t, st.Matched, uint64(200))
		sum.add(st)
	}
	for _, s := range faulty {
		require.Zero(t, s.Stats().Delivered, "each call failed")
	}
	for i, s := range healthy {
		require.Zero(t, s.Stats().Failed, "nobody else's fault is its own")
		require.Equal(t, handled[i].Load(), s.Stats().Delivered)
	}
	sum.add(SubscriptionStats{Matched: alerts.Load(), Delivered: alerts.Load()})
	st := b.Stats()
	require.Equal(t, Stats{
		Published: st.Published, Unrouted: st.Unrouted,
		Matched: sum.Matched, Delivered: sum.Delivered, Failed: sum.Failed, Dropped: sum.Dropped,
	}, st)
	require.Equal(t, st.Failed+st.Dropped, b.DeadLetters().Total())
	require.Equal(t, 10, b.DeadLetters().Len())
	require.LessOrEqual(t, announced.Load(), b.DeadLetters().Total())
	require.NotZero(t, announced.Load())
}
