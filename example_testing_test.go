package pubsub_test

import (
	"context"
	"fmt"
	"log"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-b8032e04/pubsub"
)

// remind publishes carts.forgotten when a cart has been open for long.
func remind(b *pubsub.Broker, after time.Duration) error {
	_, err := b.Subscribe("carts.opened", func(_ context.Context, msg pubsub.Message) error {
		time.AfterFunc(after, func() {
			// Not with the handler's ctx, which this function outlives.
			_, err := b.Publish(context.Background(), "carts.forgotten", msg.Payload)
			if err != nil {
				log.Print(err)
			}
		})
		return nil
	})
	return err
}

// testRemind is how to test that: in your package it is called TestRemind, and runs a
// day in no time.
func testRemind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := pubsub.New() // inside the bubble, as everything it works with
		defer b.Close()
		if err := remind(b, 24*time.Hour); err != nil {
			t.Fatal(err)
		}
		forgotten := make(chan pubsub.Message, 1)
		_, err := b.Subscribe("carts.forgotten", func(_ context.Context, msg pubsub.Message) error {
			forgotten <- msg
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}

		opened := time.Now()
		if _, err := b.Publish(t.Context(), "carts.opened", "C-3"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // Every queue is empty and every handler has returned.
		if len(forgotten) > 0 {
			t.Error("reminded at once")
		}
		msg := <-forgotten // All wait for the clock, so it moves.
		if after := msg.Time.Sub(opened); msg.Payload != "C-3" || after != 24*time.Hour {
			t.Errorf("reminded of %v after %v", msg.Payload, after)
		}
		synctest.Wait()
		if n := b.DeadLetters().Total(); n > 0 {
			t.Errorf("%d dead letters: %v", n, b.DeadLetters().Snapshot())
		}
	})
}

// Code that publishes and subscribes is tested in a bubble of testing/synctest:
// testRemind shows it. The clock is virtual, no test sleeps, and synctest.Wait
// returns when nothing is left to do. Here is the same code on the real clock.
func Example_testing() {
	b := pubsub.New()
	if err := remind(b, time.Millisecond); err != nil {
		log.Fatal(err)
	}
	forgotten := make(chan any, 1)
	_, err := b.Subscribe("carts.forgotten", func(_ context.Context, msg pubsub.Message) error {
		forgotten <- msg.Payload
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := b.Publish(context.Background(), "carts.opened", "C-3"); err != nil {
		log.Fatal(err)
	}
	fmt.Println("forgotten:", <-forgotten)
	// Output: forgotten: C-3
}
