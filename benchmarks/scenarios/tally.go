package scenarios

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// maxPublishers is how many publishers a tally can tell apart.
const maxPublishers = 8

// patience is how long a round may take to be delivered before something is
// called lost. The slowest peer needs less than a second. Tests have less.
var patience = 30 * time.Second

// rendezvous lets a publisher park until all subscribers have what they expect.
type rendezvous struct {
	missing atomic.Int64
	done    chan struct{}
	timer   *time.Timer
}

func newRendezvous() *rendezvous {
	timer := time.NewTimer(patience)
	timer.Stop()
	return &rendezvous{done: make(chan struct{}, 1), timer: timer}
}

// arrive says that one more subscriber has all it expects. It never blocks, so
// that a doubled delivery is counted and not turned into a deadlock.
func (r *rendezvous) arrive() {
	if r.missing.Add(-1) == 0 {
		select {
		case r.done <- struct{}{}:
		default:
		}
	}
}

func (r *rendezvous) wait() error {
	r.timer.Reset(patience)
	defer r.timer.Stop()
	select {
	case <-r.done:
		return nil
	case <-r.timer.C:
		return fmt.Errorf("%d subscribers have not handled all their messages after %v", r.missing.Load(), patience)
	}
}

// tally counts what one subscriber handles. It costs every contender the same
// few nanoseconds, on a cache line that no other tally shares.
//
// A sequence number has its publisher in the upper half and, in the lower, a
// count that starts again after ring messages: more than can be under way.
type tally struct {
	all  *rendezvous
	want atomic.Uint64 // how many deliveries complete the round
	ring uint32
	body int // the length of each

	// These belong to the one goroutine that handles at a time.
	seen   uint64
	faults uint64
	next   [maxPublishers]uint32

	// These are for peers whose calls overlap.
	overlapping atomic.Uint64
	sum         atomic.Uint64

	_ [64]byte
}

// ordered handles a message of a peer that keeps the order.
func (t *tally) ordered(seq uint64, body []byte) {
	publisher, number := seq>>32%maxPublishers, uint32(seq)
	if number != t.next[publisher] || len(body) != t.body {
		t.faults++
	}
	t.next[publisher] = (number + 1) & (t.ring - 1)
	t.seen++
	if t.seen == t.want.Load() {
		t.all.arrive()
	}
}

// unordered handles a message of a peer that keeps none. Losing one message and
// doubling another changes the sum.
func (t *tally) unordered(seq uint64, _ []byte) {
	t.sum.Add(uint64(uint32(seq)))
	if t.overlapping.Add(1) == t.want.Load() {
		t.all.arrive()
	}
}

var errOrder = errors.New("messages are out of order, doubled or of the wrong length")

// check compares with what was published; nothing may be under way.
func (t *tally) check(ordered bool, sum uint64) error {
	want := t.want.Load()
	switch {
	case ordered && t.faults > 0:
		return fmt.Errorf("%w: %d of %d", errOrder, t.faults, t.seen)
	case ordered && t.seen != want:
		return fmt.Errorf("%d messages handled, %d published", t.seen, want)
	case !ordered && t.overlapping.Load() != want:
		return fmt.Errorf("%d messages handled, %d published", t.overlapping.Load(), want)
	case !ordered && t.sum.Load() != sum:
		return fmt.Errorf("messages were lost and others doubled: their numbers add up to %d instead of %d", t.sum.Load(), sum)
	}
	return nil
}
