package peers

import (
	"sync"

	cskr "github.com/cskr/pubsub/v2"
)

// Cskr is cskr/pubsub: one goroutine routes all messages to buffered channels.
var Cskr = Peer{
	Name:   "cskr/pubsub",
	Module: "github.com/cskr/pubsub/v2",
	Traits: Traits{Topics: true, Ordered: true, Bounded: true, WakesAtOnce: true, BlocksEveryone: true},
	Note:   "no ids or times; one goroutine serves all topics, so a stuck subscriber stops the whole bus",
	Open: func() (Bus, error) {
		return &cskrBus{bus: cskr.New[string, any](QueueSize)}, nil
	},
}

type cskrBus struct {
	bus     *cskr.PubSub[string, any]
	readers sync.WaitGroup
}

func (b *cskrBus) Publish(topic string, payload *Payload) error {
	b.bus.Pub(payload, topic)
	return nil
}

func (b *cskrBus) Subscribe(topic string, h Handler) (func(), error) {
	ch := b.bus.Sub(topic)
	b.readers.Go(func() {
		for v := range ch {
			p := v.(*Payload)
			h(p.Seq, p.Body)
		}
	})
	return func() { b.bus.Unsub(ch) }, nil
}

func (b *cskrBus) Settle() error { return nil }

func (b *cskrBus) Close() error {
	b.bus.Shutdown()
	b.readers.Wait()
	return nil
}
