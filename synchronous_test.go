package pubsub

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// Publish delivers to every subscription that matches when it starts, once each.
func TestFanOut(t *testing.T) {
	inBubble(t, "every subscription that matches, once each", func(r *rig) {
		got := map[string]*sightings{}
		matching := []string{"a.b.c", "a.b.*", "a.*.c", "*.b.c", "*.*.*", "#", "a.#", "a.b.#", "*.#"}
		others := []string{"a", "a.b", "a.b.c.d", "a.b.c.#", "a.b.x", "x.#", "*", "*.*", "*.*.*.*", "A.b.c"}
		for _, pattern := range slices.Concat(matching, others) {
			got[pattern] = new(sightings)
			r.on(pattern, got[pattern].handle)
			r.on(pattern, got[pattern].handle, WithSync())
			r.on(pattern, got[pattern].handle, WithDropPolicy(Block))
		}
		for range 2 { // The second finds its route in the cache.
			r.pub("a.b.c", "x")
		}
		synctest.Wait()
		for _, pattern := range matching {
			require.Len(r, got[pattern].payloads(), 2*3, pattern)
		}
		for _, pattern := range others {
			require.Empty(r, got[pattern].payloads(), pattern)
		}
		require.EqualValues(r, 2*3*len(matching), r.Stats().Matched)
	})
	for mode, opts := range map[string][]SubscribeOption{"synchronous": {WithSync()}, "asynchronous": nil} {
		inBubble(t, "a Subscribe that returned before sees it, a later one never does: "+mode, func(r *rig) {
			var late sightings
			var subscribed *Subscription
			r.on("a.b", func(context.Context, Message) error {
				// This publish has started: the new subscription is too late for it.
				if subscribed == nil {
					subscribed = r.on("a.*", late.handle, opts...)
				}
				return nil
			}, WithSync())
			for _, earlier := range []string{"1", "2"} {
				r.pub("a.x", earlier) // Nobody is there to take it.
			}
			r.pub("a.b", "3")
			synctest.Wait()
			require.Empty(r, late.payloads(), "replayed")
			r.pub("a.b", "4")
			r.pub("a.x", "5")
			synctest.Wait()
			require.Equal(r, []any{"4", "5"}, late.payloads())
			subscribed.Unsubscribe()
			r.pub("a.x", "6")
			synctest.Wait()
			require.Equal(r, []any{"4", "5"}, late.payloads())
		})
	}
	inBubble(t, "no match is no error", func(r *rig) {
		require.EqualValues(r, 1, r.pub("a", nil))
		r.on("b", (&sightings{}).handle)
		require.EqualValues(r, 2, r.pub("a", nil))
		require.Equal(r, Stats{Published: 2, Unrouted: 2, Subscriptions: 1}, r.Stats())
	})
	inBubble(t, "dropping queues, Block queues, synchronous handlers, each in order of subscription", servingOrder)
	t.Run("while others subscribe and unsubscribe", fanOutUnderChange)
}

// servingOrder finds the order from the dead letters that each subscription is made
// to leave: a full queue drops or is not waited for, a handler fails.
func servingOrder(r *rig) {
	patterns := []string{"a.b", "#", "*.b", "a.*", "a.#", "*.*"}
	kinds := []SubscribeOption{WithDropPolicy(DropOldest), WithDropPolicy(DropNewest), WithDropPolicy(Block), WithSync()}
	gate := r.turnstile()
	refuse := func(context.Context, Message) error { return errors.New("refused") }
	random := rand.New(rand.NewPCG(1, 2))
	var ranks [3][]uint64
	var gone []*Subscription
	for i := range 60 {
		kind := random.IntN(len(kinds))
		handler, rank := gate.handle, max(0, kind-1)
		if rank == 2 {
			handler = refuse
		}
		s := r.on(patterns[random.IntN(len(patterns))], handler, WithQueueSize(1), kinds[kind])
		if i%4 == 1 {
			gone = append(gone, s)
		} else {
			ranks[rank] = append(ranks[rank], s.ID())
		}
	}
	for _, s := range gone { // It must not change the order of those that stay.
		s.Unsubscribe()
	}
	want := slices.Concat(ranks[0], ranks[1], ranks[2])
	r.fill("a.b")
	r.DeadLetters().Take()
	for range 2 {
		_, err := r.Publish(canceled(), "a.b", "x")
		require.ErrorIs(r, err, context.Canceled)
		var order []uint64
		for _, l := range r.letters(len(want)) {
			order = append(order, l.SubscriptionID)
		}
		require.Equal(r, want, order)
	}
}

// fanOutUnderChange has several goroutines that each subscribe, publish, unsubscribe
// and publish, and know for certain which of their messages are to arrive.
func fanOutUnderChange(t *testing.T) {
	const goroutines, rounds = 4, 150
	r := &rig{T: t, Broker: New()}
	var all atomic.Int64
	r.on("a.*", func(context.Context, Message) error { all.Add(1); return nil }, WithDropPolicy(Block))
	var returned [goroutines]atomic.Uint64 // The last id that Publish has returned to each.
	type mark struct {
		goroutine, round int
		subscribed       bool
	}
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for round := range rounds {
				var before uint64
				for i := range returned {
					before = max(before, returned[i].Load())
				}
				var mine, stale, after atomic.Int64
				opts := []SubscribeOption{WithDropPolicy(Block)}
				if round%2 == 0 {
					opts = []SubscribeOption{WithSync()}
				}
				s, err := r.Subscribe([]string{"a.*", "#", "a.b"}[round%3], func(_ context.Context, msg Message) error {
					if msg.ID <= before {
						stale.Add(1)
					}
					if m := msg.Payload.(mark); m.goroutine == g && m.round == round {
						if m.subscribed {
							mine.Add(1)
						} else {
							after.Add(1)
						}
					}
					return nil
				}, opts...)
				if err != nil {
					t.Error(err)
					return
				}
				for range 3 {
					id, _ := r.Publish(context.Background(), "a.b", mark{g, round, true})
					returned[g].Store(id)
				}
				if err := r.Flush(context.Background()); err != nil {
					t.Error(err)
				}
				s.Unsubscribe()
				_, _ = r.Publish(context.Background(), "a.b", mark{g, round, false})
				<-s.Done()
				if mine.Load() != 3 || after.Load() != 0 || stale.Load() != 0 {
					t.Errorf("of 3 messages %d arrived; of those after Unsubscribe %d; of those before Subscribe %d",
						mine.Load(), after.Load(), stale.Load())
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, r.Shutdown(context.Background()))
	require.EqualValues(t, goroutines*rounds*4, all.Load())
	require.EqualValues(t, goroutines*rounds*4, r.Stats().Published)
}

// An id means accepted: what is refused takes none.
func TestRefusedPublishTakesNoID(t *testing.T) {
	inBubble(t, "an unknown, deleted or invalid topic", func(r *rig) {
		var got sightings
		r.on("#", got.handle, WithSync())
		require.NoError(r, r.CreateTopic("a"))
		require.EqualValues(r, 1, r.pub("a", nil))
		require.EqualValues(r, 2, r.pub("a", nil)) // Its route is cached now.
		require.NoError(r, r.DeleteTopic("a"))
		for topic, want := range map[string]error{
			"a": ErrUnknownTopic, "b": ErrUnknownTopic,
			"": ErrInvalidTopic, "a..b": ErrInvalidTopic, "a.*": ErrInvalidTopic, "#": ErrInvalidTopic,
		} {
			for range 2 {
				id, err := r.Publish(context.Background(), topic, nil)
				require.ErrorIs(r, err, want, topic)
				require.Zero(r, id)
			}
		}
		require.EqualValues(r, 2, r.Stats().Published)
		require.Zero(r, r.Stats().Unrouted)
		require.Len(r, got.payloads(), 2)
		require.NoError(r, r.CreateTopic("a"))
		require.EqualValues(r, 3, r.pub("a", nil))
	}, WithStrictTopics())
	for name, end := range map[string]func(*Broker){
		"Close":    func(b *Broker) { b.Close() },
		"Shutdown": func(b *Broker) { _ = b.Shutdown(context.Background()) },
	} {
		inBubble(t, "ErrClosed comes before any other error: "+name, func(r *rig) {
			var got sightings
			r.on("a", got.handle, WithSync())
			require.NoError(r, r.CreateTopic("a"))
			r.pub("a", nil)
			r.pub("a", nil)
			end(r.Broker)
			for _, topic := range []string{"a", "unknown", "", "a..b", "*", strings.Repeat("x", 70_000)} {
				id, err := r.Publish(context.Background(), topic, nil)
				require.ErrorIs(r, err, ErrClosed, topic)
				require.NotErrorIs(r, err, ErrInvalidTopic)
				require.NotErrorIs(r, err, ErrUnknownTopic)
				require.Zero(r, id)
			}
			require.EqualValues(r, 2, r.Stats().Published)
			require.Len(r, got.payloads(), 2)
		}, WithStrictTopics())
	}
}

// Regression guard: the deliveries of a synchronous subscription are counted in half
// a word, whose overflow would have looked like running calls.
func TestDeliveriesOutgrowTheirHalfOfTheWord(t *testing.T) {
	r := &rig{T: t, Broker: New()}
	running := 0
	var s *Subscription
	s = r.on("a", func(context.Context, Message) error {
		running = s.Stats().Running
		return nil
	}, WithSync())
	s.calls.Store(callsSpill - 2)
	for i := range uint64(4) {
		r.pub("a", nil)
		require.Equal(t, 1, running)
		delivered := callsSpill - 2 + i + 1
		require.Equal(t, SubscriptionStats{Matched: delivered, Delivered: delivered}, s.Stats())
		require.Less(t, s.calls.Load(), uint64(callsSpill), "it is emptied before it is full")
	}
	// Calls that end while another empties the word add to it as well.
	s.calls.Store(callsSpill)
	s.counts.delivered = 0
	s.spill()
	s.spill()
	require.EqualValues(t, uint64(callsSpill), s.Stats().Delivered)
	s.Unsubscribe()
	<-s.Done()
	require.EqualValues(t, uint64(callsSpill), r.Stats().Delivered)
}

// A synchronous subscription is done when the last call that runs has returned,
// however it ended, and not before.
func TestSynchronousEndWaitsForItsCalls(t *testing.T) {
	for name, end := range map[string]func() error{
		"delivered": func() error { return nil },
		"failed":    func() error { return errors.New("fault") },
		"panicked":  func() error { panic("fault") },
	} {
		inBubble(t, name, func(r *rig) {
			gate := r.turnstile()
			s := r.on("a", func(ctx context.Context, msg Message) error {
				_ = gate.handle(ctx, msg)
				return end()
			}, WithSync())
			first, second := r.pubLater(context.Background(), "a", 1), r.pubLater(context.Background(), "a", 2)
			require.Equal(r, 2, s.Stats().Running)
			s.Unsubscribe()
			for _, left := range []int{1, 0} {
				select {
				case <-s.Done():
					r.Fatal("done while a call runs")
				default:
				}
				gate.let()
				require.Equal(r, left, s.Stats().Running)
			}
			<-s.Done()
			require.True(r, first.done() && second.done())
			st := s.Stats()
			require.EqualValues(r, 2, st.Delivered+st.Failed)
			require.EqualValues(r, st.Failed, len(r.DeadLetters().Take()))
		})
	}
}

// goexitFanOut has some of a publish's synchronous handlers exit the goroutine, in
// every combination, among them the first, the last and all; one more panics.
func goexitFanOut(r *rig) {
	const n = 5
	for exits := range 1 << n {
		topic := "a" + strings.Repeat("a", exits)
		var order []int
		for i := range n {
			r.on(topic, func(context.Context, Message) error {
				order = append(order, i)
				if exits>>i&1 != 0 {
					runtime.Goexit()
				}
				if i == 2 {
					panic(errFault)
				}
				return nil
			}, WithSync())
		}
		// The publish is a handler's, which exits with it, and whose own fan-out
		// goes on too.
		var after sightings
		r.on("outer."+topic, func(ctx context.Context, _ Message) error {
			_, err := r.Publish(ctx, topic, nil)
			return err
		}, WithSync())
		r.on("outer."+topic, after.handle, WithSync())
		o := r.pubLater(context.Background(), "outer."+topic, nil)
		require.True(r, o.done())
		require.Equal(r, exits != 0, o.at.IsZero(), "Publish returned from a goroutine that exits")
		require.Equal(r, []int{0, 1, 2, 3, 4}, order)
		require.Len(r, after.payloads(), 1)
		var want, got []Reason
		for i := range n {
			switch {
			case exits>>i&1 != 0:
				want = append(want, ReasonGoexit)
			case i == 2:
				want = append(want, ReasonPanic)
			}
		}
		if exits != 0 {
			want = append(want, ReasonGoexit) // The handler that published.
		}
		for _, l := range r.DeadLetters().Take() {
			got = append(got, l.Reason)
		}
		require.Equal(r, want, got)
		require.Zero(r, r.Stats().Running)
	}
}
