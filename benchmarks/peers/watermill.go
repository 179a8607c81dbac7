package peers

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"
	watermillmessage "github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
)

const watermillModule = "github.com/ThreeDotsLabs/watermill"

const watermillNote = "the caller gives the id, here a counter and cheaper than the UUID its documentation shows; no times; payloads are bytes; handlers acknowledge"

// Watermill is watermill's in-memory bus as it comes: two goroutines and a
// context for each delivery.
var Watermill = Peer{
	Name:   "watermill",
	Module: watermillModule,
	Traits: Traits{Topics: true, IDs: true, WakesAtOnce: true},
	Note:   watermillNote + "; unordered and unbounded",
	Open:   openWatermill(gochannel.Config{OutputChannelBuffer: QueueSize}),
}

// WatermillAcked has each publisher wait until all subscribers have
// acknowledged, which is what gives it an order.
var WatermillAcked = Peer{
	Name:   "watermill, acked",
	Module: watermillModule,
	Traits: Traits{Topics: true, IDs: true, Ordered: true, Bounded: true, WakesAtOnce: true, BlocksEveryone: true},
	Note:   watermillNote + "; a publisher waits until every subscriber has handled its message",
	Open:   openWatermill(gochannel.Config{OutputChannelBuffer: QueueSize, BlockPublishUntilSubscriberAck: true}),
}

type watermillBus struct {
	bus     *gochannel.GoChannel
	lastID  atomic.Uint64
	readers sync.WaitGroup
}

func openWatermill(config gochannel.Config) func() (Bus, error) {
	return func() (Bus, error) {
		return &watermillBus{bus: gochannel.NewGoChannel(config, watermill.NopLogger{})}, nil
	}
}

func (b *watermillBus) Publish(topic string, payload *Payload) error {
	id := strconv.FormatUint(b.lastID.Add(1), 10)
	return b.bus.Publish(topic, watermillmessage.NewMessage(id, payload.Wire))
}

func (b *watermillBus) Subscribe(topic string, h Handler) (func(), error) {
	ctx, cancel := context.WithCancel(context.Background())
	messages, err := b.bus.Subscribe(ctx, topic)
	if err != nil {
		cancel()
		return nil, err
	}
	ended := make(chan struct{})
	b.readers.Go(func() {
		defer close(ended)
		defer cancel()
		for msg := range messages {
			h(decode(msg.Payload))
			msg.Ack()
		}
	})
	return func() {
		cancel()
		<-ended
	}, nil
}

func (b *watermillBus) Settle() error { return nil }

func (b *watermillBus) Close() error {
	err := b.bus.Close()
	b.readers.Wait()
	return err
}
