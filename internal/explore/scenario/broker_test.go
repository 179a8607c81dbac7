package scenario

import (
	"github.com/seed-b8032e04/pubsub"
	"github.com/seed-b8032e04/pubsub/internal/explore/schedule"
)

// Compositions about the broker as a whole, and about what handlers do to it.

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
