package pubsub_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-b8032e04/pubsub"
)

// A loop takes the messages out of the queue in the owner's goroutine, when the owner
// has time. Leaving the loop keeps the subscription; Unsubscribe ends it.
func ExampleSubscription_Messages() {
	ctx := context.Background()
	b := pubsub.New()
	defer b.Close()

	jobs, err := b.Pull("jobs.*", pubsub.WithQueueSize(100), pubsub.WithDropPolicy(pubsub.DropNewest))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer jobs.Unsubscribe()

	for _, job := range []string{"resize", "upload", "notify"} {
		if _, err := b.Publish(ctx, "jobs."+job, nil); err != nil {
			fmt.Println(err)
		}
	}
	for msg := range jobs.Messages(ctx) {
		fmt.Println(msg.Topic)
		if jobs.Stats().Queued == 0 {
			break // Or go on, and wait for the next.
		}
	}
	fmt.Println("delivered:", jobs.Stats().Delivered)
	// Output:
	// jobs.resize
	// jobs.upload
	// jobs.notify
	// delivered: 3
}

// When the cause of failures is mended, what failed is handed once more to the
// subscription that failed it, and to no other.
func ExampleBroker_Redeliver() {
	ctx := context.Background()
	b := pubsub.New()
	down := true
	_, err := b.Subscribe("orders.paid", func(_ context.Context, msg pubsub.Message) error {
		if down {
			return errors.New("printer out of paper")
		}
		fmt.Println("printed", msg.Payload)
		return nil
	}, pubsub.WithName("printer"))
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := b.Publish(ctx, "orders.paid", "A-17"); err != nil {
		fmt.Println(err)
	}
	if err := b.Flush(ctx); err != nil {
		fmt.Println(err)
	}

	down = false // Somebody has brought paper.
	for _, letter := range b.DeadLetters().Take() {
		fmt.Println(letter.SubscriptionName, "failed:", letter.Err)
		if err := b.Redeliver(ctx, letter); err != nil {
			fmt.Println(err)
		}
	}
	if err := b.Shutdown(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// printer failed: printer out of paper
	// printed A-17
}
