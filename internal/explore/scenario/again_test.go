package scenario

import (
	"context"
	"errors"
	"runtime"

	"github.com/seed-b8032e04/pubsub"
)

// pull takes messages out of the queue of x until it ends, or the actor's patience
// or something in the loop's body ends the loop; one that is steady stays.
func (a *actor) pull(x *subject, steady bool) {
	w := a.w
	ctx := context.Background()
	if !steady {
		ctx, _ = a.patience()
	}
	pulls := func() {
		a.does("pull from %s", x.name)
		a.mayWaitFor(x)
	}
	pulls()
	var thrown error
	defer func() {
		if thrown != nil && recover() != any(thrown) {
			w.fail("Isolation: %s: a panic in the loop does not go on", x.name)
		}
		a.did("left")
		w.s.Quietly(func() {
			if st := x.sub.Stats(); st.Running > 0 {
				w.fail("Pull: %s: %+v when the loop has been left", x.name, st)
			}
		})
		w.check()
	}()
	for msg := range x.sub.Messages(ctx) {
		c := x.enter(ctx, msg)
		w.s.Yield("pulled")
		switch w.s.Choose(16) {
		case 0:
			a.flush() // It does not wait for its caller.
		case 1:
			a.shutdown()
		}
		c.outcome = succeeded
		if !steady && w.s.Choose(16) < x.failing {
			c.outcome, c.err = panicked, errors.New("panic")
			if w.chance(2) {
				c.outcome, c.err = exited, nil
			}
		}
		c.leave()
		pulls()
		switch {
		case c.outcome == panicked:
			thrown = c.err
			panic(c.err)
		case c.outcome == exited:
			runtime.Goexit()
		case !steady && w.chance(4):
			return
		}
	}
	if ctx.Err() == nil {
		if x.ending == 0 && x.limit == 0 {
			w.fail("Pull: %s: the loop ends before the subscription", x.name)
		}
		x.mustBeDone("Pull")
	}
}

// redeliver hands a message once more to the subscription that has not handled it.
func (a *actor) redeliver() {
	w := a.w
	var letters []pubsub.DeadLetter
	w.s.Quietly(func() { letters = w.allLetters() })
	if len(letters) == 0 {
		return
	}
	l := letters[w.s.Choose(len(letters))]
	x := w.subjectOf(l)
	if x == nil {
		return
	}
	ctx := a.ctx
	if ctx == nil || w.chance(2) {
		ctx = w.ending(context.Background())
	}
	x.fate(l.Message.ID).again++
	closed, ended := w.closed > 0, x.endedNew > 0
	a.does("redeliver %d to %s", l.Message.ID, x.name)
	err := w.broker.Redeliver(ctx, l)
	a.did(err)
	full := false
	w.s.Quietly(func() {
		st := x.sub.Stats()
		full = x.limit > 0 && begun(st)+uint64(st.Queued) >= uint64(x.limit)
	})
	switch {
	case errors.Is(err, pubsub.ErrClosed) || closed:
		if w.closing == 0 || !errors.Is(err, pubsub.ErrClosed) {
			w.fail("Close: Redeliver returns %v", err)
		}
	case errors.Is(err, pubsub.ErrNoSubscription):
		if x.ending == 0 && !full {
			w.fail("Redeliver: %s has not ended, but %v", x.name, err)
		}
	case ended:
		w.fail("Redeliver: %s has ended, but %v", x.name, err)
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, pubsub.ErrInHandler):
		x.fate(l.Message.ID).accepted++
	default:
		w.fail("Redeliver: %v", err)
	}
	w.check()
}
