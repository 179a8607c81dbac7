package pubsub

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// TestAccounting: every copy of a message is in exactly one counter, at any moment.
func TestAccounting(t *testing.T) {
	background := context.Background()
	bubble(t, "of an asynchronous subscription, step by step", func(t *testing.T, r testRig) {
		g := newGate(t)
		s := r.sub("a", g.handle, WithQueueSize(2))
		want := func(st SubscriptionStats) {
			t.Helper()
			require.Equal(t, st, s.Stats())
			require.Equal(t, st.Failed+st.Dropped, r.DeadLetters().Total())
		}
		want(SubscriptionStats{})
		r.pub("a", 1)
		synctest.Wait()
		want(SubscriptionStats{Matched: 1, Running: 1})
		r.pub("a", 2, 3)
		want(SubscriptionStats{Matched: 3, Queued: 2, Running: 1})
		r.pub("a", 4)
		want(SubscriptionStats{Matched: 4, Dropped: 1, Queued: 2, Running: 1})
		g.one(nil)
		want(SubscriptionStats{Matched: 4, Delivered: 1, Dropped: 1, Queued: 1, Running: 1})
		g.one(errors.New("no"))
		want(SubscriptionStats{Matched: 4, Delivered: 1, Failed: 1, Dropped: 1, Running: 1})
		g.one(nil)
		want(SubscriptionStats{Matched: 4, Delivered: 2, Failed: 1, Dropped: 1})
		r.pub("a", 5)
		synctest.Wait()
		r.pub("a", 6, 7)
		s.Unsubscribe()
		want(SubscriptionStats{Matched: 7, Delivered: 2, Failed: 1, Dropped: 3, Running: 1})
		r.pub("a", 8)
		g.open()
		want(SubscriptionStats{Matched: 7, Delivered: 3, Failed: 1, Dropped: 3})
		require.Equal(t, Stats{Published: 8, Unrouted: 1, Matched: 7, Delivered: 3, Failed: 1, Dropped: 3}, r.Stats())
	})
	bubble(t, "of a synchronous subscription, step by step", func(t *testing.T, r testRig) {
		for range 2 { // The broker's are the sum.
			g := newGate(t)
			s := r.sub("a", g.handle, WithSync())
			one, two := r.later(background, "a", 1), r.later(background, "a", 2)
			synctest.Wait()
			require.Equal(t, SubscriptionStats{Matched: 2, Running: 2}, s.Stats())
			g.one(errors.New("no"))
			require.Equal(t, SubscriptionStats{Matched: 2, Failed: 1, Running: 1}, s.Stats())
			s.Unsubscribe()
			g.one(nil)
			require.Equal(t, SubscriptionStats{Matched: 2, Failed: 1, Delivered: 1}, s.Stats())
			require.NoError(t, (<-one).err)
			require.NoError(t, (<-two).err)
		}
		require.Equal(t, Stats{Published: 4, Matched: 4, Failed: 2, Delivered: 2}, r.Stats())
		require.EqualValues(t, 2, r.DeadLetters().Total())
	})
	bubble(t, "Unrouted are those that matched nobody", func(t *testing.T, r testRig) {
		unrouted := func(want int) {
			t.Helper()
			require.EqualValues(t, want, r.Stats().Unrouted)
		}
		r.pub("a", 1)
		unrouted(1)
		g := newGate(t)
		s := r.sub("a", g.handle, WithQueueSize(1), WithDropPolicy(DropNewest))
		r.pub("b", 1)
		unrouted(2)
		r.pub("a", 1)
		synctest.Wait()
		r.pub("a", 2, 3) // Refused, 3 is matched all the same.
		unrouted(2)
		canceled, cancel := context.WithCancel(background)
		cancel()
		blocked := r.sub("c", g.handle, WithQueueSize(1), WithDropPolicy(Block))
		r.pub("c", 1)
		synctest.Wait()
		r.pub("c", 2)
		_, err := r.Publish(canceled, "c", 3) // Given up, likewise.
		require.ErrorIs(t, err, context.Canceled)
		unrouted(2)
		s.Unsubscribe()
		blocked.Unsubscribe()
		r.pub("c", 4)
		unrouted(3)
		r.sub("a", ignore, WithSync())
		r.pub("a", 4) // One of two is enough.
		unrouted(3)
		_, err = r.Publish(background, "a..b", nil) // takes no id
		require.Error(t, err)
		require.EqualValues(t, 10, r.Stats().Published)
		g.open()
	})
	t.Run("of more calls than fit a synchronous subscription's word", func(t *testing.T) {
		r := newTestRig(t)
		var s *Subscription
		running := 0
		s = r.sub("a", func(context.Context, Message) error { running += s.Stats().Running; return nil }, WithSync())
		for round := range uint64(3) {
			require.EqualValues(t, 2*round*callsSpill, s.Stats().Delivered)
			s.calls.Add(callsSpill - 1) // As if that many had been delivered.
			r.pub("a", 1)
			require.EqualValues(t, (2*round+1)*callsSpill, s.Stats().Delivered)
			s.calls.Add(callsSpill - 1)
			r.pub("a", 1)
		}
		require.Equal(t, 6, running)
		s.Unsubscribe()
		require.Equal(t, SubscriptionStats{Matched: 6 * callsSpill, Delivered: 6 * callsSpill}, s.Stats())
		require.EqualValues(t, uint64(6*callsSpill), r.Stats().Delivered)
		require.True(t, isClosed(s.Done()))
	})
	for _, m := range modes {
		t.Run("a failure is never a delivery, not for a moment/"+m.name, func(t *testing.T) {
			onlyFailures(t, m.opts)
		})
	}
	t.Run("at any moment", func(t *testing.T) {
		for range 4 {
			newStorm(t).run()
		}
	})
}

// onlyFailures reads the counters of a subscription all of whose calls fail.
func onlyFailures(t *testing.T, opts []SubscribeOption) {
	r := newTestRig(t)
	var calls atomic.Uint64
	s := r.sub("a", func(context.Context, Message) error {
		switch calls.Add(1) % 16 {
		case 0:
			panic("no")
		case 1:
			runtime.Goexit()
		}
		return errors.New("no")
	}, opts...)
	var publishers sync.WaitGroup
	publishers.Go(func() {
		for calls.Load() < 1500 {
			var one sync.WaitGroup
			one.Go(func() { // which a Goexit may end
				for calls.Load() < 1500 {
					_, _ = r.Publish(context.Background(), "a", nil)
					runtime.Gosched()
				}
			})
			one.Wait()
		}
	})
	var readers sync.WaitGroup
	for _, delivered := range []func() uint64{
		func() uint64 { return s.Stats().Delivered },
		func() uint64 { return r.Stats().Delivered },
	} {
		readers.Go(func() {
			for over := false; !over; runtime.Gosched() {
				over = calls.Load() >= 1500
				for range 50 { // without a pause, to see what is true for a moment
					if n := delivered(); n != 0 {
						t.Errorf("%d delivered", n)
						return
					}
				}
				st := r.Stats()
				if letters := r.DeadLetters().Total(); letters < st.Failed+st.Dropped || st.Failed > calls.Load() {
					t.Errorf("%+v, %d letters", st, letters)
				}
			}
		})
	}
	readers.Wait()
	publishers.Wait()
	require.NoError(t, r.Shutdown(context.Background()))
	require.Equal(t, calls.Load(), s.Stats().Failed)
}

// storm is a broker under publishers, subscribers, handlers that fail in every way,
// and every way of ending, with its own books.
type storm struct {
	testRig
	mu   sync.Mutex
	subs []*Subscription // all there have been
	// The handlers' and publishers' own count.
	returned, failed, panicked, exited, published, unrouted atomic.Uint64
}

func newStorm(t *testing.T) *storm {
	w := &storm{}
	w.testRig = newTestRig(t, WithDeadLetterCapacity(1<<20))
	// One that lasts, so that every message to x is routed.
	w.subscribe("x.#", WithSync())
	return w
}

func (w *storm) subscribe(pattern string, opts ...SubscribeOption) *Subscription {
	s, err := w.Subscribe(pattern, func(context.Context, Message) error {
		// A call is counted here before it is there: whatever ends it.
		switch rand.IntN(40) {
		case 0:
			w.failed.Add(1)
			return errors.New("no")
		case 1:
			w.panicked.Add(1)
			panic("no")
		case 2:
			w.exited.Add(1)
			runtime.Goexit()
		case 3, 4, 5, 6:
			runtime.Gosched()
		}
		w.returned.Add(1)
		return nil
	}, opts...)
	if err != nil {
		w.t.Errorf("Subscribe: %v", err)
		return nil
	}
	w.mu.Lock()
	w.subs = append(w.subs, s)
	w.mu.Unlock()
	return s
}

// publish publishes n messages, fewer when a synchronous handler ends its goroutine.
func (w *storm) publish(n int) {
	for range n {
		topic, ctx := fmt.Sprint("x.", rand.IntN(5)), context.Background()
		switch rand.IntN(8) {
		case 0:
			topic = "nobody"
			w.unrouted.Add(1)
		case 1:
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			go cancel()
		}
		w.published.Add(1)
		id, err := w.Publish(ctx, topic, nil)
		if id == 0 || err != nil && !errors.Is(err, context.Canceled) {
			w.t.Errorf("Publish: %d, %v", id, err)
		}
		runtime.Gosched()
	}
}

// churn makes subscriptions and ends them in one of the ways there are.
func (w *storm) churn(n int) {
	for range n {
		opts := with(modes[rand.IntN(len(modes))].opts)
		if rand.IntN(3) == 0 {
			opts = append(opts, WithMaxMessages(1+rand.IntN(20)))
		}
		s := w.subscribe([]string{"x.*", "x.#", "x.1", "*.2"}[rand.IntN(4)], opts...)
		for range rand.IntN(60) {
			runtime.Gosched()
		}
		switch rand.IntN(4) {
		case 0:
			s.Unsubscribe()
		case 1:
			if err := s.Drain(context.Background()); err != nil {
				w.t.Errorf("Drain: %v", err)
			}
		case 2:
			ctx, cancel := context.WithCancel(context.Background())
			go cancel()
			_ = s.Drain(ctx)
		case 3:
			if err := w.Flush(context.Background()); err != nil {
				w.t.Errorf("Flush: %v", err)
			}
		}
	}
}

// audit checks what must be true at any moment.
func (w *storm) audit(audited map[*Subscription]SubscriptionStats, last *Stats) {
	w.mu.Lock()
	subs := append([]*Subscription{}, w.subs...)
	w.mu.Unlock()
	for _, s := range subs {
		st, old := s.Stats(), audited[s]
		audited[s] = st
		if st.Matched != st.Delivered+st.Failed+st.Dropped+uint64(st.Queued)+uint64(st.Running) {
			w.t.Errorf("%+v does not add up", st)
		}
		if st.Matched < old.Matched || st.Delivered < old.Delivered || st.Failed < old.Failed || st.Dropped < old.Dropped {
			w.t.Errorf("%+v after %+v", st, old)
		}
		if st.Queued < 0 || st.Queued > 4 || st.Running < 0 || !s.sync && st.Running > 1 || s.limit > 0 && started(st) > s.limit {
			w.t.Errorf("%+v is too much", st)
		}
	}
	st, old := w.Stats(), *last
	*last = st
	if letters := w.DeadLetters().Total(); letters < st.Failed+st.Dropped {
		w.t.Errorf("%d dead letters after %+v", letters, st)
	}
	if st.Matched != st.Delivered+st.Failed+st.Dropped+uint64(st.Queued)+uint64(st.Running) {
		w.t.Errorf("%+v does not add up", st)
	}
	if st.Matched < old.Matched || st.Delivered < old.Delivered || st.Failed < old.Failed || st.Dropped < old.Dropped ||
		st.Published < old.Published || st.Unrouted < old.Unrouted {
		w.t.Errorf("%+v after %+v", st, old)
	}
	if returned := w.returned.Load(); st.Delivered > returned || st.Published > w.published.Load() || st.Unrouted > w.unrouted.Load() {
		w.t.Errorf("%+v is more than the handlers, %d, and publishers say", st, returned)
	}
}

func (w *storm) run() {
	t := w.t
	var busy, auditor sync.WaitGroup
	for range 3 {
		busy.Go(func() {
			for range 12 {
				var burst sync.WaitGroup
				burst.Go(func() { w.publish(60) }) // which a Goexit may end
				burst.Wait()
			}
		})
	}
	for range 2 {
		busy.Go(func() { w.churn(60) })
	}
	stopped := make(chan struct{})
	auditor.Go(func() {
		audited, last := map[*Subscription]SubscriptionStats{}, Stats{}
		for over := false; !over; {
			over = isClosed(stopped) // and once more at the end
			w.audit(audited, &last)
			runtime.Gosched()
		}
	})
	busy.Wait()
	require.NoError(t, w.Shutdown(context.Background()))
	close(stopped)
	auditor.Wait()

	// Nothing runs: all books agree.
	st := w.Stats()
	require.Equal(t, w.published.Load(), st.Published)
	require.Equal(t, w.unrouted.Load(), st.Unrouted)
	require.Equal(t, w.returned.Load(), st.Delivered)
	require.Equal(t, w.failed.Load()+w.panicked.Load()+w.exited.Load(), st.Failed)
	require.Equal(t, st.Matched, st.Delivered+st.Failed+st.Dropped)
	require.Equal(t, st.Failed+st.Dropped, w.DeadLetters().Total())
	var sum SubscriptionStats
	for _, s := range w.subs {
		require.True(t, isClosed(s.Done()))
		sum.add(s.Stats())
	}
	require.Equal(t, SubscriptionStats{Matched: st.Matched, Delivered: st.Delivered, Failed: st.Failed, Dropped: st.Dropped}, sum)
	require.Empty(t, w.live)
	require.Empty(t, w.ending) // What is Done is in no list.

	reasons := map[Reason]uint64{}
	once := map[[2]uint64]bool{} // A copy is one letter at most.
	for _, l := range w.DeadLetters().Snapshot() {
		reasons[l.Reason]++
		require.False(t, once[[2]uint64{l.SubscriptionID, l.Message.ID}])
		once[[2]uint64{l.SubscriptionID, l.Message.ID}] = true
	}
	require.Equal(t, w.failed.Load(), reasons[ReasonError])
	require.Equal(t, w.panicked.Load(), reasons[ReasonPanic])
	require.Equal(t, w.exited.Load(), reasons[ReasonGoexit])
	t.Logf("%+v %v", st, reasons)
}

// Stats of the broker: each field by itself.
func TestBrokerStats(t *testing.T) {
	bubble(t, "every field", func(t *testing.T, r testRig) {
		g := newGate(t)
		require.NoError(t, r.CreateTopic("x"))
		s := r.sub("a", g.handle, WithQueueSize(2))
		r.sub("b", func(context.Context, Message) error { return fmt.Errorf("no") }, WithSync())
		r.pub("a", 1)
		synctest.Wait()
		r.pub("a", 2, 3, 4) // The last evicts 2.
		r.pub("b", 5)
		r.pub("c", 6)
		require.Equal(t, Stats{Published: 6, Unrouted: 1, Matched: 5, Failed: 1, Dropped: 1,
			Queued: 2, Running: 1, Subscriptions: 2, Topics: 1}, r.Stats())
		s.Unsubscribe()
		require.Equal(t, Stats{Published: 6, Unrouted: 1, Matched: 5, Failed: 1, Dropped: 3,
			Running: 1, Subscriptions: 1, Topics: 1}, r.Stats())
		g.open()
		require.Equal(t, Stats{Published: 6, Unrouted: 1, Matched: 5, Failed: 1, Dropped: 3,
			Delivered: 1, Subscriptions: 1, Topics: 1}, r.Stats())
		require.NoError(t, r.Close())
		require.Equal(t, Stats{Published: 6, Unrouted: 1, Matched: 5, Failed: 1, Dropped: 3,
			Delivered: 1, Topics: 1}, r.Stats())
	})
}
