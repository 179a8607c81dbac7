package scenario

import (
	"github.com/seed-b8032e04/pubsub"
	"github.com/seed-b8032e04/pubsub/internal/explore/schedule"
)

// Compositions in which a handler waits for what must not wait for it: what should
// happen at once, and happens later only, is a deadlock in them.

// promptRoom: the n-th call waits until so many publishes have returned as have
// room: n and what the queue holds.
func promptRoom(w *world) {
	k := w.queue(pubsub.Block)
	publishers, each := w.some(2), w.some(4)
	gates := make([]chan struct{}, 1+publishers*each)
	for i := range gates {
		gates[i] = make(chan struct{})
	}
	calls, returned := 0, 0
	k.acting = 16
	k.acts = func(*actor) {
		calls++
		if calls+k.size < len(gates) {
			schedule.Receive(gates[calls+k.size])
		}
	}
	w.fuel, w.letters.calm = len(gates), true
	w.setup(k)
	for range publishers {
		w.actor("publisher", func(a *actor) {
			for range each {
				a.publish("a")
				returned++
				schedule.Close(gates[returned])
			}
		})
	}
	if w.chance(4) {
		w.actor("flusher", func(a *actor) { a.flush() })
	}
}

// promptRelease: a handler ends its subscription, or is called with what fills its
// limit, and waits until all publishers have been let go.
func promptRelease(w *world) {
	k := w.queue(pubsub.Block)
	k.size = w.some(2)
	if w.chance(2) {
		k.limit = k.size + w.some(2)
	}
	publishers, calls, released := 1+w.some(2), 0, make(chan struct{})
	k.acting = 16
	k.acts = func(a *actor) {
		calls++
		if k.limit == 0 && calls == 1 {
			if w.chance(2) {
				w.s.Settle()
			}
			switch w.s.Choose(4) {
			case 0:
				a.unsubscribe(a.in)
			case 1:
				a.close()
			case 2:
				a.shutdown()
			default:
				a.drain(a.in)
			}
		}
		if k.limit == 0 || calls >= k.limit-k.size {
			schedule.Receive(released)
		}
	}
	w.fuel, w.letters.calm = 16, true
	w.setup(k)
	left := publishers
	for range publishers {
		w.actor("publisher", func(a *actor) {
			for range k.size + 2 {
				a.publish("a")
			}
			if left--; left == 0 {
				schedule.Close(released)
			}
		})
	}
}

// promptCancel: a handler waits until all publishers have been let go because they
// gave up.
func promptCancel(w *world) {
	k := w.queue(pubsub.Block)
	k.size = w.some(2)
	given := make(chan struct{})
	k.acting = 16
	k.acts = func(*actor) { schedule.Receive(given) }
	w.fuel, w.letters.calm = 16, true
	w.setup(k)
	left := 1 + w.some(2)
	for range left {
		w.actor("publisher", func(a *actor) {
			a.mortal = true
			for range w.some(3) {
				a.publish("a")
			}
			if left--; left == 0 {
				schedule.Close(given)
			}
		})
	}
	if w.chance(3) {
		w.actor("flusher", func(a *actor) { a.flush() })
	}
}

// promptFlush: the handler of what is published after Flush has begun waits until
// Flush has returned.
func promptFlush(w *world) {
	before, late, flushed := 2-w.s.Choose(4)/3, make(chan struct{}), make(chan struct{})
	acts := func(a *actor) {
		switch n := a.handling.sequence; {
		case n > before:
			schedule.Receive(flushed)
		case n == 1:
			schedule.Receive(late)
		}
	}
	w.fuel, w.letters.calm = 32, true
	for range 2 - w.s.Choose(4)/3 {
		k := w.anyQueue()
		k.size = max(k.size, before)
		k.acting, k.acts = 16, acts
		w.setup(k)
	}
	w.actor("publisher", func(a *actor) {
		for range before {
			a.publish("a")
		}
		w.actor("flusher", func(a *actor) {
			a.flush()
			schedule.Close(flushed)
		})
		w.s.Settle()
		w.actor("late", func(late *actor) {
			late.by = a.by
			for range w.some(3) {
				late.publish("a")
			}
			if w.chance(4) {
				late.unsubscribe(w.subjects[0])
			}
		})
		if w.chance(2) {
			w.s.Settle()
		}
		schedule.Close(late)
	})
}
