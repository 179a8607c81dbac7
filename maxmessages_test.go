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

// TestMaxMessages: a subscription with WithMaxMessages(n) takes n messages, handles
// each, and is done.
func TestMaxMessages(t *testing.T) {
	background := context.Background()
	for _, m := range modes {
		for _, n := range []int{1, 2, 3, 50} {
			t.Run(fmt.Sprintf("exactly n under many publishers/%s/%d", m.name, n), func(t *testing.T) {
				for range 60 {
					maxUnderPublishers(t, n, with(m.opts, WithMaxMessages(n)))
				}
			})
		}
		bubble(t, "then it is in no route, and done/"+m.name, func(t *testing.T, r testRig) {
			g := newGate(t)
			other := r.sub("a", ignore)
			s := r.sub("a", g.handle, with(m.opts, WithMaxMessages(2))...)
			one := r.later(background, "a", 1)
			synctest.Wait()
			two := r.later(background, "a", 2)
			synctest.Wait()
			other.Unsubscribe()
			r.pub("a", 3) // It takes no more, though it still handles two.
			require.EqualValues(t, 1, r.Stats().Unrouted)
			require.EqualValues(t, 2, s.Stats().Matched)
			require.Equal(t, []*Subscription{s}, r.Subscriptions()) // until Done
			require.Nil(t, s.place.node)
			require.Empty(t, r.index.edges)
			g.one(nil)
			require.False(t, isClosed(s.Done()))
			if !m.sync {
				require.NoError(t, g.lastCtx().Err()) // Its last call is not cut short.
			}
			g.one(nil)
			require.True(t, isClosed(s.Done()))
			require.Empty(t, r.Subscriptions())
			require.Equal(t, SubscriptionStats{Matched: 2, Delivered: 2}, s.Stats())
			require.ElementsMatch(t, []any{1, 2}, g.calls())
			require.Empty(t, r.letters())
			r.pub("a", 4)
			require.EqualValues(t, 2, r.Stats().Unrouted)
			require.NoError(t, (<-one).err)
			require.NoError(t, (<-two).err)
		})
		bubble(t, "failed ones count/"+m.name, func(t *testing.T, r testRig) {
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
			}, with(m.opts, WithMaxMessages(4))...)
			for i := 1; i <= 6; i++ {
				go r.Publish(background, "a", i) // 3 does not return
				synctest.Wait()
			}
			require.True(t, isClosed(s.Done()))
			require.Equal(t, SubscriptionStats{Matched: 4, Failed: 3, Delivered: 1}, s.Stats())
			require.Equal(t, []string{"error 1", "panic 2", "goexit 3"}, r.letters())
			require.EqualValues(t, 2, r.Stats().Unrouted)
		})
		bubble(t, "the last call may be the failed one/"+m.name, func(t *testing.T, r testRig) {
			for _, how := range []func() error{
				func() error { return errors.New("no") },
				func() error { panic("no") },
				func() error { runtime.Goexit(); return nil },
			} {
				s := r.sub("a", func(context.Context, Message) error { return how() }, with(m.opts, WithMaxMessages(1))...)
				go r.Publish(background, "a", 1) // does not return after a Goexit
				synctest.Wait()
				require.True(t, isClosed(s.Done()))
				require.Equal(t, SubscriptionStats{Matched: 1, Failed: 1}, s.Stats())
			}
		})
	}
	bubble(t, "evicted ones do not count", func(t *testing.T, r testRig) {
		g := newGate(t)
		s := r.sub("a", g.handle, WithQueueSize(2), WithMaxMessages(4))
		r.pub("a", 1)
		synctest.Wait()
		r.pub("a", 2, 3, 4, 5, 6, 7) // 2 to 5 are evicted: it has taken 1, 6 and 7.
		require.Equal(t, SubscriptionStats{Matched: 7, Dropped: 4, Queued: 2, Running: 1}, s.Stats())
		g.one(nil)
		r.pub("a", 8) // the fourth
		r.pub("a", 9, 10)
		require.EqualValues(t, 2, r.Stats().Unrouted)
		require.Equal(t, 2, s.Stats().Queued)
		g.open()
		require.True(t, isClosed(s.Done()))
		require.Equal(t, []any{1, 6, 7, 8}, g.calls())
		require.Equal(t, SubscriptionStats{Matched: 8, Dropped: 4, Delivered: 4}, s.Stats())
		require.Len(t, r.letters(), 4)
	})
	bubble(t, "refused ones are dropped and do not count", func(t *testing.T, r testRig) {
		g := newGate(t)
		s := r.sub("a", g.handle, WithQueueSize(1), WithDropPolicy(DropNewest), WithMaxMessages(3))
		r.pub("a", 1)
		synctest.Wait()
		r.pub("a", 2, 3, 4, 5)
		require.Equal(t, SubscriptionStats{Matched: 5, Dropped: 3, Queued: 1, Running: 1}, s.Stats())
		g.one(nil)
		r.pub("a", 6) // the third
		r.pub("a", 7) // finds it full of its n, not its queue full
		g.open()
		require.True(t, isClosed(s.Done()))
		require.Equal(t, []any{1, 2, 6}, g.calls())
		require.Equal(t, SubscriptionStats{Matched: 6, Dropped: 3, Delivered: 3}, s.Stats())
		require.Equal(t, []string{"dropped_newest 3", "dropped_newest 4", "dropped_newest 5"}, r.letters())
	})
	bubble(t, "waiting publishers are released at once, uncounted", func(t *testing.T, r testRig) {
		g := newGate(t)
		s := r.sub("a", g.handle, WithQueueSize(1), WithDropPolicy(Block), WithMaxMessages(3))
		r.pub("a", 1)
		synctest.Wait()
		r.pub("a", 2)
		waiting := []<-chan published{}
		for i := 3; i <= 6; i++ {
			waiting = append(waiting, r.later(background, "a", i))
			synctest.Wait()
		}
		g.one(nil) // 2 runs, 3 is the third to be taken; nobody waits for 2 to return.
		for i, w := range waiting {
			require.Len(t, w, 1, "publisher %d", i)
			require.Equal(t, published{id: uint64(3 + i)}, <-w)
		}
		require.Equal(t, SubscriptionStats{Matched: 3, Delivered: 1, Queued: 1, Running: 1}, s.Stats())
		require.EqualValues(t, 3, r.Stats().Unrouted)
		require.Nil(t, s.place.node) // It is in no route.
		g.open()
		require.True(t, isClosed(s.Done()))
		require.Equal(t, []any{1, 2, 3}, g.calls())
		require.Empty(t, r.letters())
	})
	bubble(t, "a wait given up does not count", func(t *testing.T, r testRig) {
		g := newGate(t)
		s := r.sub("a", g.handle, WithQueueSize(1), WithDropPolicy(Block), WithMaxMessages(3))
		r.pub("a", 1)
		synctest.Wait()
		r.pub("a", 2)
		canceled, cancel := context.WithCancel(background)
		cancel()
		_, err := r.Publish(canceled, "a", 3)
		require.ErrorIs(t, err, context.Canceled)
		g.one(nil)
		r.pub("a", 4)
		g.open()
		require.Equal(t, []any{1, 2, 4}, g.calls())
		require.True(t, isClosed(s.Done()))
		require.Equal(t, SubscriptionStats{Matched: 4, Dropped: 1, Delivered: 3}, s.Stats())
	})
	for _, how := range []string{"Unsubscribe", "Close", "Drain", "Shutdown"} {
		bubble(t, "when it has its n/"+how, func(t *testing.T, r testRig) {
			g := newGate(t)
			s := r.sub("a", g.handle, WithMaxMessages(3))
			r.pub("a", 1, 2, 3)
			synctest.Wait()
			ended := make(chan error, 1)
			switch how {
			case "Unsubscribe":
				s.Unsubscribe()
			case "Close":
				require.NoError(t, r.Close())
			case "Drain":
				go func() { ended <- s.Drain(background) }()
			case "Shutdown":
				go func() { ended <- r.Shutdown(background) }()
			}
			synctest.Wait()
			if cap(ended) > 0 && (how == "Drain" || how == "Shutdown") {
				require.Empty(t, ended)
				g.open()
				require.NoError(t, <-ended)
				require.Equal(t, []any{1, 2, 3}, g.calls())
				require.Empty(t, r.letters())
				return
			}
			require.Equal(t, []string{"unsubscribed 2", "unsubscribed 3"}, r.letters())
			require.Empty(t, r.Subscriptions())
			g.open()
			require.Equal(t, []any{1}, g.calls())
			require.Equal(t, SubscriptionStats{Matched: 3, Dropped: 2, Delivered: 1}, s.Stats())
		})
	}
	t.Run("a synchronous one that publishes to itself ends", func(t *testing.T) {
		r := newTestRig(t)
		depth, deepest := 0, 0
		s := r.sub("a", func(ctx context.Context, _ Message) error {
			depth++
			deepest = max(deepest, depth)
			_, err := r.Publish(ctx, "a", nil)
			depth--
			return err
		}, WithSync(), WithMaxMessages(5))
		r.pub("a", nil)
		require.Equal(t, 5, deepest)
		require.True(t, isClosed(s.Done()))
		require.EqualValues(t, 5, s.Stats().Delivered)
		require.EqualValues(t, 1, r.Stats().Unrouted)
	})
}

// maxUnderPublishers checks that with publishers that never stop a subscription
// starts and takes exactly n, and that a queue's policy drops only what it must.
func maxUnderPublishers(t *testing.T, n int, opts []SubscribeOption) {
	r := newTestRig(t, WithDeadLetterCapacity(1<<20))
	var calls atomic.Int64
	var s *Subscription
	// Publishers start before the subscription exists, and hit its first moment.
	stop := r.storm(3, "a")
	s = r.sub("a", func(_ context.Context, msg Message) error {
		if calls.Add(1)%3 == 0 {
			return errors.New("no")
		}
		runtime.Gosched()
		return nil
	}, opts...)
	var gaveUp sync.WaitGroup
	gaveUp.Go(func() {
		for !isClosed(s.Done()) {
			ctx, cancel := context.WithCancel(context.Background())
			go cancel()
			_, _ = r.Publish(ctx, "a", nil)
			runtime.Gosched()
		}
	})
	await(t, s.Done(), "Done")
	then, letters := s.Stats(), r.DeadLetters().Total()
	gaveUp.Wait()
	stop()
	require.EqualValues(t, n, calls.Load())
	require.EqualValues(t, n, then.Delivered+then.Failed)
	require.EqualValues(t, n/3, then.Failed)
	require.Equal(t, then, s.Stats())
	require.Equal(t, then.Failed+then.Dropped, letters)
	require.Equal(t, letters, r.DeadLetters().Total()) // None for what it did not take.
	dropped := map[Reason]uint64{}
	for _, l := range r.DeadLetters().Snapshot() {
		dropped[l.Reason]++
	}
	delete(dropped, ReasonError)
	reason := map[DropPolicy]Reason{DropOldest: ReasonDroppedOldest, DropNewest: ReasonDroppedNewest, Block: ReasonCanceled}
	if then.Dropped == 0 {
		require.Empty(t, dropped)
		return
	}
	require.False(t, s.sync)
	require.Equal(t, map[Reason]uint64{reason[s.policy]: then.Dropped}, dropped)
}

// askedCtx is a ctx that runs something when it is first asked for a value. Publish
// does so between finding a queue full and waiting for room in it.
type askedCtx struct {
	context.Context
	once func()
}

func (c *askedCtx) Value(key any) any {
	if f := c.once; f != nil {
		c.once = nil
		f()
	}
	return c.Context.Value(key)
}

// Whatever ends the taking holds also for a publish that has found the subscription
// before: its copy is neither taken nor counted, and no letter.
func TestEndHoldsForPublishesOnTheirWay(t *testing.T) {
	ends := map[string]func(r testRig, s *Subscription){
		"Unsubscribe":     func(_ testRig, s *Subscription) { s.Unsubscribe() },
		"Drain":           func(_ testRig, s *Subscription) { drainLater(context.Background(), s) },
		"Close":           func(r testRig, _ *Subscription) { _ = r.Close() },
		"Shutdown":        func(r testRig, _ *Subscription) { shutdownLater(context.Background(), r) },
		"WithMaxMessages": func(r testRig, _ *Subscription) { r.later(context.Background(), "a", "last"); synctest.Wait() },
	}
	for how, end := range ends {
		for _, m := range modes {
			for _, full := range []bool{false, true} { // Is the queue, when it is found?
				if full && (m.name != "block" || how == "WithMaxMessages") {
					continue
				}
				t.Run(fmt.Sprint(how, "/", m.name, "/full=", full), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						endBetween(t, full, end, with(m.opts, WithMaxMessages(map[bool]int{false: 2, true: 6}[full])))
					})
				})
			}
		}
	}
}

func endBetween(t *testing.T, full bool, end func(testRig, *Subscription), opts []SubscribeOption) {
	var between func() // run when a publish has found its subscriptions
	r := newTestRig(t, WithClock(func() time.Time {
		if f := between; f != nil {
			between = nil
			f()
		}
		return time.Now()
	}))
	g := newGate(t)
	s := r.sub("a", g.handle, opts...)
	r.later(context.Background(), "a", "first")
	synctest.Wait()
	var then SubscriptionStats
	var letters []string
	now := func() {
		end(r, s)
		then, letters = s.Stats(), r.letters()
	}
	ctx := &askedCtx{Context: context.Background()}
	if full {
		r.pub("a", 1, 2, 3, 4)
		ctx.once = now
	} else {
		between = now
	}
	_, err := r.Publish(ctx, "a", "late")
	require.NoError(t, err)
	require.Nil(t, between)
	require.Nil(t, ctx.once)
	require.Equal(t, then, s.Stats())
	require.Equal(t, letters, r.letters())
	require.EqualValues(t, 1, r.Stats().Unrouted)
	g.open()
	require.True(t, isClosed(s.Done()))
	require.NotContains(t, g.calls(), "late")
	require.Equal(t, letters, r.letters())
}
