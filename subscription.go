package pubsub

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Subscription is one binding of a pattern to a handler: see [Broker.Subscribe].
// Its methods may be called concurrently, inside handlers and after it has ended.
// All but Drain and a loop over Messages return without waiting, so they may be
// called under locks of the caller's too.
type Subscription struct {
	// Here, on one cache line, is what a publish reads of a synchronous subscription.
	// Immutable, but for what is let go when the subscription is done:

	broker *Broker
	id     uint64
	// handler and ctx are read without mu while a call runs, and let go of when
	// none can any more.
	handler Handler
	ctx     *call  // an asynchronous handler's, for a publisher without values
	limit   uint64 // of messages to take; 0 is none
	policy  DropPolicy
	sync    bool

	// Guarded by the broker's mu.

	listing listing // and where in that list: slot

	// Atomic.

	reading atomic.Bool // a loop over Messages runs
	// calls is the whole state of a synchronous subscription's calls: see
	// synchronous.go.
	calls atomic.Uint64

	// Immutable.

	pattern string
	work    func()        // the worker; a value, so that starting one allocates nothing
	ready   chan struct{} // wakes the reader of a pulled subscription; nil in others

	// Guarded by mu; not beside it, where what changes all the time is.

	phase phase

	// Guarded by the broker's mu.

	place place // in the index
	slot  int

	// mu guards the rest. Under it only the lock of the dead letters is taken.
	mu     sync.Mutex
	queue  queue[*envelope]
	counts counts
	cancel context.CancelFunc // ends ctx; nil when it has been called
	done   chan struct{}      // what Done returns; nil until somebody asks

	name string // immutable
}

// phase is the life of a subscription. It only grows.
type phase uint8

const (
	// open: it takes messages.
	open phase = iota
	// draining: it takes nothing new and handles what is queued. From open, by
	// Drain, Shutdown or the last of its max messages.
	draining
	// closed: its queue is discarded; a call may still run. From open or
	// draining, by Unsubscribe, Close, a Drain or Shutdown whose ctx ended, and
	// of pulled ones every Shutdown.
	closed
	// settled: no call runs and none will, and the counts are final. From
	// draining or closed, when nothing is queued or running, by whoever finds
	// it so, who then has to finish the subscription.
	settled
	// done: its ctx is done, no list of the user's has it, and Done is closed.
	// From settled, by finish.
	done
)

// counts are the counters of one subscription that its mu guards. What was
// delivered is derived from them and the claims.
type counts struct {
	failed  uint64
	dropped uint64
	// evicted are those of dropped that had been queued, so that the queue's
	// claims are evicted or started.
	evicted uint64
	// Synchronous only: what calls had too little room for, and the messages
	// taken when there is a limit.
	delivered, taken uint64
}

// SubscriptionStats are the counters of one subscription at one moment:
//
//	Matched = Delivered + Failed + Dropped + Queued + Running
type SubscriptionStats struct {
	// Matched counts the messages the subscription took or refused, and those
	// whose publisher gave up waiting for room; one redelivered counts again.
	Matched uint64
	// Delivered counts those whose handler returned nil.
	Delivered uint64
	// Failed counts those whose handler returned an error, panicked or called
	// runtime.Goexit.
	Failed uint64
	// Dropped counts those whose handler was never called.
	Dropped uint64
	// Queued is how many wait for the handler now.
	Queued int
	// Running is how many calls of the handler run now: at most one, unless
	// the subscription is synchronous.
	Running int
}

// newSubscription returns one that the broker has yet to number and list; without
// a handler, one to be pulled. What is refused then, bad options too, is not used.
func newSubscription(b *Broker, pattern string, h Handler, o subscribeOptions) *Subscription {
	s := &Subscription{
		broker: b,
		// Copies, so that no large buffer that the caller cut them from is kept.
		name:    strings.Clone(o.name),
		pattern: strings.Clone(pattern),
		sync:    o.sync,
		policy:  o.policy,
		limit:   uint64(o.maxMessages),
		handler: h,
	}
	s.queue.size = uint64(o.queueSize)
	if !o.sync && h != nil {
		s.work = s.drainQueue
		var lifetime context.Context
		lifetime, s.cancel = context.WithCancel(context.Background())
		s.ctx = &call{Context: lifetime, broker: b, subscription: s}
	}
	return s
}

// ID returns the number of the subscription: unique in its broker, from 1, never
// used again.
func (s *Subscription) ID() uint64 { return s.id }

// Name returns the name given with [WithName].
func (s *Subscription) Name() string { return s.name }

// Pattern returns the pattern it was made with.
func (s *Subscription) Pattern() string { return s.pattern }

// Done returns a channel that is closed when the subscription has ended, its last
// call has returned, and everything is counted: nothing about it changes
// afterwards. Only a handler, or the body of a loop over Messages, that waits for
// its own subscription's Done waits forever.
func (s *Subscription) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done == nil {
		s.done = make(chan struct{})
		if s.phase == done {
			close(s.done)
		}
	}
	return s.done
}

func (s *Subscription) isDone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase == done
}

// waitDone waits for Done, or for ctx.
func (s *Subscription) waitDone(ctx context.Context) error {
	if s.isDone() {
		return nil
	}
	return wait(ctx, s.Done())
}

// Stats returns the counters. It does not block.
func (s *Subscription) Stats() SubscriptionStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats()
}

// stats needs mu.
func (s *Subscription) stats() SubscriptionStats {
	st := SubscriptionStats{Failed: s.counts.failed, Dropped: s.counts.dropped}
	if s.sync {
		calls := s.calls.Load()
		st.Running = int(calls & callsRunning / oneRunning)
		st.Delivered = s.counts.delivered + calls&callsDelivered
	} else {
		queued, running, claims := s.queue.load()
		st.Queued, st.Running = int(queued), int(running)
		st.Delivered = claims - s.counts.evicted - s.counts.failed - running
	}
	st.Matched = st.Delivered + st.Failed + st.Dropped + uint64(st.Queued) + uint64(st.Running)
	return st
}

// Unsubscribe ends the subscription at once. It never blocks: call it anywhere,
// inside the subscription's own handler too, and as often as you like. When it
// returns, also when another call got there first:
//   - no call of the handler begins any more. One that has begun (it counts as
//     Running, though its first line may still be to come) goes on, with its ctx
//     done if it is asynchronous;
//   - what was queued is discarded, each message a dead letter with
//     [ReasonUnsubscribed];
//   - publishers that waited for room go on, their copy a dead letter likewise;
//   - it is not in [Broker.Subscriptions].
//
// To wait until the last call has returned, before closing a channel that the
// handler sends on, say:
//
//	sub.Unsubscribe()
//	<-sub.Done()
func (s *Subscription) Unsubscribe() {
	if s.isDone() {
		return
	}
	now := s.broker.now()
	s.mu.Lock()
	if s.phase < closed {
		s.phase = closed
		s.calls.Or(callsClosed)
		s.discard(now)
	}
	finished := s.finished()
	cancel := s.cancel
	s.mu.Unlock()
	if finished {
		s.finish()
		return
	}
	if cancel != nil {
		cancel()
	}
	s.broker.unlist(s)
}

// discard books what is queued and waiting. It needs mu.
func (s *Subscription) discard(now time.Time) {
	s.queue.discard(func(env *envelope) {
		s.counts.evicted++
		s.drop(&env.msg, ReasonUnsubscribed, now, nil)
	})
	s.dismiss(now)
	s.queue.reach()
}

// dismiss books the copies of the publishers that wait for room. It needs mu.
func (s *Subscription) dismiss(now time.Time) {
	s.queue.dismiss(taken, func(env *envelope) { s.drop(&env.msg, ReasonUnsubscribed, now, nil) })
}

// drop counts one message as dropped and records it. It needs mu.
func (s *Subscription) drop(msg *Message, reason Reason, at time.Time, err error) {
	s.counts.dropped++
	s.broker.deadLetters.record(s.letter(msg, reason, at, err))
}

func (s *Subscription) letter(msg *Message, reason Reason, at time.Time, err error) DeadLetter {
	return DeadLetter{
		Time:             at,
		SubscriptionID:   s.id,
		SubscriptionName: s.name,
		Pattern:          s.pattern,
		Message:          *msg,
		Reason:           reason,
		Err:              err,
	}
}

// Drain ends the subscription gracefully: it takes nothing new from now on, lets
// publishers that wait for room go on, their copy a dead letter with
// [ReasonUnsubscribed], handles what is queued, and returns nil when
// [Subscription.Done] is closed. Until then it stays in [Broker.Subscriptions].
//
// When ctx is done first, it discards the rest as [Subscription.Unsubscribe] does
// and returns ctx.Err(), without waiting for a call that runs. With nothing left
// to wait for it returns nil whatever ctx says.
//
// Given the ctx of a handler of the same broker it starts the drain and returns
// [ErrInHandler] without waiting.
func (s *Subscription) Drain(ctx context.Context) error {
	s.drain()
	if s.isDone() {
		return nil
	}
	ctx = orBackground(ctx)
	if s.broker.calledIn(ctx) {
		return ErrInHandler
	}
	if err := s.waitDone(ctx); err != nil {
		s.Unsubscribe()
		return err
	}
	return nil
}

// drain starts a drain. When nothing is left to handle, Done is closed when it
// returns.
func (s *Subscription) drain() {
	if s.isDone() {
		return
	}
	now := s.broker.now()
	s.mu.Lock()
	if s.phase == open {
		s.phase = draining
		s.calls.Or(callsClosed)
		s.dismiss(now)
	}
	finished := s.finished()
	s.mu.Unlock()
	if finished {
		s.finish()
		return
	}
	s.broker.unroute(s)
}

// fill ends the taking when the limit is reached, and lets those who wait for
// room go uncounted. It needs mu; when it returns true the caller has to unroute the
// subscription after unlocking, as unlock does.
func (s *Subscription) fill(messages uint64) (full bool) {
	if s.limit == 0 || messages < s.limit || s.phase != open {
		return false
	}
	s.phase = draining
	s.calls.Or(callsClosed)
	s.queue.dismiss(late, func(*envelope) {})
	return true
}

// unlock gives mu up and, when fill has said that the subscription is full, takes it
// out of the index, which the broker's mu guards.
func (s *Subscription) unlock(full bool) {
	s.mu.Unlock()
	if full {
		s.broker.unroute(s)
	}
}

// finished settles the subscription when nothing is left to do, lets go of what
// only calls need, and reports whether it is settled; the caller then has to
// finish it after unlocking. It needs mu.
func (s *Subscription) finished() bool {
	if s.phase == open || s.phase >= settled {
		return s.phase >= settled
	}
	if st := s.stats(); st.Queued > 0 || st.Running > 0 {
		return false
	}
	s.phase = settled
	s.handler = nil
	s.queue.release()
	return true
}

// finish ends the ctx of a subscription that is settled, closes Done, and lets the
// broker book it. Every caller returns with all that true, whoever was first: the
// subscription leaves the broker's lists last, so that a concurrent Close or
// Shutdown that does not find it finds it done.
func (s *Subscription) finish() {
	s.mu.Lock()
	cancel := s.cancel
	s.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	s.broker.unlist(s)
	s.mu.Lock()
	s.cancel, s.ctx = nil, nil
	if s.phase < done {
		s.phase = done
		if s.done != nil {
			close(s.done)
		}
	}
	last := s.stats()
	s.mu.Unlock()
	s.broker.retire(s, last)
}
