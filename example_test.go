package pubsub_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"

	"github.com/seed-b8032e04/pubsub"
)

// The README's quick start. Order A-18 fails, which the dead-letter handler logs to
// standard error.
func Example() {
	ctx := context.Background()
	b := pubsub.New(pubsub.WithDeadLetterHandler(func(l pubsub.DeadLetter) {
		slog.Warn("message not handled", "letter", l)
	}))
	defer b.Shutdown(ctx) // handles what is queued, then ends
	_, err := b.Subscribe("orders.*", func(ctx context.Context, msg pubsub.Message) error {
		if msg.Payload == "A-18" {
			return errors.New("card declined")
		}
		fmt.Println(msg.Topic, msg.Payload)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, order := range []string{"A-17", "A-18", "A-19"} {
		if _, err := b.Publish(ctx, "orders.paid", order); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// orders.paid A-17
	// orders.paid A-19
}
