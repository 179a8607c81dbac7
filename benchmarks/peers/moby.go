package peers

import (
	"strings"
	"sync"
	"time"

	"github.com/moby/pubsub"
	seed "github.com/seed-b8032e04/pubsub"
)

const mobyModule = "github.com/moby/pubsub"

const mobyNote = "no ids or times; a topic is a function of the subscriber that every publish calls in a goroutine of its own, and waits for"

// Moby is moby/pubsub with a send timeout that never ends, so that nothing is
// lost.
var Moby = Peer{
	Name:   "moby/pubsub",
	Module: mobyModule,
	Traits: Traits{Topics: true, Wildcards: true, Ordered: true, Bounded: true, WakesAtOnce: true, BlocksEveryone: true},
	Note:   mobyNote,
	Open:   openMoby(time.Hour),
}

// MobyDropping loses what does not fit.
var MobyDropping = Peer{
	Name:   "moby/pubsub, dropping",
	Module: mobyModule,
	Traits: Traits{Topics: true, Wildcards: true, Ordered: true, Bounded: true, WakesAtOnce: true, Drops: true},
	Note:   mobyNote + "; nobody learns of a loss",
	Open:   openMoby(0),
}

// mobyMessage carries the topic for the subscribers' functions to look at.
type mobyMessage struct {
	topic   string
	payload *Payload
}

type mobyBus struct {
	bus     *pubsub.Publisher
	readers sync.WaitGroup
}

func openMoby(timeout time.Duration) func() (Bus, error) {
	return func() (Bus, error) { return &mobyBus{bus: pubsub.NewPublisher(timeout, QueueSize)}, nil }
}

func (b *mobyBus) Publish(topic string, payload *Payload) error {
	b.bus.Publish(mobyMessage{topic, payload})
	return nil
}

// Subscribe writes the function that a caller would: moby has no grammar of its
// own.
func (b *mobyBus) Subscribe(pattern string, h Handler) (func(), error) {
	accept := func(v any) bool { return v.(mobyMessage).topic == pattern }
	if strings.ContainsAny(pattern, "*#") {
		accept = func(v any) bool {
			matched, _ := seed.Match(pattern, v.(mobyMessage).topic)
			return matched
		}
	}
	ch := b.bus.SubscribeTopic(accept)
	b.readers.Go(func() {
		for v := range ch {
			p := v.(mobyMessage).payload
			h(p.Seq, p.Body)
		}
	})
	return func() { b.bus.Evict(ch) }, nil
}

func (b *mobyBus) Settle() error { return nil }

func (b *mobyBus) Close() error {
	b.bus.Close()
	b.readers.Wait()
	return nil
}
