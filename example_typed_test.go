package pubsub_test

import (
	"context"
	"fmt"
	"log"

	"github.com/seed-b8032e04/pubsub"
)

// All but the example itself would be a package of your service, events: the one
// place that pairs topics with payload types, so that the compiler checks both sides.

const (
	topicOrderPlaced  = "orders.placed"
	topicOrderShipped = "orders.shipped"
)

// OrderPlaced is published when a customer has placed an order.
type OrderPlaced struct {
	ID    string
	Cents int
}

// OrderShipped is published when a parcel has left the warehouse.
type OrderShipped struct{ ID, Parcel string }

// PublishOrderPlaced tells the subscribers of [OnOrderPlaced].
func PublishOrderPlaced(ctx context.Context, b *pubsub.Broker, e OrderPlaced) error {
	_, err := b.Publish(ctx, topicOrderPlaced, e)
	return err
}

// OnOrderPlaced subscribes h to [OrderPlaced].
func OnOrderPlaced(b *pubsub.Broker, h func(context.Context, OrderPlaced) error, opts ...pubsub.SubscribeOption) (*pubsub.Subscription, error) {
	return on(b, topicOrderPlaced, h, opts)
}

// PublishOrderShipped tells the subscribers of [OnOrderShipped].
func PublishOrderShipped(ctx context.Context, b *pubsub.Broker, e OrderShipped) error {
	_, err := b.Publish(ctx, topicOrderShipped, e)
	return err
}

// OnOrderShipped subscribes h to [OrderShipped].
func OnOrderShipped(b *pubsub.Broker, h func(context.Context, OrderShipped) error, opts ...pubsub.SubscribeOption) (*pubsub.Subscription, error) {
	return on(b, topicOrderShipped, h, opts)
}

func on[T any](b *pubsub.Broker, topic string, h func(context.Context, T) error, opts []pubsub.SubscribeOption) (*pubsub.Subscription, error) {
	return b.Subscribe(topic, pubsub.Typed(func(ctx context.Context, _ pubsub.Message, e T) error {
		return h(ctx, e)
	}), opts...)
}

// Typed handlers, behind one function per event to publish it and one to subscribe.
// Who goes round them with a payload of another type gets a dead letter.
func ExampleTyped() {
	ctx := context.Background()
	b := pubsub.New()
	_, err := OnOrderPlaced(b, func(_ context.Context, e OrderPlaced) error {
		fmt.Printf("bill %s: %d.%02d EUR\n", e.ID, e.Cents/100, e.Cents%100)
		return nil
	}, pubsub.WithSync())
	if err != nil {
		log.Fatal(err)
	}
	_, err = OnOrderShipped(b, func(_ context.Context, e OrderShipped) error {
		fmt.Printf("mail %s: parcel %s is on its way\n", e.ID, e.Parcel)
		return nil
	}, pubsub.WithSync())
	if err != nil {
		log.Fatal(err)
	}

	if err := PublishOrderPlaced(ctx, b, OrderPlaced{ID: "A-17", Cents: 4905}); err != nil {
		log.Fatal(err)
	}
	if err := PublishOrderShipped(ctx, b, OrderShipped{ID: "A-17", Parcel: "00340"}); err != nil {
		log.Fatal(err)
	}
	if _, err := b.Publish(ctx, "orders.placed", &OrderPlaced{ID: "A-18"}); err != nil {
		log.Fatal(err)
	}
	for _, l := range b.DeadLetters().Snapshot() {
		fmt.Println(l.Err)
	}
	// Output:
	// bill A-17: 49.05 EUR
	// mail A-17: parcel 00340 is on its way
	// pubsub: payload is *pubsub_test.OrderPlaced, want pubsub_test.OrderPlaced
}
