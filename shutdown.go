package pubsub

import "context"

// Flush returns when every message whose Publish had returned before the call has
// been handled, evicted, refused or discarded by each of its subscriptions, those
// unsubscribed since included, and the dead letters of that have been announced.
// What handlers publish meanwhile is not waited for: a chain of k topics needs k
// calls. Nor is what the owner of a pulled subscription has yet to pull. It works
// after Close.
//
// When ctx is done first it returns ctx.Err(); with nothing left to wait for it
// returns nil whatever ctx says. Given the ctx of a handler of the same broker it
// does not wait but returns [ErrInHandler].
func (b *Broker) Flush(ctx context.Context) error {
	ctx = orBackground(ctx)
	b.mu.RLock()
	subs := b.unfinished()
	b.mu.RUnlock()
	if b.calledIn(ctx) {
		return b.errIfBusy(subs)
	}
	// All positions first: what is published while the first is waited for is
	// not for this call to wait for.
	positions := make([]uint64, len(subs))
	for i, s := range subs {
		positions[i] = s.position()
	}
	for i, s := range subs {
		if s.Pulled() {
			continue // Its owner may be the caller.
		}
		if err := s.waitSettled(ctx, positions[i]); err != nil {
			return err
		}
	}
	return b.deadLetters.waitAnnounced(ctx)
}

// position returns the position in the queue of the next message.
func (s *Subscription) position() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.tail
}

// waitSettled waits until all messages before a position are settled.
func (s *Subscription) waitSettled(ctx context.Context, position uint64) error {
	s.mu.Lock()
	mark := s.queue.mark(position)
	s.mu.Unlock()
	if mark == nil {
		return nil
	}
	if err := wait(ctx, mark.reached); err != nil {
		s.mu.Lock()
		s.queue.unmark(mark)
		s.mu.Unlock()
		return err
	}
	return nil
}

// errIfBusy is for those called in a handler: it returns ErrInHandler when there
// is anything to wait for, as there is when the handler still runs.
func (b *Broker) errIfBusy(subs []*Subscription) error {
	for _, s := range subs {
		if st := s.Stats(); !s.Pulled() && (st.Queued > 0 || st.Running > 0) {
			return ErrInHandler
		}
	}
	if !b.deadLetters.announced() {
		return ErrInHandler
	}
	return nil
}

// Shutdown closes the broker gracefully: from now on Publish, Redeliver, Subscribe,
// Pull, CreateTopic and DeleteTopic return [ErrClosed], in handlers too, and all
// subscriptions drain as [Subscription.Drain] says. It returns nil when no handler
// of the broker is running, those of subscriptions unsubscribed before included,
// and all dead letters have been announced. It does not wait for the owners of
// pulled subscriptions: what they have left when the handlers have finished is
// discarded.
//
// When ctx is done first, it discards the rest as Close does and returns
// ctx.Err(), without waiting for handlers that run. With nothing left to wait for
// it returns nil whatever ctx says. Given the ctx of a handler of the same broker
// it starts all this and returns [ErrInHandler] without waiting; what pulled
// subscriptions have left is then discarded by Close, or by another Shutdown.
//
// A pipeline, in which handlers publish, ends without loss like this: stop the
// sources, call Flush once per hop, then Shutdown.
//
// Shutdown and Close may be called any number of times, in any order and
// concurrently.
func (b *Broker) Shutdown(ctx context.Context) error {
	ctx = orBackground(ctx)
	subs := b.close()
	for _, s := range subs {
		s.drain()
	}
	if b.calledIn(ctx) {
		err := b.errIfBusy(subs)
		if err == nil {
			unsubscribe(subs) // As at the end.
		}
		return err
	}
	for _, s := range subs {
		if s.Pulled() {
			continue
		}
		if err := s.waitDone(ctx); err != nil {
			unsubscribe(subs)
			return err
		}
	}
	unsubscribe(subs) // What is left is pulled: its owner may be the caller.
	return b.deadLetters.waitAnnounced(ctx)
}

// Close closes the broker at once: from now on Publish, Redeliver, Subscribe, Pull,
// CreateTopic and DeleteTopic return [ErrClosed], in handlers too, and all subscriptions are
// unsubscribed as [Subscription.Unsubscribe] says. It waits neither for handlers
// that run nor for announcements of dead letters, so it may be called anywhere.
// Reading (Stats, DeadLetters, Topics, Subscriptions) goes on working. It always
// returns nil.
func (b *Broker) Close() error {
	unsubscribe(b.close())
	return nil
}

func unsubscribe(subs []*Subscription) {
	for _, s := range subs {
		s.Unsubscribe()
	}
}

// close makes the broker take nothing more, and returns the subscriptions that
// are not done.
func (b *Broker) close() []*Subscription {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.closed = true
		b.index = index{} // What is left of it is never read again.
		b.generation.Add(1)
		b.routes.clear()
	}
	return b.unfinished()
}
