package pubsub

// What a page or a log about a subscription shows, beside its Stats.

// Sync reports whether the subscription is synchronous: see [WithSync].
func (s *Subscription) Sync() bool { return s.sync }

// Pulled reports whether the subscription was made with [Broker.Pull].
func (s *Subscription) Pulled() bool { return s.ready != nil }

// QueueSize returns how many messages the queue holds at most; 0 for a synchronous
// subscription, which has none.
func (s *Subscription) QueueSize() int {
	if s.sync {
		return 0
	}
	return int(s.queue.size)
}

// DropPolicy returns what happens when the queue is full.
func (s *Subscription) DropPolicy() DropPolicy { return s.policy }

// RunningMessage returns the id of the message that an asynchronous handler has, or
// the body of a loop over [Subscription.Messages]; ok is false when none has one,
// and always for a synchronous subscription, which may run several calls. It does
// not block. Who sees one id again later knows that the call has been running since.
func (s *Subscription) RunningMessage() (id uint64, ok bool) {
	if s.sync {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.running()
}
