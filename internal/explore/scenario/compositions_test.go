package scenario

import (
	"github.com/seed-b8032e04/pubsub"
	"github.com/seed-b8032e04/pubsub/internal/explore/schedule"
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

// closing: the broker is closed in every way at once.
func closing(w *world) {
	for range w.some(3) {
		w.setup(w.anyKind())
	}
	w.publishers(w.some(2), w.some(2))
	for range w.some(3) {
		w.actor("closer", func(a *actor) {
			switch w.s.Choose(4) {
			case 0:
				a.close()
			case 1, 2:
				a.shutdown()
			default:
				a.unsubscribe(w.subjects[0])
			}
		})
	}
	if w.chance(3) {
		w.actor("subscriber", func(a *actor) { a.subscribe(w.anyKind()) })
	}
}

// reentrant: handlers act on the broker.
func reentrant(w *world) {
	for range w.some(2) {
		k := w.anyKind()
		k.acting = 10
		w.setup(k)
	}
	w.fuel += 3
	w.publishers(w.some(2), w.some(2))
	if w.chance(3) {
		w.actor("actor", func(a *actor) { a.anything() })
	}
}

// announcing: failures and drops, and handlers of dead letters that fail too.
func announcing(w *world) {
	w.letters.unhurt = w.chance(2)
	k := w.anyQueue()
	k.size = 1
	k.failing = 8
	w.setup(k)
	w.publishers(w.some(2), 1+w.some(3))
	switch w.s.Choose(4) {
	case 0, 1:
		w.actor("flusher", func(a *actor) { a.flush() })
	case 2:
		w.actor("closer", func(a *actor) { a.shutdown() })
	}
}

// routing: subscriptions come and go while their topics are published to.
func routing(w *world) {
	patterns := []string{"a", "b", "#", "*", "a.*", "a.b"}
	any := func() kind {
		k := w.anyQueue()
		k.pattern = patterns[w.s.Choose(len(patterns))]
		k.sync = w.chance(2)
		return k
	}
	for range w.s.Choose(4) {
		w.setup(any())
	}
	topics := []string{"a", "a", "b", "a.b"}
	for range w.some(2) {
		w.actor("publisher", func(a *actor) {
			for range 1 + w.some(2) {
				a.publish(topics[w.s.Choose(len(topics))])
			}
		})
	}
	for range w.some(2) {
		w.actor("subscriber", func(a *actor) {
			x := a.subscribe(any())
			if w.chance(2) {
				a.publish(topics[w.s.Choose(len(topics))])
			}
			switch w.s.Choose(3) {
			case 0:
				a.unsubscribe(x)
			case 1:
				a.drain(x)
			}
		})
	}
}

// declaring: topics that must be there come and go.
func declaring(w *world) {
	w.setup(w.anyQueue())
	w.actor("keeper", func(a *actor) {
		a.create("a")
		if w.chance(2) {
			a.delete("a")
			if w.chance(2) {
				a.create("a")
			}
		}
	})
	w.publishers(w.some(2), 1+w.some(2))
	if w.chance(4) {
		w.actor("closer", func(a *actor) { a.close() })
	}
}

// stuck: a handler waits until all others have done what must not wait for it.
func stuck(w *world) {
	gate := make(chan struct{})
	x := w.setup(kind{pattern: "a", size: w.some(2), policy: pubsub.DropPolicy(w.s.Choose(2)), acting: 16, acts: func(*actor) {
		schedule.Receive(gate)
	}})
	w.setup(w.anyQueue())
	w.fuel = 10
	w.actor("publisher", func(a *actor) {
		for range 2 + w.some(2) {
			a.publish("a")
		}
		switch w.s.Choose(3) {
		case 0:
			a.unsubscribe(x)
		case 1:
			a.close()
		}
		a.look()
		schedule.Close(gate)
	})
	if w.chance(2) {
		w.actor("await", func(a *actor) { a.await(x) })
	}
}

// exiting: handlers that panic and exit, in the worker and in the publisher.
func exiting(w *world) {
	for range w.some(2) {
		k := w.anyQueue()
		k.sync = w.chance(2)
		k.failing = 10
		w.setup(k)
	}
	w.publishers(w.some(2), w.some(3))
	switch w.s.Choose(4) {
	case 0:
		w.actor("flusher", func(a *actor) { a.flush() })
	case 1:
		w.actor("closer", func(a *actor) { a.shutdown() })
	case 2:
		w.actor("ender", func(a *actor) { a.unsubscribe(w.subjects[0]) })
	}
}

// restarting: a worker that ends when the next message comes.
func restarting(w *world) {
	k := w.anyQueue()
	w.setup(k)
	w.actor("publisher", func(a *actor) {
		for range 1 + w.some(3) {
			a.publish("a")
			w.s.Yield("pause")
		}
		if w.chance(2) {
			a.flush()
		}
	})
	if w.chance(3) {
		w.publishers(1, w.some(2))
	}
}

// monitoring: somebody reads while the subscriptions end.
func monitoring(w *world) {
	for range w.some(2) {
		w.setup(w.anyKind())
	}
	w.publishers(1, w.some(3))
	w.actor("monitor", func(a *actor) {
		for range w.some(3) {
			a.look()
		}
	})
	w.actor("ender", func(a *actor) {
		for _, x := range w.subjects {
			a.unsubscribe(x)
		}
	})
}

// pulling: the owner of a subscription takes its messages in loops.
func pulling(w *world) {
	k := w.anyQueue()
	k.pulled = true
	k.failing = w.s.Choose(2) * 5
	if w.chance(4) {
		k.limit = w.some(3)
	}
	x := w.setup(k)
	w.publishers(w.some(2), w.some(3))
	w.actor("reader", func(a *actor) {
		// In the end one that stays, if there is anything to stay for; also when
		// the body has exited.
		defer func() {
			var st pubsub.SubscriptionStats
			w.s.Quietly(func() { st = x.sub.Stats() })
			ended := x.ending > 0 || k.limit > 0 && begun(st) == uint64(k.limit)
			if !ended || st.Queued > 0 {
				w.actor("reader", func(a *actor) { a.pull(x, true) })
			}
		}()
		for range w.s.Choose(3) {
			a.pull(x, false)
		}
	})
	switch w.s.Choose(6) {
	case 0:
		w.actor("ender", func(a *actor) { a.unsubscribe(x) })
	case 1:
		w.actor("flusher", func(a *actor) { a.flush() })
	case 2:
		w.actor("closer", func(a *actor) { a.shutdown() })
	case 3:
		w.actor("await", func(a *actor) { a.await(x) })
	}
}

// redelivering: what was not handled is handed over again.
func redelivering(w *world) {
	w.letters.alike = true
	k := w.anyQueue()
	k.sync = w.chance(4)
	k.failing = 8
	if w.chance(3) {
		k.limit = 1 + w.some(3)
	}
	x := w.setup(k)
	w.publishers(w.some(2), w.some(3))
	for range w.some(2) {
		w.actor("redeliverer", func(a *actor) {
			for range w.some(2) {
				a.redeliver()
			}
		})
	}
	switch w.s.Choose(4) {
	case 0:
		w.actor("ender", func(a *actor) { a.unsubscribe(x) })
	case 1:
		w.actor("drainer", func(a *actor) { a.drain(x) })
	}
}
