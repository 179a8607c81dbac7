package pubsub

import (
	"context"
	"fmt"
)

// Redeliver hands the message of a dead letter once more to the subscription that
// did not handle it, and to no other, with its id and time kept. It counts as
// Matched again there, towards max messages too, and its place among other messages
// is where it comes now. So a message is handled at most once per Publish or
// Redeliver; who redelivers a failure has to know that the handler can bear it.
//
// It waits as [Broker.Publish] does: for a synchronous handler, and, until ctx is
// done, for room in a full Block queue. A handler may call it. A nil error means
// accepted, not handled; what becomes of the message is a new dead letter or none,
// and this one stays where it is: see [DeadLetters.Take].
//
// It returns [ErrClosed], [ErrNoSubscription] when the subscription has ended or is
// draining, or when the letter is not of this broker, and for a copy that gave up
// waiting for room what Publish returns.
func (b *Broker) Redeliver(ctx context.Context, l DeadLetter) error {
	b.mu.RLock()
	closed := b.closed
	b.mu.RUnlock()
	if closed {
		return ErrClosed
	}
	s := l.subscription
	if s == nil || s.broker != b {
		return fmt.Errorf("%w: the dead letter of message %d is not of this broker", ErrNoSubscription, l.Message.ID)
	}
	ctx = orBackground(ctx)
	matched, err := s.redeliver(ctx, l.Message)
	if !matched {
		return fmt.Errorf("%w: subscription %d on %s takes nothing more", ErrNoSubscription, s.id, quoteShort(s.pattern))
	}
	return err
}

func (s *Subscription) redeliver(ctx context.Context, msg Message) (matched bool, err error) {
	if s.sync {
		f := fanOut{ctx: s.broker.synchronousContext(ctx), msg: msg, rest: []*Subscription{s}}
		f.serve()
		return f.matched, nil
	}
	p := publication{msg: msg, ctx: valuesOf(ctx), alone: true}
	v := s.offer(&p)
	if v == noRoom {
		v, err = s.waitForRoom(ctx, &p)
	}
	return v != late, err
}
