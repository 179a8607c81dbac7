package pubsub

import (
	"context"
	"runtime/debug"
)

// The state of a synchronous subscription's calls is one word, so that a call
// costs two atomic operations: whether it takes no more, how many run, and how
// many were delivered. The last field has room for 2^31 before its top bit asks
// for it to be emptied into counts.delivered, and for as many again until it is.
const (
	callsClosed    = 1 << 63
	oneRunning     = 1 << 32
	callsRunning   = callsClosed - oneRunning
	callsDelivered = oneRunning - 1
	callsSpill     = 1 << 31
)

// begin claims a call; false when the subscription takes nothing more.
func (s *Subscription) begin() bool {
	if s.limit > 0 {
		return s.beginLimited()
	}
	for {
		calls := s.calls.Load()
		if calls&callsClosed != 0 {
			return false
		}
		if s.calls.CompareAndSwap(calls, calls+oneRunning) {
			return true
		}
	}
}

// beginLimited counts under mu, so that exactly limit calls begin.
func (s *Subscription) beginLimited() bool {
	s.mu.Lock()
	if s.phase != open {
		s.mu.Unlock()
		return false
	}
	s.calls.Add(oneRunning)
	s.counts.taken++
	full := s.fill(s.counts.taken)
	s.unlock(full)
	return true
}

// deliver settles a call that returned nil.
func (s *Subscription) deliver() {
	const ended = ^uint64(oneRunning-1) + 1 // one call less, one delivered more
	calls := s.calls.Add(ended)
	if calls&callsSpill != 0 {
		s.spill()
	}
	if calls&callsClosed != 0 && calls&callsRunning == 0 {
		s.finishCalls()
	}
}

// spill moves deliveries from calls to counts.
func (s *Subscription) spill() {
	s.mu.Lock()
	if s.calls.Load()&callsSpill != 0 {
		s.calls.Add(^uint64(callsSpill - 1))
		s.counts.delivered += callsSpill
	}
	s.mu.Unlock()
}

// failCall settles a synchronous call that failed.
func (s *Subscription) failCall(msg Message, reason Reason, err error) {
	now := s.broker.now()
	s.mu.Lock()
	s.counts.failed++
	s.broker.deadLetters.record(s.letter(&msg, reason, now, err))
	calls := s.calls.Add(^uint64(oneRunning - 1))
	s.mu.Unlock()
	if calls&callsClosed != 0 && calls&callsRunning == 0 {
		s.finishCalls()
	}
}

func (s *Subscription) finishCalls() {
	s.mu.Lock()
	finished := s.finished()
	s.mu.Unlock()
	if finished {
		s.finish()
	}
}

// fanOut calls the synchronous handlers of one publish, in the publisher's
// goroutine. One deferred function per publish, not one per call, resumes after
// a panic.
type fanOut struct {
	ctx     context.Context // the handlers'
	msg     Message
	next    int           // which of the subscriptions is to be called next
	calling *Subscription // whose handler has been called and has not returned
	matched bool
}

// serve calls all. After a Goexit it calls the rest while the goroutine exits,
// and does not return.
func (f *fanOut) serve(subs []*Subscription) {
	ended := false
	defer func() {
		if !ended {
			if f.calling != nil { // Else it panicked while it exited, which is settled.
				f.fail(ReasonGoexit, ErrGoexit)
			}
			f.serve(subs)
		}
	}()
	for !f.run(subs) {
		if f.calling != nil {
			f.fail(ReasonPanic, &PanicError{}) // panic(nil): see drainQueue
		}
	}
	ended = true
}

// run returns true when all have been called, false when a handler has panicked.
func (f *fanOut) run(subs []*Subscription) bool {
	defer func() {
		if f.calling == nil {
			return
		}
		if v := recover(); v != nil {
			f.fail(ReasonPanic, &PanicError{Value: v, Stack: debug.Stack()})
		}
	}()
	for f.next < len(subs) {
		s := subs[f.next]
		f.next++
		if !s.begin() {
			continue
		}
		f.matched = true
		f.calling = s
		err := s.handler(f.ctx, f.msg)
		f.calling = nil
		if err != nil {
			s.failCall(f.msg, ReasonError, err)
		} else {
			s.deliver()
		}
	}
	return true
}

func (f *fanOut) fail(reason Reason, err error) {
	s := f.calling
	f.calling = nil
	s.failCall(f.msg, reason, err)
}
