package pubsub

import "context"

// callKey is the key under which a handler's ctx has its own call.
type callKey struct{}

// call is the ctx of a handler, and the mark by which a later Publish, Flush,
// Drain or Shutdown knows which handlers it is called from. A synchronous call
// adds to the chain of calls that its publisher's ctx leads to; an asynchronous
// one starts a chain of its own.
type call struct {
	// Context is what cancellation follows: the publisher's ctx in a
	// synchronous call. In an asynchronous one it is the subscription's own,
	// a ctx made by context.WithCancel; that its Value leads to itself is what
	// lets context.WithCancel derive from a call without a goroutine, and
	// context.Cause find the subscription's cause instead of the publisher's.
	context.Context

	broker *Broker
	// Of an asynchronous call: the subscription, and the publisher's ctx, which
	// only its values are taken from; nil when it had none.
	subscription *Subscription
	values       context.Context
}

// Value returns the call itself for callKey, so that the publisher's mark does
// not pass through its values.
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	if v := c.Context.Value(key); v != nil || c.values == nil {
		return v
	}
	return c.values.Value(key)
}

// callOf returns the innermost call that ctx comes from, or nil.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// outer returns the call that c was made from, or nil.
func (c *call) outer() *call {
	if c.subscription != nil {
		return nil
	}
	return callOf(c.Context)
}

// calledIn reports whether ctx comes from a handler of b. It calls ctx's methods,
// which may be a user's: never under a lock.
func (b *Broker) calledIn(ctx context.Context) bool {
	for c := callOf(ctx); c != nil; c = c.outer() {
		if c.broker == b {
			return true
		}
	}
	return false
}

// calledIn reports whether ctx comes from a call of s's asynchronous handler. The
// same rule as for [Broker.calledIn].
func (s *Subscription) calledIn(ctx context.Context) bool {
	for c := callOf(ctx); c != nil; c = c.outer() {
		if c.subscription == s {
			return true
		}
	}
	return false
}

// isBackground reports whether ctx carries nothing, so that it need not be
// kept. Comparing with a ctx of another type, comparable or not, is false.
func isBackground(ctx context.Context) bool {
	return ctx == context.Background() || ctx == context.TODO()
}

// valuesOf returns the ctx that ctx's values come from, without the calls on the
// way, or nil when it carries none. With the calls, a message that leads to the
// next, for ever, would grow a chain of them as long.
func valuesOf(ctx context.Context) context.Context {
	for {
		c, ok := ctx.(*call)
		switch {
		case !ok && isBackground(ctx):
			return nil
		case !ok:
			return ctx
		case c.subscription == nil:
			ctx = c.Context
		case c.values == nil:
			return nil
		default:
			ctx = c.values
		}
	}
}

// wait waits for done to be closed. What is done already wins over a ctx that is
// done too.
func wait(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-done:
		return nil
	default:
		return ctx.Err()
	}
}
