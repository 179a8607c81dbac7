package scenario

import (
	"github.com/seed-b8032e04/pubsub"
)

// composition is one kind of scenario: who is there and what they do, drawn anew for
// each seed.
type composition struct {
	name    string
	compose func(w *world)
	letters bool // dead-letter handlers that misbehave
	strict  bool // topics have to be created
}

// chooseComposition returns the one of a name, or of a seed.
func chooseComposition(seed uint64, name string) *composition {
	for i := range compositions {
		if compositions[i].name == name {
			return &compositions[i]
		}
	}
	if name != "" {
		panic("no scenario has the name " + name)
	}
	return &compositions[seed%uint64(len(compositions))]
}

// compositions are those that a seed chooses from. One that is there twice is run
// more often.
var compositions = []composition{
	{name: "mixed", compose: mixed},
	{name: "unsubscribe", compose: unsubscribing},
	{name: "drain", compose: draining},
	{name: "limit", compose: limited},
	{name: "block", compose: blocking},
	{name: "room", compose: waitingForRoom},
	{name: "prompt-room", compose: promptRoom},
	{name: "prompt-release", compose: promptRelease},
	{name: "prompt-cancel", compose: promptCancel},
	{name: "prompt-flush", compose: promptFlush},
	{name: "prompt-flush", compose: promptFlush},
	{name: "flush", compose: flushing},
	{name: "evict", compose: evicting},
	{name: "synchronous", compose: synchronous},
	{name: "close", compose: closing},
	{name: "reentrant", compose: reentrant},
	{name: "letters", compose: announcing, letters: true},
	{name: "routes", compose: routing},
	{name: "topics", compose: declaring, strict: true},
	{name: "stuck", compose: stuck},
	{name: "exit", compose: exiting},
	{name: "restart", compose: restarting},
	{name: "monitor", compose: monitoring},
	{name: "pull", compose: pulling},
	{name: "redeliver", compose: redelivering},
}

// publishers starts some goroutines that publish to topic a.
func (w *world) publishers(goroutines, messages int) {
	for range goroutines {
		w.actor("publisher", func(a *actor) {
			for range messages {
				a.publish("a")
			}
		})
	}
}

// some is a number from 1 to n.
func (w *world) some(n int) int { return 1 + w.s.Choose(n) }

// mixed: anybody does anything.
func mixed(w *world) {
	for range w.some(2) {
		w.setup(w.anyKind())
	}
	for range 1 + w.some(3) {
		w.actor("actor", func(a *actor) {
			for range a.w.some(3) {
				a.anything()
			}
		})
	}
}

// unsubscribing: several end a subscription that is published to.
func unsubscribing(w *world) {
	k := w.anyQueue()
	if w.chance(3) {
		k.failing = 4
	}
	x := w.setup(k)
	w.publishers(w.some(2), w.some(3))
	for range w.some(2) {
		w.actor("ender", func(a *actor) { a.unsubscribe(x) })
	}
	if w.chance(3) {
		w.actor("await", func(a *actor) { a.await(x) })
	}
}

// draining: it ends gracefully, unless somebody is impatient.
func draining(w *world) {
	k := w.anyQueue()
	k.sync = w.chance(6)
	k.failing = w.s.Choose(2) * 4
	x := w.setup(k)
	w.publishers(w.some(2), w.some(3))
	for range w.some(2) {
		w.actor("drainer", func(a *actor) { a.drain(x) })
	}
	if w.chance(3) {
		w.actor("ender", func(a *actor) { a.unsubscribe(x) })
	}
}

// limited: more is published than it takes.
func limited(w *world) {
	k := w.anyQueue()
	k.sync = w.chance(3)
	k.limit = w.some(3)
	k.failing = w.s.Choose(2) * 4
	x := w.setup(k)
	w.publishers(1+w.some(2), w.some(3))
	switch w.s.Choose(5) {
	case 0:
		w.actor("ender", func(a *actor) { a.unsubscribe(x) })
	case 1:
		w.actor("drainer", func(a *actor) { a.drain(x) })
	case 2:
		w.actor("await", func(a *actor) { a.await(x) })
	}
}

// blocking: publishers wait for room that nobody may ever make again.
func blocking(w *world) {
	k := w.queue(pubsub.Block)
	k.size = w.some(2)
	if w.chance(4) {
		k.limit = w.some(4)
	}
	k.failing = w.s.Choose(2) * 4
	x := w.setup(k)
	w.publishers(1+w.some(2), w.some(3))
	switch w.s.Choose(6) {
	case 0:
		w.actor("ender", func(a *actor) { a.unsubscribe(x) })
	case 1:
		w.actor("drainer", func(a *actor) { a.drain(x) })
	case 2:
		w.actor("closer", func(a *actor) { a.close() })
	case 3:
		w.actor("flusher", func(a *actor) { a.flush() })
	}
}

// waitingForRoom: nothing but publishers and a worker, each the other's only hope.
func waitingForRoom(w *world) {
	k := w.queue(pubsub.Block)
	k.size = 1
	w.setup(k)
	w.publishers(2, 2)
}

// flushing: what is flushed has been handled, whatever else happens.
func flushing(w *world) {
	k := w.anyQueue()
	k.failing = w.s.Choose(2) * 5
	x := w.setup(k)
	if w.chance(3) {
		w.setup(w.anyQueue())
	}
	for range w.some(2) {
		w.actor("publisher", func(a *actor) {
			for range w.some(3) {
				a.publish("a")
			}
			if w.chance(2) {
				a.flush()
			}
		})
	}
	w.actor("flusher", func(a *actor) { a.flush() })
	if w.chance(3) {
		w.actor("ender", func(a *actor) { a.unsubscribe(x) })
	}
}

// evicting: a small queue that is published to much.
func evicting(w *world) {
	k := w.queue(pubsub.DropOldest)
	k.size = w.some(2)
	if w.chance(4) {
		k.limit = w.some(3)
	}
	k.failing = w.s.Choose(2) * 3
	w.setup(k)
	w.publishers(w.some(2), 1+w.some(3))
	if w.chance(2) {
		w.actor("flusher", func(a *actor) { a.flush() })
	}
}

// synchronous: handlers in their publishers' goroutines.
func synchronous(w *world) {
	var x *subject
	for range w.some(2) {
		x = w.setup(kind{pattern: "a", sync: true, size: 1, failing: w.s.Choose(2) * 5, limit: w.s.Choose(4)})
	}
	w.publishers(1+w.some(2), w.some(3))
	switch w.s.Choose(4) {
	case 0, 1:
		w.actor("ender", func(a *actor) { a.unsubscribe(x) })
	case 2:
		w.actor("drainer", func(a *actor) { a.drain(x) })
	}
}
