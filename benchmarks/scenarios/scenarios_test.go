package scenarios

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-b8032e04/pubsub"
	"github.com/seed-b8032e04/pubsub/benchmarks/peers"
)

// faulty is a synchronous bus that does something wrong with the message whose
// turn it is.
type faulty struct {
	handlers  []peers.Handler
	turn      int
	published int
	wrong     func(b *faulty, p *peers.Payload)
}

func (b *faulty) Publish(_ string, p *peers.Payload) error {
	b.published++
	if b.published == b.turn {
		b.wrong(b, p)
	} else {
		b.deliver(p.Seq, p.Body)
	}
	return nil
}

func (b *faulty) deliver(seq uint64, body []byte) {
	for _, h := range b.handlers {
		h(seq, body)
	}
}

func (b *faulty) Subscribe(_ string, h peers.Handler) (func(), error) {
	b.handlers = append(b.handlers, h)
	return func() {}, nil
}

func (b *faulty) Settle() error { return nil }
func (b *faulty) Close() error  { return nil }

func TestFaultsAreFound(t *testing.T) {
	patience = 50 * time.Millisecond
	defer func() { patience = 30 * time.Second }()
	faults := map[string]func(b *faulty, p *peers.Payload){
		"lost":            func(*faulty, *peers.Payload) {},
		"doubled":         func(b *faulty, p *peers.Payload) { b.deliver(p.Seq, p.Body); b.deliver(p.Seq, p.Body) },
		"replaced":        func(b *faulty, p *peers.Payload) { b.deliver(p.Seq-1, p.Body) },
		"in one only":     func(b *faulty, p *peers.Payload) { b.handlers[0](p.Seq, p.Body) },
		"a shorter body":  func(b *faulty, p *peers.Payload) { b.deliver(p.Seq, p.Body[1:]) },
		"nothing, really": func(b *faulty, p *peers.Payload) { b.deliver(p.Seq, p.Body) },
	}
	for name, wrong := range faults {
		for _, ordered := range []bool{true, false} {
			for _, turn := range []int{2, 10, 100} { // 100 is the last
				trial, err := deliver(plan{
					peer: peers.Peer{
						Traits: peers.Traits{Ordered: ordered},
						Open:   func() (peers.Bus, error) { return &faulty{turn: turn, wrong: wrong}, nil },
					},
					patterns: repeat(2), body: 3, batch: 10,
				})
				if err != nil {
					t.Fatal(err)
				}
				_, err = trial.Run(100)
				if err == nil {
					err = trial.Close()
				}
				fine := name == "nothing, really" || name == "a shorter body" && !ordered
				if fine != (err == nil) {
					t.Errorf("%s, turn %d, ordered %v: %v", name, turn, ordered, err)
				}
			}
		}
	}
}

func TestParallelSharesAddUp(t *testing.T) {
	for _, own := range []bool{false, true} {
		for _, n := range []int{1, 7, 8, 100} {
			trial, err := deliver(plan{peer: peers.Channel, patterns: repeat(1), publishers: 8, ownTopics: own, batch: 30})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := trial.Run(n); err != nil {
				t.Error(err)
			}
			if err := trial.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestGrid compares what the grid says of its matches with pubsub's grammar.
func TestGrid(t *testing.T) {
	g := newGrid(10)
	if len(g.topics) != 10*10*10 {
		t.Fatalf("%d topics", len(g.topics))
	}
	for i, topic := range g.topics {
		if got, want := g.matching(i), matching(t, g.patterns, topic); got != want {
			t.Errorf("%s: %d instead of %d", topic, got, want)
		}
	}
	order := g.shuffled()
	slices.Sort(order)
	for i := range order {
		if order[i] != i {
			t.Fatalf("topic %d is visited as number %d", order[i], i)
		}
	}
	if n := len(newGrid(Full.Side).patterns); n != 100_000 {
		t.Errorf("%d patterns instead of 100,000", n)
	}
}

func TestUnrelated(t *testing.T) {
	for _, wildcards := range []bool{true, false} {
		patterns := unrelated(100, wildcards)
		if n := matching(t, patterns, hotTopic); n != 0 {
			t.Errorf("%d match the hot topic", n)
		}
		if n := matching(t, patterns, fresh()[1]); n != 0 {
			t.Errorf("%d match a visitor", n)
		}
	}
	patterns := unrelated(100, true)
	for i := range patterns {
		if n := matching(t, patterns, unrelatedTopic(i)); n != 1 {
			t.Errorf("%d match %s", n, unrelatedTopic(i))
		}
	}
	if n := matching(t, hotPatterns(true), hotTopic); n != 3 {
		t.Errorf("%d hot patterns match", n)
	}
}

func matching(t *testing.T, patterns []string, topic string) int {
	t.Helper()
	n := 0
	for _, p := range patterns {
		matched, err := pubsub.Match(p, topic)
		if err != nil {
			t.Fatal(err)
		}
		if matched {
			n++
		}
	}
	return n
}

// TestGoalsNameWhatIsMeasured finds goals that no run could judge.
func TestGoalsNameWhatIsMeasured(t *testing.T) {
	for _, size := range []Size{Quick, Full} {
		known := make(map[Ref]bool)
		for _, s := range All(size) {
			for _, c := range s.Cases {
				for _, contender := range c.Contenders {
					for _, f := range s.Figures {
						ref := Ref{s.Name, c.Name, contender.Name, f.Name}
						if known[ref] {
							t.Errorf("%v is measured twice", ref)
						}
						known[ref] = true
					}
				}
			}
		}
		for _, g := range Goals(size) {
			for _, p := range g.Pairs {
				if !known[p.Of] || p.To != (Ref{}) && !known[p.To] {
					t.Errorf("%s: %v or %v is never measured", g.Work, p.Of, p.To)
				}
			}
			if (g.Than == "") == (g.Unit == "") {
				t.Errorf("%s has to have either a unit or a comparison", g.Work)
			}
		}
	}
}

func TestBaselinesTakePart(t *testing.T) {
	for _, s := range All(Quick) {
		for _, c := range s.Cases {
			if s.Baseline != "" && !slices.ContainsFunc(c.Contenders, func(w Contender) bool { return w.Name == s.Baseline }) {
				t.Errorf("%s, %s lacks %s", s.Name, c.Name, s.Baseline)
			}
		}
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{1: "1", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := count(n); got != want {
			t.Errorf("%d is %s", n, got)
		}
	}
	if got := strings.Join([]string{plural(1, "match"), plural(1000, "topic")}, " "); got != "1 match 1,000 topics" {
		t.Error(got)
	}
}
