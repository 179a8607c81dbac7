package pubsub

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"
)

// envelope is one published message on its way. All queues that take a message
// share one, which nobody changes. When only one queue can take it, the envelope
// is that queue's own and used again, which saves the garbage.
type envelope struct {
	msg Message
	ctx context.Context // the publisher's, for its values; nil when it has none
	own bool
}

// publication is one publish while it serves the queues.
type publication struct {
	msg   Message
	ctx   context.Context // as in envelope
	alone bool            // only one queue can take the message
	env   *envelope       // what the queues share; nil until one takes it
}

// envelope returns the message in an envelope: spare, if the queue has one, when it
// is to be the queue's own.
func (p *publication) envelope(spare *envelope) *envelope {
	if !p.alone {
		if p.env == nil {
			p.env = &envelope{msg: p.msg, ctx: p.ctx}
		}
		return p.env
	}
	if spare == nil {
		spare = new(envelope)
	}
	spare.msg, spare.ctx, spare.own = p.msg, p.ctx, true
	return spare
}

// offer hands the subscription its copy of a message. It does not wait.
func (s *Subscription) offer(p *publication) verdict {
	var spare *envelope
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
			s.drop(&p.msg, ReasonDroppedNewest, p.msg.Time, nil)
			s.mu.Unlock()
			return taken
		default:
			if oldest, ok := s.queue.evict(); ok {
				s.counts.evicted++
				s.drop(&oldest.msg, ReasonDroppedOldest, p.msg.Time, nil)
				if oldest.own {
					spare = oldest
				}
			}
		}
	}
	s.accept(p, spare)
	return taken
}

// accept queues a message, in spare or the envelope that its slot was given back.
// It needs mu and a queue that is not full, and gives the lock up.
func (s *Subscription) accept(p *publication, spare *envelope) {
	if spare == nil && p.alone {
		spare = s.queue.vacant()
	}
	start := s.queue.put(p.envelope(spare), p.msg.ID)
	full := s.limit > 0 && s.fill(s.queue.tail-s.counts.evicted)
	s.mu.Unlock()
	switch {
	case !start:
	case s.ready != nil:
		s.wakeReader()
	default:
		go s.work() // ends when the queue is empty
	}
	if full { // Last: it may have to wait for the broker's mu.
		s.broker.unroute(s)
	}
}

// offerOrWait is offer that waits for room in a full queue whose policy is Block, as
// waitForRoom does.
func (s *Subscription) offerOrWait(ctx context.Context, p *publication) (verdict, error) {
	if v := s.offer(p); v != noRoom {
		return v, nil
	}
	return s.waitForRoom(ctx, p)
}

// waitForRoom is offer to a full queue whose policy is Block: it waits until the
// copy is queued, or dropped because the subscription ended or, with an error,
// because ctx did.
func (s *Subscription) waitForRoom(ctx context.Context, p *publication) (verdict, error) {
	// The queue waits for its own handler, and that for this call: never wait.
	inHandler := s.calledIn(ctx)
	canceled := ctx.Done()
	var now time.Time
	if inHandler {
		now = s.broker.now()
	}
	env := p.envelope(nil)
	s.mu.Lock()
	switch {
	case s.phase != open:
		s.mu.Unlock()
		return late, nil
	case inHandler && s.queue.full():
		err := fmt.Errorf("%w: full queue of subscription %d on %s", ErrInHandler, s.id, quoteShort(s.pattern))
		s.drop(&p.msg, ReasonCanceled, now, err)
		s.mu.Unlock()
		return taken, err
	case inHandler:
		s.accept(p, env)
		return taken, nil
	}
	w := s.queue.newWaiter(env, p.msg.ID)
	if !s.queue.enlist(w) {
		s.queue.reuse(w)
		s.accept(p, env)
		return taken, nil
	}
	s.mu.Unlock()

	select {
	case <-w.ready:
	case <-canceled:
		err := ctx.Err()
		now := s.broker.now()
		s.mu.Lock()
		if s.queue.withdraw(w) {
			s.drop(&p.msg, ReasonCanceled, now, err)
			s.queue.reuse(w)
			s.mu.Unlock()
			return taken, err
		}
		s.mu.Unlock()
		<-w.ready // Room, or the subscription's end, came first.
	}
	v := w.verdict
	s.mu.Lock()
	s.queue.reuse(w)
	s.mu.Unlock()
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
			if w.calling { // Else it panicked while it exited, which is settled.
				s.fail(w.env, ReasonGoexit, ErrGoexit)
			}
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
		if w.env.own {
			w.env.msg.Payload, w.env.ctx = nil, nil // The rest keeps nothing of the user's alive.
			s.queue.giveBack(w.env)
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

// next is claim for the worker, which has to end when there is no next message.
func (s *Subscription) next() (*envelope, bool) {
	for yielded := false; ; yielded = true {
		s.mu.Lock()
		env, full, ok := s.claim()
		if ok {
			s.unlock(full)
			return env, true
		}
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

// claim settles the call that runs as delivered and claims the next message, if one
// is queued, for which it then lets a waiting publisher in. It needs mu; the caller
// has to hand full to unlock.
func (s *Subscription) claim() (env *envelope, full, ok bool) {
	env, ok = s.queue.next()
	for ok && s.queue.admit() {
		full = s.limit > 0 && s.fill(s.queue.tail-s.counts.evicted) || full
	}
	s.queue.reach()
	return env, full, ok
}

// fail settles the worker's call as failed.
func (s *Subscription) fail(env *envelope, reason Reason, err error) {
	now := s.broker.now()
	s.mu.Lock()
	s.queue.stop()
	s.counts.failed++
	s.broker.deadLetters.record(s.letter(&env.msg, reason, now, err))
	s.queue.reach()
	s.mu.Unlock()
}
