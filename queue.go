package pubsub

import "sync/atomic"

// A queue's state is one word: whether a call runs, whether somebody waits for
// the worker's progress, and how many positions have been claimed.
const (
	queueRunning = 1 << 63
	queueWaiting = 1 << 62
	queueClaims  = queueWaiting - 1
)

// smallBuffer is how many slots a buffer starts with, and the most that an idle
// queue keeps.
const smallBuffer = 2

// queue is a bounded FIFO between any number of producers and one worker, the
// goroutine that handles what is in it. Its owner has a lock, called mu here,
// which every method needs but those that say otherwise.
//
// Items have positions, 0, 1, 2 and so on in the order they were put. A position
// is claimed once: by the worker, which starts a call with its item, or by
// whoever evicts or discards it. Claims go in order, so that the positions below
// the number of claims are claimed, those from there to tail are queued, and at
// most size are.
//
// There are two buffers. Producers put into in; the worker claims from out, and
// when that is exhausted exchanges the two. So it needs the lock once for all
// that came in meanwhile, not once for each item: in between it claims with one
// compare-and-swap, which also settles the call before. An evictor claims the
// same way, hence takes the oldest item that has not been started, and copies
// out and clears the slot before it gives up the lock that an exchange needs.
//
// One mutex and one ring, locked for every item, was tried first and is simpler;
// BenchmarkPublish shows what this gains.
type queue[T any] struct {
	// mu guards these. What a producer touches comes first and fills, with mu, one
	// cache line; the worker's own fields, at the end, are on another.

	active bool    // a worker exists; whoever sets it starts one
	tail   uint64  // the next position to be put
	room   uint64  // the first that is not free, as last seen: at most what it is
	in     ring[T] // positions inFrom to tail
	inFrom uint64

	waiters waiterList[T]
	marks   []*flushMark // in the order of their positions
	spare   *waiter[T]   // to be used again, or nil
	// The last run of positions that were claimed other than by the worker.
	evictedFrom, evictedTo uint64

	// state is changed by compare-and-swap: by the worker without mu while
	// queueWaiting is not set, by everybody else with it.
	state atomic.Uint64

	// Changed by the worker with mu; the worker also reads them without.

	out     ring[T] // positions below split
	split   uint64
	current uint64 // the position claimed last

	size uint64 // immutable
}

// ring holds the items of a range of positions no longer than it has slots,
// whose number is a power of two or zero.
type ring[T any] struct{ slots []slot[T] }

// slot is the place of one item. The id is its message's: it stays when the item
// is taken, so that one can see, with mu, which message a call runs with.
type slot[T any] struct {
	item T
	id   uint64
}

func (r *ring[T]) slot(position uint64) *slot[T] {
	return &r.slots[position&uint64(len(r.slots)-1)]
}

// grow doubles the slots and moves the items at positions from up to to.
func (r *ring[T]) grow(from, to uint64) {
	larger := ring[T]{make([]slot[T], max(smallBuffer, 2*len(r.slots)))}
	for p := from; p < to; p++ {
		*larger.slot(p) = *r.slot(p)
	}
	*r = larger
}

// take returns the item at a position and clears its slot, so that it keeps
// nothing alive.
func (r *ring[T]) take(position uint64) T {
	var none T
	slot := r.slot(position)
	item := slot.item
	slot.item = none
	return item
}

// full reports whether size items are queued.
func (q *queue[T]) full() bool {
	// The worker's claims are looked at only when the last look does not
	// promise room: the word is on its cache line.
	if q.tail < q.room {
		return false
	}
	q.room = q.state.Load()&queueClaims + q.size
	return q.tail >= q.room
}

// vacant returns what the slot that the next put fills was given back, if
// anything.
func (q *queue[T]) vacant() (item T) {
	if q.tail-q.inFrom < uint64(len(q.in.slots)) {
		item = q.in.slot(q.tail).item
	}
	return item
}

// put queues an item, of the message with an id; the queue must not be full. It
// reports whether the caller has to start a worker.
func (q *queue[T]) put(item T, id uint64) (start bool) {
	if q.tail-q.inFrom == uint64(len(q.in.slots)) {
		q.in.grow(q.inFrom, q.tail)
	}
	*q.in.slot(q.tail) = slot[T]{item, id}
	q.tail++
	start = !q.active
	q.active = true
	return start
}

// evict claims the oldest item not yet started, unless the worker has made room
// meanwhile.
func (q *queue[T]) evict() (item T, ok bool) {
	for {
		state := q.state.Load()
		position := state & queueClaims
		if q.tail-position < q.size {
			return item, false
		}
		if q.state.CompareAndSwap(state, state+1) {
			q.noteEvicted(position, position+1)
			return q.remove(position), true
		}
	}
}

// discard claims all that is queued and gives each item, oldest first, to drop.
func (q *queue[T]) discard(drop func(T)) {
	var from uint64
	for {
		state := q.state.Load()
		from = state & queueClaims
		if q.state.CompareAndSwap(state, state&^queueClaims|q.tail) {
			break
		}
	}
	if from == q.tail {
		return
	}
	q.noteEvicted(from, q.tail)
	for p := from; p < q.tail; p++ {
		drop(q.remove(p))
	}
}

func (q *queue[T]) noteEvicted(from, to uint64) {
	if q.evictedTo != from {
		q.evictedFrom = from
	}
	q.evictedTo = to
}

// remove empties the slot of a position just claimed.
func (q *queue[T]) remove(position uint64) T {
	if position < q.split {
		return q.out.take(position)
	}
	q.inFrom = position + 1
	return q.in.take(position)
}

// next is the worker's: it ends the call that runs, if one does, and claims the
// next item, with which a call now runs. It returns false when none is queued.
func (q *queue[T]) next() (item T, ok bool) {
	// Nobody else changes the state now: the others need mu.
	state := q.state.Load() &^ queueRunning
	position := state & queueClaims
	if position == q.tail {
		q.state.Store(state)
		return item, false
	}
	if position >= q.split {
		// Every slot of out has been claimed, hence cleared.
		q.out, q.in = q.in, q.out
		q.split, q.inFrom = q.tail, q.tail
	}
	q.state.Store(state + 1 | queueRunning)
	q.current = position
	return q.remove(position), true
}

// take is next without mu, for the worker alone and only while a call runs. It
// also returns false when the worker has to look with mu: because out is
// exhausted, or because somebody waits for progress.
func (q *queue[T]) take() (item T, ok bool) {
	for {
		state := q.state.Load()
		position := state & queueClaims
		if state&queueWaiting != 0 || position >= q.split {
			return item, false
		}
		if q.state.CompareAndSwap(state, state+1) {
			q.current = position
			return q.out.take(position), true
		}
	}
}

// giveBack is the worker's, without mu: it puts the item that it claimed last,
// emptied, back into its slot, where a producer finds it when the buffers have
// been exchanged.
func (q *queue[T]) giveBack(item T) { q.out.slot(q.current).item = item }

// stop is the worker's: it ends the call that runs and claims nothing.
func (q *queue[T]) stop() {
	q.state.Store(q.state.Load() &^ queueRunning)
}

// end is the worker's last word, in the critical section in which it found the
// queue empty. One small buffer stays for the next message; larger ones go, and
// what was given back.
func (q *queue[T]) end() {
	q.active = false
	q.spare = nil
	if len(q.in.slots) == 0 {
		q.in, q.out = q.out, q.in
	}
	q.out = ring[T]{}
	if len(q.in.slots) > smallBuffer {
		q.in = ring[T]{}
	}
	clear(q.in.slots)
}

// release lets go of both buffers of a queue that is empty, runs no call and
// will take nothing more.
func (q *queue[T]) release() {
	q.in, q.out = ring[T]{}, ring[T]{}
	q.spare = nil
}

// load returns, as they are at one moment, how many items are queued, how many
// calls run (at most one), and how many positions have been claimed in all.
func (q *queue[T]) load() (queued, running, claims uint64) {
	state := q.state.Load()
	claims = state & queueClaims
	return q.tail - claims, state >> 63, claims
}

// running returns the id of the message with which a call runs, if one does.
func (q *queue[T]) running() (id uint64, ok bool) {
	if q.state.Load()&queueRunning == 0 {
		return 0, false
	}
	return q.out.slot(q.settled()).id, true
}

// settled returns the position below which every item has been handled, evicted
// or discarded.
func (q *queue[T]) settled() uint64 {
	state := q.state.Load()
	claims := state & queueClaims
	switch {
	case state&queueRunning == 0:
		return claims
	case claims == q.evictedTo:
		// The call runs with the item before those evicted since it began.
		return q.evictedFrom - 1
	default:
		return claims - 1
	}
}
