package oracles

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed-b8032e04/pubsub"
)

// model is a broker as one would write it who had one goroutine, no cache and no hurry:
// slices and loops. It says what a broker that has settled must look like after each
// action. Patterns are matched by pubsub.Match, which another test holds against an
// oracle of its own.
type model struct {
	strict   bool
	capacity int

	closed   bool
	topics   map[string]bool
	subjects []*subject // all that have ever been, in order
	lastID   uint64
	unrouted uint64
	flights  []*flight
	pauses   []*pause

	letters []letter // all that were ever recorded
	taken   int      // how many of them Take has had, or passed by

	fault string         // what to do wrong, to see that it is noticed
	saw   map[string]int // how often what happened
}

// message and letter are pubsub's, such that == compares them.
type message struct {
	id      uint64
	topic   string
	payload int
	at      int64
}

type letter struct {
	at            int64
	subject       uint64
	name, pattern string
	msg           message
	reason        pubsub.Reason
	err           string
}

type phase int

const (
	open phase = iota
	draining
	closed // a call still runs
	done
)

func (p phase) String() string { return [...]string{"open", "draining", "closed", "done"}[p] }

// subject is a subscription.
type subject struct {
	id            uint64
	name, pattern string
	sync, auto    bool // auto: the handler returns at once, others when they are released
	policy        pubsub.DropPolicy
	size, limit   int

	phase     phase
	queue     []*entry
	waiting   []*flight // for room
	running   []*entry
	took      int // toward the limit
	began     []uint64
	delivered uint64
	failed    uint64
	dropped   uint64
}

// entry is one copy of a message.
type entry struct {
	msg     message
	flight  *flight
	settled bool
}

// flight is one call of Publish or Redeliver.
type flight struct {
	number      int
	msg         message
	plain       bool // its ctx is context.Background
	redelivered bool
	rest        []*subject // still to be served
	room        *subject   // in whose queue it waits for room
	canceled    bool
	exits       bool // a handler has called Goexit in its goroutine

	ended   bool
	matched bool
	err     error
}

// pause is one call of Drain, Flush or Shutdown.
type pause struct {
	drains   *subject // Drain
	flushes  []*entry // Flush
	shutdown bool
	canceled bool
	ended    bool
	err      error
}

func now() int64 { return time.Now().UnixNano() }

// publish begins a flight, and ends it unless it is held.
func (m *model) publish(f *flight) {
	m.flights = append(m.flights, f)
	switch {
	case m.closed:
		f.msg.id, f.ended, f.err = 0, true, pubsub.ErrClosed
		return
	case m.strict && !m.topics[f.msg.topic] && m.fault != "an unknown topic is published to":
		f.msg.id, f.ended, f.err = 0, true, pubsub.ErrUnknownTopic
		return
	}
	m.lastID++
	f.msg.id = m.lastID
	f.rest = m.route(f.msg.topic)
	m.advance(f)
}

// route returns whom a topic reaches, in the order in which they are served.
func (m *model) route(topic string) []*subject {
	var dropping, blocking, synchronous []*subject
	for _, s := range m.subjects {
		matched, err := pubsub.Match(s.pattern, topic)
		switch {
		case err != nil || !matched || s.phase != open:
		case s.sync:
			synchronous = append(synchronous, s)
		case s.policy == pubsub.Block:
			blocking = append(blocking, s)
		default:
			dropping = append(dropping, s)
		}
	}
	return slices.Concat(dropping, blocking, synchronous)
}

// redeliver begins a flight of a letter's message to one subscription.
func (m *model) redeliver(f *flight, s *subject) {
	f.redelivered = true
	m.flights = append(m.flights, f)
	switch {
	case m.closed:
		f.ended, f.err = true, pubsub.ErrClosed
	default:
		f.rest = []*subject{s}
		m.advance(f)
	}
}

// advance serves the rest, until there is none or one holds the flight.
func (m *model) advance(f *flight) {
	for len(f.rest) > 0 {
		s := f.rest[0]
		f.rest = f.rest[1:]
		switch {
		case s.phase != open:
			m.saw["copies that come late"]++
		case s.sync:
			f.matched = true
			s.took++
			m.start(s, &entry{msg: f.msg, flight: f})
			if s.limit > 0 && s.took == s.limit {
				m.fill(s)
			}
			if !s.auto {
				return
			}
			m.settle(s, s.running[len(s.running)-1])
		case len(s.queue) < s.size:
			m.accept(s, f)
		case s.policy == pubsub.DropNewest:
			m.saw["messages refused"]++
			f.matched = true
			m.drop(s, f.msg, pubsub.ReasonDroppedNewest, f.msg.at, nil)
		case s.policy == pubsub.DropOldest:
			m.saw["messages evicted"]++
			oldest := 0
			if m.fault == "the newest is evicted" {
				oldest = len(s.queue) - 1
			}
			evicted := s.queue[oldest]
			s.queue = slices.Delete(s.queue, oldest, oldest+1)
			s.took--
			m.discarded(s, evicted, pubsub.ReasonDroppedOldest, f.msg.at)
			m.accept(s, f)
		default:
			m.saw["publishers held by a full queue"]++
			f.room = s
			s.waiting = append(s.waiting, f)
			if !f.canceled {
				return
			}
			m.giveUp(f)
		}
	}
	f.ended = true
	switch {
	case f.redelivered && !f.matched:
		f.err = pubsub.ErrNoSubscription
	case !f.matched:
		m.unrouted++
	}
}

// accept queues a flight's message, and starts a call with it when none runs.
func (m *model) accept(s *subject, f *flight) {
	f.matched = true
	s.queue = append(s.queue, &entry{msg: f.msg, flight: f})
	s.took++
	limit := s.limit
	if m.fault == "one more than the limit" && limit > 0 {
		limit++
	}
	if limit > 0 && s.took == limit {
		m.fill(s)
	}
	m.work(s)
}

// fill ends the taking of a subscription that has had its messages.
func (m *model) fill(s *subject) {
	m.saw["subscriptions that have had their messages"]++
	s.phase = draining
	for _, f := range m.release(s) {
		m.saw["publishers released by the last message"]++
		if m.fault == "who is released by the last message is counted" {
			m.drop(s, f.msg, pubsub.ReasonUnsubscribed, now(), nil)
		}
		m.advance(f)
	}
}

// release lets those who wait for room go.
func (m *model) release(s *subject) []*flight {
	waiting := s.waiting
	s.waiting = nil
	for _, f := range waiting {
		f.room = nil
	}
	return waiting
}

// work starts the next call of an asynchronous subscription if none runs.
func (m *model) work(s *subject) {
	if s.sync || len(s.running) > 0 || len(s.queue) == 0 {
		m.finish(s)
		return
	}
	e := s.queue[0]
	s.queue = s.queue[1:]
	m.start(s, e)
	if len(s.waiting) > 0 {
		first := 0
		if m.fault == "room goes to the last who waits" {
			first = len(s.waiting) - 1
		}
		m.saw["publishers given room"]++
		f := s.waiting[first]
		s.waiting = slices.Delete(s.waiting, first, first+1)
		f.room = nil
		m.accept(s, f)
		m.advance(f)
	}
	if s.auto {
		m.settle(s, e)
	}
}

func (m *model) start(s *subject, e *entry) {
	s.running = append(s.running, e)
	s.began = append(s.began, e.msg.id)
}

// settle ends a call that succeeded.
func (m *model) settle(s *subject, e *entry) {
	s.delivered++
	m.end(s, e)
}

// fail ends a call that did not.
func (m *model) fail(s *subject, e *entry, reason pubsub.Reason, err error) {
	m.saw["calls that fail"]++
	s.failed++
	m.record(s, e.msg, reason, now(), err)
	m.end(s, e)
}

func (m *model) end(s *subject, e *entry) {
	e.settled = true
	i := slices.Index(s.running, e)
	s.running = slices.Delete(s.running, i, i+1)
	m.work(s)
}

// finish ends a subscription that takes nothing more and has nothing left.
func (m *model) finish(s *subject) {
	if s.phase != open && len(s.queue)+len(s.running) == 0 {
		s.phase = done
	}
}

func (m *model) discarded(s *subject, e *entry, reason pubsub.Reason, at int64) {
	e.settled = true
	m.drop(s, e.msg, reason, at, nil)
}

func (m *model) drop(s *subject, msg message, reason pubsub.Reason, at int64, err error) {
	s.dropped++
	m.record(s, msg, reason, at, err)
}

func (m *model) record(s *subject, msg message, reason pubsub.Reason, at int64, err error) {
	m.letters = append(m.letters, letter{at, s.id, s.name, s.pattern, msg, reason, text(err)})
}

// text is what is compared of a dead letter's error.
func text(err error) string {
	if err == nil {
		return ""
	}
	if p := (*pubsub.PanicError)(nil); errors.As(err, &p) {
		return "panic: " + p.Value.(string)
	}
	return err.Error()
}

// kept returns the letters that the broker has.
func (m *model) kept() []letter {
	from := max(m.taken, len(m.letters)-m.capacity)
	if m.fault == "the ring evicts the newest" {
		return m.letters[m.taken:min(len(m.letters), m.taken+m.capacity)]
	}
	return m.letters[from:]
}

// cancel ends the ctx of a flight.
func (m *model) cancel(f *flight) {
	f.canceled = true
	if f.room != nil {
		m.giveUp(f)
		m.advance(f)
	}
}

// giveUp ends a wait for room.
func (m *model) giveUp(f *flight) {
	m.saw["publishers that give up"]++
	s := f.room
	i := slices.Index(s.waiting, f)
	s.waiting = slices.Delete(s.waiting, i, i+1)
	f.room, f.matched, f.err = nil, true, context.Canceled
	m.drop(s, f.msg, pubsub.ReasonCanceled, now(), f.err)
}

func (m *model) unsubscribe(s *subject) {
	if s.phase >= closed {
		return
	}
	s.phase = closed
	for _, e := range s.queue {
		m.saw["messages discarded"]++
		m.discarded(s, e, pubsub.ReasonUnsubscribed, now())
	}
	s.queue = nil
	m.dismiss(s)
	m.finish(s)
}

// dismiss lets those who wait for room go, with a dead letter each.
func (m *model) dismiss(s *subject) {
	for _, f := range m.release(s) {
		m.saw["publishers released by an end"]++
		f.matched = true
		m.drop(s, f.msg, pubsub.ReasonUnsubscribed, now(), nil)
		defer m.advance(f) // At most one has anywhere to go on to.
	}
}

func (m *model) drain(s *subject) {
	if s.phase != open {
		return
	}
	if m.fault == "a drain discards" {
		m.unsubscribe(s)
		return
	}
	s.phase = draining
	m.dismiss(s)
	m.finish(s)
}
