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
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestUnsubscribe: it never blocks, and when it returns the subscription takes and
// starts nothing more, wherever it was called.
func TestUnsubscribe(t *testing.T) {
	for _, m := range modes {
		t.Run("no call begins after it returns/"+m.name, func(t *testing.T) {
			for range 200 {
				unsubscribeUnderPublishers(t, m.opts)
			}
		})
	}
	bubble(t, "a running call goes on and is counted before Done", func(t *testing.T, r testRig) {
		g := newGate(t)
		s := r.sub("a", g.handle)
		r.pub("a", 1, 2, 3)
		synctest.Wait()
		s.Unsubscribe()
		require.Equal(t, SubscriptionStats{Matched: 3, Dropped: 2, Running: 1}, s.Stats())
		synctest.Wait()
		require.False(t, isClosed(s.Done())) // The call still runs.
		g.open()
		require.True(t, isClosed(s.Done()))
		require.Equal(t, SubscriptionStats{Matched: 3, Dropped: 2, Delivered: 1}, s.Stats())
		require.Equal(t, []any{1}, g.calls())
	})
	bubble(t, "what was queued is discarded, oldest first", func(t *testing.T, r testRig) {
		g := newGate(t)
		s := r.sub("a", g.handle)
		other := newGate(t)
		r.sub("a", other.handle)
		r.pub("a", 1)
		synctest.Wait()
		r.pub("a", 2, 3, 4)
		time.Sleep(time.Minute)
		s.Unsubscribe()
		require.Equal(t, []string{"unsubscribed 2", "unsubscribed 3", "unsubscribed 4"}, r.letters())
		for _, l := range r.DeadLetters().Snapshot() {
			require.Equal(t, s.ID(), l.SubscriptionID)
			require.Equal(t, time.Now(), l.Time) // the moment, not the message's
			require.NoError(t, l.Err)
		}
		g.open()
		other.open()
		require.Equal(t, []any{1}, g.calls())
		require.Equal(t, []any{1, 2, 3, 4}, other.calls()) // One like it is not touched.
	})
	bubble(t, "publishers waiting for room are released without an error", func(t *testing.T, r testRig) {
		g := newGate(t)
		s := r.sub("a", g.handle, WithQueueSize(1), WithDropPolicy(Block))
		var after atomic.Int32
		r.sub("a", func(context.Context, Message) error { after.Add(1); return nil }, WithSync())
		r.pub("a", 1)
		synctest.Wait()
		r.pub("a", 2)
		waiting := []<-chan published{}
		for i := 3; i <= 5; i++ {
			waiting = append(waiting, r.later(context.Background(), "a", i))
			synctest.Wait()
		}
		require.EqualValues(t, 2, after.Load())
		require.EqualValues(t, 2, s.Stats().Matched) // A waiting copy is not yet matched.
		s.Unsubscribe()
		// Booked by Unsubscribe itself, before the publishers have run.
		want := []string{"unsubscribed 2", "unsubscribed 3", "unsubscribed 4", "unsubscribed 5"}
		require.Equal(t, want, r.letters())
		require.Equal(t, SubscriptionStats{Matched: 5, Dropped: 4, Running: 1}, s.Stats())
		synctest.Wait()
		for i, w := range waiting {
			require.Len(t, w, 1)
			require.Equal(t, published{id: uint64(i + 3)}, <-w)
		}
		require.EqualValues(t, 5, after.Load()) // The others have the message.
		g.open()
		require.Equal(t, want, r.letters())
		require.Equal(t, SubscriptionStats{Matched: 5, Dropped: 4, Delivered: 1}, s.Stats())
		require.Zero(t, r.Stats().Unrouted)
	})
	bubble(t, "out of Subscriptions and of the routes at once", func(t *testing.T, r testRig) {
		g := newGate(t)
		s := r.sub("a", g.handle)
		r.pub("a", 1)
		synctest.Wait()
		s.Unsubscribe()
		require.Empty(t, r.Subscriptions())
		require.Zero(t, r.Stats().Subscriptions)
		r.pub("a", 2) // whose route was in the cache
		require.EqualValues(t, 1, r.Stats().Unrouted)
		require.Equal(t, SubscriptionStats{Matched: 1, Running: 1}, s.Stats())
		require.Empty(t, r.letters())
		g.open()
	})
	bubble(t, "an asynchronous handler's ctx is then done, a synchronous one's is not", func(t *testing.T, r testRig) {
		async, syncG := newGate(t), newGate(t)
		subs := []*Subscription{r.sub("a", async.handle), r.sub("a", syncG.handle, WithSync())}
		returned := r.later(context.Background(), "a", 1)
		synctest.Wait()
		require.NoError(t, async.lastCtx().Err())
		for _, s := range subs {
			s.Unsubscribe()
		}
		require.ErrorIs(t, async.lastCtx().Err(), context.Canceled)
		require.NoError(t, syncG.lastCtx().Err())
		require.Empty(t, returned)
		async.open()
		syncG.open()
		<-returned
	})
	for _, m := range modes {
		bubble(t, "in its own handler/"+m.name, func(t *testing.T, r testRig) {
			calls, done := 0, false
			var s *Subscription
			s = r.sub("a", func(context.Context, Message) error {
				calls++
				s.Unsubscribe()
				s.Unsubscribe()
				done = isClosed(s.Done())
				return nil
			}, m.opts...)
			r.pub("a", 1, 2, 3)
			synctest.Wait()
			require.False(t, done) // while its call ran
			require.True(t, isClosed(s.Done()))
			require.Equal(t, 1, calls)
			require.EqualValues(t, 1, s.Stats().Delivered)
		})
		bubble(t, "in another's handler/"+m.name, func(t *testing.T, r testRig) {
			g := newGate(t)
			s := r.sub("a", g.handle, m.opts...)
			ended := make(chan struct{}, 2)
			r.sub("b", func(context.Context, Message) error { s.Unsubscribe(); ended <- struct{}{}; return nil }, WithSync())
			r.sub("b", func(context.Context, Message) error { s.Unsubscribe(); ended <- struct{}{}; return nil })
			returned := r.later(context.Background(), "a", 1)
			synctest.Wait()
			r.pub("b", 2)
			synctest.Wait()
			require.Len(t, ended, 2) // though the call still runs
			require.Equal(t, 1, s.Stats().Running)
			g.open()
			<-returned
			require.True(t, isClosed(s.Done()))
		})
		bubble(t, "under a lock that its handler wants/"+m.name, func(t *testing.T, r testRig) {
			lock := make(chan struct{}, 1) // A mutex that a bubble can see through.
			s := r.sub("a", func(context.Context, Message) error {
				lock <- struct{}{}
				<-lock
				return nil
			}, m.opts...)
			lock <- struct{}{}
			returned := r.later(context.Background(), "a", 1)
			synctest.Wait()
			require.Equal(t, 1, s.Stats().Running)
			s.Unsubscribe() // If it waited, the bubble would be deadlocked.
			<-lock
			<-s.Done()
			<-returned
			require.EqualValues(t, 1, s.Stats().Delivered)
		})
		t.Run("nothing changes after Done/"+m.name, func(t *testing.T) {
			for range 200 {
				frozenAfterDone(t, m.opts)
			}
		})
	}
	t.Run("each of many concurrent returns gives all this", func(t *testing.T) {
		for i := range 300 {
			unsubscribeConcurrently(t, modes[i%len(modes)].opts)
		}
	})
	for _, m := range modes {
		t.Run("a second return gives all this, though the first is held up/"+m.name, func(t *testing.T) {
			secondReturn(t, m.opts)
		})
		for _, how := range []string{"nil", "error", "panic", "goexit"} {
			bubble(t, "Done follows the call's end/"+m.name+"/"+how, func(t *testing.T, r testRig) {
				doneFollowsCall(t, r, how, m.opts)
			})
		}
	}
}

// unsubscribeUnderPublishers checks that of many concurrent publishes none starts a
// call once Unsubscribe has returned, nor runs one once Done is closed.
func unsubscribeUnderPublishers(t *testing.T, opts []SubscribeOption) {
	r := newTestRig(t)
	var begun, tooLate atomic.Int64
	var over atomic.Bool
	warm := make(chan struct{})
	s := r.sub("a", func(context.Context, Message) error {
		if over.Load() {
			tooLate.Add(1)
		}
		if begun.Add(1) == 10 {
			close(warm)
		}
		runtime.Gosched()
		if over.Load() {
			tooLate.Add(1)
		}
		return nil
	}, opts...)
	stop := r.storm(4, "a")
	await(t, warm, "ten calls")
	s.Unsubscribe()
	then := s.Stats()
	await(t, s.Done(), "Done")
	over.Store(true)
	atDone := begun.Load()
	for range 20 {
		r.pub("a", nil)
	}
	stop()
	require.Equal(t, started(then), started(s.Stats()), "a call began after Unsubscribe")
	require.Zero(t, then.Queued)
	require.Zero(t, tooLate.Load(), "a call ran after Done")
	require.Equal(t, atDone, begun.Load())
	require.EqualValues(t, atDone, s.Stats().Delivered)
}

// frozenAfterDone checks that whoever ends a subscription has booked all of its
// copies, those of waiting publishers and of those that give up included, when Done
// is closed.
func frozenAfterDone(t *testing.T, opts []SubscribeOption) {
	r := newTestRig(t)
	warm := make(chan struct{})
	var calls atomic.Int64
	s := r.sub("a", func(context.Context, Message) error {
		if calls.Add(1) == 5 {
			close(warm)
		}
		runtime.Gosched()
		return nil
	}, opts...)
	stop := r.storm(3, "a")
	var impatient sync.WaitGroup
	for range 2 {
		impatient.Go(func() {
			for !isClosed(s.Done()) {
				ctx, cancel := context.WithCancel(context.Background())
				go cancel()
				_, _ = r.Publish(ctx, "a", nil)
				runtime.Gosched()
			}
		})
	}
	await(t, warm, "five calls")
	s.Unsubscribe()
	await(t, s.Done(), "Done")
	stats, letters := s.Stats(), r.DeadLetters().Total()
	for range 50 {
		r.pub("a", nil)
	}
	impatient.Wait()
	stop()
	require.Equal(t, stats, s.Stats())
	require.Zero(t, stats.Queued+stats.Running)
	require.Equal(t, stats.Dropped, letters)
	require.Equal(t, letters, r.DeadLetters().Total())
}

// unsubscribeConcurrently ends an idle subscription in many ways at once: with no
// call running, everything is true when any of them returns.
func unsubscribeConcurrently(t *testing.T, opts []SubscribeOption) {
	r := newTestRig(t)
	var ctx atomic.Value
	s := r.sub("a", func(c context.Context, _ Message) error { ctx.Store(c); return nil }, opts...)
	r.pub("a", nil)
	require.NoError(t, r.Flush(context.Background()))
	async := !s.sync
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			<-start
			switch i {
			case 0:
				_ = r.Close()
			case 1:
				_ = r.Shutdown(context.Background())
			case 2:
				_ = s.Drain(context.Background())
			default:
				s.Unsubscribe()
			}
			if len(r.Subscriptions()) != 0 {
				t.Error("still in Subscriptions")
			}
			if async && ctx.Load().(context.Context).Err() == nil {
				t.Error("the handler's ctx is not done")
			}
			if !isClosed(s.Done()) {
				t.Error("Done is not closed")
			}
			if st := s.Stats(); st != (SubscriptionStats{Matched: 1, Delivered: 1}) {
				t.Errorf("%+v", st)
			}
		})
	}
	close(start)
	all.Wait()
	require.Equal(t, Stats{Published: 1, Matched: 1, Delivered: 1}, r.Stats()) // Whoever was first, it is booked once.
}

// secondReturn holds up whoever takes a subscription out of the list, and checks that
// meanwhile no other call that ends it returns, nor is Done closed.
func secondReturn(t *testing.T, opts []SubscribeOption) {
	r := newTestRig(t)
	s := r.sub("a", ignore, opts...)
	var returned atomic.Int64
	var all sync.WaitGroup
	r.mu.Lock()
	for i := range 6 {
		all.Go(func() {
			if i == 0 {
				_ = s.Drain(context.Background())
			} else {
				s.Unsubscribe()
			}
			returned.Add(1)
			if len(r.Subscriptions()) != 0 || !isClosed(s.Done()) {
				t.Error("returned, and yet not all is done")
			}
		})
	}
	for range 1000 {
		runtime.Gosched()
		if returned.Load() > 0 || isClosed(s.Done()) {
			t.Error("returned or Done while still in Subscriptions")
			break
		}
	}
	r.mu.Unlock()
	all.Wait()
	require.True(t, isClosed(s.Done()))
}

// doneFollowsCall checks that Done is closed when the last call has returned, however
// it ends, and that it is counted then.
func doneFollowsCall(t *testing.T, r testRig, how string, opts []SubscribeOption) {
	g := newGate(t)
	s := r.sub("a", func(ctx context.Context, msg Message) error {
		err := g.handle(ctx, msg)
		switch how {
		case "panic":
			panic(how)
		case "goexit":
			runtime.Goexit()
		case "error":
			err = errors.New(how)
		}
		return err
	}, opts...)
	go r.Publish(context.Background(), "a", 1) // does not return after a Goexit
	synctest.Wait()
	s.Unsubscribe()
	synctest.Wait()
	require.False(t, isClosed(s.Done()))
	want := SubscriptionStats{Matched: 1, Delivered: 1}
	letters := []string{}
	if how != "nil" {
		want = SubscriptionStats{Matched: 1, Failed: 1}
		letters = append(letters, how+" 1")
	}
	var atDone SubscriptionStats
	go func() {
		<-s.Done()
		atDone = s.Stats()
	}()
	g.open()
	require.Equal(t, want, atDone)
	require.Equal(t, letters, r.letters())
	require.NotPanics(t, s.Unsubscribe)
	require.True(t, isClosed(s.Done())) // One asked for after the end, too.
	require.Equal(t, fmt.Sprint(want), fmt.Sprint(s.Stats()))
}

// What is touched together is on one cache line, and what another processor changes is
// on another: the order of the fields says so, and a new field can undo it unseen.
func TestFieldsAreOnTheirCacheLines(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("laid out for 64 bits")
	}
	const line = 64
	var s Subscription
	require.Less(t, unsafe.Offsetof(s.calls), uintptr(line), "what a publish reads of a synchronous subscription")
	queue := unsafe.Offsetof(s.queue)
	producers := unsafe.Offsetof(s.mu) / line
	require.Zero(t, unsafe.Offsetof(s.mu)%line)
	require.Equal(t, producers, (queue+unsafe.Offsetof(s.queue.inFrom))/line, "all that a producer changes")
	require.Less(t, producers, (queue+unsafe.Offsetof(s.queue.state))/line, "the worker's own")
	require.NotEqual(t, producers, unsafe.Offsetof(s.phase)/line, "only read")
	require.Equal(t, uintptr(line), unsafe.Sizeof(node{}))
}
