package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-b8032e04/pubsub"
	"github.com/seed-b8032e04/pubsub/internal/explore/schedule"
)

// world is one run: a broker, its subscriptions and those who act on them. One
// goroutine runs at a time, so nothing here is locked. What happens is numbered,
// from 1, by moments; 0 is never.
type world struct {
	s        *schedule.Schedule
	broker   *pubsub.Broker
	moment   int
	subjects []*subject
	sent     []*sent // in the order begun
	largest  uint64  // the largest id returned
	actors   int
	unended  map[string]deed   // what the actors that have not ended do
	fuel     int               // how many more things handlers may do
	running  int               // calls of handlers
	topics   map[string]*topic // with strict topics
	letters  announcements
	taken    []pubsub.DeadLetter // by Take
	capacity int                 // of the dead letters, when they are ignored
	last     pubsub.Stats

	closing int // the first Close or Shutdown began
	closed  int // the first of them returned, or a publisher was told
	ended   int // a Close returned, or a Shutdown as if it were one
}

// sent is one publish, and the payload of its message.
type sent struct {
	by       *goroutine
	sequence int // the goroutine's
	topic    string
	time     time.Time // of the message; zero until somebody got it
	value    any       // in its ctx
	worker   *subject  // whose asynchronous handler the chain of calls it was published in began with
	began    int
	ended    int // when it returned
	id       uint64
	err      error
	flushed  bool // a Flush that began after it had ended has returned
}

// goroutine is one that publishes; of the worker of a subscription, whichever it is.
type goroutine struct {
	published int
	nests     bool // it has published in a synchronous handler
}

// deed is what an actor does.
type deed struct {
	format   string
	args     []any
	waitsFor *subject // the one whose end it waits for, which may never come
}

func (d deed) String() string { return fmt.Sprintf(d.format, d.args...) }

// valueKey is the key of the value that some publishers' ctx has.
type valueKey struct{}

func newWorld(s *schedule.Schedule, c *composition) *world {
	w := &world{s: s, unended: make(map[string]deed), fuel: 2 + s.Choose(4)}
	n := &w.letters
	n.w = w
	var opts []pubsub.Option
	switch {
	case c.letters:
		opts = n.options(1 + s.Choose(2))
	case w.chance(4):
		n.unhurt = true
		opts = n.options(1)
	}
	if c.strict {
		w.topics = make(map[string]*topic)
		opts = append(opts, pubsub.WithStrictTopics())
	}
	if w.chance(16) {
		n.ignoring, w.capacity = true, s.Choose(3)
		opts = append(opts, pubsub.WithDeadLetterCapacity(w.capacity))
	}
	w.broker = pubsub.New(opts...)
	return w
}

// setup makes a subscription before anybody acts.
func (w *world) setup(k kind) (x *subject) {
	a := &actor{w: w, name: "main", by: new(goroutine)}
	w.s.Quietly(func() { x = a.subscribe(k) })
	return x
}

// chance is true once in so many times.
func (w *world) chance(of int) bool { return w.s.Choose(of) == 0 }

// now returns a new moment.
func (w *world) now() int {
	w.moment++
	return w.moment
}

func (w *world) fail(format string, args ...any) { w.s.Fail(format, args...) }

// actor is somebody who uses the broker: a goroutine of the scenario's, or a
// handler in its call.
type actor struct {
	w     *world
	name  string
	by    *goroutine
	doing deed

	in       *subject        // whose handler it is; nil for a goroutine and a dead-letter handler
	ctx      context.Context // the handler's
	handling *sent
	mortal   bool // its publishes give up waiting
	idle     bool // nobody else does anything: there is nothing to wait for
}

// actor starts a goroutine.
func (w *world) actor(name string, f func(a *actor)) {
	w.actors++
	a := &actor{w: w, name: fmt.Sprintf("%s%d", name, w.actors), by: new(goroutine)}
	w.unended[a.name] = deed{format: "start"}
	w.s.Go(a.name, func() {
		defer delete(w.unended, a.name) // also when a handler exits
		f(a)
	})
}

// does notes what an actor begins to do, and returns the moment.
func (a *actor) does(format string, args ...any) int {
	a.doing = deed{format: format, args: args}
	if a.w.s.Tracing() {
		a.w.s.Note("%v", a.doing)
	}
	if _, ok := a.w.unended[a.name]; ok {
		a.w.unended[a.name] = a.doing
	}
	return a.w.now()
}

// mayWaitFor says that what the actor does may go on until x ends.
func (a *actor) mayWaitFor(x *subject) {
	if _, ok := a.w.unended[a.name]; ok {
		a.doing.waitsFor = x
		a.w.unended[a.name] = a.doing
	}
}

// did notes what came of it, and returns the moment.
func (a *actor) did(result any) int {
	if a.w.s.Tracing() {
		a.w.s.Note("%v: %v", a.doing, result)
	}
	return a.w.now()
}

// patience returns the ctx that one who can wait uses: in a handler the handler's,
// else one that never ends, has ended, or ends at some time.
func (a *actor) patience() (ctx context.Context, ends bool) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if a.ctx != nil {
		return a.ctx, true
	}
	if a.idle {
		return ended, false
	}
	switch a.w.s.Choose(6) {
	case 0:
		return ended, true
	case 1, 2:
		return a.w.ending(context.Background()), true
	default:
		return context.Background(), false
	}
}

// ending returns a ctx that ends at some time.
func (w *world) ending(parent context.Context) context.Context {
	ctx, cancel := context.WithCancel(parent)
	w.s.Go("canceler", func() {
		w.s.Pause(w.s.Choose(1<<w.s.Choose(14)), "cancel later")
		schedule.Cancel(cancel)
	})
	return ctx
}
