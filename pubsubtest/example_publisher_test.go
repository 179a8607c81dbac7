package pubsubtest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/seed-b8032e04/pubsub"
	"github.com/seed-b8032e04/pubsub/pubsubtest"
)

// Order is what Shop publishes.
type Order struct {
	ID    string
	Cents int
}

// Shop is a service that publishes.
type Shop struct{ bus *pubsub.Broker }

// Place publishes orders.placed, and orders.large too for a large one.
func (s *Shop) Place(ctx context.Context, o Order) error {
	if o.Cents <= 0 {
		return errors.New("nothing to pay")
	}
	_, err := s.bus.Publish(ctx, "orders.placed", o)
	if err == nil && o.Cents >= 100_000 {
		_, err = s.bus.Publish(ctx, "orders.large", o)
	}
	return err
}

// testPlace is how to test Shop. In your package it is TestPlace(t *testing.T).
func testPlace(t testing.TB) {
	b := pubsubtest.New(t)
	events := b.Record("orders.*") // before anything is published
	shop := &Shop{bus: b.Broker}

	large := Order{ID: "A-17", Cents: 250_000}
	if err := shop.Place(t.Context(), large); err != nil {
		t.Fatal(err)
	}
	if msg := events.Wait(1); msg.Topic != "orders.placed" || msg.Payload != large {
		t.Errorf("first %s %v", msg.Topic, msg.Payload)
	}
	if msg := events.Wait(2); msg.Topic != "orders.large" || msg.Payload != large {
		t.Errorf("second %s %v", msg.Topic, msg.Payload)
	}

	if err := shop.Place(t.Context(), Order{ID: "A-18"}); err == nil {
		t.Error("placed an order without a price")
	}
	// Place has returned, so what it published is recorded.
	if msgs := events.Messages(); len(msgs) > 2 {
		t.Errorf("events of a refused order: %v", msgs[2:])
	}
}

// A service that publishes: record what it sends, call it, and compare.
func Example_publisher() {
	run("TestPlace", testPlace)
	// Output: --- PASS: TestPlace
}
