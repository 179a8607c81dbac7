package schedule

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// play runs f in a schedule, with all goroutines that it starts.
func play(t *testing.T, seed uint64, trace func(string), f func(s *Schedule)) (s *Schedule) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s = Begin(seed, trace)
		f(s)
		s.Idle()
	})
	require.Empty(t, s.Failure())
	assert.Zero(t, s.Live())
	return s
}

// traced is play with a trace.
func traced(t *testing.T, seed uint64, f func(s *Schedule)) (s *Schedule, trace string) {
	t.Helper()
	var lines strings.Builder
	s = play(t, seed, func(line string) { fmt.Fprintln(&lines, line) }, f)
	return s, lines.String()
}

func TestScheduleIsTheSeeds(t *testing.T) {
	different := make(map[string]bool)
	for seed := range uint64(20) {
		f := func(s *Schedule) {
			var mu Mutex
			var n Uint64
			done := make(chan struct{})
			for range 3 {
				Go(func() {
					mu.Lock()
					n.Add(1)
					mu.Unlock()
					if n.Load() == 3 && n.CompareAndSwap(3, 4) {
						Close(done)
					}
					Receive(done)
				})
			}
		}
		first, trace := traced(t, seed, f)
		second, again := traced(t, seed, f)
		assert.Equal(t, trace, again)
		assert.Equal(t, first.Fingerprint(), second.Fingerprint())
		different[trace] = true
	}
	assert.Greater(t, len(different), 15)
}

func TestScheduleGivesEveryOrder(t *testing.T) {
	orders := make(map[string]bool)
	for seed := range uint64(3000) {
		// One goroutine runs at a time, but nothing tells the race detector so.
		var mu sync.Mutex
		var order strings.Builder
		play(t, seed, nil, func(s *Schedule) {
			for i := range 3 {
				s.Go(fmt.Sprint(i), func() {
					for range 2 {
						s.Yield("step")
						mu.Lock()
						fmt.Fprint(&order, i)
						mu.Unlock()
					}
				})
			}
		})
		orders[order.String()] = true
	}
	assert.Len(t, orders, 90, "6! / (2! 2! 2!)")
}

func TestLocksExclude(t *testing.T) {
	var contended int
	for seed := range uint64(300) {
		play(t, seed, nil, func(s *Schedule) {
			var mu Mutex
			var rw RWMutex
			var here, readers, writers int
			for range 3 {
				Go(func() {
					mu.Lock()
					here++
					s.Yield("locked")
					assert.Equal(t, 1, here)
					here--
					mu.Unlock()

					rw.RLock()
					readers++
					contended = max(contended, readers)
					s.Yield("read locked")
					assert.Zero(t, writers)
					readers--
					rw.RUnlock()

					rw.Lock()
					writers++
					s.Yield("write locked")
					assert.Equal(t, 1, writers)
					assert.Zero(t, readers)
					writers--
					rw.Unlock()
				})
			}
		})
	}
	assert.Greater(t, contended, 1, "readers share")
}

func TestSelect(t *testing.T) {
	chosen := make(map[int]int)
	for seed := range uint64(100) {
		play(t, seed, nil, func(s *Schedule) {
			a, b := make(chan struct{}, 1), make(chan struct{}, 1)
			assert.Equal(t, -1, Select(false, From(a), From(b)))
			assert.Equal(t, 1, Select(true, From(a), To(b)))
			Send(a, struct{}{})
			chosen[Select(true, From(a), From(b))]++

			empty, full := make(chan struct{}), make(chan struct{})
			ctx, cancel := context.WithCancel(context.Background())
			Go(func() { assert.Equal(t, 1, Select(true, From(empty), From(ctx.Done()))) })
			Go(func() { assert.Equal(t, 2, Select(true, From(empty), To(full), From(ctx.Done()))) })
			Go(func() { Cancel(cancel) })
		})
	}
	assert.Len(t, chosen, 2, "both of two that are ready")
}

func TestPanicIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Begin(1, nil)
		GoWith(func(text string) { panic(text) }, "on purpose")
		s.Idle()
		assert.Contains(t, s.Failure(), "panic: on purpose")
	})
}

func TestLivelockIsAFailure(t *testing.T) {
	assert.Panics(t, func() { // The bubble's, since the goroutine never ends.
		synctest.Test(t, func(t *testing.T) {
			s := Begin(1, nil)
			var n Int32
			defer func() { assert.Contains(t, s.Failure(), "livelock") }()
			Go(func() {
				for n.Load() == 0 {
					Gosched()
				}
			})
			s.Idle()
		})
	})
}

func TestQuietlyIsOneStep(t *testing.T) {
	play(t, 3, nil, func(s *Schedule) {
		var n Int64
		for range 2 {
			Go(func() {
				s.Quietly(func() {
					before := n.Load()
					n.Store(before + 1)
				})
			})
		}
		s.Settle()
		assert.EqualValues(t, 2, n.Load())
	})
}
