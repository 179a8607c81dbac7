package pubsub

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Reason says why a message became a dead letter. The zero Reason is none.
type Reason int

const (
	_ Reason = iota
	// ReasonDroppedOldest says that a newer message evicted it from a full queue.
	ReasonDroppedOldest
	// ReasonDroppedNewest says that a full queue refused it.
	ReasonDroppedNewest
	// ReasonCanceled says that its publisher gave up waiting for room. Err says
	// why.
	ReasonCanceled
	// ReasonError says that the handler returned Err.
	ReasonError
	// ReasonPanic says that the handler panicked. Err is a [*PanicError].
	ReasonPanic
	// ReasonGoexit says that the handler called [runtime.Goexit]. Err is
	// [ErrGoexit].
	ReasonGoexit
	// ReasonUnsubscribed says that it was not started when the subscription
	// ended, or that its publisher waited for room when it ended or began to
	// drain.
	ReasonUnsubscribed
)

var reasonNames = [...]string{
	"unknown",
	ReasonDroppedOldest: "dropped_oldest",
	ReasonDroppedNewest: "dropped_newest",
	ReasonCanceled:      "canceled",
	ReasonError:         "error",
	ReasonPanic:         "panic",
	ReasonGoexit:        "goexit",
	ReasonUnsubscribed:  "unsubscribed",
}

// String returns the reason in lower case with underscores, such as
// dropped_oldest; unknown for the zero Reason and any value without a name.
func (r Reason) String() string {
	if r < 1 || int(r) >= len(reasonNames) {
		r = 0
	}
	return reasonNames[r]
}

// MarshalText returns what String does. It never fails.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// DeadLetter is the record of one message that one subscription did not handle.
// It shares the message's payload, which nobody may change.
type DeadLetter struct {
	// Time is the moment it was recorded, by the broker's clock; for a drop at
	// a full queue, the Time of the message that caused it.
	Time time.Time
	// SubscriptionID, SubscriptionName and Pattern are the subscription's.
	SubscriptionID   uint64
	SubscriptionName string
	Pattern          string
	// Message is the message that was not handled.
	Message Message
	// Reason says why.
	Reason Reason
	// Err is the error behind the reason; nil when the message was dropped
	// without one.
	Err error
}

// LogValue returns a group of the letter's fields for [log/slog]. The payload is
// not in it, since it may be large or secret, nor is the stack of a [*PanicError].
// The error is: a handler that puts the payload into its error, or panics with it,
// shows it.
func (l DeadLetter) LogValue() slog.Value {
	attrs := make([]slog.Attr, 0, 8)
	attrs = append(attrs,
		slog.String("reason", l.Reason.String()),
		slog.String("topic", l.Message.Topic),
		slog.Uint64("message_id", l.Message.ID),
		slog.Uint64("subscription_id", l.SubscriptionID),
		slog.String("pattern", l.Pattern),
		slog.Time("time", l.Time),
	)
	if l.SubscriptionName != "" {
		attrs = append(attrs, slog.String("subscription", l.SubscriptionName))
	}
	if l.Err != nil {
		attrs = append(attrs, slog.Any("error", l.Err))
	}
	return slog.GroupValue(attrs...)
}

// announcementQueueSize is how many letters the dead-letter handlers may be
// behind before the oldest announcements are skipped.
const announcementQueueSize = 1024

// DeadLetters holds a broker's most recent dead letters, and counts all. Its
// methods do not block, may be called from anywhere, handlers included, and
// work after Close. The broker makes it: see [Broker.DeadLetters].
type DeadLetters struct {
	// Immutable.

	capacity uint64
	handlers []func(DeadLetter)
	work     func() // starts announcing; a value, so that no start allocates

	mu sync.Mutex // guards the rest; no other lock is taken under it

	kept          ring[DeadLetter] // positions oldest to total
	oldest, total uint64
	announcements queue[DeadLetter]
}

func newDeadLetters(o brokerOptions) *DeadLetters {
	d := &DeadLetters{capacity: uint64(o.deadLetterCapacity), handlers: o.deadLetterHandlers}
	d.announcements.size = announcementQueueSize
	// It begins like one that has just been through with a letter.
	d.work = func() { d.announce(announcer{letters: d, next: len(d.handlers)}) }
	return d
}

// Len returns how many letters are kept.
func (d *DeadLetters) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return int(d.total - d.oldest)
}

// Total returns how many letters have ever been recorded, those evicted or taken
// since included.
func (d *DeadLetters) Total() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.total
}

// Snapshot returns the letters kept, oldest first. The slice is the caller's.
func (d *DeadLetters) Snapshot() []DeadLetter {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.list()
}

// Take returns the letters kept, oldest first, and keeps them no longer. Of
// concurrent calls each letter goes to one. The slice is the caller's.
func (d *DeadLetters) Take() []DeadLetter {
	d.mu.Lock()
	defer d.mu.Unlock()
	letters := d.list()
	d.kept, d.oldest = ring[DeadLetter]{}, d.total
	return letters
}

// list needs mu.
func (d *DeadLetters) list() []DeadLetter {
	letters := make([]DeadLetter, 0, d.total-d.oldest)
	for p := d.oldest; p < d.total; p++ {
		letters = append(letters, d.kept.slot(p).item)
	}
	return letters
}

// record keeps a letter and has it announced. It is called under the lock of the
// subscription that counts the failure or drop.
func (d *DeadLetters) record(l DeadLetter) {
	d.mu.Lock()
	if d.capacity == 0 {
		d.oldest++
	} else {
		if d.total-d.oldest == d.capacity {
			d.kept.take(d.oldest)
			d.oldest++
		}
		if d.total-d.oldest == uint64(len(d.kept.slots)) {
			d.kept.grow(d.oldest, d.total)
		}
		d.kept.slot(d.total).item = l
	}
	d.total++
	start := false
	if len(d.handlers) > 0 {
		if d.announcements.full() {
			d.announcements.evict()
		}
		start = d.announcements.put(l, l.Message.ID)
	}
	d.mu.Unlock()
	if start {
		go d.work() // ends when nothing is left to announce
	}
}

// announcer is the state of the goroutine that calls the dead-letter handlers.
type announcer struct {
	letters *DeadLetters
	letter  DeadLetter
	next    int  // the handler that letter goes to next
	calling bool // a handler has been called and has not returned
}

// announce calls the handlers until nothing is left to announce. It survives
// what they do: a panic ends one call, a Goexit its goroutine too, which another
// then replaces.
func (d *DeadLetters) announce(a announcer) {
	ended := false
	defer func() {
		if !ended {
			a.calling = false
			go d.announce(a) // ends when nothing is left to announce
		}
	}()
	for !a.run() {
		a.calling = false
	}
	ended = true
}

// run returns true when nothing is left to announce, false when a handler has
// panicked.
func (a *announcer) run() bool {
	defer func() {
		if a.calling {
			_ = recover() // The handler's own failure: there is nobody left to tell.
		}
	}()
	for {
		for a.next < len(a.letters.handlers) {
			handler := a.letters.handlers[a.next]
			a.next++
			a.calling = true
			handler(a.letter)
			a.calling = false
		}
		if !a.claim() {
			return true
		}
	}
}

// claim ends the announcement of one letter and begins the next one's; false
// when there is none, and the announcer's goroutine then ends.
func (a *announcer) claim() (ok bool) {
	d := a.letters
	d.mu.Lock()
	defer d.mu.Unlock()
	a.next = 0
	a.letter, ok = d.announcements.next()
	d.announcements.reach()
	if !ok {
		d.announcements.end()
	}
	return ok
}

// waitAnnounced waits until all that has been recorded before the call is
// announced, or ctx is done.
func (d *DeadLetters) waitAnnounced(ctx context.Context) error {
	d.mu.Lock()
	mark := d.announcements.mark(d.announcements.tail)
	d.mu.Unlock()
	if mark == nil {
		return nil
	}
	if err := wait(ctx, mark.reached); err != nil {
		d.mu.Lock()
		d.announcements.unmark(mark)
		d.mu.Unlock()
		return err
	}
	return nil
}

// announced reports whether all that has been recorded is announced.
func (d *DeadLetters) announced() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.announcements.settled() == d.announcements.tail
}
