package pubsub

import (
	"context"
	"fmt"
	"unsafe"
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
// The letter must be one that this broker gave out, not one put together or decoded.
//
// It returns [ErrClosed], [ErrNoSubscription] when the subscription has ended, is
// draining or has had its [WithMaxMessages], or when the letter is not of this broker,
// and for a copy that gave up waiting for room what Publish returns. Finding the
// subscription takes time in proportion to those with the same pattern.
func (b *Broker) Redeliver(ctx context.Context, l DeadLetter) error {
	b.mu.RLock()
	closed := b.closed
	s := b.index.find(l.Pattern, l.SubscriptionID)
	b.mu.RUnlock()
	if closed {
		return ErrClosed
	}
	matched := false
	var err error
	if s != nil && s.wrote(l) {
		matched, err = s.redeliver(orBackground(ctx), l.Message)
	}
	if !matched {
		return fmt.Errorf("%w: %d on %s, of the dead letter of message %d",
			ErrNoSubscription, l.SubscriptionID, quoteShort(l.Pattern), l.Message.ID)
	}
	return err
}

// wrote reports whether a letter is of s, and not of a subscription of the same
// number and pattern of another broker. Every subscription has a copy of its pattern,
// which its letters share: a field in DeadLetter for this would keep letters from
// being compared.
func (s *Subscription) wrote(l DeadLetter) bool {
	return unsafe.StringData(l.Pattern) == unsafe.StringData(s.pattern)
}

func (s *Subscription) redeliver(ctx context.Context, msg Message) (matched bool, err error) {
	if s.sync {
		f := fanOut{ctx: s.broker.synchronousContext(ctx), msg: msg}
		f.serve([]*Subscription{s})
		return f.matched, nil
	}
	p := publication{msg: msg, ctx: valuesOf(ctx), alone: true}
	v, err := s.offerOrWait(ctx, &p)
	return v != late, err
}
