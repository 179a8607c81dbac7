package pubsub

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// queueModel is a queue beside what it promises, kept in plain slices. Its methods
// do what publishers, the worker and those who end a subscription do, one at a time.
type queueModel struct {
	t *testing.T
	q queue[*int]

	queued    []*int          // oldest first
	tail      uint64          // the next position
	ids       []uint64        // by position
	unsettled map[uint64]bool // the positions put and neither handled nor dropped
	running   uint64          // the position of the call that runs, plus one; or 0
	split     uint64          // below it are what the worker may take without the lock
	active    bool            // a worker exists
	waiters   []*waiter[*int] // in the list, in order
	items     []*int          // theirs
	marks     []*flushMark    // not yet told
	started   *int            // what the call that runs was started with
	given     map[*int]bool   // back by the worker, and not yet used again
}

// waiterID tells the ids of those who waited, which are also their items, from others.
const waiterID = 1 << 20

func (m *queueModel) size() int { return int(m.q.size) }

func (m *queueModel) full() bool {
	require.Equal(m.t, len(m.queued) == m.size(), m.q.full())
	return len(m.queued) == m.size()
}

func (m *queueModel) put(item *int) {
	if again := m.q.vacant(); again != nil {
		require.True(m.t, m.given[again], "vacant is what was given back, once")
		delete(m.given, again)
		item = again
	}
	id := 3 * m.tail
	require.Equal(m.t, !m.active, m.q.put(item, id), "it says when a worker is wanted")
	m.accepted(item, id)
}

func (m *queueModel) accepted(item *int, id uint64) {
	m.active, m.ids = true, append(m.ids, id)
	m.queued = append(m.queued, item)
	m.unsettled[m.tail] = true
	m.tail++
}

// claim takes the oldest from the model and returns its position.
func (m *queueModel) claim() (*int, uint64) {
	item, position := m.queued[0], m.tail-uint64(len(m.queued))
	m.queued = m.queued[1:]
	return item, position
}

func (m *queueModel) settle(position uint64) { delete(m.unsettled, position) }

func (m *queueModel) endCall() {
	if m.running > 0 {
		m.settle(m.running - 1)
		m.running, m.started = 0, nil
	}
}

// settled is the definition: all before it is settled, and it is not.
func (m *queueModel) settled() uint64 {
	lowest := m.tail
	for position := range m.unsettled {
		lowest = min(lowest, position)
	}
	return lowest
}

// evict is what a publisher does to a full queue with DropOldest.
func (m *queueModel) evict() {
	full := len(m.queued) == m.size()
	item, ok := m.q.evict()
	require.Equal(m.t, full, ok)
	if ok {
		want, position := m.claim()
		require.Same(m.t, want, item, "the oldest that has not been started")
		m.settle(position)
	}
}

func (m *queueModel) discard() {
	var got []*int
	m.q.discard(func(item *int) { got = append(got, item) })
	require.True(m.t, slices.Equal(m.queued, got))
	for len(m.queued) > 0 {
		_, position := m.claim()
		m.settle(position)
	}
	m.reach()
}

func (m *queueModel) start(item *int) {
	want, position := m.claim()
	require.Same(m.t, want, item)
	m.running, m.started = position+1, item
	if position >= m.split {
		m.split = m.tail
	}
}

// next is what the worker does with the lock, and take what it does without.
func (m *queueModel) next() {
	if !m.active {
		return
	}
	item, ok := m.q.next()
	require.Equal(m.t, len(m.queued) > 0, ok)
	m.endCall()
	if ok {
		m.start(item)
		for m.q.admit() {
			m.served(taken)
		}
		require.True(m.t, len(m.waiters) == 0 || len(m.queued) == m.size(), "room that nobody is given")
	}
	m.reach()
	if !ok {
		m.q.end()
		m.active = false
		require.LessOrEqual(m.t, len(m.q.in.slots)+len(m.q.out.slots), smallBuffer)
	}
}

func (m *queueModel) take() {
	if m.running == 0 {
		return
	}
	position := m.tail - uint64(len(m.queued))
	item, ok := m.q.take()
	require.Equal(m.t, len(m.waiters)+len(m.marks) == 0 && position < m.split, ok)
	if ok {
		m.endCall()
		m.start(item)
	}
}

func (m *queueModel) giveBack() {
	if m.started != nil {
		m.q.giveBack(m.started)
		m.given[m.started] = true
		m.started = nil
	}
}

func (m *queueModel) stop() {
	if m.running > 0 {
		m.q.stop()
		m.endCall()
		m.reach()
	}
}

func (m *queueModel) enlist(item *int) {
	full := len(m.queued) == m.size()
	*item = waiterID + len(m.ids)
	w := m.q.newWaiter(item, uint64(*item))
	require.Equal(m.t, full, m.q.enlist(w))
	if full {
		m.waiters, m.items = append(m.waiters, w), append(m.items, item)
		return
	}
	m.put(item)
	m.q.reuse(w)
}

// served checks what the first waiter is told, and lets its publisher go on.
func (m *queueModel) served(v verdict) {
	w, item := m.waiters[0], m.items[0]
	m.waiters, m.items = m.waiters[1:], m.items[1:]
	require.Len(m.t, w.ready, 1)
	<-w.ready
	require.Equal(m.t, v, w.verdict)
	require.False(m.t, m.q.withdraw(w), "it has been served already")
	if v == taken {
		m.accepted(item, uint64(*item))
	}
	m.q.reuse(w)
}

func (m *queueModel) withdraw(i int) {
	if len(m.waiters) == 0 {
		return
	}
	i %= len(m.waiters)
	w := m.waiters[i]
	require.True(m.t, m.q.withdraw(w))
	require.Empty(m.t, w.ready)
	m.waiters, m.items = slices.Delete(m.waiters, i, i+1), slices.Delete(m.items, i, i+1)
	m.q.reuse(w)
}

func (m *queueModel) dismiss() {
	i := 0
	m.q.dismiss(late, func(item *int) {
		require.Same(m.t, m.items[i], item)
		i++
	})
	require.Len(m.t, m.items, i)
	for len(m.waiters) > 0 {
		m.served(late)
	}
}

func (m *queueModel) mark(position uint64) {
	mark := m.q.mark(position)
	require.Equal(m.t, m.settled() >= position, mark == nil)
	if mark != nil {
		m.marks = append(m.marks, mark)
	}
}

func (m *queueModel) unmark(i int) {
	if len(m.marks) > 0 {
		i %= len(m.marks)
		m.q.unmark(m.marks[i])
		m.marks = slices.Delete(m.marks, i, i+1)
	}
}

// reach is what everybody does who may have settled a position that is waited for.
func (m *queueModel) reach() {
	m.q.reach()
	settled := m.settled()
	m.marks = slices.DeleteFunc(m.marks, func(mark *flushMark) bool {
		reached := false
		select {
		case <-mark.reached:
			reached = true
		default:
		}
		require.Equal(m.t, mark.position <= settled, reached)
		return reached
	})
}

// check compares all that can be seen from outside, and the slots: what is queued is
// in the slot of its position; every other is clear, but for what was given back, and
// that is gone when the worker is.
func (m *queueModel) check() {
	queued, running, claims := m.q.load()
	require.EqualValues(m.t, len(m.queued), queued)
	require.LessOrEqual(m.t, len(m.queued), m.size())
	require.Equal(m.t, m.running > 0, running == 1)
	id, ok := m.q.running()
	require.Equal(m.t, m.running > 0, ok)
	if ok {
		require.Equal(m.t, m.ids[m.running-1], id, "not the message that the call runs with")
	}
	require.Equal(m.t, m.tail-queued, claims)
	require.Equal(m.t, m.tail, m.q.tail)
	require.Equal(m.t, m.settled(), m.q.settled())
	require.Equal(m.t, len(m.waiters)+len(m.marks) > 0, m.q.state.Load()&queueWaiting != 0)
	require.Len(m.t, m.q.marks, len(m.marks))
	require.True(m.t, slices.IsSortedFunc(m.q.marks, func(a, b *flushMark) int { return int(a.position) - int(b.position) }))
	for i, item := range m.queued {
		slots := &m.q.in
		if claims+uint64(i) < m.q.split {
			slots = &m.q.out
		}
		if slots.slot(claims+uint64(i)).item != item {
			require.Fail(m.t, "not in the slot of its position")
		}
	}
	held := make(map[*int]bool)
	for _, r := range []ring[*int]{m.q.in, m.q.out} {
		require.LessOrEqual(m.t, len(r.slots), max(smallBuffer, 1<<bits.Len(uint(m.size()-1))), "no larger than the size")
		for _, slot := range r.slots {
			if item := slot.item; item != nil {
				require.False(m.t, held[item], "in two slots")
				held[item] = true
			}
		}
	}
	for _, item := range m.queued {
		delete(held, item)
	}
	for item := range held {
		require.True(m.t, m.active && m.given[item], "a slot that is not clear")
	}
}

// checkQueueModel does what the bytes say with a queue and with the model.
func checkQueueModel(t *testing.T, size uint64, ops []byte) {
	m := &queueModel{t: t, unsettled: make(map[uint64]bool), given: make(map[*int]bool)}
	m.q.size = size
	for _, op := range ops {
		arg := int(op / 16)
		switch op % 16 {
		case 0, 1, 2:
			for range arg + 1 {
				if !m.full() {
					m.put(new(int))
				}
			}
		case 3, 4, 5:
			if len(m.waiters) > 0 {
				break // They wait with Block, and only others evict.
			}
			if arg == 0 || m.full() {
				m.evict()
			}
			m.put(new(int))
		case 6, 7:
			m.next()
		case 8, 9:
			if arg%2 == 0 {
				m.giveBack()
			}
			for range arg + 1 {
				m.take()
			}
		case 10:
			m.stop()
		case 11:
			for range arg%4 + 1 {
				m.enlist(new(int))
			}
		case 12:
			m.withdraw(arg)
		case 13:
			m.mark(m.tail - min(m.tail, uint64(arg)))
		case 14:
			m.unmark(arg)
		case 15:
			m.dismiss()
			if arg < 4 {
				m.discard()
			}
		}
		m.check()
	}
	for m.active {
		m.next()
	}
	m.check()
	require.Empty(t, m.waiters)
	require.Empty(t, m.marks)
}

// Whatever publishers, worker and enders do, in any order: FIFO, never more than the
// size, evicted is the oldest not started, whoever waits is told, and a slot that has
// been freed holds nothing.
func TestQueueModel(t *testing.T) {
	for seed := range uint64(32) {
		size := []uint64{1, 2, 3, 4, 5, 8, 17, 64}[seed%8]
		rng := rand.New(rand.NewPCG(seed, 1))
		ops := make([]byte, 300)
		for i := range ops {
			ops[i] = byte(rng.Uint32())
		}
		t.Run(fmt.Sprintf("seed=%d/size=%d", seed, size), func(t *testing.T) { checkQueueModel(t, size, ops) })
	}
}

func FuzzQueue(f *testing.F) {
	f.Add(uint8(1), []byte{0, 6, 0, 3, 3, 13, 8, 6, 6, 6})
	f.Add(uint8(4), []byte{64, 6, 8, 64, 5, 3, 3, 3, 3, 3, 13, 8, 24, 6, 10, 6})
	f.Add(uint8(2), []byte{16, 11, 11, 11, 28, 6, 6, 11, 15, 31, 6, 6})
	f.Add(uint8(3), []byte{32, 6, 13, 29, 45, 14, 3, 3, 3, 3, 10, 3, 6, 8, 8, 6})
	f.Fuzz(func(t *testing.T, size uint8, ops []byte) {
		checkQueueModel(t, uint64(size%20)+1, ops[:min(len(ops), 500)])
	})
}

// A burst costs memory while it lasts: the buffers follow what is queued up to the
// size, and a worker that ends lets go of all but a small one.
func TestQueueMemoryFollowsWhatIsQueued(t *testing.T) {
	var q queue[*int]
	q.size = 1 << 40 // A size alone costs nothing.
	slots := func() int { return len(q.in.slots) + len(q.out.slots) }
	require.Zero(t, slots())
	for i := range 10_000 {
		q.put(&i, 0)
		require.LessOrEqual(t, slots(), max(smallBuffer, 2*(i+1)))
	}
	for range 10_000 {
		_, ok := q.next()
		require.True(t, ok)
	}
	_, ok := q.next()
	require.False(t, ok)
	q.end()
	require.Zero(t, slots())

	for i := range 10 { // Few at a time, at first one: a small buffer is used again.
		for range 1 + i {
			q.put(new(int), 0)
			_, ok = q.next()
			require.True(t, ok)
		}
		_, ok = q.next()
		require.False(t, ok)
		q.end()
		require.Equal(t, smallBuffer, slots())
	}
	q.release()
	require.Zero(t, slots())
}

// What is given back is found again by a producer, each in the slot it was claimed
// from, whether with the lock or without: of as many messages as before none needs a
// new envelope.
func TestQueueFindsEachGivenBackAgain(t *testing.T) {
	var q queue[*int]
	q.size = 8
	round := func() (given []*int) {
		for i := range 4 {
			q.put(new(int), uint64(i))
		}
		item, ok := q.next()
		for ; ok; item, ok = q.take() {
			q.giveBack(item)
			given = append(given, item)
		}
		require.Len(t, given, 4)
		return given
	}
	first := round()
	round() // In the other buffer.
	for _, item := range first {
		require.Same(t, item, q.vacant())
		q.put(item, 0)
	}
}
