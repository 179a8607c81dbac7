package scenario

import (
	"runtime"
	"slices"

	"github.com/seed-b8032e04/pubsub"
)

// backlog is how many announcements may wait before the oldest are skipped: in the
// rewritten package.
const backlog = 3

// announcements are what the dead-letter handlers of one broker have been told.
type announcements struct {
	w        *world
	heard    [][]int // by handler: the letters' numbers, from 0
	unhurt   bool    // no handler misbehaves
	calm     bool    // nor does anything else
	running  int     // the handler that has been called and not returned; 0 is none
	recorded uint64  // how many letters there were when the last call returned
	missed   []bool  // by number: a promise has passed it over as skipped
	silent   bool    // a Shutdown has said that there will be no more
	by       goroutine
	ignoring bool // the broker keeps too few letters for them to have numbers
	alike    bool // letters that are alike cannot be told apart: neither can their numbers
}

// options returns those of a broker with some dead-letter handlers.
func (n *announcements) options(handlers int) []pubsub.Option {
	opts := make([]pubsub.Option, handlers)
	n.heard = make([][]int, handlers)
	for i := range opts {
		opts[i] = pubsub.WithDeadLetterHandler(func(l pubsub.DeadLetter) { n.hear(i, l) })
	}
	return opts
}

// allLetters returns all that have been recorded, if the broker keeps them.
func (w *world) allLetters() []pubsub.DeadLetter {
	return slices.Concat(w.taken, w.broker.DeadLetters().Snapshot())
}

// subjectOf returns whose letter it is; nil when its Subscribe has not returned.
func (w *world) subjectOf(l pubsub.DeadLetter) *subject {
	for _, x := range w.subjects {
		if x.sub != nil && x.sub.ID() == l.SubscriptionID {
			return x
		}
	}
	return nil
}

// hear is a dead-letter handler.
func (n *announcements) hear(handler int, l pubsub.DeadLetter) {
	w := n.w
	w.now()
	if w.s.Tracing() {
		w.s.Note("letter of %d (%v) to handler %d", l.Message.ID, l.Reason, handler+1)
	}
	if n.running > 0 {
		w.fail("Dead letters: one announced during an announcement")
	}
	defer func() {
		n.running = 0
		w.s.Quietly(func() { n.recorded = w.broker.DeadLetters().Total() })
	}()
	w.s.Quietly(func() { n.number(handler, l) })
	w.s.Yield("dead-letter handler")
	a := &actor{w: w, name: "letters", by: &n.by}
	if !n.calm && w.fuel > 0 && len(w.subjects) > 0 {
		x := w.subjects[w.s.Choose(len(w.subjects))]
		switch w.s.Choose(8) {
		case 0:
			if x.pulled && x.policy == pubsub.Block {
				break // Who makes room there may wait for this handler.
			}
			w.fuel--
			a.publish(x.topic())
		case 1:
			w.fuel--
			a.unsubscribe(x)
		}
	}
	if !n.unhurt {
		switch w.s.Choose(6) {
		case 0:
			panic("dead-letter handler")
		case 1:
			if w.chance(3) {
				defer panic("dead-letter handler, while it exits")
			}
			runtime.Goexit()
		}
	}
	w.s.Yield("dead-letter handler returns")
}

// number finds out which letter it is, and checks that it is its turn.
func (n *announcements) number(handler int, l pubsub.DeadLetter) {
	w := n.w
	total := w.broker.DeadLetters().Total()
	if n.ignoring || n.alike {
		n.running = handler + 1
		return
	}
	last := -1
	if heard := n.heard[handler]; len(heard) > 0 {
		last = heard[len(heard)-1]
	}
	number := -1
	for i, kept := range w.allLetters() {
		if kept.SubscriptionID == l.SubscriptionID && kept.Message.ID == l.Message.ID && kept.Reason == l.Reason {
			number = i
		}
	}
	// Both as one step: reading the letters above may have waited for a lock, and who
	// looks meanwhile must not take this call for that with the letter before.
	n.heard[handler] = append(n.heard[handler], number)
	n.running = handler + 1
	switch {
	case number < 0:
		w.fail("Dead letters: an announced letter of %d is not kept", l.Message.ID)
	case number <= last:
		w.fail("Dead letters: number %d announced after %d", number, last)
	case n.silent:
		w.fail("Shutdown: letter %d announced after it", number)
	case number < len(n.missed) && n.missed[number]:
		w.fail("Dead letters: number %d announced after the end of a wait for it", number)
	case number > last+1 && int(total) < number+backlog:
		w.fail("Dead letters: number %d announced after %d, of %d: one is skipped", number, last, total)
	case handler == 0 && number+backlog < int(n.recorded):
		w.fail("Dead letters: number %d announced, of %d before: it should have been skipped", number, n.recorded)
	case handler > 0 && (len(n.heard[0]) == 0 || n.heard[0][len(n.heard[0])-1] != number):
		w.fail("Dead letters: number %d announced to handler %d first", number, handler+1)
	}
}

// mustHave checks that a letter has been announced, or skipped since there were too
// many.
func (n *announcements) mustHave(number int, promise string) {
	w := n.w
	if n.ignoring || n.alike {
		return
	}
	for handler, heard := range n.heard {
		found := false
		for i, other := range heard {
			if other == number {
				found = i < len(heard)-1 || n.running != handler+1
			}
		}
		if found {
			continue
		}
		if int(w.broker.DeadLetters().Total()) < number+1+backlog {
			w.fail("%s: letter %d is not announced to handler %d", promise, number, handler+1)
			return
		}
		for len(n.missed) <= number {
			n.missed = append(n.missed, false)
		}
		n.missed[number] = true
	}
}

// mustHaveAll checks that nothing is left to announce.
func (n *announcements) mustHaveAll(promise string) {
	n.w.s.Quietly(func() {
		for number := range int(n.w.broker.DeadLetters().Total()) {
			n.mustHave(number, promise)
		}
	})
}
