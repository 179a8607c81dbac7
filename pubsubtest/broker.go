package pubsubtest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed-b8032e04/pubsub"
)

const (
	defaultTimeout = 10 * time.Second

	// lettersKept is how many dead letters a broker keeps until the test ends. Memory
	// grows with what there is, not with this.
	lettersKept = 1 << 16
)

// Broker is a broker for one test: see [New]. Give what is tested the [pubsub.Broker]
// in it.
type Broker struct {
	*pubsub.Broker

	// Timeout is how long WaitDeadLetter and the shutdown at the end of the test wait
	// at most, and recorders that Record makes from now on; New sets it to ten seconds.
	// It must not be changed while one of them waits.
	Timeout time.Duration

	t       testing.TB
	letters changes // announced with each dead letter

	mu      sync.Mutex // guards the rest
	allowed []allowance
	awaited map[letterKey]int // how many of each WaitDeadLetter has returned
}

// allowance says which dead letters a test expects.
type allowance struct {
	pattern string // of the topic
	reasons []pubsub.Reason
}

// letterKey tells letters apart as far as that is possible: of letters with the same
// key it does not matter which is which.
type letterKey struct {
	message, subscription uint64
	reason                pubsub.Reason
	time                  time.Time
}

func keyOf(l pubsub.DeadLetter) letterKey {
	return letterKey{l.Message.ID, l.SubscriptionID, l.Reason, l.Time}
}

// New returns a broker that is shut down when the test and its subtests end, after the
// cleanups that were registered later. The test then fails when a handler still runs
// after Timeout, and when there are dead letters that nobody expected: neither
// [Broker.WaitDeadLetter] has returned them, nor [Broker.AllowDeadLetters] allows them,
// nor has anybody taken them with [pubsub.DeadLetters.Take]. The failure lists them.
//
// The broker is the test's, and may be closed or shut down earlier. Options are as for
// [pubsub.New], but [pubsub.WithDeadLetterCapacity] has no effect: the last 65,536 dead
// letters are kept.
func New(t testing.TB, opts ...pubsub.Option) *Broker {
	t.Helper()
	b := &Broker{t: t, Timeout: defaultTimeout}
	all := []pubsub.Option{pubsub.WithDeadLetterHandler(func(pubsub.DeadLetter) { b.letters.announce() })}
	all = append(all, opts...)
	all = append(all, pubsub.WithDeadLetterCapacity(lettersKept))
	b.Broker = pubsub.New(all...)
	t.Cleanup(func() {
		t.Helper()
		b.end()
	})
	return b
}

// Record returns a recorder of what is published from now on to the topics that match a
// pattern, for the test that the broker was made for: see [Record].
func (b *Broker) Record(pattern string) *Recorder {
	b.t.Helper()
	r := Record(b.t, b.Broker, pattern)
	r.Timeout = b.Timeout
	return r
}

// AllowDeadLetters says that dead letters of messages whose topic matches a pattern, for
// one of the reasons, or for any when none is given, do not fail the test; nor does it
// fail when there are none. It counts for the whole test, and may be called again to
// allow more. An invalid pattern stops the test.
func (b *Broker) AllowDeadLetters(pattern string, reasons ...pubsub.Reason) {
	b.t.Helper()
	a := newAllowance(b.t, pattern, reasons)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.allowed = append(b.allowed, a)
}

// WaitDeadLetter waits for a dead letter of a message whose topic matches a pattern, for
// one of the reasons, or for any when none is given, and returns it. When one is there
// already it does not wait. Each letter is returned once, the oldest first, and does not
// fail the test any more; it stays in [pubsub.Broker.DeadLetters].
//
// When none has come after Timeout the test fails and is stopped, with a list of those
// that have. An invalid pattern stops it too.
func (b *Broker) WaitDeadLetter(pattern string, reasons ...pubsub.Reason) pubsub.DeadLetter {
	b.t.Helper()
	want := newAllowance(b.t, pattern, reasons)
	var found pubsub.DeadLetter
	ok := b.letters.await(b.Timeout, nil, func() (ok bool) {
		found, ok = b.claim(want)
		return ok
	})
	if !ok {
		b.mu.Lock()
		others := b.unclaimed()
		b.mu.Unlock()
		b.t.Fatalf("pubsubtest: no dead letter %s within %v; %s",
			want, b.Timeout, listLetters("other dead letter", others))
	}
	return found
}

// claim returns the oldest letter that is wanted and has not been returned before.
func (b *Broker) claim(want allowance) (pubsub.DeadLetter, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	letters := b.unclaimed()
	i := slices.IndexFunc(letters, want.covers)
	if i < 0 {
		return pubsub.DeadLetter{}, false
	}
	if b.awaited == nil {
		b.awaited = make(map[letterKey]int)
	}
	b.awaited[keyOf(letters[i])]++
	return letters[i], true
}

// unclaimed returns the letters, oldest first, that WaitDeadLetter has not returned. It
// needs mu.
func (b *Broker) unclaimed() []pubsub.DeadLetter {
	returned := make(map[letterKey]int)
	return slices.DeleteFunc(b.DeadLetters().Snapshot(), func(l pubsub.DeadLetter) bool {
		key := keyOf(l)
		if returned[key] == b.awaited[key] {
			return false
		}
		returned[key]++
		return true
	})
}

// unexpected returns the letters, oldest first, that are neither allowed nor returned.
func (b *Broker) unexpected() []pubsub.DeadLetter {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(b.unclaimed(), func(l pubsub.DeadLetter) bool {
		return slices.ContainsFunc(b.allowed, func(a allowance) bool { return a.covers(l) })
	})
}

// end shuts the broker down and fails the test when it has to.
func (b *Broker) end() {
	b.t.Helper()
	subs := b.Subscriptions() // Shutdown takes those that it gives up off the list.
	before := make([]pubsub.SubscriptionStats, len(subs))
	for i, s := range subs {
		before[i] = s.Stats()
	}
	ctx, cancel := context.WithTimeout(context.Background(), b.Timeout)
	defer cancel()
	// What Shutdown gives up is told with the handler that is to blame, not again as
	// dead letters.
	givenUp := make(map[uint64]bool)
	if err := b.Shutdown(ctx); err != nil {
		b.t.Errorf("pubsubtest: the broker did not come to an end within %v:%s",
			b.Timeout, listStuck(b.Broker, subs, before))
		for _, s := range subs {
			givenUp[s.ID()] = !s.Pulled()
		}
	}
	letters := slices.DeleteFunc(b.unexpected(), func(l pubsub.DeadLetter) bool {
		return l.Reason == pubsub.ReasonUnsubscribed && givenUp[l.SubscriptionID]
	})
	if len(letters) > 0 {
		b.t.Errorf("pubsubtest: %s", listLetters("unexpected dead letter", letters))
	}
}

func newAllowance(t testing.TB, pattern string, reasons []pubsub.Reason) allowance {
	t.Helper()
	if _, err := pubsub.Match(pattern, "a"); err != nil {
		t.Fatalf("pubsubtest: %v", err)
	}
	return allowance{pattern, slices.Clone(reasons)}
}

func (a allowance) covers(l pubsub.DeadLetter) bool {
	matched, _ := pubsub.Match(a.pattern, l.Message.Topic) // newAllowance has checked the pattern.
	return matched && (len(a.reasons) == 0 || slices.Contains(a.reasons, l.Reason))
}

func (a allowance) String() string {
	s := "on " + printable(a.pattern, shownName)
	for i, r := range a.reasons {
		s += [...]string{" with reason ", " or "}[min(i, 1)] + r.String()
	}
	return s
}
