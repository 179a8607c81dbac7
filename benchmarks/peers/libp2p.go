package peers

import (
	"sync"

	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/p2p/host/eventbus"
)

// Libp2p is libp2p's event bus, which routes by the event's Go type.
var Libp2p = Peer{
	Name:   "libp2p event bus",
	Module: "github.com/libp2p/go-libp2p",
	Traits: Traits{Ordered: true, Bounded: true, WakesAtOnce: true, BlocksEveryone: true},
	Note:   "no topics, only Go types; no ids or times; a publisher holds the type's lock while it waits for room",
	Open: func() (Bus, error) {
		bus := eventbus.NewBus()
		emitter, err := bus.Emitter(new(libp2pEvent))
		if err != nil {
			return nil, err
		}
		return &libp2pBus{bus: bus, emitter: emitter, subscriptions: make(map[event.Subscription]struct{})}, nil
	},
}

// libp2pEvent is one pointer wide, so that Go makes an interface of it without
// allocating.
type libp2pEvent struct{ *Payload }

type libp2pBus struct {
	bus           event.Bus
	emitter       event.Emitter
	mu            sync.Mutex
	subscriptions map[event.Subscription]struct{}
	readers       sync.WaitGroup
}

func (b *libp2pBus) Publish(_ string, payload *Payload) error {
	return b.emitter.Emit(libp2pEvent{payload})
}

func (b *libp2pBus) Subscribe(_ string, h Handler) (func(), error) {
	s, err := b.bus.Subscribe(new(libp2pEvent), eventbus.BufSize(QueueSize))
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.subscriptions[s] = struct{}{}
	b.mu.Unlock()
	b.readers.Go(func() {
		for v := range s.Out() {
			p := v.(libp2pEvent).Payload
			h(p.Seq, p.Body)
		}
	})
	return func() {
		b.mu.Lock()
		delete(b.subscriptions, s)
		b.mu.Unlock()
		_ = s.Close()
	}, nil
}

func (b *libp2pBus) Settle() error { return nil }

func (b *libp2pBus) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.subscriptions {
		if err := s.Close(); err != nil {
			return err
		}
	}
	b.readers.Wait()
	return b.emitter.Close()
}
