package scenarios

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/seed-b8032e04/pubsub/benchmarks/peers"
)

func scale(size Size) Scenario {
	return Scenario{
		Name:  "scale",
		Title: "One million subscriptions",
		About: fmt.Sprintf("%s of different patterns, seven of ten literal, the others with wildcards, and three on a hot topic. "+
			"Time to make one; memory and goroutines of one, without its pattern; time of a publish to the hot topic, "+
			"and to topics of which each matches one, end to end; time to close all.", plural(size.Million, "subscription")),
		Figures: []Figure{
			{Name: "make", Unit: "ns"}, {Name: "memory", Unit: "B"}, {Name: "goroutines", Unit: "goroutines"},
			{Name: "hot", Unit: "ns"}, {Name: "distinct", Unit: "ns"}, {Name: "close", Unit: "ms"},
		},
		Ops:    1,
		Passes: 2,
		Cases: []Case{{
			Name: plural(size.Million, "subscription"), X: float64(size.Million),
			Contenders: append(
				contenders([]peers.Peer{peers.Pubsub, peers.PubsubSync}, func(p peers.Peer) (*Trial, error) {
					bus, err := p.Open()
					return newBig(size.Million, &bigBus{bus: bus}), err
				}),
				matchers([]peers.Matcher{peers.SublistUncached, peers.GSL}, func(m peers.Matcher) (*Trial, error) {
					index, err := m.Open()
					return newBig(size.Million, &bigIndex{index: index}), err
				})...),
		}},
	}
}

// big is what the scale scenario does with a bus or an index.
type big interface {
	subscribe(pattern string) error
	spell(topic string) string
	// visit publishes to each topic, or looks it up, and returns when want
	// deliveries are handled or matches found.
	visit(topics []string, want int) error
	close() error
	closes() bool
}

const (
	bigHot      = 20_000  // publishes to the hot topic
	bigDistinct = 200_000 // publishes to other topics
)

func newBig(n int, b big) *Trial {
	closed := false
	end := func() error {
		if closed {
			return nil
		}
		closed = true
		return b.close()
	}
	run := func(int) (Values, error) {
		patterns := append(unrelated(n, true), hotPatterns(true)...)
		distinct := make([]string, min(n, bigDistinct))
		random := rand.New(rand.NewPCG(5, 6))
		for i := range distinct {
			distinct[i] = b.spell(unrelatedTopic(random.IntN(n)))
		}
		hot := make([]string, min(n, bigHot))
		for i := range hot {
			hot[i] = b.spell(hotTopic)
		}

		before := measureFootprint()
		start := time.Now()
		for _, p := range patterns {
			if err := b.subscribe(p); err != nil {
				return nil, err
			}
		}
		made := nsPerOp(start, len(patterns))
		values := measureFootprint().values(before, len(patterns))
		values["make"] = made

		start = time.Now()
		if err := b.visit(hot, 3*len(hot)); err != nil {
			return nil, err
		}
		values["hot"] = nsPerOp(start, len(hot))

		start = time.Now()
		if err := b.visit(distinct, len(distinct)); err != nil {
			return nil, err
		}
		values["distinct"] = nsPerOp(start, len(distinct))

		if b.closes() {
			start = time.Now()
			if err := end(); err != nil {
				return nil, err
			}
			values["close"] = float64(time.Since(start).Milliseconds())
		}
		return values, nil
	}
	return &Trial{Run: run, Close: end}
}

// unrelatedTopic is a topic that matches the i-th of the unrelated patterns, and
// no other.
func unrelatedTopic(i int) string {
	if i%10 == 9 {
		return "parcel.shipped-" + strconv.Itoa(i) + ".eu"
	}
	return idleTopic(i)
}

type bigBus struct {
	bus     peers.Bus
	handled atomic.Int64
}

func (b *bigBus) subscribe(pattern string) error {
	_, err := b.bus.Subscribe(pattern, b.handle)
	return err
}

func (b *bigBus) handle(uint64, []byte) { b.handled.Add(1) }

func (b *bigBus) spell(topic string) string { return topic }

func (b *bigBus) visit(topics []string, want int) error {
	payload := peers.NewPayload(0, nil)
	target := b.handled.Load() + int64(want)
	for _, topic := range topics {
		if err := b.bus.Publish(topic, &payload); err != nil {
			return err
		}
	}
	return poll(&b.handled, target)
}

func (b *bigBus) close() error { return b.bus.Close() }
func (b *bigBus) closes() bool { return true }

type bigIndex struct{ index peers.Index }

func (b *bigIndex) subscribe(pattern string) error {
	_, err := b.index.Insert(b.index.Pattern(pattern))
	return err
}

func (b *bigIndex) spell(topic string) string { return b.index.Topic(topic) }

func (b *bigIndex) visit(topics []string, want int) error {
	found := 0
	for _, topic := range topics {
		found += b.index.Match(topic)
	}
	if found != want {
		return fmt.Errorf("%d matches instead of %d", found, want)
	}
	return nil
}

func (b *bigIndex) close() error { return nil }
func (b *bigIndex) closes() bool { return false }
