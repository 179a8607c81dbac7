package pubsub

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
)

// envelope is one published message on its way: one per publish, shared by all
// queues that take it, and never changed.
type envelope struct {
	msg Message
	ctx context.Context // the publisher's, for its values; nil when it has none
}

// offer hands the subscription its copy of a message. It does not wait.
func (s *Subscription) offer(env *envelope) verdict {
	s.mu.Lock()
	if s.phase != open {
		s.mu.Unlock()
		return late
	}
	if s.queue.full() {
		switch s.policy {
		case Block:
			s.mu.Unlock()
			return noRoom
		case DropNewest:
			s.drop(env, ReasonDroppedNewest, env.msg.Time, nil)
			s.mu.Unlock()
			return taken
		default:
			if oldest, ok := s.queue.evict(); ok {
				s.counts.evicted++
				s.drop(oldest, ReasonDroppedOldest, env.msg.Time, nil)
			}
		}
	}
	s.accept(env)
	return taken
}

// accept queues a message. It needs mu and a queue that is not full, and gives
// the lock up.
func (s *Subscription) accept(env *envelope) {
	start := s.queue.put(env)
	full := s.fill(s.queue.tail - s.counts.evicted)
	s.mu.Unlock()
	if start {
		go s.work() // ends when the queue is empty
	}
	if full {
		s.broker.unroute(s)
	}
}

// waitForRoom is offer to a full queue whose policy is Block: it waits until the
// copy is queued, or dropped because the subscription ended or, with an error,
// because ctx did.
func (s *Subscription) waitForRoom(ctx context.Context, env *envelope) (verdict, error) {
	// The queue waits for its own handler, and that for this call: never wait.
	inHandler := s.calledIn(ctx)
	now := s.broker.now()
	w := s.queue.newWaiter(env)
	s.mu.Lock()
	switch {
	case s.phase != open:
		s.mu.Unlock()
		s.queue.reuse(w)
		return late, nil
	case inHandler && s.queue.full():
		err := fmt.Errorf("%w: full queue of subscription %d on %s", ErrInHandler, s.id, quoteShort(s.pattern))
		s.drop(env, ReasonCanceled, now, err)
		s.mu.Unlock()
		s.queue.reuse(w)
		return taken, err
	case inHandler || !s.queue.enlist(w):
		s.accept(env)
		s.queue.reuse(w)
		return taken, nil
	}
	s.mu.Unlock()

	select {
	case <-w.ready:
	case <-ctx.Done():
		err := ctx.Err()
		now := s.broker.now()
		s.mu.Lock()
		if s.queue.withdraw(w) {
			s.drop(env, ReasonCanceled, now, err)
			s.mu.Unlock()
			s.queue.reuse(w)
			return taken, err
		}
		s.mu.Unlock()
		<-w.ready // Room, or the subscription's end, came first.
	}
	v := w.verdict
	s.queue.reuse(w)
	return v, nil
}

// worker is the state of the goroutine that drains one queue. It exists only
// while something is queued: offer starts it, and it ends when the queue is
// empty or the subscription done.
type worker struct {
	s       *Subscription
	env     *envelope
	calling bool // the handler has been called with env and has not returned
}

// drainQueue is the worker's goroutine. It survives what the handler does: a
// panic ends one call, a Goexit its goroutine too, which another then replaces.
func (s *Subscription) drainQueue() {
	w := worker{s: s}
	ended := false
	defer func() {
		if !ended {
			s.fail(w.env, ReasonGoexit, ErrGoexit)
			go s.work() // ends when the queue is empty
		}
	}()
	for !w.run() {
		if w.calling {
			// recover returned nil and yet the panic ended: it was panic(nil),
			// which GODEBUG=panicnil=1 allows.
			w.calling = false
			s.fail(w.env, ReasonPanic, &PanicError{})
		}
	}
	ended = true
}

// run returns true when the queue is empty, false when the handler has panicked.
func (w *worker) run() bool {
	defer func() {
		if !w.calling {
			return
		}
		if v := recover(); v != nil {
			w.calling = false
			w.s.fail(w.env, ReasonPanic, &PanicError{Value: v, Stack: debug.Stack()})
		}
	}()
	s := w.s
	ok := false
	for w.env, ok = s.next(); ok; {
		w.calling = true
		err := s.handler(s.callContext(w.env), w.env.msg)
		w.calling = false
		if err != nil {
			s.fail(w.env, ReasonError, err)
			w.env, ok = s.next()
			continue
		}
		if w.env, ok = s.queue.take(); !ok {
			w.env, ok = s.next()
		}
	}
	return true
}

// callContext returns the ctx of an asynchronous call.
func (s *Subscription) callContext(env *envelope) context.Context {
	if env.ctx == nil {
		return s.ctx
	}
	return &call{Context: s.ctx.Context, broker: s.broker, subscription: s, values: env.ctx}
}

// next settles the call that runs as delivered and claims the next message; when
// there is none, the worker has to end.
func (s *Subscription) next() (env *envelope, ok bool) {
	for yielded := false; ; yielded = true {
		s.mu.Lock()
		if env, ok = s.queue.next(); ok {
			full := false
			for s.queue.admit() {
				full = s.fill(s.queue.tail-s.counts.evicted) || full
			}
			s.queue.reach()
			s.mu.Unlock()
			if full {
				s.broker.unroute(s)
			}
			return env, true
		}
		s.queue.reach()
		finished := s.finished()
		if finished || yielded {
			s.queue.end()
			s.mu.Unlock()
			if finished {
				s.finish()
			}
			return nil, false
		}
		s.mu.Unlock()
		// A publisher that is about to send more saves the start of a worker
		// for each message.
		runtime.Gosched()
	}
}

// fail settles the worker's call as failed.
func (s *Subscription) fail(env *envelope, reason Reason, err error) {
	now := s.broker.now()
	s.mu.Lock()
	s.queue.stop()
	s.counts.failed++
	s.broker.deadLetters.record(s.letter(env.msg, reason, now, err))
	s.queue.reach()
	s.mu.Unlock()
}
