package scenario

import (
	"math"
	"slices"

	"github.com/seed-b8032e04/pubsub"
)

// check compares the counters with what is known, and with what they were. It is
// one step for everybody else, unless somebody is away while he holds a lock.
func (w *world) check() {
	w.s.Quietly(func() {
		steps, _ := w.s.Steps()
		var sum pubsub.SubscriptionStats
		all := true
		for _, x := range w.subjects {
			if x.sub == nil {
				all = false // Its Subscribe may be about to return.
				continue
			}
			st := x.sub.Stats()
			x.checkStats(st)
			sum.Matched += st.Matched
			sum.Delivered += st.Delivered
			sum.Failed += st.Failed
			sum.Dropped += st.Dropped
			sum.Queued += st.Queued
			sum.Running += st.Running
		}
		w.checkBroker(sum, all, steps)
	})
}

// checkBroker compares the broker's counters with the sum of its subscriptions',
// which were read at the same moment when no step was made meanwhile.
func (w *world) checkBroker(sum pubsub.SubscriptionStats, all bool, steps int) {
	last := w.last
	st := w.broker.Stats()
	total := w.broker.DeadLetters().Total()
	now, _ := w.s.Steps()
	if now == steps {
		w.last = st // Else somebody may have read more in between.
	}
	switch {
	case st.Matched != st.Delivered+st.Failed+st.Dropped+uint64(st.Queued)+uint64(st.Running):
		w.fail("Accounting: broker: %+v", st)
	case st.Published < last.Published || st.Unrouted < last.Unrouted || st.Matched < last.Matched ||
		st.Delivered < last.Delivered || st.Failed < last.Failed || st.Dropped < last.Dropped:
		w.fail("Accounting: a counter decreases: from %+v to %+v", last, st)
	case total < st.Failed+st.Dropped:
		w.fail("Dead letters: %d in all, of %+v read before", total, st)
	case now != steps || !all:
	case st.Matched != sum.Matched || st.Delivered != sum.Delivered || st.Failed != sum.Failed ||
		st.Dropped != sum.Dropped || st.Queued != sum.Queued || st.Running != sum.Running:
		w.fail("Accounting: broker has %+v, its subscriptions in all %+v", st, sum)
	case total != st.Failed+st.Dropped:
		w.fail("Dead letters: %d in all, of %+v", total, st)
	}
}

// begun is how many calls have begun.
func begun(st pubsub.SubscriptionStats) uint64 {
	return st.Delivered + st.Failed + uint64(st.Running)
}

func (x *subject) checkStats(st pubsub.SubscriptionStats) {
	w, last := x.w, x.last
	x.last = st
	switch {
	case st.Matched != begun(st)+st.Dropped+uint64(st.Queued) || st.Matched > math.MaxUint32:
		w.fail("Accounting: %s: %+v", x.name, st)
	case st.Matched < last.Matched || st.Delivered < last.Delivered || st.Failed < last.Failed || st.Dropped < last.Dropped:
		w.fail("Accounting: %s: a counter decreases: from %+v to %+v", x.name, last, st)
	case st.Queued < 0 || st.Queued > x.size || x.sync && st.Queued > 0:
		w.fail("Bounded: %s: %+v", x.name, st)
	case !x.sync && st.Running > 1:
		w.fail("Order: %s: %+v", x.name, st)
	case st.Delivered > x.nils || st.Failed > x.failures || begun(st) < x.entered:
		w.fail("Accounting: %s: %+v, but %d calls, of which %d returned nil and %d failed", x.name, st, x.entered, x.nils, x.failures)
	case x.drainedAt != nil && st.Matched != x.drainedAt.Matched:
		w.fail("Drain: %s: %+v when it takes nothing new, then %+v", x.name, *x.drainedAt, st)
	case x.atEnd != nil && (st.Queued > 0 || st.Matched != x.atEnd.Matched || st.Dropped != x.atEnd.Dropped || begun(st) != begun(*x.atEnd)):
		w.fail("Unsubscribe: %s: %+v when it returned, then %+v", x.name, *x.atEnd, st)
	case x.final != nil && st != *x.final:
		w.fail("Unsubscribe: %s: %+v when Done, then %+v", x.name, *x.final, st)
	}
	x.checkRunning()
	x.checkDone(st)
}

// checkRunning compares the message that runs with the call that does.
func (x *subject) checkRunning() {
	id, ok := x.sub.RunningMessage()
	if !x.sync && len(x.running) > 0 && (!ok || id != x.running[0].id) {
		x.w.fail("Accounting: %s: message %d runs (%t), but it is %d", x.name, id, ok, x.running[0].id)
	}
}

// checkDone looks whether Done is closed and, when it is, whether it may be. The
// counters were read before.
func (x *subject) checkDone(st pubsub.SubscriptionStats) {
	if x.done == nil || x.final != nil {
		return
	}
	select {
	case <-x.done:
	default:
		return
	}
	w := x.w
	st = x.sub.Stats() // Somebody may have been waited for.
	x.final = &st
	switch {
	case len(x.running) > 0 || st.Running > 0 || st.Queued > 0:
		w.fail("Unsubscribe: %s: Done during %d calls, %+v", x.name, len(x.running), st)
	case x.ending == 0 && (x.limit == 0 || begun(st) < uint64(x.limit)):
		w.fail("Unsubscribe: %s: Done without an end, %+v", x.name, st)
	case st.Delivered != x.nils || st.Failed != x.failures:
		w.fail("Accounting: %s: Done with %+v, but %d calls returned nil and %d failed", x.name, st, x.nils, x.failures)
	case x.isListed():
		w.fail("Unsubscribe: %s: listed when Done", x.name)
	case !x.sync && !x.pulled && x.context != nil && x.context.Err() == nil:
		w.fail("Context: %s: the handler's ctx is not done when Done", x.name)
	}
}

func (x *subject) isListed() bool {
	return slices.Contains(x.w.broker.Subscriptions(), x.sub)
}

// mustBeDone is for those who have been told so.
func (x *subject) mustBeDone(promise string) {
	if x.sub == nil {
		return
	}
	x.w.s.Quietly(func() {
		if x.done == nil {
			x.done = x.sub.Done()
		}
		x.checkDone(x.last)
		if x.final == nil {
			x.w.fail("%s: %s is not Done", promise, x.name)
		}
	})
}

// hasEnded checks what every return of Unsubscribe and Close promises.
func (x *subject) hasEnded() {
	if x.sub == nil {
		return
	}
	w := x.w
	w.s.Quietly(func() {
		st := x.sub.Stats()
		if x.atEnd == nil {
			x.atEnd = &st
		}
		x.checkStats(st)
		switch {
		case x.isListed():
			w.fail("Unsubscribe: %s: still listed", x.name)
		case !x.sync && !x.pulled && len(x.running) > 0 && x.running[0].ctx.Err() == nil:
			w.fail("Unsubscribe: %s: the ctx of the call with %d is not done", x.name, x.running[0].id)
		}
	})
}
