package peers

import (
	EventBus "github.com/asaskevich/EventBus"
)

const eventBusModule = "github.com/asaskevich/EventBus"

const eventBusNote = "no ids or times; calls by reflection; Unsubscribe compares code pointers, so of several closures made in one place it removes the first"

// EventBusSync calls handlers in the publisher's goroutine, under the bus's lock.
var EventBusSync = Peer{
	Name:   "EventBus, sync",
	Module: eventBusModule,
	Traits: Traits{Topics: true, Ordered: true, Bounded: true, WakesAtOnce: true, BlocksEveryone: true},
	Note:   eventBusNote + "; a handler that publishes deadlocks",
	Open: openEventBus(func(bus EventBus.Bus, topic string, h any) error {
		return bus.Subscribe(topic, h)
	}),
}

// EventBusAsync starts one goroutine for each delivery.
var EventBusAsync = Peer{
	Name:   "EventBus, async",
	Module: eventBusModule,
	Traits: Traits{Topics: true, WakesAtOnce: true},
	Note:   eventBusNote + "; a goroutine for each delivery: unordered, calls of one subscriber overlap",
	Open: openEventBus(func(bus EventBus.Bus, topic string, h any) error {
		return bus.SubscribeAsync(topic, h, false)
	}),
}

// EventBusTransactional lets one delivery of a subscriber run at a time, and its
// publisher waits for the one before.
var EventBusTransactional = Peer{
	Name:   "EventBus, transactional",
	Module: eventBusModule,
	Traits: Traits{Topics: true, Ordered: true, Bounded: true, WakesAtOnce: true, BlocksEveryone: true},
	Note:   eventBusNote + "; no queue: a publisher waits until each subscriber has handled the message before",
	Open: openEventBus(func(bus EventBus.Bus, topic string, h any) error {
		return bus.SubscribeAsync(topic, h, true)
	}),
}

type eventBus struct {
	bus       EventBus.Bus
	subscribe func(bus EventBus.Bus, topic string, h any) error
}

func openEventBus(subscribe func(EventBus.Bus, string, any) error) func() (Bus, error) {
	return func() (Bus, error) { return &eventBus{EventBus.New(), subscribe}, nil }
}

func (b *eventBus) Publish(topic string, payload *Payload) error {
	b.bus.Publish(topic, payload)
	return nil
}

func (b *eventBus) Subscribe(topic string, h Handler) (func(), error) {
	call := func(p *Payload) { h(p.Seq, p.Body) }
	if err := b.subscribe(b.bus, topic, call); err != nil {
		return nil, err
	}
	return func() { _ = b.bus.Unsubscribe(topic, call) }, nil
}

func (b *eventBus) Settle() error { return nil }

func (b *eventBus) Close() error {
	b.bus.WaitAsync()
	return nil
}
