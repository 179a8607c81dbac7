package peers

import (
	"context"

	"github.com/seed-b8032e04/pubsub"
)

const pubsubModule = "github.com/seed-b8032e04/pubsub"

var pubsubTraits = Traits{
	Topics: true, Wildcards: true, IDs: true, Time: true, Ordered: true, Bounded: true, WakesAtOnce: true,
}

// Pubsub is this repository's broker with asynchronous subscriptions that lose
// nothing: a full queue holds its publisher.
var Pubsub = Peer{
	Name:   "pubsub",
	Module: pubsubModule,
	Traits: with(pubsubTraits, func(t *Traits) { t.BlocksEveryone = true }),
	Note:   "policy Block: a full queue holds its publishers until their context ends",
	Open:   openPubsub(pubsub.WithQueueSize(QueueSize), pubsub.WithDropPolicy(pubsub.Block)),
}

// PubsubDropOldest loses the oldest message of a full queue, as is the default.
var PubsubDropOldest = Peer{
	Name:   "pubsub, drop oldest",
	Module: pubsubModule,
	Traits: with(pubsubTraits, func(t *Traits) { t.Drops = true }),
	Note:   "each message lost is a dead letter",
	Open:   openPubsub(pubsub.WithQueueSize(QueueSize), pubsub.WithDropPolicy(pubsub.DropOldest)),
}

// PubsubDropNewest refuses what does not fit in a full queue.
var PubsubDropNewest = Peer{
	Name:   "pubsub, drop newest",
	Module: pubsubModule,
	Traits: with(pubsubTraits, func(t *Traits) { t.Drops = true }),
	Note:   "each message lost is a dead letter",
	Open:   openPubsub(pubsub.WithQueueSize(QueueSize), pubsub.WithDropPolicy(pubsub.DropNewest)),
}

// PubsubSync calls handlers in the publisher's goroutine.
var PubsubSync = Peer{
	Name:   "pubsub, sync",
	Module: pubsubModule,
	Traits: with(pubsubTraits, func(t *Traits) { t.BlocksEveryone = true }),
	Open:   openPubsub(pubsub.WithSync()),
}

func with(t Traits, change func(*Traits)) Traits {
	change(&t)
	return t
}

type pubsubBus struct {
	broker  *pubsub.Broker
	options []pubsub.SubscribeOption
}

func openPubsub(options ...pubsub.SubscribeOption) func() (Bus, error) {
	return func() (Bus, error) { return &pubsubBus{pubsub.New(), options}, nil }
}

func (b *pubsubBus) Publish(topic string, payload *Payload) error {
	_, err := b.broker.Publish(context.Background(), topic, payload)
	return err
}

func (b *pubsubBus) Subscribe(pattern string, h Handler) (func(), error) {
	s, err := b.broker.Subscribe(pattern, func(_ context.Context, msg pubsub.Message) error {
		p := msg.Payload.(*Payload)
		h(p.Seq, p.Body)
		return nil
	}, b.options...)
	if err != nil {
		return nil, err
	}
	return s.Unsubscribe, nil
}

func (b *pubsubBus) Settle() error { return nil }

func (b *pubsubBus) Close() error { return b.broker.Shutdown(context.Background()) }
