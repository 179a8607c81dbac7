package pubsubtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/seed-b8032e04/pubsub"
	"github.com/seed-b8032e04/pubsub/pubsubtest"
)

// What the failure of a test looks like whose second message does not come. The dead
// letter says why.
func ExampleRecorder_Wait() {
	noon := func() time.Time { return time.Date(2000, 1, 1, 12, 0, 0, 0, time.UTC) }
	run("TestShipping", func(t testing.TB) {
		b := pubsubtest.New(t, pubsub.WithClock(noon))
		b.Timeout = 10 * time.Millisecond
		_, err := b.Subscribe("orders.paid", func(ctx context.Context, msg pubsub.Message) error {
			if _, err := b.Publish(ctx, "orders.packed", msg.Payload); err != nil {
				return err
			}
			return errors.New("no van")
		}, pubsub.WithName("shipping"))
		if err != nil {
			t.Fatal(err)
		}
		b.AllowDeadLetters("orders.paid", pubsub.ReasonError)
		events := b.Record("orders.packed")
		if _, err := b.Publish(t.Context(), "orders.paid", "A-17"); err != nil {
			t.Fatal(err)
		}
		if err := b.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		events.Wait(2)
	})
	// Output:
	// --- FAIL: TestShipping
	//     pubsubtest: no message 2 on orders.packed within 10ms; recorded so far: 1
	//         #2  12:00:00.000  orders.packed  "A-17"
	//     1 dead letter
	//         error  #1  orders.paid  "A-17"  in subscription 1 on orders.paid (shipping): no van
}

// What the failure of a test looks like that did not expect dead letters.
func ExampleNew() {
	run("TestStock", func(t testing.TB) {
		b := pubsubtest.New(t)
		_, err := b.Subscribe("orders.#", pubsub.Typed(func(context.Context, pubsub.Message, string) error {
			return nil
		}), pubsub.WithName("stock"))
		if err != nil {
			t.Fatal(err)
		}
		for _, order := range []any{"A-17", 18} {
			if _, err := b.Publish(t.Context(), "orders.placed.eu", order); err != nil {
				t.Fatal(err)
			}
		}
	})
	// Output:
	// --- FAIL: TestStock
	//     pubsubtest: 1 unexpected dead letter
	//         error  #2  orders.placed.eu  int 18  in subscription 1 on orders.# (stock): pubsub: payload is int, want string
}

// A gauge that shows the newest values may drop old ones. Any other dead letter still
// fails the test.
func ExampleBroker_AllowDeadLetters() {
	run("TestGauge", func(t testing.TB) {
		b := pubsubtest.New(t)
		b.AllowDeadLetters("sensors.#", pubsub.ReasonDroppedOldest)
		_, err := b.Subscribe("sensors.*", func(context.Context, pubsub.Message) error {
			return nil
		}, pubsub.WithQueueSize(1))
		if err != nil {
			t.Fatal(err)
		}
		for value := range 1000 {
			if _, err := b.Publish(t.Context(), "sensors.heat", value); err != nil {
				t.Fatal(err)
			}
		}
	})
	// Output: --- PASS: TestGauge
}

// Workers that publish when they are ready do so in any order.
func ExampleRecorder_WaitFor() {
	run("TestWorkers", func(t testing.TB) {
		b := pubsubtest.New(t)
		ready := b.Record("workers.ready")
		for n := range 3 {
			go b.Publish(t.Context(), "workers.ready", n)
		}
		for n := range 3 {
			ready.WaitFor(func(msg pubsub.Message) bool { return msg.Payload == n })
		}
	})
	// Output: --- PASS: TestWorkers
}
