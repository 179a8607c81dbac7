package oracles

import (
	"errors"
	"slices"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/seed-b8032e04/pubsub"
)

func expect[T comparable](t *rapid.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: %v, the model says %v", what, got, want)
	}
}

func expectAll[T comparable](t *rapid.T, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: %v, the model says %v", what, got, want)
	}
}

func plainLetters(letters []pubsub.DeadLetter) []letter {
	plain := make([]letter, len(letters))
	for i, l := range letters {
		plain[i] = plainLetter(l)
	}
	return plain
}

// check holds the broker against the model. rapid calls it after each action.
func (m *machine) check(t *rapid.T) {
	synctest.Wait()
	m.saw["actions"]++
	m.checkSubscriptions(t)
	m.checkLetters(t)
	for i, f := range m.flights {
		m.checkFlight(t, f, m.calls[i])
	}
	for i, p := range m.pauses {
		state, _, err := m.waits[i].result()
		expect(t, "a Drain, Flush or Shutdown has returned", state != waiting, p.ended)
		if p.ended {
			expect(t, "the error of a Drain, Flush or Shutdown", err, p.err)
		}
	}
}

func (c *call) result() (ending, uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state, c.id, c.err
}

func (m *machine) checkFlight(t *rapid.T, f *flight, c *call) {
	state, id, err := c.result()
	switch {
	case !f.ended:
		expect(t, "how a held publish ended", state, waiting)
	case f.exits:
		expect(t, "how a publish ended in whose goroutine a handler exited", state, exited)
	default:
		expect(t, "how a publish ended", state, returned)
		expect(t, "its id", id, f.msg.id)
		if !errors.Is(err, f.err) || (err == nil) != (f.err == nil) {
			t.Fatalf("its error: %v, the model says %v", err, f.err)
		}
	}
}

func (m *machine) checkSubscriptions(t *rapid.T) {
	want := pubsub.Stats{Published: m.lastID, Unrouted: m.unrouted, Topics: len(m.topics)}
	var listed []*pubsub.Subscription
	for i, s := range m.subjects {
		x := m.subs[i]
		st := pubsub.SubscriptionStats{
			Delivered: s.delivered, Failed: s.failed, Dropped: s.dropped,
			Queued: len(s.queue), Running: len(s.running),
		}
		st.Matched = st.Delivered + st.Failed + st.Dropped + uint64(st.Queued+st.Running)
		expect(t, "Stats of a subscription", x.Stats(), st)
		want.Matched += st.Matched
		want.Delivered += st.Delivered
		want.Failed += st.Failed
		want.Dropped += st.Dropped
		want.Queued += st.Queued
		want.Running += st.Running
		if s.phase < closed {
			listed = append(listed, x.Subscription)
		}
		ended := false
		select {
		case <-x.Done():
			ended = true
		default:
		}
		expect(t, "Done is closed", ended, s.phase == done)
		m.checkCalls(t, x)
	}
	want.Subscriptions = len(listed)
	expectAll(t, "Subscriptions", m.broker.Subscriptions(), listed)
	expect(t, "Stats of the broker", m.broker.Stats(), want)
	topics := []string{}
	for name := range m.topics {
		topics = append(topics, name)
	}
	slices.Sort(topics)
	expectAll(t, "Topics", m.broker.Topics(), topics)
}

// checkCalls looks at the calls of a handler: their order, their messages, and whether
// their ctx is done and whose values it has.
func (m *machine) checkCalls(t *rapid.T, x *subscription) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.subject
	expectAll(t, "messages handled, in order", x.began, s.began)
	expect(t, "calls that are held", len(x.running), len(s.running))
	for i, r := range x.running {
		e := s.running[i]
		expect(t, "a message", r.msg, e.msg)
		number := e.flight.number
		if e.flight.plain {
			number = 0
		}
		expect(t, "whose values a ctx has", r.flight, number)
		ended := s.phase >= closed
		if s.sync {
			ended = e.flight.canceled
		}
		expect(t, "a ctx is done", r.ctx.Err() != nil, ended)
	}
}

func (m *machine) checkLetters(t *rapid.T) {
	letters := m.broker.DeadLetters()
	kept := m.kept()
	expect(t, "Total", letters.Total(), uint64(len(m.letters)))
	expect(t, "Len", letters.Len(), len(kept))
	expectAll(t, "Snapshot", plainLetters(letters.Snapshot()), kept)
	m.mu.Lock()
	defer m.mu.Unlock()
	expectAll(t, "letters announced", m.announced, m.letters)
}
