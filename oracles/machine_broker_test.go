package oracles

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/seed-b8032e04/pubsub"
)

func (m *machine) doDrain(t *rapid.T) {
	if len(m.subs) == 0 {
		t.Skip("no subscription")
	}
	x := m.subs[rapid.IntRange(0, len(m.subs)-1).Draw(t, "subscription")]
	m.pause(t, &pause{drains: x.subject}, x.Drain)
}

func (m *machine) doFlush(t *rapid.T) { m.pause(t, &pause{}, m.broker.Flush) }

func (m *machine) doShutdown(t *rapid.T) {
	if !chance(t, 4, "really") || m.underway() {
		t.Skip("not yet")
	}
	m.unordered(t, func() { m.pause(t, &pause{shutdown: true}, m.broker.Shutdown) })
}

func (m *machine) doClose(t *rapid.T) {
	if !chance(t, 4, "really") || m.underway() {
		t.Skip("not yet")
	}
	m.unordered(t, func() {
		m.closed = true
		for _, s := range m.subjects {
			m.unsubscribe(s)
		}
		m.settlePauses()
		m.broker.Close()
	})
}

// pause begins a call that waits for the broker.
func (m *machine) pause(t *rapid.T, p *pause, wait func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	if chance(t, 4, "canceled before") {
		p.canceled = true
		cancel()
	}
	m.begin(p)
	m.waits = append(m.waits, m.do(cancel, func() (uint64, error) { return 0, wait(ctx) }))
}

func (m *machine) doCancelPause(t *rapid.T) {
	var held []int
	for i, p := range m.pauses {
		if !p.ended {
			held = append(held, i)
		}
	}
	if len(held) == 0 {
		t.Skip("nobody waits")
	}
	i := rapid.SampledFrom(held).Draw(t, "call")
	m.saw["waits that are given up"]++
	m.unordered(t, func() {
		m.cancelPause(m.pauses[i])
		m.waits[i].cancel()
	})
}

// unordered does what ends several subscriptions. It is not promised in which order,
// so the model takes over the order in which the letters of different subscriptions
// were announced, after it has been seen that those of each are in their order.
func (m *machine) unordered(t *rapid.T, act func()) {
	before := len(m.letters)
	act()
	synctest.Wait()
	m.mu.Lock()
	got := slices.Clone(m.announced)
	m.mu.Unlock()
	expect(t, "number of letters", len(got), len(m.letters))
	got = got[before:]
	bySubject := func(a, b letter) int { return int(a.subject) - int(b.subject) }
	sorted, want := slices.Clone(got), slices.Clone(m.letters[before:])
	slices.SortStableFunc(sorted, bySubject)
	slices.SortStableFunc(want, bySubject)
	expectAll(t, "letters of an end", sorted, want)
	copy(m.letters[before:], got)
}

func (m *machine) doCreateTopic(t *rapid.T) {
	m.create(t, rapid.SampledFrom(topicNames).Draw(t, "topic"))
}

func (m *machine) create(t *rapid.T, name string) {
	err := m.broker.CreateTopic(name)
	if m.closed {
		expect(t, "ErrClosed of CreateTopic", errors.Is(err, pubsub.ErrClosed), true)
		return
	}
	expect(t, "error of CreateTopic", err, nil)
	m.topics[name] = true
}

func (m *machine) doDeleteTopic(t *rapid.T) {
	name := rapid.SampledFrom(topicNames).Draw(t, "topic")
	err := m.broker.DeleteTopic(name)
	switch {
	case m.closed:
		expect(t, "ErrClosed of DeleteTopic", errors.Is(err, pubsub.ErrClosed), true)
	case !m.topics[name]:
		expect(t, "ErrUnknownTopic of DeleteTopic", errors.Is(err, pubsub.ErrUnknownTopic), true)
	default:
		expect(t, "error of DeleteTopic", err, nil)
		delete(m.topics, name)
	}
}

func (m *machine) doTake(t *rapid.T) {
	expectAll(t, "Take", plainLetters(m.broker.DeadLetters().Take()), m.kept())
	m.taken = len(m.letters)
}

// totals are what happened in all sequences.
var totals = make(map[string]int)

// TestBroker drives a broker and the model through sequences of actions and holds all
// that can be read of the broker against the model after each.
func TestBroker(t *testing.T) {
	sequences := 0
	rapid.Check(t, func(t *rapid.T) {
		sequences++
		rapid.SyncTest(t, func(t *rapid.T) {
			m := newMachine(t, plantedFault())
			t.Cleanup(m.stop)
			for range rapid.IntRange(0, 4).Draw(t, "subscriptions to begin with") {
				m.doSubscribe(t)
			}
			for _, name := range topicNames {
				if rapid.Bool().Draw(t, "declared") {
					m.create(t, name)
				}
			}
			t.Repeat(m.actions())
			for what, n := range m.saw {
				totals[what] += n
			}
		})
	})
	t.Logf("%d sequences", sequences)
	for _, what := range slices.Sorted(maps.Keys(totals)) {
		t.Logf("%6d %s", totals[what], what)
	}
	if sequences >= 400 {
		for _, what := range []string{"messages evicted", "publishers given room", "waits that are given up"} {
			assert.Positive(t, totals[what], "the actions no longer lead to: %s", what)
		}
	}
}
