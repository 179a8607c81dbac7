package pubsub

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// drainLater starts a Drain in another goroutine, in a bubble; what it returned is in
// the channel.
func drainLater(ctx context.Context, s *Subscription) <-chan error {
	returned := make(chan error, 1)
	go func() { returned <- s.Drain(ctx) }()
	synctest.Wait()
	return returned
}

// TestDrain: nothing new, but all that is queued, unless ctx ends first.
func TestDrain(t *testing.T) {
	background := context.Background()
	bubble(t, "takes nothing new, handles what is queued, returns nil when Done", func(t *testing.T, r testRig) {
		g := newGate(t)
		s := r.sub("a", g.handle)
		r.pub("a", 1, 2, 3)
		drained := drainLater(background, s)
		r.pub("a", 4)
		require.EqualValues(t, 1, r.Stats().Unrouted)
		require.Nil(t, s.place.node)          // It is in no route.
		require.NoError(t, g.lastCtx().Err()) // not when it starts to drain
		g.one(nil)
		r.pub("a", 5)
		g.one(nil)
		require.Empty(t, drained)
		require.False(t, isClosed(s.Done()))
		require.Equal(t, SubscriptionStats{Matched: 3, Delivered: 2, Running: 1}, s.Stats())
		g.one(nil)
		require.Len(t, drained, 1)
		require.NoError(t, <-drained)
		require.True(t, isClosed(s.Done()))
		require.ErrorIs(t, g.lastCtx().Err(), context.Canceled)
		require.Equal(t, []any{1, 2, 3}, g.calls()) // each, in order
		require.Equal(t, SubscriptionStats{Matched: 3, Delivered: 3}, s.Stats())
		require.Empty(t, r.letters()) // What it did not take is no letter.
		require.EqualValues(t, 2, r.Stats().Unrouted)
	})
	bubble(t, "stays in Subscriptions until Done", func(t *testing.T, r testRig) {
		g := newGate(t)
		s := r.sub("a", g.handle)
		r.pub("a", 1, 2)
		drained := drainLater(background, s)
		g.one(nil)
		require.Equal(t, []*Subscription{s}, r.Subscriptions())
		require.Equal(t, 1, r.Stats().Subscriptions)
		g.one(nil)
		require.NoError(t, <-drained)
		require.Empty(t, r.Subscriptions())
	})
	bubble(t, "releases waiting publishers", func(t *testing.T, r testRig) {
		g := newGate(t)
		s := r.sub("a", g.handle, WithQueueSize(1), WithDropPolicy(Block))
		r.pub("a", 1)
		synctest.Wait()
		r.pub("a", 2)
		waiting := []<-chan published{r.later(background, "a", 3)}
		synctest.Wait()
		waiting = append(waiting, r.later(background, "a", 4))
		synctest.Wait()
		drained := drainLater(background, s)
		for i, w := range waiting {
			require.Len(t, w, 1)
			require.Equal(t, published{id: uint64(3 + i)}, <-w)
		}
		require.Equal(t, []string{"unsubscribed 3", "unsubscribed 4"}, r.letters())
		require.Equal(t, SubscriptionStats{Matched: 4, Dropped: 2, Queued: 1, Running: 1}, s.Stats())
		g.open()
		require.NoError(t, <-drained)
		require.Equal(t, []any{1, 2}, g.calls())
		require.Equal(t, SubscriptionStats{Matched: 4, Dropped: 2, Delivered: 2}, s.Stats())
		require.Zero(t, r.Stats().Unrouted) // A released copy was matched.
	})
	bubble(t, "discards the rest when ctx ends first", func(t *testing.T, r testRig) {
		g := newGate(t)
		s := r.sub("a", g.handle)
		r.pub("a", 1, 2, 3)
		ctx, cancel := context.WithTimeoutCause(background, time.Minute, errors.New("not the cause but Err"))
		defer cancel()
		require.Equal(t, context.DeadlineExceeded, s.Drain(ctx))
		// It returned with the call still running, and all is as after Unsubscribe.
		require.Equal(t, SubscriptionStats{Matched: 3, Dropped: 2, Running: 1}, s.Stats())
		require.Equal(t, []string{"unsubscribed 2", "unsubscribed 3"}, r.letters())
		require.Equal(t, time.Now(), r.DeadLetters().Snapshot()[0].Time)
		require.Empty(t, r.Subscriptions())
		require.Error(t, g.lastCtx().Err())
		require.False(t, isClosed(s.Done()))
		g.open()
		require.True(t, isClosed(s.Done()))
		require.Equal(t, []any{1}, g.calls())
		require.NoError(t, s.Drain(ctx)) // Nothing is left to wait for.
	})
	bubble(t, "without a ctx it waits as long as it takes", func(t *testing.T, r testRig) {
		g := newGate(t)
		s := r.sub("a", g.handle)
		r.pub("a", 1, 2)
		var none context.Context // is as good as Background.
		ended := drainLater(none, s)
		require.Empty(t, ended)
		g.open()
		require.NoError(t, <-ended)
		require.Equal(t, []any{1, 2}, g.calls())
	})
	bubble(t, "a ctx that is done already", func(t *testing.T, r testRig) {
		canceled, cancel := context.WithCancel(background)
		cancel()
		for _, m := range modes {
			idle := r.sub("b", ignore, m.opts...)
			require.NoError(t, idle.Drain(canceled)) // Nothing is left to wait for.
			require.True(t, isClosed(idle.Done()))
			require.Empty(t, r.Subscriptions())
			require.NoError(t, idle.Drain(canceled))
			idle.Unsubscribe()
		}
		g := newGate(t)
		s := r.sub("a", g.handle)
		r.pub("a", 1, 2)
		synctest.Wait()
		require.Equal(t, context.Canceled, s.Drain(canceled))
		require.Equal(t, []string{"unsubscribed 2"}, r.letters())
		g.open()
		require.True(t, isClosed(s.Done()))
	})
	bubble(t, "concurrently: each returns at its own time", func(t *testing.T, r testRig) {
		g := newGate(t)
		s := r.sub("a", g.handle)
		r.pub("a", 1, 2)
		first := drainLater(background, s)
		second := drainLater(background, s)
		ctx, cancel := context.WithCancel(background)
		third := drainLater(ctx, s)
		g.one(nil)
		require.Empty(t, first)
		require.Empty(t, second)
		cancel() // ends them all: the rest is discarded, of which there is none
		require.Equal(t, context.Canceled, <-third)
		synctest.Wait()
		require.Empty(t, first) // The call still runs.
		g.one(nil)
		require.NoError(t, <-first)
		require.NoError(t, <-second)
		require.EqualValues(t, 2, s.Stats().Delivered)
	})
	bubble(t, "Unsubscribe ends a drain", func(t *testing.T, r testRig) {
		g := newGate(t)
		s := r.sub("a", g.handle)
		r.pub("a", 1, 2, 3)
		drained := drainLater(background, s)
		s.Unsubscribe()
		require.Equal(t, []string{"unsubscribed 2", "unsubscribed 3"}, r.letters())
		require.Empty(t, r.Subscriptions())
		require.Error(t, g.lastCtx().Err())
		synctest.Wait()
		require.Empty(t, drained)
		g.one(nil)
		require.NoError(t, <-drained) // It is Done.
		require.Equal(t, []any{1}, g.calls())
	})
	bubble(t, "after Unsubscribe it waits for the running call", func(t *testing.T, r testRig) {
		g := newGate(t)
		s := r.sub("a", g.handle)
		r.pub("a", 1)
		synctest.Wait()
		s.Unsubscribe()
		drained := drainLater(background, s)
		require.Empty(t, drained)
		require.Empty(t, r.Subscriptions()) // It does not come back.
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		require.Equal(t, context.DeadlineExceeded, s.Drain(ctx))
		g.one(nil)
		require.NoError(t, <-drained)
	})
	bubble(t, "synchronous: waits for the running calls", func(t *testing.T, r testRig) {
		g := newGate(t)
		s := r.sub("a", g.handle, WithSync())
		one, two := r.later(background, "a", 1), r.later(background, "a", 2)
		synctest.Wait()
		drained := drainLater(background, s)
		r.pub("a", 3) // begins no call
		require.Equal(t, SubscriptionStats{Matched: 2, Running: 2}, s.Stats())
		require.EqualValues(t, 1, r.Stats().Unrouted)
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		require.Equal(t, context.DeadlineExceeded, s.Drain(ctx))
		g.one(nil)
		require.Empty(t, drained)
		g.one(nil)
		require.NoError(t, <-drained)
		require.Len(t, one, 1)
		require.Len(t, two, 1)
		require.Equal(t, SubscriptionStats{Matched: 2, Delivered: 2}, s.Stats())
		require.Empty(t, r.letters())
	})
	bubble(t, "handles what is queued whatever the calls before it do", func(t *testing.T, r testRig) {
		s := r.sub("a", func(_ context.Context, msg Message) error {
			switch msg.Payload {
			case 1:
				return errors.New("no")
			case 2:
				panic("no")
			case 3:
				runtime.Goexit()
			}
			return nil
		}, WithQueueSize(8))
		r.pub("a", 1, 2, 3, 4, 3, 2, 1)
		require.NoError(t, s.Drain(background))
		require.Equal(t, SubscriptionStats{Matched: 7, Failed: 6, Delivered: 1}, s.Stats())
		require.Equal(t, []string{"error 1", "panic 2", "goexit 3", "goexit 3", "panic 2", "error 1"}, r.letters())
	})
	bubble(t, "in a handler it starts, and returns ErrInHandler", func(t *testing.T, r testRig) {
		var s *Subscription
		g, errs := newGate(t), []error{}
		s = r.sub("a", func(ctx context.Context, msg Message) error {
			_ = g.handle(ctx, msg)
			errs = append(errs, s.Drain(ctx))
			r.pub("a", 9)
			return nil
		})
		r.pub("a", 1, 2)
		g.open()
		require.Equal(t, []error{ErrInHandler, ErrInHandler}, errs) // 2 was queued: it is handled.
		require.True(t, isClosed(s.Done()))
		require.Equal(t, SubscriptionStats{Matched: 2, Delivered: 2}, s.Stats())
	})
	for _, m := range modes {
		t.Run("of everything taken, under publishers/"+m.name, func(t *testing.T) {
			for range 200 {
				drainUnderPublishers(t, m.opts)
			}
		})
	}
}

// drainUnderPublishers checks that a drain handles what was queued when it began,
// no more and no less, and that nothing changes afterwards.
func drainUnderPublishers(t *testing.T, opts []SubscribeOption) {
	r := newTestRig(t)
	var calls, running atomic.Int64
	warm := make(chan struct{})
	s := r.sub("a", func(context.Context, Message) error {
		running.Add(1)
		if calls.Add(1) == 5 {
			close(warm)
		}
		runtime.Gosched()
		running.Add(-1)
		return nil
	}, opts...)
	stop := r.storm(4, "a")
	await(t, warm, "five calls")
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if err := s.Drain(context.Background()); err != nil {
				t.Errorf("Drain: %v", err)
			}
			st := s.Stats()
			if st.Queued != 0 || st.Running != 0 || running.Load() != 0 || !isClosed(s.Done()) {
				t.Errorf("drained, and yet %+v", st)
			}
			if len(r.Subscriptions()) != 0 {
				t.Error("still in Subscriptions")
			}
		})
	}
	all.Wait()
	final := s.Stats()
	for range 20 {
		r.pub("a", nil)
	}
	stop()
	require.Equal(t, final, s.Stats())
	require.EqualValues(t, final.Delivered, calls.Load())
	require.EqualValues(t, final.Dropped, r.DeadLetters().Total())
	for _, l := range r.DeadLetters().Snapshot() {
		// Only a full queue and a waiting publisher make letters, not the drain.
		want := map[DropPolicy]Reason{DropNewest: ReasonDroppedNewest, Block: ReasonUnsubscribed}[s.policy]
		if s.policy == DropOldest {
			want = ReasonDroppedOldest
		}
		require.Equal(t, want, l.Reason, fmt.Sprint(opts))
	}
}

// TestTestable: a broker made inside a synctest bubble settles in it.
func TestTestable(t *testing.T) {
	bubble(t, "idle, it has no goroutine and is durably blocked", func(t *testing.T, r testRig) {
		before := bubbleGoroutines()
		var handled atomic.Int32
		for range 10 {
			r.sub("#", func(context.Context, Message) error { handled.Add(1); return fmt.Errorf("no") })
		}
		r.pub("a", 1, 2, 3)
		synctest.Wait()
		require.EqualValues(t, 30, handled.Load()) // All is handled when Wait returns.
		require.Equal(t, before, bubbleGoroutines())
	}, WithDeadLetterHandler(func(DeadLetter) {}))
	bubble(t, "whoever waits is durably blocked", func(t *testing.T, r testRig) {
		g := newGate(t)
		s := r.sub("a", g.handle, WithQueueSize(1), WithDropPolicy(Block))
		r.pub("a", 1)
		synctest.Wait()
		r.pub("a", 2)
		waiting := r.later(context.Background(), "a", 3)
		errs := make(chan error, 3)
		go func() { errs <- r.Flush(context.Background()) }()
		synctest.Wait() // Would never return if any of them spun or slept.
		go func() { errs <- s.Drain(context.Background()) }()
		go func() { errs <- r.Shutdown(context.Background()) }()
		synctest.Wait()
		require.Empty(t, errs)
		require.NoError(t, (<-waiting).err)
		g.open()
		require.Len(t, errs, 3)
	})
	bubble(t, "virtual time works", func(t *testing.T, r testRig) {
		start := time.Now()
		var times []time.Duration
		r.sub("a", func(_ context.Context, msg Message) error {
			times = append(times, msg.Time.Sub(start), time.Since(start))
			time.Sleep(time.Hour)
			return nil
		}, WithQueueSize(1), WithDropPolicy(Block))
		r.pub("a", 1)
		synctest.Wait()
		time.Sleep(time.Minute)
		r.pub("a", 2)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		require.ErrorIs(t, r.Flush(ctx), context.DeadlineExceeded)
		require.Equal(t, 11*time.Minute, time.Since(start))
		require.NoError(t, r.Shutdown(context.Background()))
		require.Equal(t, 2*time.Hour, time.Since(start))
		require.Equal(t, []time.Duration{0, 0, time.Minute, time.Hour}, times)
	})
}
