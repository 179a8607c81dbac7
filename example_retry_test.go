package pubsub_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/seed-b8032e04/pubsub"
)

// retry returns a handler that calls h up to the given number of times, and waits in
// between, each time twice as long. It gives up when ctx is done: an asynchronous
// handler's is when the subscription ends, a synchronous one's when the publisher's
// is.
//
// Meanwhile the messages behind this one wait in the queue, so their order is kept.
func retry(attempts int, wait time.Duration, h pubsub.Handler) pubsub.Handler {
	return func(ctx context.Context, msg pubsub.Message) error {
		for attempt, wait := 1, wait; ; attempt, wait = attempt+1, 2*wait {
			err := h(ctx, msg)
			if err == nil || attempt >= attempts {
				return err
			}
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return fmt.Errorf("%w; gave up: %w", err, context.Cause(ctx))
			}
		}
	}
}

// A retry is a handler wrapped around a handler. What fails every time becomes one
// dead letter, with the last error.
func ExampleHandler_retry() {
	b := pubsub.New()
	calls := 0
	send := func(_ context.Context, msg pubsub.Message) error {
		calls++
		if calls < 3 {
			fmt.Println("call", calls, "failed")
			return errors.New("mail server is busy")
		}
		fmt.Println("call", calls, "sent", msg.Payload)
		return nil
	}
	if _, err := b.Subscribe("mails", retry(5, time.Millisecond, send)); err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	if _, err := b.Publish(ctx, "mails", "welcome"); err != nil {
		log.Fatal(err)
	}
	if err := b.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("dead letters:", b.DeadLetters().Total())
	// Output:
	// call 1 failed
	// call 2 failed
	// call 3 sent welcome
	// dead letters: 0
}
