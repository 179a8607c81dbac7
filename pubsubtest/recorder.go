package pubsubtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed-b8032e04/pubsub"
)

// Recorder keeps the messages that a pattern receives: see [Record].
type Recorder struct {
	// Timeout is how long the waits wait at most; ten seconds unless it is changed, or
	// what the Broker's was. It must not be changed while one of them waits.
	Timeout time.Duration

	t         testing.TB
	broker    *pubsub.Broker
	sub       *pubsub.Subscription
	published uint64  // when the recorder was made
	came      changes // announced with each message

	mu       sync.Mutex // guards messages
	messages []pubsub.Message
}

// Record subscribes to a pattern and returns a recorder of all it receives until the
// test ends. [Broker.Record] does the same for the broker of [New]; this is for any
// other, and for subtests. A pattern that is invalid and a broker that is closed stop the
// test.
//
// The recorder is a synchronous subscription with an unbounded list, so it never drops,
// and has a message when its Publish returns. Publish serves it after the queues and
// the synchronous handlers that were there before: one that is stuck, or a full queue
// with [pubsub.Block], holds the recording as it does the publisher. Messages of several
// publishers are in the order in which they came. The broker's counters count the
// recorder like any subscription.
func Record(t testing.TB, b *pubsub.Broker, pattern string) *Recorder {
	t.Helper()
	r := &Recorder{t: t, broker: b, Timeout: defaultTimeout, published: b.Stats().Published}
	sub, err := b.Subscribe(pattern, r.handle, pubsub.WithSync(), pubsub.WithName(t.Name()))
	if err != nil {
		t.Fatalf("pubsubtest: recording %s: %v", printable(pattern, shownName), err)
	}
	r.sub = sub
	t.Cleanup(sub.Unsubscribe)
	return r
}

// handle runs in the publishers' goroutines, possibly when the test is over: it leaves
// t alone.
func (r *Recorder) handle(_ context.Context, msg pubsub.Message) error {
	r.mu.Lock()
	r.messages = append(r.messages, msg)
	r.mu.Unlock()
	r.came.announce()
	return nil
}

// Messages returns what has been recorded, oldest first. The slice is the caller's. It
// does not block and may be called from anywhere, also after the test.
func (r *Recorder) Messages() []pubsub.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.messages)
}

// Wait waits until n messages have been recorded and returns the n-th, counted from 1
// and from when the recorder was made. When they are there already it does not wait.
//
// When they have not come after Timeout, or when the broker is closed and none can come
// any more, the test fails and is stopped, with a list of those that have.
func (r *Recorder) Wait(n int) pubsub.Message {
	r.t.Helper()
	if n < 1 {
		r.t.Fatalf("pubsubtest: Wait(%d): messages are counted from 1", n)
	}
	var found pubsub.Message
	r.await(fmt.Sprintf("message %d", n), func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.messages) < n {
			return false
		}
		found = r.messages[n-1]
		return true
	})
	return found
}

// WaitFor waits for a message that match accepts and returns it, the oldest when there
// are several: for what may come in any order. It fails as Wait does. It calls match once
// for each message, in the test's goroutine.
func (r *Recorder) WaitFor(match func(pubsub.Message) bool) pubsub.Message {
	r.t.Helper()
	var found pubsub.Message
	seen := 0
	r.await("message that match accepts", func() bool {
		for _, msg := range r.Messages()[seen:] {
			seen++
			if match(msg) {
				found = msg
				return true
			}
		}
		return false
	})
	return found
}

// await stops the test when look does not return true in time.
func (r *Recorder) await(what string, look func() bool) {
	r.t.Helper()
	if r.came.await(r.Timeout, r.sub.Done(), look) {
		return
	}
	in := fmt.Sprintf("within %v", r.Timeout)
	select {
	case <-r.sub.Done():
		in = "before the broker was closed"
	default:
	}
	published := r.broker.Stats().Published - r.published
	r.t.Fatalf("pubsubtest: no %s on %s %s; %s%s", what, printable(r.sub.Pattern(), shownName), in,
		listMessages(r.Messages(), published), listCauses(r.broker.DeadLetters().Snapshot()))
}
