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

// shutdownLater starts a Shutdown in another goroutine, in a bubble; what it returned
// is in the channel.
func shutdownLater(ctx context.Context, r testRig) <-chan error {
	returned := make(chan error, 1)
	go func() { returned <- r.Shutdown(ctx) }()
	synctest.Wait()
	return returned
}

// requireClosed checks that nothing is accepted.
func requireClosed(t *testing.T, b *Broker) {
	t.Helper()
	id, err := b.Publish(context.Background(), "a", nil)
	require.ErrorIs(t, err, ErrClosed)
	require.Zero(t, id)
	s, err := b.Subscribe("a", ignore)
	require.ErrorIs(t, err, ErrClosed)
	require.Nil(t, s)
	require.ErrorIs(t, b.CreateTopic("new"), ErrClosed)
	require.ErrorIs(t, b.DeleteTopic("topic"), ErrClosed)
}

// TestCloseShutdown: both end everything, at once or gracefully.
func TestCloseShutdown(t *testing.T) {
	background := context.Background()
	canceled, cancel := context.WithCancel(background)
	cancel()
	for _, how := range []string{"Close", "Shutdown"} {
		bubble(t, "nothing is accepted, reading still works/"+how, func(t *testing.T, r testRig) {
			g := newGate(t)
			require.NoError(t, r.CreateTopic("topic"))
			s := r.sub("a", g.handle)
			r.sub("f", func(context.Context, Message) error { return errors.New("no") }, WithSync())
			r.pub("a", 1, 2)
			r.pub("f", 3)
			synctest.Wait()
			want := r.Stats()
			var ended <-chan error
			if how == "Close" {
				require.NoError(t, r.Close())
				require.Empty(t, r.Subscriptions())
				want.Subscriptions, want.Dropped, want.Queued = 0, 1, 0
			} else {
				ended = shutdownLater(background, r)
				require.Equal(t, []*Subscription{s}, r.Subscriptions()) // It drains.
				want.Subscriptions = 1
			}
			requireClosed(t, r.Broker)
			require.Equal(t, []string{"topic"}, r.Topics())
			require.Equal(t, want, r.Stats())
			require.Equal(t, "error 3", r.letters()[0])
			require.EqualValues(t, 1, r.DeadLetters().Snapshot()[0].Message.ID-2)
			g.open()
			if ended != nil {
				require.NoError(t, <-ended)
			}
			require.Empty(t, r.Subscriptions())
			requireClosed(t, r.Broker)
			require.Len(t, r.DeadLetters().Take(), int(r.Stats().Dropped+r.Stats().Failed))
		})
		bubble(t, "releases waiting publishers/"+how, func(t *testing.T, r testRig) {
			g := newGate(t)
			s := r.sub("a", g.handle, WithQueueSize(1), WithDropPolicy(Block))
			r.pub("a", 1)
			synctest.Wait()
			r.pub("a", 2)
			waiting := r.later(background, "a", 3)
			synctest.Wait()
			if how == "Close" {
				require.NoError(t, r.Close())
				require.Equal(t, []string{"unsubscribed 2", "unsubscribed 3"}, r.letters())
			} else {
				shutdownLater(background, r)
				require.Equal(t, []string{"unsubscribed 3"}, r.letters())
			}
			require.Equal(t, published{id: 3}, <-waiting)
			require.Zero(t, r.Stats().Unrouted) // A released copy was matched.
			g.open()
			require.True(t, isClosed(s.Done()))
		})
		t.Run("no publish succeeds once it has begun to return/"+how, func(t *testing.T) {
			for range 100 {
				closeUnderPublishers(t, how == "Close")
			}
		})
	}
	bubble(t, "Close unsubscribes all and does not wait", func(t *testing.T, r testRig) {
		g := newGate(t)
		subs := []*Subscription{r.sub("a", g.handle), r.sub("a", g.handle), r.sub("a", g.handle, WithSync())}
		returned := r.later(background, "a", 1)
		synctest.Wait()
		for _, s := range subs {
			require.Equal(t, 1, s.Stats().Running)
		}
		require.NoError(t, r.Close())
		require.NoError(t, r.Close()) // always nil
		for _, s := range subs {
			require.False(t, isClosed(s.Done()))
		}
		require.Empty(t, r.Subscriptions())
		require.Error(t, subs[0].ctx.Err())
		g.open()
		require.NoError(t, (<-returned).err)
		for _, s := range subs {
			require.True(t, isClosed(s.Done()))
		}
		require.Equal(t, Stats{Published: 1, Matched: 3, Delivered: 3}, r.Stats())
	})
	t.Run("Close does not wait for announcements, Shutdown does", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			announced := newGate(t)
			r := newTestRig(t, WithDeadLetterHandler(func(l DeadLetter) { _ = announced.handle(background, l.Message) }))
			r.sub("a", func(context.Context, Message) error { return errors.New("no") }, WithSync())
			r.pub("a", 1, 2)
			require.NoError(t, r.Close())
			synctest.Wait()
			ended := shutdownLater(background, r)
			require.Empty(t, ended)
			ctx, cancel := context.WithTimeout(background, time.Second)
			defer cancel()
			require.Equal(t, context.DeadlineExceeded, r.Shutdown(ctx))
			announced.one(nil)
			require.Empty(t, ended)
			require.Equal(t, []any{1, 2}, announced.calls())
			announced.one(nil)
			require.NoError(t, <-ended)
			require.NoError(t, r.Shutdown(canceled)) // Nothing is left to wait for.
		})
	})
	bubble(t, "Shutdown handles what is queued", func(t *testing.T, r testRig) {
		g := newGate(t)
		for range 3 {
			r.sub("a", g.handle)
		}
		r.pub("a", 1, 2, 3)
		ended := shutdownLater(background, r)
		for range 8 {
			g.one(nil)
			require.Empty(t, ended)
		}
		require.Equal(t, 1, r.Stats().Running)
		g.one(nil)
		require.NoError(t, <-ended)
		require.Equal(t, Stats{Published: 3, Matched: 9, Delivered: 9}, r.Stats())
		require.Empty(t, r.letters())
	})
	bubble(t, "Shutdown waits for calls of ended subscriptions and synchronous ones", func(t *testing.T, r testRig) {
		gates := []*gate{newGate(t), newGate(t), newGate(t), newGate(t)}
		r.sub("a", gates[0].handle).pubThenUnsubscribe(r)
		r.sub("a", gates[1].handle, WithMaxMessages(1)).pubThenUnsubscribe(r)
		r.sub("b", gates[2].handle, WithSync())
		unsubscribed := r.sub("c", gates[3].handle, WithSync())
		publishers := []<-chan published{r.later(background, "b", 1), r.later(background, "c", 1)}
		synctest.Wait()
		unsubscribed.Unsubscribe()
		ended := shutdownLater(background, r)
		for _, g := range gates {
			require.Len(t, g.calls(), 1)
			require.Empty(t, ended)
			g.open()
		}
		require.NoError(t, <-ended)
		for _, p := range publishers {
			require.NoError(t, (<-p).err)
		}
		require.Zero(t, r.Stats().Running)
	})
	bubble(t, "Shutdown discards the rest when ctx ends first", func(t *testing.T, r testRig) {
		g := newGate(t)
		s, other, idle := r.sub("a", g.handle), r.sub("a", g.handle), r.sub("a", ignore)
		r.pub("a", 1, 2, 3)
		synctest.Wait()
		ctx, cancel := context.WithTimeoutCause(background, time.Minute, errors.New("not the cause but Err"))
		defer cancel()
		start := time.Now()
		require.Equal(t, context.DeadlineExceeded, r.Shutdown(ctx))
		require.Equal(t, time.Minute, time.Since(start))
		require.ElementsMatch(t, []string{"unsubscribed 2", "unsubscribed 3", "unsubscribed 2", "unsubscribed 3"}, r.letters())
		require.Empty(t, r.Subscriptions())
		require.True(t, isClosed(idle.Done()))
		require.False(t, isClosed(s.Done()))
		require.False(t, isClosed(other.Done()))
		require.Error(t, g.lastCtx().Err())
		ended := shutdownLater(background, r)
		require.Empty(t, ended) // The calls still run.
		g.open()
		require.NoError(t, <-ended)
		require.Equal(t, []any{1, 1}, g.calls())
	})
	bubble(t, "Shutdown with nothing left to wait for", func(t *testing.T, r testRig) {
		for _, m := range modes {
			r.sub("a", ignore, m.opts...)
		}
		r.pub("a", 1)
		synctest.Wait()
		require.NoError(t, r.Shutdown(canceled))
		require.NoError(t, r.Shutdown(canceled))
		require.Equal(t, Stats{Published: 1, Matched: 4, Delivered: 4}, r.Stats())
	})
	bubble(t, "handlers still running get ErrClosed", func(t *testing.T, r testRig) {
		g := newGate(t)
		var errs [3]error
		r.sub("a", func(ctx context.Context, msg Message) error {
			_ = g.handle(ctx, msg)
			_, errs[0] = r.Publish(ctx, "b", 1)
			_, errs[1] = r.Subscribe("b", ignore)
			errs[2] = r.Shutdown(ctx) // Would wait for itself.
			return r.Close()
		})
		r.pub("a", 1)
		synctest.Wait()
		ended := shutdownLater(background, r)
		g.open()
		require.NoError(t, <-ended)
		require.Equal(t, [3]error{ErrClosed, ErrClosed, ErrInHandler}, errs)
	})
	bubble(t, "any number, any order", func(t *testing.T, r testRig) {
		g := newGate(t)
		r.sub("a", g.handle)
		r.pub("a", 1, 2, 3)
		first := shutdownLater(background, r)
		ctx, cancel := context.WithCancel(background)
		second := shutdownLater(ctx, r)
		g.one(nil)
		cancel()
		require.Equal(t, context.Canceled, <-second) // It discards the rest for all.
		require.Equal(t, []string{"unsubscribed 3"}, r.letters())
		require.NoError(t, r.Close())
		third := shutdownLater(background, r)
		require.Empty(t, first)
		require.Empty(t, third)
		g.one(nil)
		require.NoError(t, <-first)
		require.NoError(t, <-third)
		require.Equal(t, []any{1, 2}, g.calls())
	})
	t.Run("concurrently", func(t *testing.T) {
		for range 150 {
			shutdownConcurrently(t)
		}
	})
	t.Run("a pipeline ends without loss", func(t *testing.T) {
		for range 20 {
			pipeline(t)
		}
	})
}

// pubThenUnsubscribe has a call running and ends the subscription, in a bubble.
func (s *Subscription) pubThenUnsubscribe(r testRig) {
	r.pub(s.Pattern(), 1)
	synctest.Wait()
	s.Unsubscribe()
}

// closeUnderPublishers checks that every publish succeeds or gives ErrClosed, and
// that none succeeds that begins when the broker is closed, though its route is in
// the cache.
func closeUnderPublishers(t *testing.T, atOnce bool) {
	r := newTestRig(t)
	var closed atomic.Bool
	r.sub("a", ignore, WithSync())
	r.sub("a", ignore, WithQueueSize(1), WithDropPolicy(Block))
	var all sync.WaitGroup
	var ids atomic.Uint64
	warm := make(chan struct{})
	for range 3 {
		all.Go(func() {
			for {
				before := closed.Load()
				id, err := r.Publish(context.Background(), "a", nil)
				switch {
				case err == nil && (before || id == 0):
					t.Errorf("published %d to a closed broker", id)
				case err == nil && ids.Add(1) == 20:
					close(warm)
				case err != nil && (id != 0 || !errors.Is(err, ErrClosed)):
					t.Errorf("%d, %v", id, err)
				}
				if before {
					return
				}
				runtime.Gosched()
			}
		})
	}
	await(t, warm, "twenty publishes")
	if atOnce {
		require.NoError(t, r.Close())
	} else {
		require.NoError(t, r.Shutdown(context.Background()))
	}
	closed.Store(true)
	all.Wait()
	st := r.Stats()
	require.Equal(t, ids.Load(), st.Published)
}

// shutdownConcurrently ends a busy broker in every way at once, and checks that with
// each Shutdown that returns nil no handler runs, nor ever does again.
func shutdownConcurrently(t *testing.T) {
	var announced, running, calls atomic.Int64
	r := newTestRig(t, WithDeadLetterHandler(func(DeadLetter) { announced.Add(1) }))
	handler := func(context.Context, Message) error {
		running.Add(1)
		defer running.Add(-1)
		runtime.Gosched()
		if calls.Add(1)%8 == 0 {
			return errors.New("no")
		}
		return nil
	}
	for _, m := range modes {
		r.sub("a", handler, m.opts...)
		r.sub("a", handler, with(m.opts, WithMaxMessages(40))...)
	}
	subs := r.Subscriptions()
	stop := r.storm(2, "a")
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for calls.Load() < 10 {
				runtime.Gosched()
			}
			for range 5 * i {
				runtime.Gosched()
			}
			switch i {
			case 0, 1:
				subs[i].Unsubscribe()
			case 2:
				_ = subs[2].Drain(context.Background())
			case 3, 4:
				_ = r.Close()
			case 5:
				_ = r.Flush(context.Background())
			default:
				if err := r.Shutdown(context.Background()); err != nil {
					t.Errorf("Shutdown: %v", err)
				}
				if n := running.Load(); n != 0 {
					t.Errorf("%d calls run after Shutdown", n)
				}
				if st := r.Stats(); st.Running != 0 || st.Queued != 0 || uint64(announced.Load()) != st.Failed+st.Dropped {
					t.Errorf("%d announced: %+v", announced.Load(), st)
				}
			}
		})
	}
	all.Wait()
	final := calls.Load()
	stop()
	require.Equal(t, final, calls.Load())
	st := r.Stats()
	require.EqualValues(t, final, st.Delivered+st.Failed)
	require.Equal(t, st.Matched, st.Delivered+st.Failed+st.Dropped)
	require.Equal(t, st.Failed+st.Dropped, r.DeadLetters().Total())
	for i, s := range subs {
		require.True(t, isClosed(s.Done()), fmt.Sprint(i))
	}
}

// pipeline: stop the sources, Flush once per hop, Shutdown.
func pipeline(t *testing.T) {
	r := newTestRig(t)
	forward := func(to string) Handler {
		return func(ctx context.Context, msg Message) error {
			_, err := r.Publish(ctx, to, msg.Payload)
			return err
		}
	}
	var arrived atomic.Int64
	for hop := range 3 {
		r.sub(fmt.Sprint("hop.", hop), forward(fmt.Sprint("hop.", hop+1)), WithQueueSize(2), WithDropPolicy(Block))
	}
	r.sub("hop.3", func(context.Context, Message) error { arrived.Add(1); return nil }, WithQueueSize(1), WithDropPolicy(Block))
	var sources sync.WaitGroup
	for range 3 {
		sources.Go(func() {
			for range 40 {
				if _, err := r.Publish(context.Background(), "hop.0", nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	sources.Wait()
	for range 3 {
		require.NoError(t, r.Flush(context.Background()))
	}
	require.NoError(t, r.Shutdown(context.Background()))
	require.EqualValues(t, 120, arrived.Load())
	require.Empty(t, r.letters())
}
