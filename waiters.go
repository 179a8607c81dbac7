package pubsub

import "slices"

// Those who wait for a queue: publishers for room in it, Flush for what is in
// it. Both set queueWaiting before they look a last time, so that the worker,
// which claims with that same word, cannot pass them by.

// verdict says what became of one subscription's copy of a message.
type verdict uint8

const (
	late   verdict = iota // the subscription took nothing more: it was not matched
	taken                 // queued, or dropped and booked: it was matched
	noRoom                // the queue is full and its policy is Block
)

// waiter is one publisher that waits for room, with its item: whoever makes
// room puts the item, so that room is never seen by two.
type waiter[T any] struct {
	ready chan struct{} // has one element when the publisher may go on
	id    uint64        // of its message

	// Guarded by mu, and the publisher's after it has received from ready.
	item       T
	verdict    verdict // once it is in the list no longer
	listed     bool
	prev, next *waiter[T]
}

// waiterList is a FIFO from which any waiter can be taken out.
type waiterList[T any] struct{ first, last *waiter[T] }

func (l *waiterList[T]) push(w *waiter[T]) {
	w.listed, w.prev = true, l.last
	if l.last == nil {
		l.first = w
	} else {
		l.last.next = w
	}
	l.last = w
}

// remove takes w out and returns its item.
func (l *waiterList[T]) remove(w *waiter[T]) T {
	if w.prev == nil {
		l.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	var none T
	item := w.item
	w.item, w.listed, w.prev, w.next = none, false, nil, nil
	return item
}

// newWaiter returns a waiter for an item, of the message with an id.
func (q *queue[T]) newWaiter(item T, id uint64) *waiter[T] {
	w := q.spare
	q.spare = nil
	if w == nil {
		w = &waiter[T]{ready: make(chan struct{}, 1)}
	}
	w.item, w.id = item, id
	return w
}

// reuse takes back a waiter that is not in the list and whose ready is empty. An idle
// queue keeps none: the publisher that waited last may get here after the worker has
// ended.
func (q *queue[T]) reuse(w *waiter[T]) {
	var none T
	w.item = none
	if q.active {
		q.spare = w
	}
}

// enlist makes w wait its turn. It returns false when there is room.
func (q *queue[T]) enlist(w *waiter[T]) bool {
	for q.waiters.first == nil {
		state := q.state.Load()
		if q.tail-state&queueClaims < q.size {
			return false
		}
		if q.state.CompareAndSwap(state, state|queueWaiting) {
			break
		}
	}
	q.waiters.push(w)
	return true
}

// withdraw takes out a waiter that gives up; false when it has been served,
// booked or released already.
func (q *queue[T]) withdraw(w *waiter[T]) bool {
	if !w.listed {
		return false
	}
	q.waiters.remove(w)
	q.settleWaiting()
	return true
}

// admit puts the item of the first waiter if there are one and room.
func (q *queue[T]) admit() bool {
	w := q.waiters.first
	if w == nil || q.full() {
		return false
	}
	q.put(q.waiters.remove(w), w.id) // A worker exists: the queue was full.
	q.wake(w, taken)
	q.settleWaiting()
	return true
}

// dismiss lets all waiters go with a verdict and gives each item to drop.
func (q *queue[T]) dismiss(v verdict, drop func(T)) {
	for w := q.waiters.first; w != nil; w = q.waiters.first {
		drop(q.waiters.remove(w))
		q.wake(w, v)
	}
	q.settleWaiting()
}

func (q *queue[T]) wake(w *waiter[T], v verdict) {
	w.verdict = v
	w.ready <- struct{}{} // Never blocks: it has room for the one that w is sent.
}

// flushMark is the position that one Flush waits for.
type flushMark struct {
	position uint64
	reached  chan struct{} // closed when all before position is settled
}

// mark returns a mark for a position, or nil when all before is settled.
func (q *queue[T]) mark(position uint64) *flushMark {
	q.state.Or(queueWaiting)
	if q.settled() >= position {
		q.settleWaiting()
		return nil
	}
	m := &flushMark{position: position, reached: make(chan struct{})}
	at := len(q.marks)
	for at > 0 && q.marks[at-1].position > position {
		at--
	}
	q.marks = slices.Insert(q.marks, at, m)
	return m
}

// unmark takes out the mark of a Flush that gives up.
func (q *queue[T]) unmark(m *flushMark) {
	if i := slices.Index(q.marks, m); i >= 0 {
		q.marks = slices.Delete(q.marks, i, i+1)
	}
	q.settleWaiting()
}

// reach tells those whose mark has been reached. The worker calls it whenever it
// has the lock, and so does whoever discards.
func (q *queue[T]) reach() {
	if len(q.marks) == 0 {
		return
	}
	settled := q.settled()
	n := 0
	for n < len(q.marks) && q.marks[n].position <= settled {
		close(q.marks[n].reached)
		n++
	}
	q.marks = slices.Delete(q.marks, 0, n)
	q.settleWaiting()
}

// settleWaiting clears queueWaiting when nobody waits.
func (q *queue[T]) settleWaiting() {
	if q.waiters.first == nil && len(q.marks) == 0 {
		q.marks = nil // A burst of Flush calls leaves no array behind.
		q.state.And(^uint64(queueWaiting))
	}
}
