package pubsub

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// rig is a broker under test. Its methods fail the test when what they do fails.
type rig struct {
	*testing.T
	*Broker
}

// inBubble runs a subtest with a new broker in a synctest bubble: time is virtual
// there, and a wait that nothing ends is a deadlock, which fails.
func inBubble(t *testing.T, promise string, test func(r *rig), opts ...Option) {
	t.Helper()
	t.Run(promise, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(&rig{T: t, Broker: New(opts...)}) })
	})
}

func (r *rig) on(pattern string, h Handler, opts ...SubscribeOption) *Subscription {
	r.Helper()
	s, err := r.Subscribe(pattern, h, opts...)
	require.NoError(r, err)
	return s
}

func (r *rig) pub(topic string, payload any) uint64 {
	r.Helper()
	id, err := r.Publish(context.Background(), topic, payload)
	require.NoError(r, err)
	require.NotZero(r, id)
	return id
}

// sightings records what a handler is called with.
type sightings struct {
	mu   sync.Mutex
	msgs []Message
}

func (s *sightings) handle(_ context.Context, msg Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.msgs = append(s.msgs, msg)
	return nil
}

func (s *sightings) payloads() []any {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]any, len(s.msgs))
	for i, m := range s.msgs {
		all[i] = m.Payload
	}
	return all
}

// turnstile is a handler whose calls do not return until they are let.
type turnstile struct {
	sightings
	pass chan struct{}
	once sync.Once
}

func (r *rig) turnstile() *turnstile {
	g := &turnstile{pass: make(chan struct{})}
	r.Cleanup(g.open)
	return g
}

func (g *turnstile) handle(ctx context.Context, msg Message) error {
	_ = g.sightings.handle(ctx, msg)
	<-g.pass
	return nil
}

// let lets one call return, and waits until all that follows from it has happened.
func (g *turnstile) let() {
	g.pass <- struct{}{}
	synctest.Wait()
}

// open lets all calls return, now and later.
func (g *turnstile) open() { g.once.Do(func() { close(g.pass) }) }

// full subscribes with a queue of one, and fills it: one message runs, one is
// queued. Their payloads are "running" and "queued".
func (r *rig) full(topic string, p DropPolicy) (*Subscription, *turnstile) {
	r.Helper()
	g := r.turnstile()
	s := r.on(topic, g.handle, WithQueueSize(1), WithDropPolicy(p))
	r.fill(topic)
	require.Equal(r, SubscriptionStats{Matched: 2, Queued: 1, Running: 1}, s.Stats())
	return s, g
}

func (r *rig) fill(topic string) {
	r.Helper()
	r.pub(topic, "running")
	synctest.Wait()
	r.pub(topic, "queued")
}

// letters takes the dead letters and checks how many there are.
func (r *rig) letters(n int) []DeadLetter {
	r.Helper()
	all := r.DeadLetters().Take()
	require.Len(r, all, n)
	return all
}

// outcome is what a Publish in another goroutine has come to, once it is done.
type outcome struct {
	id  uint64
	err error
	at  time.Time
	end chan struct{} // closed when done
}

func (o *outcome) done() bool {
	select {
	case <-o.end:
		return true
	default:
		return false
	}
}

// pubLater publishes in a goroutine of its own, and returns when that waits or is
// done.
func (r *rig) pubLater(ctx context.Context, topic string, payload any) *outcome {
	o := &outcome{end: make(chan struct{})}
	go func() {
		defer close(o.end)
		o.id, o.err = r.Publish(ctx, topic, payload)
		o.at = time.Now()
	}()
	synctest.Wait()
	return o
}

// hook runs something once, where the broker next reads its clock or a value of the
// publisher's ctx. In Publish the first is between finding out whom the message goes
// to and serving them, the second between finding a queue full and waiting for room.
type hook struct {
	context.Context
	once func()
}

func (h *hook) run() {
	if f := h.once; f != nil {
		h.once = nil
		f()
	}
}

func (h *hook) now() time.Time {
	h.run()
	return time.Now()
}

func (h *hook) Value(key any) any {
	h.run()
	return h.Context.Value(key)
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// A nil error means accepted, not handled.
func TestAcceptedNotDelivered(t *testing.T) {
	fault := errors.New("fault")
	fails := func(context.Context, Message) error { return fault }
	panics := func(context.Context, Message) error { panic(fault) }
	for mode, opts := range map[string][]SubscribeOption{"synchronous": {WithSync()}, "asynchronous": nil} {
		inBubble(t, "a handler's error is a dead letter and never Publish's: "+mode, func(r *rig) {
			r.on("a", fails, opts...)
			r.on("a", panics, opts...)
			id := r.pub("a", "x")
			synctest.Wait()
			for _, l := range r.letters(2) {
				require.Equal(r, id, l.Message.ID)
				require.ErrorIs(r, l.Err, fault)
			}
		})
	}
	inBubble(t, "with an error and an id the other subscriptions have the message", func(r *rig) {
		var dropping, blocking, synchronous sightings
		full, gate := r.full("a.b", Block)
		r.on("a.*", synchronous.handle, WithSync())
		r.on("a.*", blocking.handle, WithDropPolicy(Block))
		r.on("a.*", dropping.handle)
		id, err := r.Publish(canceled(), "a.b", "x")
		require.ErrorIs(r, err, context.Canceled)
		require.EqualValues(r, 3, id)
		gate.open()
		synctest.Wait()
		for _, s := range []*sightings{&dropping, &blocking, &synchronous} {
			require.Equal(r, []any{"x"}, s.payloads())
		}
		require.Equal(r, []any{"running", "queued"}, gate.payloads())
		l := r.letters(1)[0]
		require.Equal(r, full.ID(), l.SubscriptionID)
		require.Equal(r, id, l.Message.ID)
	})
}

// Only synchronous handlers and full Block queues hold a publisher.
func TestPublishDoesNotWait(t *testing.T) {
	for _, p := range []DropPolicy{DropOldest, DropNewest, Block} {
		inBubble(t, "a done ctx does not stop a publish that need not wait: "+p.String(), func(r *rig) {
			var sync, async sightings
			r.on("a", sync.handle, WithSync())
			r.on("a", async.handle, WithQueueSize(1), WithDropPolicy(p))
			id, err := r.Publish(canceled(), "a", "x")
			require.NoError(r, err)
			require.EqualValues(r, 1, id)
			synctest.Wait()
			require.Equal(r, []any{"x"}, sync.payloads())
			require.Equal(r, []any{"x"}, async.payloads())
			r.letters(0)
		})
	}
	for _, p := range []DropPolicy{DropOldest, DropNewest} {
		inBubble(t, "a full queue that drops does not hold it: "+p.String(), func(r *rig) {
			s, _ := r.full("a", p)
			start := time.Now()
			for range 1000 {
				r.pub("a", "x")
			}
			require.Equal(r, start, time.Now())
			require.EqualValues(r, 1000, s.Stats().Dropped)
		})
	}
	inBubble(t, "ctx bounds the wait for room, and the others are served", func(r *rig) {
		s, _ := r.full("a", Block)
		var dropping, blocking, synchronous sightings
		r.on("a", synchronous.handle, WithSync())
		r.on("a", blocking.handle, WithDropPolicy(Block))
		r.on("a", dropping.handle)
		start := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		o := r.pubLater(ctx, "a", "x")
		require.False(r, o.done())
		require.Equal(r, []any{"x"}, dropping.payloads(), "a dropping queue has to wait for a Block queue")
		require.Empty(r, synchronous.payloads(), "served before the Block queues")
		require.EqualValues(r, 2, s.Stats().Matched, "counted while its publisher waits")

		time.Sleep(time.Second)
		synctest.Wait()
		require.True(r, o.done())
		require.Equal(r, start.Add(time.Second), o.at)
		require.EqualValues(r, 3, o.id)
		require.ErrorIs(r, o.err, context.DeadlineExceeded)
		require.Equal(r, []any{"x"}, blocking.payloads())
		require.Equal(r, []any{"x"}, synchronous.payloads())
		require.Equal(r, SubscriptionStats{Matched: 3, Dropped: 1, Queued: 1, Running: 1}, s.Stats())
		l := r.letters(1)[0]
		require.Equal(r, ReasonCanceled, l.Reason)
		require.ErrorIs(r, l.Err, context.DeadlineExceeded)
		require.Equal(r, s.ID(), l.SubscriptionID)
		require.Equal(r, "x", l.Message.Payload)
		require.True(r, start.Equal(l.Message.Time))
		require.True(r, o.at.Equal(l.Time), "not the moment it gave up")
	})
	inBubble(t, "a ctx done before, at a full queue, is not waited for", func(r *rig) {
		r.full("a", Block)
		start := time.Now()
		_, err := r.Publish(canceled(), "a", "x")
		require.ErrorIs(r, err, context.Canceled)
		require.Equal(r, start, time.Now())
		require.Equal(r, ReasonCanceled, r.letters(1)[0].Reason)
	})
	inBubble(t, "several full Block queues are given up or waited for, each by itself", func(r *rig) {
		var subs [3]*Subscription
		var gates [3]*turnstile
		for i := range subs {
			gates[i] = r.turnstile()
			subs[i] = r.on("x", gates[i].handle, WithQueueSize(1), WithDropPolicy(Block))
		}
		r.fill("x")
		var last sightings
		r.on("x", last.handle, WithSync())
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		o := r.pubLater(ctx, "x", "x")
		gates[1].let() // The second has room again.
		require.False(r, o.done())
		time.Sleep(time.Second)
		synctest.Wait()
		require.True(r, o.done())
		require.ErrorIs(r, o.err, context.DeadlineExceeded)
		require.Equal(r, "context deadline exceeded", o.err.Error(), "said twice")
		require.Equal(r, []any{"x"}, last.payloads())
		letters := r.letters(2)
		require.Equal(r, []uint64{subs[0].ID(), subs[2].ID()}, []uint64{letters[0].SubscriptionID, letters[1].SubscriptionID})
		gates[1].open()
		synctest.Wait()
		require.Equal(r, []any{"running", "queued", "x"}, gates[1].payloads())
	})
	inBubble(t, "publishers that wait are served first come, first served", func(r *rig) {
		_, gate := r.full("a", Block)
		gaveUp, giveUp := context.WithCancel(context.Background())
		waiting := make([]*outcome, 6)
		for i := range waiting {
			ctx := context.Background()
			if i%3 == 1 {
				ctx = gaveUp
			}
			waiting[i] = r.pubLater(ctx, "a", i)
		}
		giveUp()
		synctest.Wait()
		for i, o := range waiting {
			require.Equal(r, i%3 == 1, o.done())
			if o.done() {
				require.ErrorIs(r, o.err, context.Canceled)
			}
		}
		for _, i := range []int{0, 2, 3, 5} {
			require.False(r, waiting[i].done())
			gate.let()
			require.True(r, waiting[i].done(), "room for one serves one")
			_, err := r.Publish(canceled(), "a", "newcomer")
			require.ErrorIs(r, err, context.Canceled, "a newcomer overtakes those who wait")
		}
		gate.open()
		synctest.Wait()
		require.Equal(r, []any{"running", "queued", 0, 2, 3, 5}, gate.payloads())
	})

	// The clock is read between the end of ctx and the dead letter: what happens
	// there is what wins the race.
	for _, race := range []struct {
		promise string
		first   func(s *Subscription, g *turnstile)
		handled []any
		letters []any
	}{
		{"room wins over a ctx that is done too",
			func(_ *Subscription, g *turnstile) { g.let() }, []any{"running", "queued", "x", "next"}, nil},
		{"the subscription's end wins over a ctx that is done too",
			func(s *Subscription, _ *turnstile) { s.Unsubscribe() }, []any{"running"}, []any{"queued", "x"}},
	} {
		var clock hook
		inBubble(t, race.promise, func(r *rig) {
			s, gate := r.full("a", Block)
			ctx, cancel := context.WithCancel(context.Background())
			o := r.pubLater(ctx, "a", "x")
			clock.once = func() { race.first(s, gate) }
			cancel()
			<-o.end
			require.Nil(r, clock.once, "the clock was not read: this tests nothing")
			require.NoError(r, o.err)
			// Regression guard: with a wake-up left behind, the next to wait would
			// go on at once, as if it were late.
			next := r.pubLater(context.Background(), "a", "next")
			require.Equal(r, s.Stats().Queued == 0, next.done())
			gate.open()
			synctest.Wait()
			require.Equal(r, race.handled, gate.payloads())
			for i, l := range r.letters(len(race.letters)) {
				require.Equal(r, ReasonUnsubscribed, l.Reason)
				require.Equal(r, race.letters[i], l.Message.Payload)
			}
			require.EqualValues(r, len(race.handled)+len(race.letters), s.Stats().Matched)
		}, WithClock(clock.now))
	}
}
