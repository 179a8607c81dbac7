package scenario

import (
	"context"
	"errors"
	"slices"

	"github.com/seed-b8032e04/pubsub"
	"github.com/seed-b8032e04/pubsub/internal/explore/schedule"
)

// subscribe makes a subscription; nil when the broker is closed.
func (a *actor) subscribe(k kind) *subject {
	w := a.w
	x := &subject{kind: k, w: w, name: "s" + string(rune('1'+len(w.subjects))), sequence: make(map[*goroutine]int)}
	x.began = a.does("subscribe %s: %v", x.name, k)
	w.subjects = append(w.subjects, x)
	closed := w.closed > 0
	var sub *pubsub.Subscription
	var err error
	if k.pulled {
		sub, err = w.broker.Pull(k.pattern, k.options()...)
	} else {
		sub, err = w.broker.Subscribe(k.pattern, x.handle, k.options()...)
	}
	x.listed = a.did(err)
	if err != nil {
		if !errors.Is(err, pubsub.ErrClosed) || w.closing == 0 {
			w.fail("Close: Subscribe returns %v", err)
		}
		i := slices.Index(w.subjects, x)
		w.subjects = slices.Concat(w.subjects[:i], w.subjects[i+1:]) // Others may be reading the old one.
		return nil
	}
	if closed {
		w.fail("Close: Subscribe returns no error after it")
	}
	x.sub = sub
	if w.closing > 0 {
		x.mayEnd(w.closing)
		x.drained, x.discarded = true, true
		x.endedNew = w.closed
	}
	if w.ended > 0 {
		x.hasEnded()
	}
	if w.chance(2) {
		w.s.Quietly(func() { x.done = sub.Done() })
	}
	w.check()
	return x
}

// publish publishes to a topic.
func (a *actor) publish(topic string) {
	w := a.w
	m := &sent{by: a.by, topic: topic}
	a.by.published++
	m.sequence = a.by.published
	ctx := context.Background()
	if a.ctx != nil {
		ctx = a.ctx
		m.value = ctx.Value(valueKey{})
		m.worker = a.in
		if a.in.sync {
			a.by.nests = true
			m.worker = a.handling.worker
		}
	}
	if a.ctx == nil && w.chance(3) {
		m.value = m
		ctx = context.WithValue(ctx, valueKey{}, m)
	}
	if a.ctx != nil || a.mortal || w.chance(4) {
		// Two handlers that publish into each other's full queues would wait
		// for each other, which is documented.
		ctx = w.ending(ctx)
	}
	w.sent = append(w.sent, m)
	m.began = a.does("publish to %s", topic)
	largest, closed := w.largest, w.closed > 0
	id, err := w.broker.Publish(ctx, topic, m)
	m.id, m.err = id, err
	m.ended = a.did(id)
	w.largest = max(w.largest, id)
	switch {
	case id == 0:
		a.refused(m, err)
	case closed:
		w.fail("Close: Publish returns %d, %v after it", id, err)
	case w.topics != nil && w.topics[topic].lacks(m.began):
		w.fail("Topics: Publish returns %d, %v for a topic that was not there", id, err)
	case id <= largest:
		w.fail("Message: id %d after %d", id, largest)
	case err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, pubsub.ErrInHandler):
		w.fail("Publish does not wait: %v", err)
	case errors.Is(err, context.Canceled) && ctx.Err() == nil:
		w.fail("Publish does not wait: %v, but its ctx is not done", err)
	case errors.Is(err, pubsub.ErrInHandler) && a.ctx == nil:
		w.fail("Re-entrancy: %v outside a handler", err)
	}
	w.check()
}

// refused checks that a publish may have been refused.
func (a *actor) refused(m *sent, err error) {
	w := a.w
	switch {
	case errors.Is(err, pubsub.ErrClosed):
		if w.closing == 0 {
			w.fail("Close: Publish returns %v before", err)
		} else if w.closed == 0 {
			w.closed = m.ended // Whoever begins now finds it closed too.
		}
	case errors.Is(err, pubsub.ErrUnknownTopic) && w.topics != nil:
		if t := w.topics[m.topic]; t.lasts(m.began) {
			w.fail("Topics: Publish returns %v for a topic that was there", err)
		}
	default:
		w.fail("Publish returns %v", err)
	}
}

// mayEnd notes that something that may end x began.
func (x *subject) mayEnd(moment int) {
	if x.ending == 0 {
		x.ending = moment
	}
}

// takesNothingNew notes that an end has returned.
func (x *subject) takesNothingNew(moment int) {
	if x.endedNew == 0 {
		x.endedNew = moment
	}
	if x.sub != nil && x.drainedAt == nil {
		x.w.s.Quietly(func() {
			st := x.sub.Stats()
			x.drainedAt = &st
		})
	}
}

// unsubscribe ends x at once.
func (a *actor) unsubscribe(x *subject) {
	if x == nil || x.sub == nil {
		return
	}
	x.mayEnd(a.does("unsubscribe %s", x.name))
	x.discarded = true
	x.sub.Unsubscribe()
	x.takesNothingNew(a.did("returned"))
	x.hasEnded()
	a.w.check()
}

// drain ends x gracefully.
func (a *actor) drain(x *subject) {
	if x == nil || x.sub == nil {
		return
	}
	w := a.w
	ctx, ends := a.patience()
	x.mayEnd(a.does("drain %s", x.name))
	x.drained = true
	x.discarded = x.discarded || ends && a.ctx == nil
	err := x.sub.Drain(ctx)
	x.takesNothingNew(a.did(err))
	switch {
	case err == nil:
		x.mustBeDone("Drain")
	case a.ctx != nil && errors.Is(err, pubsub.ErrInHandler):
	case a.ctx == nil && ends && errors.Is(err, context.Canceled) && ctx.Err() != nil:
		x.hasEnded()
	default:
		w.fail("Drain: %s: %v", x.name, err)
	}
	w.check()
}

// flush waits for what has been published.
func (a *actor) flush() {
	w := a.w
	ctx, ends := a.patience()
	began := a.does("flush")
	err := w.broker.Flush(ctx)
	a.did(err)
	switch {
	case err == nil && a.in != nil:
		w.fail("Re-entrancy: Flush returns nil in a handler")
	case err == nil:
		w.flushed(began)
	case a.ctx != nil && errors.Is(err, pubsub.ErrInHandler):
	case a.ctx == nil && ends && errors.Is(err, context.Canceled) && ctx.Err() != nil:
	default:
		w.fail("Flush: %v", err)
	}
	w.check()
}

// flushed checks what a Flush that began at a moment promises when it returns.
func (w *world) flushed(began int) {
	for _, m := range w.sent {
		m.flushed = m.flushed || m.ended > 0 && m.ended < began
	}
	for _, x := range w.subjects {
		for _, c := range x.running {
			if c.message.flushed && !x.pulled && x.fate(c.id).again == 0 {
				w.fail("Flush: %s: it returns during the call with %d", x.name, c.id)
			}
		}
	}
	w.s.Quietly(func() {
		for i, l := range w.allLetters() {
			m, ok := l.Message.Payload.(*sent)
			if x := w.subjectOf(l); ok && m.flushed && x != nil && !x.pulled && x.fate(l.Message.ID).again == 0 {
				w.letters.mustHave(i, "Flush")
			}
		}
	})
}

// close closes the broker at once.
func (a *actor) close() {
	w := a.w
	began := a.does("close")
	w.beginClose(began, true)
	if err := w.broker.Close(); err != nil {
		w.fail("Close: %v", err)
	}
	w.endClose(a.did("returned"))
	w.haveEnded()
	w.check()
}

func (w *world) beginClose(began int, discards bool) {
	if w.closing == 0 {
		w.closing = began
	}
	for _, x := range w.subjects {
		x.mayEnd(began)
		x.drained = true
		x.discarded = x.discarded || discards || x.pulled
	}
}

func (w *world) endClose(ended int) {
	if w.closed == 0 {
		w.closed = ended
	}
	for _, x := range w.subjects {
		x.takesNothingNew(ended)
	}
}

func (w *world) haveEnded() {
	if w.ended == 0 {
		w.ended = w.moment
	}
	for _, x := range w.subjects {
		x.hasEnded()
	}
}

// shutdown closes the broker gracefully.
func (a *actor) shutdown() {
	w := a.w
	ctx, ends := a.patience()
	began := a.does("shutdown")
	w.beginClose(began, ends && a.ctx == nil)
	err := w.broker.Shutdown(ctx)
	w.endClose(a.did(err))
	switch {
	case err == nil:
		if w.running > 0 {
			w.fail("Shutdown: it returns nil during %d calls", w.running)
		}
		pulled := false
		for _, x := range w.subjects {
			if pulled = pulled || x.pulled; x.pulled {
				x.hasEnded()
			} else {
				x.mustBeDone("Shutdown")
			}
		}
		if !pulled { // What its owner still has may fail later.
			w.letters.mustHaveAll("Shutdown")
			w.letters.silent = true
		}
	case a.ctx != nil && errors.Is(err, pubsub.ErrInHandler):
	case a.ctx == nil && ends && errors.Is(err, context.Canceled) && ctx.Err() != nil:
		w.haveEnded()
	default:
		w.fail("Shutdown: %v", err)
	}
	w.check()
}

// await waits for the end of x.
func (a *actor) await(x *subject) {
	if x == nil || x.sub == nil {
		return
	}
	a.does("await %s", x.name)
	a.mayWaitFor(x)
	schedule.Receive(x.sub.Done())
	a.did("Done")
	x.mustBeDone("Done")
}

// look reads what a monitor reads, with all its steps.
func (a *actor) look() {
	w := a.w
	a.does("look")
	before := w.broker.Stats()
	subs := w.broker.Subscriptions()
	kept := w.broker.DeadLetters().Len()
	after := w.broker.Stats()
	total := w.broker.DeadLetters().Total()
	if w.chance(3) {
		w.taken = append(w.taken, w.broker.DeadLetters().Take()...)
	}
	a.did(after)
	switch {
	case before.Matched > after.Matched || before.Delivered > after.Delivered || before.Failed > after.Failed ||
		before.Dropped > after.Dropped || before.Published > after.Published || before.Unrouted > after.Unrouted:
		w.fail("Accounting: a counter decreases: from %+v to %+v", before, after)
	case total < after.Failed+after.Dropped || total < uint64(kept):
		w.fail("Dead letters: %d in all, %d kept, of %+v read before", total, kept, after)
	case !slices.IsSortedFunc(subs, func(a, b *pubsub.Subscription) int { return int(a.ID()) - int(b.ID()) }):
		w.fail("Subscriptions are not in order")
	}
	w.check()
}

// anything does one of all those.
func (a *actor) anything() {
	w := a.w
	x := w.subjects[w.s.Choose(len(w.subjects))]
	switch w.s.Choose(16) {
	case 0:
		a.subscribe(w.anyKind())
	case 1, 2, 3:
		a.unsubscribe(x)
	case 4, 5:
		a.drain(x)
	case 6, 7:
		a.flush()
	case 8:
		a.close()
	case 9:
		a.shutdown()
	case 10:
		a.look()
	default:
		a.publish("a")
	}
}
