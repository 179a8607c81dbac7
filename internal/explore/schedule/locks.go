package schedule

// Mutex is in place of sync.Mutex. A goroutine that waits for it is blocked
// durably, which lets the bubble's clock go on.
type Mutex struct {
	held    bool
	waiters waiters
}

// Lock waits until nobody holds the lock. As with sync.Mutex, one that comes
// later can get it first.
func (m *Mutex) Lock() {
	s := current
	s.yield("lock")
	s.mu.Lock()
	for m.held {
		m.waiters.wait(s)
	}
	m.held = true
	s.mu.Unlock()
}

// TryLock reports whether it has got the lock.
func (m *Mutex) TryLock() bool {
	s := current
	s.yield("try lock")
	s.mu.Lock()
	defer s.mu.Unlock()
	free := !m.held
	m.held = true
	return free
}

// Unlock wakes one of those who wait.
func (m *Mutex) Unlock() {
	s := current
	s.yield("unlock")
	s.mu.Lock()
	defer s.mu.Unlock()
	if !m.held {
		panic("unlock of unlocked Mutex")
	}
	m.held = false
	if n := len(m.waiters); n > 0 {
		m.waiters.wake(s, int(s.draw()%uint64(n)))
	}
}

// RWMutex is in place of sync.RWMutex. As with that, a writer that waits keeps
// new readers out.
type RWMutex struct {
	writer  bool
	wanting int // writers that wait
	readers int
	waiters waiters
}

// Lock waits until there are neither readers nor a writer.
func (m *RWMutex) Lock() {
	s := current
	s.yield("lock")
	s.mu.Lock()
	m.wanting++
	for m.writer || m.readers > 0 {
		m.waiters.wait(s)
	}
	m.wanting--
	m.writer = true
	s.mu.Unlock()
}

// Unlock wakes all that wait.
func (m *RWMutex) Unlock() {
	s := current
	s.yield("unlock")
	s.mu.Lock()
	defer s.mu.Unlock()
	if !m.writer {
		panic("unlock of unlocked RWMutex")
	}
	m.writer = false
	m.waiters.wakeAll(s)
}

// RLock waits until there is no writer, nor one that waits.
func (m *RWMutex) RLock() {
	s := current
	s.yield("read lock")
	s.mu.Lock()
	for m.writer || m.wanting > 0 {
		m.waiters.wait(s)
	}
	m.readers++
	s.mu.Unlock()
}

// RUnlock wakes all that wait when the last reader goes.
func (m *RWMutex) RUnlock() {
	s := current
	s.yield("read unlock")
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.readers == 0 {
		panic("read unlock of unlocked RWMutex")
	}
	m.readers--
	if m.readers == 0 {
		m.waiters.wakeAll(s)
	}
}

// waiters are those who wait for a lock. Each is sent the time to wake at, drawn
// by whoever unlocks.
type waiters []chan int64

// wait needs s.mu, which it gives up meanwhile.
func (w *waiters) wait(s *Schedule) {
	ready := make(chan int64, 1)
	*w = append(*w, ready)
	quiet := s.quiet
	s.quiet = 0
	s.mu.Unlock()
	s.sleepUntil(<-ready)
	s.mu.Lock()
	s.quiet = quiet
	s.step("woken by unlock")
}

// wake needs s.mu.
func (w *waiters) wake(s *Schedule, i int) {
	ready := (*w)[i]
	last := len(*w) - 1
	(*w)[i] = (*w)[last]
	*w = (*w)[:last]
	ready <- s.reserve(s.delay(s.draw()))
}

// wakeAll needs s.mu.
func (w *waiters) wakeAll(s *Schedule) {
	for len(*w) > 0 {
		w.wake(s, 0)
	}
}
