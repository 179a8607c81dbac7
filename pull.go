package pubsub

import (
	"cmp"
	"context"
	"iter"
	"runtime/debug"
)

// Pull makes a subscription without a handler: its owner takes the messages out of
// the queue with [Subscription.Messages]. Queue size, drop policy, max messages,
// accounting and dead letters are as with [Broker.Subscribe], and it has no
// goroutine at all.
//
// [Broker.Flush] does not wait for what its owner has yet to pull. Neither does
// [Broker.Shutdown]: what is left when all handlers have finished is discarded.
// [Subscription.Drain] returns when the owner has pulled the rest.
//
// It returns [ErrClosed], [ErrInvalidPattern] or [ErrInvalidOption], the last for
// [WithSync] too, and does not block.
func (b *Broker) Pull(pattern string, opts ...SubscribeOption) (*Subscription, error) {
	o := newSubscribeOptions(opts)
	if o.sync {
		o.invalid("a subscription that is pulled cannot be synchronous")
	}
	s := newSubscription(b, pattern, nil, o)
	s.ready = make(chan struct{}, 1)
	return b.add(s, cmp.Or(checkPattern(pattern), o.err))
}

// Messages returns the messages of a subscription made with [Broker.Pull], oldest
// first, waiting for the next when none is queued. The loop ends when ctx is done
// or the subscription has ended; leaving it keeps the subscription, and a later
// loop goes on where it left:
//
//	defer sub.Unsubscribe()
//	for msg := range sub.Messages(ctx) {
//		...
//	}
//
// A message counts as Running while the loop's body has it, and as Delivered when
// the body asks for the next or leaves the loop. A panic in the body, or a
// [runtime.Goexit], is a dead letter, and goes on up the stack. In the body, Drain
// of the same subscription, receiving from its Done, and a Publish or Redeliver into
// its full [Block] queue wait until their ctx is done, if ever: a body has no ctx of
// a handler by which they would know. [Broker.Flush] and [Broker.Shutdown] may be
// called, but they wait for the dead-letter handlers: with one that waits for room in
// this queue, bound them.
//
// Messages panics when the subscription has a handler, and a loop panics when
// another is running over the same subscription, an enclosing one too: to share the
// work, send the messages on a channel.
func (s *Subscription) Messages(ctx context.Context) iter.Seq[Message] {
	if s.ready == nil {
		panic("pubsub: Messages of a subscription that has a handler")
	}
	ctx = orBackground(ctx)
	return func(yield func(Message) bool) {
		if !s.reading.CompareAndSwap(false, true) {
			panic("pubsub: two loops over the Messages of one subscription")
		}
		r := reader{s: s, ctx: ctx}
		defer r.leave()
		for r.pull() {
			msg := r.env.msg
			if !yield(msg) {
				r.left = true
				return
			}
		}
		r.left = true
	}
}

// wakeReader tells the owner's loop, if there is one, to look again: of a pulled
// subscription this is what starting the worker is of another.
func (s *Subscription) wakeReader() {
	select {
	case s.ready <- struct{}{}:
	default: // It has been told.
	}
}

// reader is one loop over the messages of a subscription. It takes the worker's
// place.
type reader struct {
	s    *Subscription
	ctx  context.Context
	env  *envelope // what the body has, or had last
	left bool      // the loop was left other than by a panic or Goexit
}

// pull settles the message that the body has had as delivered and claims the next
// one, waiting for it; false when the loop has to end.
func (r *reader) pull() bool {
	s := r.s
	for r.ctx.Err() == nil {
		s.mu.Lock()
		env, full, ok := s.claim()
		if ok {
			s.unlock(full)
			r.env = env
			return true
		}
		r.env = nil
		s.queue.end()
		finished := s.finished()
		s.mu.Unlock()
		if finished {
			return false // leave finishes it.
		}
		select {
		case <-s.ready:
		case <-r.ctx.Done():
		case <-s.Done():
		}
	}
	return false
}

// leave settles what the body has, when the loop is left.
func (r *reader) leave() {
	s := r.s
	defer s.reading.Store(false)
	if !r.left && r.env != nil {
		v := recover() // To say which it was: it goes on below.
		reason, err := ReasonGoexit, ErrGoexit
		if v != nil {
			reason, err = ReasonPanic, &PanicError{Value: v, Stack: debug.Stack()}
		}
		s.fail(r.env, reason, err)
		defer func() {
			if v != nil {
				panic(v)
			}
		}()
	}
	s.mu.Lock()
	s.queue.stop()
	if queued, _, _ := s.queue.load(); queued == 0 {
		s.queue.end()
	}
	finished := s.finished()
	s.mu.Unlock()
	if finished {
		s.finish()
	}
}
