package scenario

import (
	"errors"
	"slices"

	"github.com/seed-b8032e04/pubsub"
)

// finish waits until nothing happens any more and holds what has happened against
// the contract, then ends what has not ended and does so again.
func (w *world) finish() {
	w.s.Idle()
	for name, doing := range w.unended {
		// These wait for others than the scenario's goroutines.
		if x := doing.waitsFor; x == nil || x.final != nil || x.pulled && x.sub.Stats().Queued > 0 {
			w.fail("deadlock: %s waits forever: %v", name, doing)
		}
	}
	if !w.settled() {
		return
	}
	a := &actor{w: w, name: "main", by: new(goroutine), idle: true}
	a.flush()
	switch w.s.Choose(4) {
	case 0:
		a.close()
	case 1:
		a.shutdown()
	case 2:
		for _, x := range w.subjects {
			if x.pulled || w.chance(2) {
				a.unsubscribe(x)
			} else {
				a.drain(x)
			}
		}
	default:
		if len(w.unended) == 0 {
			return // A broker need not be closed.
		}
		a.close()
	}
	w.s.Idle()
	for name, doing := range w.unended {
		w.fail("deadlock: %s waits forever: %v", name, doing)
	}
	w.settled()
}

// settled checks a world in which nothing happens, and reports whether all is well.
func (w *world) settled() bool {
	w.check()
	if live := w.s.Live(); live > 0 {
		w.fail("Idle cost: %d goroutines left", live)
	}
	if w.running > 0 {
		w.fail("Idle cost: %d calls left", w.running)
	}
	if w.s.Failure() != "" {
		return false
	}
	w.s.Quietly(func() {
		w.settleLetters()
		for _, x := range w.subjects {
			x.settled()
		}
		w.settlePublished()
		w.settleDrops()
		w.settleLists()
	})
	w.letters.mustHaveAll("Dead letters")
	return w.s.Failure() == ""
}

// settleLists checks what the broker lists and keeps.
func (w *world) settleLists() {
	st := w.broker.Stats()
	if subs := w.broker.Subscriptions(); st.Subscriptions != len(subs) {
		w.fail("Accounting: %d subscriptions, but %d are listed", st.Subscriptions, len(subs))
	}
	topics := w.broker.Topics()
	if st.Topics != len(topics) {
		w.fail("Accounting: %d topics, but %d are listed", st.Topics, len(topics))
	}
	for name, t := range w.topics {
		if slices.Contains(topics, name) != t.lasts(w.moment+1) {
			w.fail("Topics: %s is listed: %t", name, !t.lasts(w.moment+1))
		}
	}
	if n := w.broker.DeadLetters().Len(); w.letters.ignoring && n > w.capacity {
		w.fail("Bounded: %d dead letters kept, not %d", n, w.capacity)
	}
}

// settleLetters notes each dead letter with the fate of its message.
func (w *world) settleLetters() {
	if w.letters.ignoring {
		return
	}
	for _, x := range w.subjects {
		for i := range x.fates {
			x.fates[i].letters = nil
			for _, c := range x.fates[i].calls {
				c.told = false
			}
		}
	}
	type source struct {
		x  *subject
		by *goroutine
	}
	letters := w.allLetters()
	if total := w.broker.DeadLetters().Total(); total != uint64(len(letters)) {
		w.fail("Dead letters: %d in all, but %d kept and taken", total, len(letters))
	}
	last := make(map[source]int) // the sequence of the last one dropped from the queue
	for _, l := range letters {
		x := w.subjectOf(l)
		m, ok := l.Message.Payload.(*sent)
		if x == nil || !ok || !m.is(l.Message) {
			w.fail("Dead letters: a letter of nothing that was published: %+v", l)
			return
		}
		f := x.fate(l.Message.ID)
		f.letters = append(f.letters, l)
		f.message = m
		if !x.mayHaveLetter(f, l) {
			w.fail("Dead letters: %s: message %d: %v (%v), number %d after %d calls", x.name, l.Message.ID, l.Reason, l.Err, len(f.letters), len(f.calls))
		}
		if x.policy != pubsub.Block && f.again == 0 && (l.Reason == pubsub.ReasonDroppedOldest || l.Reason == pubsub.ReasonUnsubscribed) {
			if at := (source{x, m.by}); m.sequence < last[at] {
				w.fail("Bounded: %s: message %d of a goroutine dropped after its message %d", x.name, m.sequence, last[at])
			} else {
				last[at] = m.sequence
			}
		}
	}
}

// mayHaveLetter reports whether a letter says what happened to its message.
func (x *subject) mayHaveLetter(f *fate, l pubsub.DeadLetter) bool {
	m, once := f.message, f.again == 0
	if once && len(f.letters) > 1 {
		return false
	}
	dropped := !x.sync && (len(f.calls) == 0 || !once)
	switch l.Reason {
	case pubsub.ReasonDroppedOldest:
		return dropped && x.policy == pubsub.DropOldest
	case pubsub.ReasonDroppedNewest:
		return dropped && x.policy == pubsub.DropNewest
	case pubsub.ReasonCanceled:
		return dropped && x.policy == pubsub.Block && (!once ||
			(m.ended == 0 || errors.Is(m.err, l.Err)) && errors.Is(l.Err, pubsub.ErrInHandler) == (m.worker == x))
	case pubsub.ReasonUnsubscribed:
		// A drain drops only what waits for room.
		return dropped && (x.discarded || x.drained && x.policy == pubsub.Block)
	}
	for _, c := range f.calls {
		if !c.told && reasons[c.outcome] == l.Reason && (c.err == nil || errors.Is(l.Err, c.err)) &&
			(c.outcome != exited || errors.Is(l.Err, pubsub.ErrGoexit)) {
			c.told = true
			return true
		}
	}
	return false
}

// settleDrops checks that what was dropped for want of room found the queue full.
func (w *world) settleDrops() {
	if w.letters.alike {
		return
	}
	for _, x := range w.subjects {
		for id := range x.fates {
			f := &x.fates[id]
			for _, l := range f.letters {
				m := f.message
				switch {
				case l.Reason == pubsub.ReasonDroppedOldest:
					x.wasFull(f, m.began, 0)
				case l.Reason == pubsub.ReasonDroppedNewest:
					x.wasFull(f, m.began, m.ended)
				}
			}
		}
	}
}

// wasFull checks that there were enough others that can have been in the queue of x
// between two moments, of which the second may be 0 for ever.
func (x *subject) wasFull(dropped *fate, from, to int) {
	others := 0
	for id := range x.fates {
		f := &x.fates[id]
		refused := len(f.letters) > 0 && f.letters[0].Reason == pubsub.ReasonDroppedNewest
		if f == dropped || f.message == nil || refused || to > 0 && f.message.began > to || len(f.calls) > 0 && f.calls[0].began < from {
			continue
		}
		others++
	}
	if others < x.size {
		x.w.fail("Bounded: %s: a message was dropped, but only %d others can have been queued", x.name, others)
	}
}

// settled checks one subscription.
func (x *subject) settled() {
	w, st := x.w, x.sub.Stats()
	var delivered, failures, dropped uint64
	for id := range x.fates {
		f := &x.fates[id]
		failing := 0
		for _, c := range f.calls {
			if c.outcome == succeeded {
				delivered++
				continue
			}
			failing++
			if !c.told && !w.letters.ignoring {
				w.fail("Dead letters: %s: none of message %d, which failed", x.name, id)
			}
		}
		failures += uint64(failing)
		dropped += uint64(len(f.letters) - failing)
		if n := f.outcomes(); f.again > 0 && !w.letters.ignoring && (n > 1+f.again || n < 1+f.accepted) {
			w.fail("Redeliver: %s: message %d was dealt with %d times, redelivered %d times, of which %d accepted", x.name, id, n, f.again, f.accepted)
		}
	}
	if w.letters.ignoring {
		dropped = st.Dropped
	}
	if x.done == nil {
		x.done = x.sub.Done()
	}
	x.checkDone(st)
	full := x.limit > 0 && delivered+failures == uint64(x.limit)
	switch {
	case st.Running > 0 || st.Queued > 0 && !(x.pulled && x.atEnd == nil):
		w.fail("Accounting: %s: %+v when idle", x.name, st)
	case st.Matched != delivered+failures+dropped+uint64(st.Queued) || st.Delivered != delivered || st.Failed != failures || st.Dropped != dropped:
		w.fail("Accounting: %s: %+v, but of its messages %d delivered, %d failed, %d dropped", x.name, st, delivered, failures, dropped)
	case st.Queued > 0:
	case (x.ending > 0 || full) != (x.final != nil):
		w.fail("Unsubscribe: %s: ended %t, full %t, Done %t", x.name, x.ending > 0, full, x.final != nil)
	case x.final == nil && !x.isListed():
		w.fail("Unsubscribe: %s: not listed before its end", x.name)
	}
}

// settlePublished checks that each message went to those that it should have gone
// to, and to nobody else.
func (w *world) settlePublished() {
	var published, unrouted uint64
	for _, x := range w.subjects {
		if x.sub.Stats().Queued > 0 {
			return // Nobody pulls: what is there is known when it has ended.
		}
	}
	for _, m := range w.sent {
		id := m.id
		if m.ended == 0 {
			id = w.idOf(m)
		}
		if id == 0 {
			continue
		}
		published++
		routed := false
		canceled := false
		for _, x := range w.subjects {
			f := x.fate(id)
			if f.outcomes() > 0 {
				routed = true
				for _, l := range f.letters {
					canceled = canceled || l.Reason == pubsub.ReasonCanceled && f.again == 0
				}
				x.mayHave(m, id)
			} else if !w.letters.ignoring {
				x.mayLack(m, id)
			}
		}
		if !routed {
			unrouted++
		}
		if m.ended > 0 && canceled != (m.err != nil) && !w.letters.ignoring && !w.letters.alike {
			w.fail("Publish does not wait: message %d: given up %t, but the error is %v", id, canceled, m.err)
		}
	}
	st := w.broker.Stats()
	switch {
	case w.letters.ignoring:
	case st.Published < published || w.allReturned() && st.Published != published:
		w.fail("Accounting: %d published, but %d ids", st.Published, published)
	case w.allReturned() && st.Unrouted != unrouted:
		w.fail("Accounting: %d unrouted, but %d", st.Unrouted, unrouted)
	}
}

// idOf returns the id of a message whose Publish did not return; 0 when nobody got
// it.
func (w *world) idOf(m *sent) uint64 {
	for _, x := range w.subjects {
		for id := range x.fates {
			if x.fates[id].message == m {
				return uint64(id)
			}
		}
	}
	return 0
}

// allReturned reports whether every Publish has returned: one whose goroutine a
// handler ended does not.
func (w *world) allReturned() bool {
	for _, m := range w.sent {
		if m.ended == 0 {
			return false
		}
	}
	return true
}

// mayHave checks that x, which got a message, may have.
func (x *subject) mayHave(m *sent, id uint64) {
	w := x.w
	matches, _ := pubsub.Match(x.pattern, m.topic)
	switch {
	case x.fate(id).message != m:
		w.fail("Message: %s got another message as %d", x.name, id)
	case !matches:
		w.fail("Names: %s, on %s, got message %d to %s", x.name, x.pattern, id, m.topic)
	case m.ended > 0 && m.ended < x.began:
		w.fail("Fan-out: %s got message %d, whose Publish had returned before Subscribe", x.name, id)
	case x.endedNew > 0 && m.began > x.endedNew:
		w.fail("Late copies: %s got message %d, published after its end", x.name, id)
	}
}

// mayLack checks that x, which did not get a message, need not have.
func (x *subject) mayLack(m *sent, id uint64) {
	w := x.w
	if matches, _ := pubsub.Match(x.pattern, m.topic); !matches || m.began < x.listed {
		return
	}
	// A limit is reached or not, which settled compares with Done.
	if x.ending > 0 && (m.ended == 0 || m.ended > x.ending) || x.limit > 0 && x.final != nil {
		return
	}
	w.fail("Fan-out: %s did not get message %d, published after Subscribe had returned", x.name, id)
}
