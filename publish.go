package pubsub

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// Publish sends a message to every subscription that matches the topic when it
// begins, once each: first those whose queue drops, then those with [Block], then
// synchronous ones, each in order of subscription. It returns the message's id,
// which grows with every accepted publish, matched or not.
//
// A nil error means accepted, not handled: what a handler returns is never
// Publish's error, a synchronous one's neither. With an error and an id of zero
// nothing was sent: the error is [ErrClosed], [ErrInvalidTopic] or, with
// [WithStrictTopics], [ErrUnknownTopic]. With an error and another id the message
// was sent, and only those full Block queues did not take it whose copy is a dead
// letter: do not publish it again.
//
// Publish waits for synchronous handlers and for room in full Block queues, and
// for nothing else. ctx bounds the wait for room: when it is done first, that
// copy is a dead letter with [ReasonCanceled], the others are served, and the
// error is ctx.Err(). A done ctx does not stop a publish that need not wait.
// Given the ctx of a handler, Publish never waits for that handler's own queue
// but returns [ErrInHandler], likewise.
//
// Synchronous handlers get ctx; asynchronous ones get its values only. The
// payload is shared by all handlers and dead letters: nobody may change it from
// here on. Handlers may publish; a synchronous one that publishes to itself
// recurses until the stack ends, which Go cannot recover from.
func (b *Broker) Publish(ctx context.Context, topic string, payload any) (uint64, error) {
	hash := b.routes.hash(topic)
	if r := b.routes.get(hash, topic, b.generation.Load()); r != nil {
		return b.publish(ctx, r.topic, &r.route, payload)
	}
	// Most topics match few: then whom they match fits on the stack, and a topic
	// that does not recur leaves no garbage but its name.
	var few [8]*Subscription
	found, generation, err := b.match(topic, few[:0])
	if err != nil {
		return 0, err
	}
	admitted := b.routes.admits(hash, generation)
	if admitted || len(found) > 0 {
		// A copy, so that neither the cache nor the messages keep alive a large
		// buffer that the caller cut the name from.
		topic = strings.Clone(topic)
	}
	if !admitted {
		r := newRoute(found)
		return b.publish(ctx, topic, &r, payload)
	}
	r := &cachedRoute{topic, generation, newRoute(slices.Clone(found))}
	b.keep(hash, r)
	return b.publish(ctx, topic, &r.route, payload)
}

// keep puts a route into the cache, unless the registry has changed since: what did may
// have emptied the slots before this one was filled, and after Close nobody else would
// let go of its subscriptions.
func (b *Broker) keep(hash uint64, r *cachedRoute) {
	b.routes.put(hash, r)
	if b.generation.Load() != r.generation {
		b.routes.drop(hash, r)
	}
}

// match returns the subscriptions that match a topic now, and the generation of the
// registry that says so. It uses the array of found when that is large enough.
func (b *Broker) match(topic string, found []*Subscription) ([]*Subscription, uint64, error) {
	fault := checkTopic(topic)
	b.mu.RLock()
	defer b.mu.RUnlock()
	switch {
	case b.closed:
		fault = ErrClosed
	case fault == nil && b.strict:
		if _, ok := b.topics[topic]; !ok {
			fault = unknownTopic(topic)
		}
	}
	if fault != nil {
		return nil, 0, fault
	}
	generation := b.generation.Load()
	return b.index.match(topic, found), generation, nil
}

// publish sends a message along the route of its topic, which is the broker's own
// copy of the name.
func (b *Broker) publish(ctx context.Context, topic string, r *route, payload any) (uint64, error) {
	id := b.lastID.Add(1)
	if r.size() == 0 {
		b.unrouted.Add(1)
		return id, nil
	}
	ctx = orBackground(ctx)
	msg := Message{ID: id, Topic: topic, Payload: payload, Time: b.now()}
	matched := false
	var err error
	if len(r.dropping)+len(r.blocking) > 0 {
		matched, err = b.enqueue(ctx, r, msg)
	}
	if len(r.synchronous) > 0 {
		f := fanOut{ctx: b.synchronousContext(ctx), msg: msg, matched: matched}
		f.serve(r.synchronous)
		matched = f.matched
	}
	if !matched {
		b.unrouted.Add(1)
	}
	return id, err
}

// enqueue gives a message to the asynchronous subscriptions.
func (b *Broker) enqueue(ctx context.Context, r *route, msg Message) (matched bool, err error) {
	p := publication{msg: msg, ctx: valuesOf(ctx), alone: len(r.dropping)+len(r.blocking) == 1}
	for _, s := range r.dropping {
		if s.offer(&p) != late {
			matched = true
		}
	}
	for _, s := range r.blocking {
		v, gaveUp := s.offerOrWait(ctx, &p)
		if v != late {
			matched = true
		}
		if gaveUp != nil {
			err = firstOfEach(err, gaveUp)
		}
	}
	return matched, err
}

// firstOfEach adds an error to those of the queues before, unless it is of a kind
// that is there already: a done ctx gives the same for every full queue.
func firstOfEach(errs, err error) error {
	switch {
	case errs == nil:
		return err
	case errors.Is(errs, err), errors.Is(errs, ErrInHandler) && errors.Is(err, ErrInHandler):
		return errs
	default:
		return errors.Join(errs, err)
	}
}

// synchronousContext returns the ctx of a publish's synchronous handlers: the
// publisher's, marked.
func (b *Broker) synchronousContext(ctx context.Context) context.Context {
	if isBackground(ctx) {
		return b.background
	}
	return &call{Context: ctx, broker: b}
}

// orBackground lets a nil ctx pass as one that carries nothing.
func orBackground(ctx context.Context) context.Context {
	if ctx == nil {
		return context.Background()
	}
	return ctx
}
