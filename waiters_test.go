package pubsub

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// hammer is a queue under all that can happen to it at once. What became of each
// position is noted where it happens.
type hammer struct {
	mu   sync.Mutex // the owner's
	q    queue[*int]
	fate [200_000]atomic.Int32 // by position: how often it was handled or dropped
	wg   sync.WaitGroup
	last int // the newest that the worker started; the worker's
	bad  atomic.Int32
}

func (h *hammer) next() (item *int, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if item, ok = h.q.next(); ok {
		for h.admit() {
		}
	}
	h.q.reach()
	if !ok {
		h.q.end()
	}
	return item, ok
}

// admit numbers the item of a waiter when it is put.
func (h *hammer) admit() bool {
	if w := h.q.waiters.first; w != nil {
		*w.item = int(h.q.tail)
	}
	return h.q.admit()
}

func (h *hammer) work() {
	for item, ok := h.next(); ok; {
		if *item < h.last {
			h.bad.Add(1)
		}
		h.last = *item
		h.fate[*item].Add(1)
		if *item%3 > 0 {
			*item = -1 // A race, if somebody else still has it.
			h.q.giveBack(item)
		}
		if item, ok = h.q.take(); !ok {
			item, ok = h.next()
		}
	}
}

func (h *hammer) put(item *int) {
	if again := h.q.vacant(); again != nil {
		item = again
	}
	*item = int(h.q.tail)
	if h.q.put(item, h.q.tail) {
		h.wg.Go(h.work)
	}
	if queued, _, _ := h.q.load(); queued > h.q.size {
		h.bad.Add(1)
	}
}

// run starts n goroutines that do the same many times, and waits for them and the
// worker.
func (h *hammer) run(t *testing.T, times int, others []func(i int)) {
	for _, other := range others {
		h.wg.Go(func() {
			for i := range times {
				other(i)
			}
		})
	}
	h.wg.Wait()
	require.Zero(t, h.bad.Load())
	for position := range h.q.tail {
		require.EqualValues(t, 1, h.fate[position].Load(), "position %d", position)
	}
	require.Equal(t, h.q.tail, h.q.settled())
	require.Zero(t, h.q.state.Load()&^queueClaims)
}

// flush waits, now and then, for all that has been put, and looks whether it is so.
func (h *hammer) flush(i int) {
	if i%20 > 0 {
		runtime.Gosched()
		return
	}
	h.mu.Lock()
	position := h.q.tail
	mark := h.q.mark(position)
	if mark != nil && i%60 == 0 {
		h.q.unmark(mark)
		mark = nil
	} else {
		h.mu.Unlock()
		if mark != nil {
			<-mark.reached
		}
		h.mu.Lock()
		if h.q.settled() < position {
			h.bad.Add(1)
		}
		if id, ok := h.q.running(); ok && id >= h.q.tail {
			h.bad.Add(1)
		}
	}
	h.mu.Unlock()
}

// The worker takes without the lock while others evict and discard with it: each item
// goes to one of them, in order, and the race detector has nothing to say.
func TestQueueWorkerAgainstEvictors(t *testing.T) {
	for _, size := range []uint64{1, 3, 64} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			h := new(hammer)
			h.q.size = size
			drop := func(item *int) { h.fate[*item].Add(1) }
			publish := func(int) {
				h.mu.Lock()
				defer h.mu.Unlock()
				if h.q.full() {
					if oldest, ok := h.q.evict(); ok {
						drop(oldest)
					}
				}
				h.put(new(int))
			}
			h.run(t, 10_000, []func(int){publish, publish, h.flush, func(i int) {
				if i%50 == 0 {
					h.mu.Lock()
					h.q.discard(drop)
					h.q.reach()
					h.mu.Unlock()
				}
				runtime.Gosched()
			}})
		})
	}
}

// The worker without the lock and somebody with it change one word, and each position
// is claimed once, however closely they follow each other: here as closely as can be,
// since there is nothing else to do.
func TestQueueClaimsAreExclusive(t *testing.T) {
	const items = 10_000
	var q *queue[int]
	var evicted []int
	for name, other := range map[string]func(){
		"evict": func() {
			if item, ok := q.evict(); ok {
				evicted = append(evicted, item)
			}
		},
		"wait and give up": func() {
			if w := q.newWaiter(0, 0); q.enlist(w) {
				q.withdraw(w)
			}
		},
		"flush and give up": func() {
			if m := q.mark(q.tail); m != nil {
				q.unmark(m)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 5 {
				q, evicted = &queue[int]{size: 2 * items}, nil
				for i := range items {
					q.put(i, 0)
				}
				q.size = 1 // So that it is full until nothing is queued.
				first, _ := q.next()
				taken := []int{first}
				var wg sync.WaitGroup
				var started atomic.Int32
				left := func() bool { return q.state.Load()&queueClaims < items }
				both := func(do func()) {
					for started.Add(1); started.Load() < 2; {
						runtime.Gosched()
					}
					for i := 1; left(); i++ {
						do()
						if i%100 == 0 {
							runtime.Gosched() // Where there is one thread, nobody else makes way.
						}
					}
				}
				wg.Go(func() { both(other) })
				wg.Go(func() {
					both(func() {
						if item, ok := q.take(); ok {
							taken = append(taken, item)
						}
					})
				})
				wg.Wait()
				require.True(t, slices.IsSorted(taken))
				require.True(t, slices.IsSorted(evicted))
				all := append(taken, evicted...)
				slices.Sort(all)
				require.Len(t, all, items)
				require.Len(t, slices.Compact(all), items)
			}
		})
	}
}

// The worker's claims and those who wait for room cannot pass each other by: nobody
// who waits is forgotten, and what is put is handled.
func TestQueueWorkerAgainstWaiters(t *testing.T) {
	for _, size := range []uint64{1, 3, 64} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			h := new(hammer)
			h.q.size = size
			publish := func(i int) {
				item := new(int)
				h.mu.Lock()
				w := h.q.newWaiter(item, 0)
				if !h.q.enlist(w) {
					h.put(item)
					h.q.reuse(w)
					h.mu.Unlock()
					return
				}
				h.mu.Unlock()
				if i%7 == 0 {
					runtime.Gosched()
					h.mu.Lock()
					withdrawn := h.q.withdraw(w)
					if withdrawn {
						h.q.reuse(w)
					}
					h.mu.Unlock()
					if withdrawn {
						return
					}
				}
				<-w.ready
				if w.verdict != taken {
					h.bad.Add(1)
				}
				h.mu.Lock()
				h.q.reuse(w)
				h.mu.Unlock()
			}
			h.run(t, 5_000, []func(int){publish, publish, publish, h.flush})
		})
	}
}

// fullQueue returns a queue of one whose worker runs item 0 while item 1 is queued.
func fullQueue() *queue[int] {
	q := &queue[int]{size: 1}
	q.put(0, 0)
	q.next()
	q.put(1, 0)
	return q
}

// waiting makes publishers of items wait.
func waiting(t *testing.T, q *queue[int], items ...int) (all []*waiter[int]) {
	t.Helper()
	for _, item := range items {
		w := q.newWaiter(item, 0)
		require.True(t, q.enlist(w))
		all = append(all, w)
	}
	return all
}

// Who waited first is served first, one for each place that becomes free; one that
// gives up, wherever it stands, takes nobody's place with it.
func TestWaitersAreServedInOrder(t *testing.T) {
	for gone := range 4 {
		q := fullQueue()
		all := waiting(t, q, 2, 3, 4, 5)
		require.False(t, q.admit(), "there is no room")
		require.True(t, q.withdraw(all[gone]))
		require.False(t, q.withdraw(all[gone]))
		require.Empty(t, all[gone].ready)
		all = append(all, waiting(t, q, 6)...)
		_, ok := q.take()
		require.False(t, ok, "the worker has to look with the lock")
		got := []int{}
		for {
			item, ok := q.next()
			if !ok {
				break
			}
			got = append(got, item)
			if q.admit() {
				require.False(t, q.admit(), "one place, one waiter")
			}
		}
		want := []int{1, 2, 3, 4, 5, 6}
		require.Equal(t, append(want[:gone+1:gone+1], want[gone+2:]...), got)
		for i, w := range all {
			require.Equal(t, i != gone, len(w.ready) == 1)
			require.Equal(t, &waiter[int]{ready: w.ready, verdict: w.verdict}, w, "out of the list, and without the item")
		}
		require.Equal(t, waiterList[int]{}, q.waiters)
	}
}

// When a subscription takes nothing more, all who wait are told so, and their items
// are given back in the order in which they came.
func TestWaitersAreDismissedInOrder(t *testing.T) {
	for _, v := range []verdict{late, taken} {
		q := fullQueue()
		all := waiting(t, q, 2, 3, 4)
		var items []int
		q.dismiss(v, func(item int) { items = append(items, item) })
		require.Equal(t, []int{2, 3, 4}, items)
		for _, w := range all {
			require.Len(t, w.ready, 1)
			require.Equal(t, v, w.verdict)
			require.False(t, q.withdraw(w))
		}
		queued, _, _ := q.load()
		require.EqualValues(t, 1, queued, "what was queued stays")
		require.Zero(t, q.state.Load()&queueWaiting)
		q.dismiss(v, func(int) { require.Fail(t, "there is nobody") })
	}
}

// A publisher that waits for each message allocates no waiter each time; but no two
// ever share one, and none is kept when the queue is idle.
func TestWaiterIsUsedAgain(t *testing.T) {
	q := &queue[*int]{size: 1}
	q.put(new(int), 0) // For which there is a worker.
	first := q.newWaiter(new(int), 0)
	second := q.newWaiter(new(int), 0)
	require.NotSame(t, first, second)
	q.reuse(first)
	require.Nil(t, first.item, "a spare waiter keeps no payload alive")
	again := q.newWaiter(new(int), 0)
	require.Same(t, first, again)
	require.NotSame(t, first, q.newWaiter(new(int), 0))
	q.reuse(second)
	q.release()
	require.NotSame(t, second, q.newWaiter(new(int), 0))
	q.reuse(second)
	q.end()
	require.NotSame(t, second, q.newWaiter(new(int), 0))
	q.reuse(second) // By one who was let in, and woke when the worker had ended.
	require.Nil(t, q.spare)
}

// Each Flush waits for its own position: it is told when that is reached, not before,
// in whatever order they came.
func TestMarksAreReachedInOrderOfPosition(t *testing.T) {
	q := &queue[int]{size: 10}
	for i := range 5 {
		q.put(i, 0)
	}
	require.Nil(t, q.mark(0), "nothing is before it")
	marks := make(map[*flushMark]uint64)
	for _, position := range []uint64{3, 1, 5, 3, 2} {
		m := q.mark(position)
		require.NotNil(t, m)
		marks[m] = position
	}
	given := q.mark(4)
	q.unmark(given)
	q.unmark(given)
	for handled := range uint64(6) {
		_, _ = q.next() // which starts one and so ends the one before
		q.reach()
		for m, position := range marks {
			select {
			case <-m.reached:
				require.LessOrEqual(t, position, handled)
			default:
				require.Greater(t, position, handled)
			}
		}
	}
	require.Zero(t, q.state.Load()&queueWaiting)
	select {
	case <-given.reached:
		require.Fail(t, "it gave up")
	default:
	}
}

// Broken once: the array of a burst of Flush calls stayed with the idle subscription.
func TestMarksLeaveNothingBehind(t *testing.T) {
	for _, giveUp := range []bool{false, true} {
		q := fullQueue()
		var marks []*flushMark
		for range 1000 {
			marks = append(marks, q.mark(2))
		}
		if giveUp {
			for _, m := range marks {
				q.unmark(m)
			}
		}
		for range 2 {
			_, _ = q.next()
			q.reach()
		}
		q.end()
		require.LessOrEqual(t, cap(q.marks), 4)
	}
}
