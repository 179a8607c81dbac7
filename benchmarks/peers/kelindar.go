package peers

import (
	"context"
	"sync"
	"time"

	"github.com/kelindar/event"
)

// KelindarEvent is kelindar/event, which appends to slices and wakes all
// subscribers of a type every 500 microseconds.
var KelindarEvent = Peer{
	Name:   "kelindar/event",
	Module: "github.com/kelindar/event",
	Traits: Traits{Ordered: true, Bounded: true, BlocksEveryone: true},
	Note:   "no topics, only numbered types; no ids or times; subscribers wake every 500 us; a queue may grow to 50,000",
	Open: func() (Bus, error) {
		return &kelindarBus{bus: event.NewDispatcher(), live: make(map[int]context.CancelFunc)}, nil
	},
}

// kelindarEvent travels by value.
type kelindarEvent struct{ *Payload }

func (kelindarEvent) Type() uint32 { return 1 }

type kelindarBus struct {
	bus  *event.Dispatcher
	mu   sync.Mutex
	last int
	live map[int]context.CancelFunc
}

func (b *kelindarBus) Publish(_ string, payload *Payload) error {
	event.Publish(b.bus, kelindarEvent{payload})
	return nil
}

func (b *kelindarBus) Subscribe(_ string, h Handler) (func(), error) {
	cancel := event.Subscribe(b.bus, func(e kelindarEvent) { h(e.Seq, e.Body) })
	b.mu.Lock()
	b.last++
	number := b.last
	b.live[number] = cancel
	b.mu.Unlock()
	return func() {
		b.mu.Lock()
		delete(b.live, number)
		b.mu.Unlock()
		cancel()
	}, nil
}

func (b *kelindarBus) Settle() error { return nil }

// Close waits for some ticks between the cancels and the end of the dispatcher:
// it is the tick that lets a cancelled subscriber's goroutine end, and there is
// nothing else to wait for.
func (b *kelindarBus) Close() error {
	b.mu.Lock()
	for _, cancel := range b.live {
		cancel()
	}
	b.mu.Unlock()
	time.Sleep(5 * time.Millisecond)
	return b.bus.Close()
}
