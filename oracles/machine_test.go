package oracles

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-b8032e04/pubsub"
)

// machine does to a broker what it does to the model. It is driven by one goroutine,
// which lets the broker settle after each action, so that there is one right answer:
// nothing here depends on who is faster. What does is the work of the histories and of
// internal/explore.
type machine struct {
	*model
	broker *pubsub.Broker
	subs   []*subscription // as model.subjects
	calls  []*call         // as model.flights
	waits  []*call         // as model.pauses
	free   chan struct{}   // closed at the end: nobody is held any more

	mu        sync.Mutex
	announced []letter
}

// subscription is the real one of a subject.
type subscription struct {
	*pubsub.Subscription
	subject *subject
	m       *machine

	mu      sync.Mutex
	began   []uint64
	running []*running
}

// running is one call of a handler that waits to be released.
type running struct {
	ctx    context.Context
	flight int
	msg    message
	gate   chan outcome
}

// call is one call that may wait for the broker.
type call struct {
	cancel context.CancelFunc

	mu    sync.Mutex
	state ending
	id    uint64
	err   error
}

type ending int

const (
	waiting ending = iota
	returned
	exited // by Goexit
)

// outcome is how a call of a handler ends.
type outcome int

const (
	succeeds outcome = iota
	fails
	panics
	exits
)

var errHandler = errors.New("the handler's")

// flightKey is the key of a flight's number in its ctx.
type flightKey struct{}

func plainMessage(m pubsub.Message) message {
	return message{m.ID, m.Topic, m.Payload.(int), m.Time.UnixNano()}
}

func plainLetter(l pubsub.DeadLetter) letter {
	return letter{
		l.Time.UnixNano(), l.SubscriptionID, l.SubscriptionName, l.Pattern, plainMessage(l.Message), l.Reason, text(l.Err),
	}
}

func (x *subscription) handle(ctx context.Context, msg pubsub.Message) error {
	number, _ := ctx.Value(flightKey{}).(int)
	r := &running{ctx, number, plainMessage(msg), make(chan outcome)}
	x.mu.Lock()
	x.began = append(x.began, msg.ID)
	if x.subject.auto {
		x.mu.Unlock()
		return nil
	}
	x.running = append(x.running, r)
	x.mu.Unlock()
	how := succeeds
	select {
	case how = <-r.gate:
	case <-x.m.free:
	}
	x.mu.Lock()
	i := slices.Index(x.running, r)
	x.running = slices.Delete(x.running, i, i+1)
	x.mu.Unlock()
	switch how {
	case fails:
		return errHandler
	case panics:
		panic("in a handler")
	case exits:
		runtime.Goexit()
	}
	return nil
}

// do runs what may wait in a goroutine of its own.
func (m *machine) do(cancel context.CancelFunc, f func() (uint64, error)) *call {
	c := &call{cancel: cancel}
	go func() {
		end := exited
		var id uint64
		var err error
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.state, c.id, c.err = end, id, err
		}()
		id, err = f()
		end = returned
	}()
	return c
}

func newMachine(t *rapid.T, fault string) *machine {
	m := &machine{
		model: &model{
			strict:   chance(t, 4, "strict"),
			capacity: rapid.IntRange(0, 4).Draw(t, "capacity"),
			topics:   make(map[string]bool),
			fault:    fault,
			saw:      make(map[string]int),
		},
		free: make(chan struct{}),
	}
	options := []pubsub.Option{
		pubsub.WithDeadLetterCapacity(m.capacity),
		pubsub.WithDeadLetterHandler(func(l pubsub.DeadLetter) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.announced = append(m.announced, plainLetter(l))
		}),
	}
	if m.strict {
		options = append(options, pubsub.WithStrictTopics())
	}
	m.broker = pubsub.New(options...)
	return m
}

// chance is true once in n, and false when rapid has shrunk it.
func chance(t *rapid.T, n int, what string) bool {
	return rapid.IntRange(0, n-1).Draw(t, what) == n-1
}

// actions are what a sequence is made of. rapid prefers what comes first.
func (m *machine) actions() map[string]func(*rapid.T) {
	actions := map[string]func(*rapid.T){"": m.check}
	for _, a := range []struct {
		name   string
		act    func(*rapid.T)
		weight int
	}{
		{"publish", m.doPublish, 10},
		{"release", m.doRelease, 8},
		{"subscribe", m.doSubscribe, 3},
		{"redeliver", m.doRedeliver, 1},
		{"cancel a publish", m.doCancelPublish, 2},
		{"wait", m.doWait, 1},
		{"take", m.doTake, 1},
		{"create a topic", m.doCreateTopic, 2},
		{"delete a topic", m.doDeleteTopic, 1},
		{"flush", m.doFlush, 1},
		{"drain", m.doDrain, 1},
		{"unsubscribe", m.doUnsubscribe, 1},
		{"cancel a wait", m.doCancelPause, 1},
		{"shut down", m.doShutdown, 1},
		{"close", m.doClose, 1},
	} {
		for range a.weight {
			actions[fmt.Sprintf("%02d %s", len(actions), a.name)] = a.act
		}
	}
	return actions
}

// stop lets everybody go, however the sequence ended.
func (m *machine) stop() {
	close(m.free)
	for _, c := range slices.Concat(m.calls, m.waits) {
		c.cancel()
	}
	m.broker.Close()
	synctest.Wait()
}

var (
	topicNames = []string{"a", "a.b", "a.c", "b"}
	patterns   = []string{"a", "a.b", "a.*", "a.#", "#", "*", "b"}
)

func (m *machine) doSubscribe(t *rapid.T) {
	live := 0
	for _, s := range m.subjects {
		if s.phase != done {
			live++
		}
	}
	if live == 6 {
		t.Skip("enough")
	}
	s := &subject{
		id:      uint64(len(m.subjects) + 1),
		name:    rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "name"),
		pattern: rapid.SampledFrom(patterns).Draw(t, "pattern"),
		sync:    chance(t, 4, "sync"),
		auto:    chance(t, 4, "auto"),
		policy:  rapid.SampledFrom([]pubsub.DropPolicy{pubsub.Block, pubsub.DropNewest, pubsub.DropOldest}).Draw(t, "policy"),
		size:    rapid.IntRange(1, 3).Draw(t, "size"),
	}
	if chance(t, 3, "limited") {
		s.limit = rapid.IntRange(1, s.size+3).Draw(t, "limit")
	}
	x := &subscription{subject: s, m: m}
	options := []pubsub.SubscribeOption{
		pubsub.WithName(s.name), pubsub.WithDropPolicy(s.policy), pubsub.WithQueueSize(s.size),
	}
	if s.sync {
		options = append(options, pubsub.WithSync())
	}
	if s.limit > 0 {
		options = append(options, pubsub.WithMaxMessages(s.limit))
	}
	sub, err := m.broker.Subscribe(s.pattern, x.handle, options...)
	if m.closed {
		expect(t, "error of Subscribe", errors.Is(err, pubsub.ErrClosed), true)
		return
	}
	expect(t, "error of Subscribe", err, nil)
	x.Subscription = sub
	m.subjects = append(m.subjects, s)
	m.subs = append(m.subs, x)
}

// orderly reports whether a flight along a route may begin. Several that wait for room
// can be released at once. Only one of them may have a subscription to go on to: what
// two do then depends on who is faster.
func (m *machine) orderly(route []*subject) bool {
	for i, s := range route {
		if !s.sync && s.policy == pubsub.Block && len(s.queue) == s.size && i < len(route)-1 {
			return !m.underway()
		}
	}
	return true
}

// underway reports whether one who waits for room has a subscription to go on to.
func (m *machine) underway() bool {
	return slices.ContainsFunc(m.flights, func(f *flight) bool { return f.room != nil && len(f.rest) > 0 })
}

// ctx returns a flight's ctx. One without values is tried where nobody need tell whose
// call a handler's is.
func (m *machine) ctx(t *rapid.T, f *flight, route []*subject) (context.Context, context.CancelFunc) {
	synchronous := slices.ContainsFunc(route, func(s *subject) bool { return s.sync })
	if !synchronous && rapid.Bool().Draw(t, "plain") {
		f.plain = true
		return context.Background(), func() {}
	}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), flightKey{}, f.number))
	if chance(t, 8, "canceled before") {
		f.canceled = true
		cancel()
	}
	return ctx, cancel
}

func (m *machine) doPublish(t *rapid.T) {
	topic := rapid.SampledFrom(topicNames).Draw(t, "topic")
	route := m.route(topic)
	if !m.orderly(route) {
		t.Skip("two would go on at once")
	}
	f := &flight{number: len(m.flights) + 1}
	f.msg = message{topic: topic, payload: f.number, at: now()}
	ctx, cancel := m.ctx(t, f, route)
	m.publish(f)
	m.calls = append(m.calls, m.do(cancel, func() (uint64, error) { return m.broker.Publish(ctx, topic, f.number) }))
}

func (m *machine) doRedeliver(t *rapid.T) {
	letters := m.broker.DeadLetters().Snapshot()
	if len(letters) == 0 {
		t.Skip("no letter")
	}
	l := letters[rapid.IntRange(0, len(letters)-1).Draw(t, "letter")]
	s := m.subjects[l.SubscriptionID-1]
	f := &flight{number: len(m.flights) + 1, msg: plainMessage(l.Message)}
	ctx, cancel := m.ctx(t, f, []*subject{s})
	m.redeliver(f, s)
	m.calls = append(m.calls, m.do(cancel, func() (uint64, error) { return f.msg.id, m.broker.Redeliver(ctx, l) }))
}

// Release ends one call of a handler.
func (m *machine) doRelease(t *rapid.T) {
	type candidate struct {
		x *subscription
		e *entry
	}
	var candidates []candidate
	for i, s := range m.subjects {
		for _, e := range s.running {
			candidates = append(candidates, candidate{m.subs[i], e})
		}
	}
	if len(candidates) == 0 {
		t.Skip("nothing runs")
	}
	chosen := candidates[rapid.IntRange(0, len(candidates)-1).Draw(t, "call")]
	how := max(succeeds, outcome(rapid.IntRange(-4, int(exits)).Draw(t, "outcome")))
	e, s := chosen.e, chosen.x.subject
	gate := chosen.x.call(e).gate
	switch how {
	case succeeds:
		m.settle(s, e)
	case fails:
		m.fail(s, e, pubsub.ReasonError, errHandler)
	case panics:
		m.fail(s, e, pubsub.ReasonPanic, &pubsub.PanicError{Value: "in a handler"})
	case exits:
		m.fail(s, e, pubsub.ReasonGoexit, pubsub.ErrGoexit)
	}
	if s.sync {
		e.flight.exits = e.flight.exits || how == exits
		m.advance(e.flight)
	}
	m.settlePauses()
	gate <- how
}

// call returns the running call of an entry.
func (x *subscription) call(e *entry) *running {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, r := range x.running {
		if !x.subject.sync || r.flight == e.flight.number {
			return r
		}
	}
	panic("no call of message of flight runs")
}

func (m *machine) doCancelPublish(t *rapid.T) {
	var held []int
	for i, f := range m.flights {
		if !f.ended && !f.canceled && !f.plain {
			held = append(held, i)
		}
	}
	if len(held) == 0 {
		t.Skip("nobody is held")
	}
	i := rapid.SampledFrom(held).Draw(t, "flight")
	m.cancel(m.flights[i])
	m.calls[i].cancel()
}

func (m *machine) doUnsubscribe(t *rapid.T) {
	if len(m.subs) == 0 {
		t.Skip("no subscription")
	}
	x := m.subs[rapid.IntRange(0, len(m.subs)-1).Draw(t, "subscription")]
	m.unsubscribe(x.subject)
	m.settlePauses()
	x.Unsubscribe()
}

func (m *machine) doWait(t *rapid.T) {
	time.Sleep(time.Duration(rapid.IntRange(1, 1000).Draw(t, "milliseconds")) * time.Millisecond)
}
