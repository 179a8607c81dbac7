// Package schedule decides which goroutine of a testing/synctest bubble goes on,
// by a seed. It has what the explorer puts in place of package sync, sync/atomic,
// go statements and channel operations in a copy of the code under test: each is
// preceded by a yield, which sleeps a virtual time that no other goroutine sleeps.
// So the bubble's clock wakes one goroutine at a time, in an order that the seed
// alone determines, and between two yields no other goroutine does anything.
//
// A yield that would wake before everybody else does not really sleep: only the
// order counts, and a context switch costs twenty times as much as everything
// else here.
//
// There is one schedule in a process at a time, since the rewritten code has no
// way to name one.
package schedule

import (
	"fmt"
	"sync"
	"time"
)

// Schedule is the order of one run. Make one with [Begin], inside the bubble.
type Schedule struct {
	seed  uint64
	start time.Time
	trace func(string) // nil: no trace

	// mu guards the rest. Between two yields one goroutine runs, but one that it
	// has woken comes here too, on its way to sleep.
	mu      sync.Mutex
	draws   uint64
	now     int64   // nanoseconds of virtual time since start: of whoever runs
	pending []int64 // when those that sleep, or are about to, wake: all different
	// mustSleep says that whoever runs may have woken others with a channel, so
	// that they are not in pending yet.
	mustSleep bool
	quiet     int // yields do nothing while it is not 0
	temper    temper
	live      int // goroutines of the code under test
	steps     int
	slept     int
	print     uint64
	failure   string
	names     map[uint64]string // of goroutines, when tracing
	named     int               // how many have been named g and a number
}

// current is the schedule of this process's bubble.
var current *Schedule

// maxSteps is how many yields a run may have before it counts as a livelock.
const maxSteps = 20_000

// unit is the shortest delay. What a delay has below it is random, so that two
// goroutines that were woken together, in whatever order, wake in the order drawn.
const unit = 1 << 16

// never is longer than all the other sleeps of a run together, and long than those
// that a scenario does not ask for.
const (
	long  = int64(1) << 52
	never = int64(1) << 58
)

// Begin makes the schedule of a seed the current one. With a trace, every yield
// is described to it, which takes long.
func Begin(seed uint64, trace func(string)) *Schedule {
	s := &Schedule{
		seed:    mix(seed),
		start:   time.Now(),
		trace:   trace,
		pending: make([]int64, 0, 16),
	}
	if trace != nil {
		s.names = make(map[uint64]string)
		s.names[goroutineID()] = "main"
	}
	s.temper = s.drawTemper()
	current = s
	return s
}

// mix is the output function of splitmix64, a bijection.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// draw needs mu.
func (s *Schedule) draw() uint64 {
	s.draws++
	return mix(s.seed + s.draws*0x9e3779b97f4a7c15)
}

// Choose returns a number from 0 to n-1. It is for whoever runs, not for one that
// has just been woken.
func (s *Schedule) Choose(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(s.draw() >> 33 % uint64(n))
}

// temper is what the delays of one run are like. Faults differ in how many
// switches of goroutines they need and how long somebody has to be away.
type temper struct {
	onward  uint64 // of 64 yields, how many are none: whoever runs goes on
	long    uint64 // and how many are very long
	longest uint64
	// With few, whoever runs goes on until it has to wait, but for at most four
	// steps, at which it is away for long.
	few      bool
	switches [4]int
}

func (s *Schedule) drawTemper() temper {
	t := temper{longest: 1 << (14 + s.draw()%8)}
	switch s.draw() % 4 {
	case 0: // every step anybody's
		t.long = 0
	case 1:
		t.long = 1 + s.draw()%8
	case 2:
		t.onward, t.long = 32+s.draw()%24, 1+s.draw()%6
	case 3:
		t.few = true
		for i := range t.switches {
			t.switches[i] = int(s.draw() % (64 << (s.draw() % 3)))
		}
	}
	return t
}

// delay makes a delay of a random number. It needs mu.
func (s *Schedule) delay(random uint64) int64 {
	t := &s.temper
	kind, amount := random&63, random>>22
	units := amount % 1024
	switch {
	case t.few:
		units = amount % 64
	case kind < t.onward:
		units = amount % 8
	case kind < t.onward+t.long:
		units = amount % t.longest
	}
	return int64((1+units)*unit + random>>6%unit)
}

// onward is delay for whoever runs and may just as well go on: with next to none.
// It needs mu.
func (s *Schedule) onward(random uint64) int64 {
	t := &s.temper
	switch {
	case t.few:
		for _, at := range t.switches {
			if at == s.steps {
				return int64((1 + random>>22%t.longest) * unit)
			}
		}
		return 1
	case random&63 < t.onward:
		return 1
	}
	return s.delay(random)
}

// reserve adds the end of a delay that begins now to pending. It needs mu.
func (s *Schedule) reserve(delay int64) (wake int64) {
	wake, _ = s.vacant(s.now + delay)
	s.pending = append(s.pending, wake)
	return wake
}

// vacant returns the first time from wake on that is nobody's, and whether it is
// before all others. It needs mu.
func (s *Schedule) vacant(wake int64) (_ int64, first bool) {
	first = true
	for i := 0; i < len(s.pending); i++ {
		switch p := s.pending[i]; {
		case p == wake:
			wake++
			first = true
			i = -1
		case p < wake:
			first = false
		}
	}
	return wake, first
}

// yield lets others go first, for a seeded time. It returns with nobody else
// running.
func (s *Schedule) yield(what string) {
	s.mu.Lock()
	if s.quiet > 0 {
		s.mu.Unlock()
		return
	}
	delay := s.onward(s.draw())
	s.step(what)
	wake, first := s.vacant(s.now + delay)
	if first && !s.mustSleep {
		s.now = wake
		s.mu.Unlock()
		return
	}
	s.pending = append(s.pending, wake)
	s.mu.Unlock()
	s.sleepUntil(wake)
}

// step counts a yield. It needs mu, and gives it up when it does not return.
func (s *Schedule) step(what string) {
	s.steps++
	s.print = s.print*0x100000001b3 ^ uint64(s.now)
	if s.trace != nil {
		s.describe(what)
	}
	if s.steps > maxSteps {
		s.fail("livelock: more than %d steps", maxSteps)
		s.mu.Unlock()
		select {} // As good as any other end: the run fails.
	}
}

// sleepUntil sleeps until a reserved time. It must not be called with mu.
func (s *Schedule) sleepUntil(wake int64) {
	time.Sleep(time.Duration(wake) - time.Since(s.start))
	s.mu.Lock()
	for i, p := range s.pending {
		if p == wake {
			last := len(s.pending) - 1
			s.pending[i] = s.pending[last]
			s.pending = s.pending[:last]
			break
		}
	}
	s.now = wake
	s.slept++
	s.mustSleep = false // The clock went on: all that were woken sleep.
	s.mu.Unlock()
}

// ticket is for one that is about to wait for a channel: what it draws when it is
// woken, maybe with others and in whatever order, it draws before.
func (s *Schedule) ticket() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draw()
}

// woken is for one that a channel has woken: it sleeps before it does anything.
func (s *Schedule) woken(ticket uint64) {
	s.mu.Lock()
	wake := s.reserve(s.delay(ticket))
	s.mu.Unlock()
	s.sleepUntil(wake)
	if s.trace != nil {
		s.mu.Lock()
		s.describe("woken")
		s.mu.Unlock()
	}
}

// wakes says that whoever runs may have woken others.
func (s *Schedule) wakes() {
	s.mu.Lock()
	s.mustSleep = true
	s.mu.Unlock()
}

// Yield is a step of whoever runs, for the scenario's own use.
func (s *Schedule) Yield(what string) { s.yield(what) }

// Pause is a yield of a length that does not depend on the temper.
func (s *Schedule) Pause(units int, what string) { s.sleep(int64(units)*unit, what) }

// Settle is a yield so long that all others do meanwhile what they can, unless they
// do this too.
func (s *Schedule) Settle() { s.sleep(long, "settle") }

// Idle returns when no other goroutine will ever go on by itself.
func (s *Schedule) Idle() { s.sleep(never, "idle") }

func (s *Schedule) sleep(delay int64, what string) {
	s.mu.Lock()
	s.step(what)
	wake := s.reserve(delay + int64(s.draw()%unit))
	s.mu.Unlock()
	s.sleepUntil(wake)
}

// Quietly calls f without yields, as one step, unless it has to wait for a lock.
func (s *Schedule) Quietly(f func()) {
	s.quiet++
	f()
	s.quiet--
}

// Name gives the goroutine a name for the trace.
func (s *Schedule) Name(name string) {
	if s.trace != nil {
		s.mu.Lock()
		s.names[goroutineID()] = name
		s.mu.Unlock()
	}
}

// Note adds a line to the trace.
func (s *Schedule) Note(format string, args ...any) {
	if s.trace != nil {
		s.mu.Lock()
		s.describe("-- " + fmt.Sprintf(format, args...))
		s.mu.Unlock()
	}
}

// Tracing reports whether a trace is written.
func (s *Schedule) Tracing() bool { return s.trace != nil }

// Fail says what is wrong with the run. The first counts.
func (s *Schedule) Fail(format string, args ...any) {
	s.mu.Lock()
	s.fail(format, args...)
	s.mu.Unlock()
}

// fail needs mu.
func (s *Schedule) fail(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if s.failure == "" {
		s.failure = text
	}
	if s.trace != nil {
		s.describe("-- WRONG: " + text)
	}
}

// Failure returns what was wrong, or "".
func (s *Schedule) Failure() string { return s.failure }

// Live returns how many goroutines the code under test has.
func (s *Schedule) Live() int { return s.live }

// Steps returns how many yields there were, and how many of them really slept.
func (s *Schedule) Steps() (steps, slept int) { return s.steps, s.slept }

// Fingerprint depends on the order in which everything was done.
func (s *Schedule) Fingerprint() uint64 { return mix(s.print ^ uint64(s.steps)) }
