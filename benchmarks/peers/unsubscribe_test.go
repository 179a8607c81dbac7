package peers

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/seed-b8032e04/pubsub"
)

var rounds = flag.Int("rounds", 50, "how often TestCallAfterUnsubscribe ends a subscription of each contender")

const (
	// longestWait is how long the unsubscriber waits at most once there was a call.
	longestWait = 200 * time.Microsecond
	// afterEnd is how many messages are published when a subscription has ended, so
	// that a call of an ended one has every chance to show.
	afterEnd = 100
)

// The stages of a subscription, in their order.
const (
	live     = iota
	returned // Unsubscribe has returned
	waited   // and so has the contender's own wait for the calls that have begun
	stages
)

// ending is what a contender offers to whoever ends one of its subscriptions.
type ending struct {
	unsubscribe func() error
	// wait returns when the calls that have begun are over; nil when that cannot be
	// asked for while others publish.
	wait func()
	// begun is how many calls have begun; nil when the contender does not say.
	begun func() uint64
}

// ender is one contender. Its handler's first and only statement calls first.
type ender struct {
	peer      Peer
	wait      string // what ending.wait is; empty when there is none
	oneBus    bool   // for all rounds, since a server takes long to start
	subscribe func(bus Bus, topic string, first func()) (ending, error)
}

func enders() []ender {
	const done = "`<-sub.Done()`"
	return []ender{
		{peer: Pubsub, wait: done, subscribe: endPubsub},
		{peer: PubsubDropOldest, wait: done, subscribe: endPubsub},
		{peer: PubsubSync, wait: done, subscribe: endPubsub},
		{peer: NATS, wait: "`SetClosedHandler`", oneBus: true, subscribe: endNATS},
		// A publisher holds the bus's lock while it calls handlers, and Unsubscribe
		// takes it.
		{peer: EventBusSync, wait: "`Unsubscribe`", subscribe: endEventBus(func(*eventBus) func() { return func() {} })},
		{peer: EventBusAsync, wait: "`WaitAsync`", subscribe: endEventBus(func(b *eventBus) func() { return b.bus.WaitAsync })},
		// A publisher under way can still add to what WaitAsync waits for.
		{peer: EventBusTransactional, subscribe: endEventBus(func(*eventBus) func() { return nil })},
	}
}

func endPubsub(bus Bus, topic string, first func()) (ending, error) {
	b := bus.(*pubsubBus)
	sub, err := b.broker.Subscribe(topic, func(context.Context, pubsub.Message) error {
		first()
		return nil
	}, b.options...)
	if err != nil {
		return ending{}, err
	}
	return ending{
		unsubscribe: func() error { sub.Unsubscribe(); return nil },
		wait:        func() { <-sub.Done() },
		begun: func() uint64 {
			s := sub.Stats()
			return s.Delivered + s.Failed + uint64(s.Running)
		},
	}, nil
}

func endNATS(bus Bus, topic string, first func()) (ending, error) {
	b := bus.(*natsBus)
	sub, err := b.conn.Subscribe(topic, func(*nats.Msg) { first() })
	if err != nil {
		return ending{}, err
	}
	if err := sub.SetPendingLimits(b.pending, -1); err != nil {
		return ending{}, err
	}
	ended := make(chan struct{})
	sub.SetClosedHandler(func(string) { close(ended) })
	return ending{unsubscribe: sub.Unsubscribe, wait: func() { <-ended }}, nil
}

// endEventBus needs a bus with no other handler: Unsubscribe compares code pointers.
func endEventBus(wait func(*eventBus) func()) func(Bus, string, func()) (ending, error) {
	return func(bus Bus, topic string, first func()) (ending, error) {
		b := bus.(*eventBus)
		handle := func(*Payload) { first() }
		if err := b.subscribe(b.bus, topic, handle); err != nil {
			return ending{}, err
		}
		return ending{
			unsubscribe: func() error { return b.bus.Unsubscribe(topic, handle) },
			wait:        wait(b),
		}, nil
	}
}

// firsts counts the first statements that ran in each stage.
type firsts [stages]uint64

// endOnce has one goroutine publish in a loop and another, this one, end the
// subscription at a random moment. It returns when no call can come any more, with
// how many calls had begun when Unsubscribe returned, if the contender says so.
func endOnce(t *testing.T, e ender, bus Bus, topic string) (n firsts, begun uint64) {
	t.Helper()
	var (
		stage   atomic.Int32
		counts  [stages]atomic.Uint64
		called  = make(chan struct{}) // once
		over    atomic.Bool           // the subscription has ended, and there was a wait for it
		stopped = make(chan error, 1) // what the publisher ended with
	)
	end, err := e.subscribe(bus, topic, func() {
		at := stage.Load() // the handler's first statement
		if counts[at].Add(1) == 1 && at == live {
			close(called)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := bus.Settle(); err != nil {
		t.Fatal(err)
	}
	go func() {
		payload := NewPayload(0, nil)
		for left := afterEnd; left > 0; {
			if over.Load() {
				left--
			}
			if err := bus.Publish(topic, &payload); err != nil {
				stopped <- err
				return
			}
		}
		stopped <- nil
	}()

	select {
	case <-called:
	case err := <-stopped:
		t.Fatalf("the publisher stopped: %v", err)
	case <-time.After(patience):
		t.Fatal("the handler was never called")
	}
	for start, d := time.Now(), rand.N(longestWait); time.Since(start) < d; {
		runtime.Gosched()
	}
	err = end.unsubscribe()
	stage.Store(returned)
	if err != nil {
		t.Fatal(err)
	}
	if end.begun != nil {
		begun = end.begun()
	}
	if end.wait != nil {
		end.wait()
		stage.Store(waited)
	}
	over.Store(true)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if e.oneBus {
		err = bus.Settle() // what was published has been read, and the wait is over
	} else {
		err = bus.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range counts {
		n[i] = counts[i].Load()
	}
	return n, begun
}

// tally is what the rounds of one contender came to.
type tally struct {
	calls       uint64
	lateRounds  uint64 // with a call whose first statement ran when Unsubscribe had returned
	late        uint64 // such calls
	mostLate    uint64 // in one round
	afterWait   uint64 // calls whose first statement ran when the contender's wait was over too
	unannounced uint64 // rounds in which not as many calls ran as had begun, as far as it says
}

func (s *tally) add(n firsts, begun uint64) {
	late := n[returned] + n[waited]
	s.calls += n[live] + late
	s.late += late
	s.mostLate = max(s.mostLate, late)
	s.afterWait += n[waited]
	if late > 0 {
		s.lateRounds++
	}
	if n[live]+late != begun {
		s.unannounced++
	}
}

// TestCallAfterUnsubscribe counts the calls whose handler runs its first statement
// when Unsubscribe has returned. Whoever does not wait for a call cannot prevent
// that: it may have begun before, its first line still to come. So what a peer does
// is logged and never a failure. What pubsub promises is checked: its Stats, right
// after Unsubscribe, have counted every call that ever runs, and none runs after
// Done.
func TestCallAfterUnsubscribe(t *testing.T) {
	var table strings.Builder
	for _, e := range enders() {
		t.Run(e.peer.Name, func(t *testing.T) {
			s := endOften(t, e)
			afterWait, unannounced := "", ""
			if e.wait != "" {
				afterWait = fmt.Sprintf("%d, %s", s.afterWait, e.wait)
			}
			if e.peer.Module == pubsubModule {
				unannounced = fmt.Sprint(s.unannounced)
				if s.unannounced > 0 {
					t.Errorf("in %d rounds not as many calls ran as Stats had counted when Unsubscribe returned", s.unannounced)
				}
				if s.afterWait > 0 {
					t.Errorf("%d calls ran after Done", s.afterWait)
				}
			}
			fmt.Fprintf(&table, "| %s | %d | %d | %d | %d | %s | %s |\n",
				e.peer.Name, s.calls, s.lateRounds, s.late, s.mostLate, afterWait, unannounced)
		})
	}
	t.Logf("%d rounds each, %s, %s/%s, %d threads\n\n"+
		"| peer | calls | rounds with a late one | late calls | most in a round | after the wait | rounds with other calls than counted |\n"+
		"|---|---|---|---|---|---|---|\n%s",
		*rounds, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), table.String())
}

func endOften(t *testing.T, e ender) (s tally) {
	var bus Bus
	for round := range *rounds {
		if bus == nil || !e.oneBus {
			bus = open(t, e.peer)
		}
		n, begun := endOnce(t, e, bus, fmt.Sprintf("%s.%d", topic, round))
		s.add(n, begun)
	}
	if e.oneBus && bus != nil {
		if err := bus.Close(); err != nil {
			t.Error(err)
		}
	}
	return s
}
