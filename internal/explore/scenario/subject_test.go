package scenario

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/seed-b8032e04/pubsub"
)

// kind is how a subscription is made.
type kind struct {
	pattern string
	sync    bool
	policy  pubsub.DropPolicy
	size    int
	limit   int // 0 is none
	pulled  bool
	// Of 16 calls, how many fail, and how many act on the broker.
	failing, acting int
	// acts is what an acting handler does; nil is anything.
	acts func(a *actor)
}

func (k kind) String() string {
	mode := fmt.Sprintf("%v queue of %d", k.policy, k.size)
	if k.sync {
		mode = "synchronous"
	}
	if k.pulled {
		mode = "pulled " + mode
	}
	if k.limit > 0 {
		mode += fmt.Sprintf(", max %d messages", k.limit)
	}
	return mode + " on " + k.pattern
}

func (k kind) options() []pubsub.SubscribeOption {
	opts := []pubsub.SubscribeOption{pubsub.WithDropPolicy(k.policy), pubsub.WithQueueSize(k.size)}
	if k.sync {
		opts = append(opts, pubsub.WithSync())
	}
	if k.limit > 0 {
		opts = append(opts, pubsub.WithMaxMessages(k.limit))
	}
	return opts
}

// anyKind is any kind of subscription to topic a.
func (w *world) anyKind() kind {
	k := w.anyQueue()
	k.sync = w.chance(4)
	if w.chance(4) {
		k.limit = 1 + w.s.Choose(3)
	}
	if w.chance(2) {
		k.failing = 4
	}
	if w.chance(3) {
		k.acting = 6
	}
	return k
}

// anyQueue is an asynchronous subscription to topic a whose handler succeeds.
func (w *world) anyQueue() kind {
	return kind{pattern: "a", policy: pubsub.DropPolicy(w.s.Choose(3)), size: 1 + w.s.Choose(3)}
}

// queue is one with a given policy.
func (w *world) queue(policy pubsub.DropPolicy) kind {
	k := w.anyQueue()
	k.policy = policy
	return k
}

// topic returns one that the pattern matches.
func (k kind) topic() string { return strings.NewReplacer("*", "b", "#", "b").Replace(k.pattern) }

// subject is one subscription, and what is known of it.
type subject struct {
	kind
	w         *world
	name      string
	sub       *pubsub.Subscription // nil until Subscribe has returned it
	done      <-chan struct{}      // nil until somebody asks
	fates     []fate               // by message id
	running   []*call
	context   context.Context    // of the last call
	sequence  map[*goroutine]int // of the last message from each
	worker    goroutine
	nils      uint64 // how many calls returned nil
	failures  uint64 // how many failed
	entered   uint64 // how many calls there were
	last      pubsub.SubscriptionStats
	drainedAt *pubsub.SubscriptionStats // when something that ends it first returned
	final     *pubsub.SubscriptionStats // since Done was seen closed
	atEnd     *pubsub.SubscriptionStats // when it was first known to have ended at once

	began     int // Subscribe did
	listed    int // and returned
	ending    int // the first thing that may end it began
	endedNew  int // the first of those returned, so it takes nothing new
	drained   bool
	discarded bool // it may have been ended at once
}

// fate is what became of one message.
type fate struct {
	message *sent
	calls   []*call
	letters []pubsub.DeadLetter
	// How often it has been redelivered, and how often that was accepted.
	again, accepted int
}

// outcomes is how often the message has been dealt with, one way or another.
func (f *fate) outcomes() int {
	n := len(f.letters)
	for _, c := range f.calls {
		if c.outcome == succeeded {
			n++
		}
	}
	return n
}

type outcome int

const (
	none outcome = iota
	running
	succeeded
	failed
	panicked
	exited
)

var reasons = map[outcome]pubsub.Reason{
	failed:   pubsub.ReasonError,
	panicked: pubsub.ReasonPanic,
	exited:   pubsub.ReasonGoexit,
}

func (x *subject) fate(id uint64) *fate {
	for uint64(len(x.fates)) <= id {
		x.fates = append(x.fates, fate{})
	}
	return &x.fates[id]
}

// call is one call of a handler.
type call struct {
	x       *subject
	ctx     context.Context
	message *sent
	id      uint64
	outcome outcome
	err     error // what the handler returned, or panicked with
	told    bool  // there is a dead letter of it
	began   int
}

// handle is the handler of every subscription.
func (x *subject) handle(ctx context.Context, msg pubsub.Message) error {
	c := x.enter(ctx, msg)
	defer c.leave() // also when the handler panics or exits
	w := x.w
	w.s.Yield("handler")
	c.outcome = exited
	if w.s.Choose(16) < x.acting && w.fuel > 0 {
		w.fuel--
		a := &actor{w: w, name: x.name, in: x, ctx: ctx, by: &x.worker, handling: c.message}
		if x.sync {
			a.by = c.message.by
		}
		act := x.acts
		if act == nil {
			act = (*actor).anything
		}
		act(a)
	}
	if w.s.Choose(16) < x.failing {
		return c.misbehave()
	}
	c.outcome = succeeded
	return nil
}

func (c *call) misbehave() error {
	switch c.x.w.s.Choose(4) {
	case 0:
		c.outcome, c.err = panicked, errors.New("panic")
		panic(c.err)
	case 1:
		if c.x.w.chance(3) {
			// The panic is what ends the call, then the exit goes on.
			defer func() {
				c.outcome, c.err = panicked, errors.New("panic while exiting")
				panic(c.err)
			}()
		}
		runtime.Goexit()
	}
	c.outcome, c.err = failed, errors.New("failure")
	return c.err
}

// is reports whether msg is the message, as everybody gets it.
func (m *sent) is(msg pubsub.Message) bool {
	if m.time.IsZero() {
		m.time = msg.Time
	}
	return msg.Topic == m.topic && msg.Time.Equal(m.time) && (m.id == 0 || m.id == msg.ID)
}

// enter checks that this call may begin.
func (x *subject) enter(ctx context.Context, msg pubsub.Message) *call {
	w := x.w
	c := &call{x: x, ctx: ctx, id: msg.ID, outcome: running, began: w.now()}
	c.message, _ = msg.Payload.(*sent)
	if w.s.Tracing() {
		w.s.Note("%s handles %d", x.name, msg.ID)
	}
	m, f := c.message, x.fate(msg.ID)
	f.message = m
	f.calls = append(f.calls, c)
	x.entered++
	if !x.sync && len(x.running) > 0 {
		w.fail("Order: %s: the call with %d begins during that with %d", x.name, msg.ID, x.running[0].id)
	}
	switch {
	case len(f.calls) > 1+f.again:
		w.fail("Fan-out: %s: message %d handled twice", x.name, msg.ID)
	case m == nil || !m.is(msg):
		w.fail("Message: %s: message %d is not what was published: %+v", x.name, msg.ID, msg)
		return c
	case x.final != nil:
		w.fail("Unsubscribe: %s: the call with %d begins after Done", x.name, msg.ID)
	case m.flushed && !x.pulled && f.again == 0:
		w.fail("Flush: %s: the call with %d begins after Flush", x.name, msg.ID)
	case x.limit > 0 && x.entered > uint64(x.limit):
		w.fail("Max messages: %s: call %d of %d", x.name, x.entered, x.limit)
	case f.again > 0:
		// It comes out of turn, and with the ctx of whoever redelivered it.
	case !(x.sync && m.by.nests) && m.sequence <= x.sequence[m.by]:
		w.fail("Order: %s: message %d of a goroutine comes after its message %d", x.name, m.sequence, x.sequence[m.by])
	default:
		x.sequence[m.by] = m.sequence
		if !x.pulled {
			c.checkContext()
		}
	}
	x.running = append(x.running, c)
	x.context = ctx
	if !x.pulled {
		w.running++
	}
	w.check()
	return c
}

func (c *call) checkContext() {
	x, w := c.x, c.x.w
	switch value := c.ctx.Value(valueKey{}); {
	case value != c.message.value:
		w.fail("Context: %s: message %d has the value %v, not %v", x.name, c.id, value, c.message.value)
	case !x.sync && x.atEnd != nil && c.ctx.Err() == nil:
		w.fail("Context: %s: the ctx of the call with %d is not done after the end", x.name, c.id)
	case !x.sync && x.ending == 0 && c.ctx.Err() != nil:
		w.fail("Context: %s: the ctx of the call with %d is done before the end", x.name, c.id)
	}
}

// leave notes how the call ended: as misbehave said, or with Goexit.
func (c *call) leave() {
	x, w := c.x, c.x.w
	w.now()
	if c.outcome == succeeded {
		x.nils++
	} else {
		x.failures++
	}
	for i, other := range x.running {
		if other == c {
			x.running = append(x.running[:i], x.running[i+1:]...)
			break
		}
	}
	if !x.pulled {
		w.running--
	}
	w.check()
	w.s.Yield("handler returns")
}
