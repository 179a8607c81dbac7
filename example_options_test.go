package pubsub_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/seed-b8032e04/pubsub"
)

// '*' is exactly one segment. '#' is one or more, so orders.# does not match orders.
// A wildcard is never part of a longer segment.
func ExampleMatch() {
	for _, pattern := range []string{"orders.created", "orders.*", "orders.#", "*.created.*", "#"} {
		for _, topic := range []string{"orders", "orders.created", "orders.created.eu"} {
			matched, err := pubsub.Match(pattern, topic)
			if err != nil {
				log.Fatal(err)
			}
			if matched {
				fmt.Println(pattern, "matches", topic)
			}
		}
	}
	_, err := pubsub.Match("orders.cre*", "orders.created")
	fmt.Println(err)
	// Output:
	// orders.created matches orders.created
	// orders.* matches orders.created
	// orders.# matches orders.created
	// orders.# matches orders.created.eu
	// *.created.* matches orders.created.eu
	// # matches orders
	// # matches orders.created
	// # matches orders.created.eu
	// pubsub: invalid pattern: wildcard inside a segment: "orders.cre*"
}

// Wildcards: every subscription whose pattern matches gets the message.
func ExampleBroker_Subscribe() {
	ctx := context.Background()
	b := pubsub.New()
	for _, pattern := range []string{"orders.created.eu", "orders.*.eu", "orders.#"} {
		_, err := b.Subscribe(pattern, func(_ context.Context, msg pubsub.Message) error {
			fmt.Println(pattern, "got", msg.Topic)
			return nil
		}, pubsub.WithSync()) // so that the lines come in order
		if err != nil {
			log.Fatal(err)
		}
	}
	for _, topic := range []string{"orders.created.eu", "orders.paid.eu", "orders.paid.us"} {
		if _, err := b.Publish(ctx, topic, nil); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// orders.created.eu got orders.created.eu
	// orders.*.eu got orders.created.eu
	// orders.# got orders.created.eu
	// orders.*.eu got orders.paid.eu
	// orders.# got orders.paid.eu
	// orders.# got orders.paid.us
}

// A synchronous handler has returned when Publish returns: here no reader sees the
// old price after a change. Publishers call it concurrently, so what it touches
// needs its own protection, and its error is a dead letter, not Publish's.
func ExampleWithSync() {
	b := pubsub.New()
	var cache sync.Map
	cache.Store("tea", 4)
	_, err := b.Subscribe("prices.changed", func(_ context.Context, msg pubsub.Message) error {
		cache.Delete(msg.Payload)
		return nil
	}, pubsub.WithSync())
	if err != nil {
		log.Fatal(err)
	}

	if _, err := b.Publish(context.Background(), "prices.changed", "tea"); err != nil {
		log.Fatal(err)
	}
	_, cached := cache.Load("tea")
	fmt.Println("cached:", cached)
	// Output: cached: false
}

// A subscriber that is stuck with its first message, with room for two more in its
// queue. Neither the publisher nor the other subscriber notices.
func ExampleWithDropPolicy() {
	ctx := context.Background()
	for _, policy := range []pubsub.DropPolicy{pubsub.DropOldest, pubsub.DropNewest} {
		b := pubsub.New()
		var fast, slow []any
		_, err := b.Subscribe("prices", func(_ context.Context, msg pubsub.Message) error {
			fast = append(fast, msg.Payload)
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
		stuck, release := make(chan bool, 5), make(chan bool)
		sub, err := b.Subscribe("prices", func(_ context.Context, msg pubsub.Message) error {
			stuck <- true
			<-release
			slow = append(slow, msg.Payload)
			return nil
		}, pubsub.WithQueueSize(2), pubsub.WithDropPolicy(policy))
		if err != nil {
			log.Fatal(err)
		}

		for price := 1; price <= 5; price++ {
			if _, err := b.Publish(ctx, "prices", price); err != nil {
				log.Fatal(err)
			}
			if price == 1 {
				<-stuck
			}
		}
		close(release)
		if err := b.Shutdown(ctx); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: fast %v, slow %v, %d dropped\n", policy, fast, slow, sub.Stats().Dropped)
	}
	// Output:
	// drop_oldest: fast [1 2 3 4 5], slow [1 4 5], 2 dropped
	// drop_newest: fast [1 2 3 4 5], slow [1 2 3], 2 dropped
}

// With Block a publisher waits for room, as long as its ctx allows. Here it gives up
// at once. The id is not zero, so other subscriptions may have the message: it must
// not be published again.
func ExampleWithDropPolicy_block() {
	ctx, cancel := context.WithCancel(context.Background())
	b := pubsub.New()
	stuck, release := make(chan bool, 2), make(chan bool)
	_, err := b.Subscribe("jobs", func(context.Context, pubsub.Message) error {
		stuck <- true
		<-release
		return nil
	}, pubsub.WithQueueSize(1), pubsub.WithDropPolicy(pubsub.Block))
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(b.Publish(ctx, "jobs", "handled"))
	<-stuck
	fmt.Println(b.Publish(ctx, "jobs", "queued"))
	cancel()
	fmt.Println(b.Publish(ctx, "jobs", "given up"))

	close(release)
	if err := b.Shutdown(context.Background()); err != nil {
		log.Fatal(err)
	}
	for _, l := range b.DeadLetters().Snapshot() {
		fmt.Println("dead letter:", l.Message.Payload, l.Reason, l.Err)
	}
	// Output:
	// 1 <nil>
	// 2 <nil>
	// 3 context canceled
	// dead letter: given up canceled context canceled
}

// Dead letters logged with log/slog. A letter logs its reason, topic, ids and error,
// but never the payload, which may be large or secret, nor the stack of a panic.
func ExampleWithDeadLetterHandler() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey { // the line's and the letter's
				return slog.Attr{}
			}
			return a
		},
	}))
	b := pubsub.New(pubsub.WithDeadLetterHandler(func(l pubsub.DeadLetter) {
		logger.Warn("not handled", "letter", l)
		if p := (*pubsub.PanicError)(nil); errors.As(l.Err, &p) {
			logger.Debug("panic", "stack", string(p.Stack))
		}
	}))
	_, err := b.Subscribe("stock.*", func(_ context.Context, msg pubsub.Message) error {
		if msg.Payload == "" {
			panic("no article")
		}
		return errors.New("warehouse closed")
	}, pubsub.WithName("stock"))
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	for _, article := range []string{"tea", ""} {
		if _, err := b.Publish(ctx, "stock.low", article); err != nil {
			log.Fatal(err)
		}
	}
	if err := b.Shutdown(ctx); err != nil { // returns when all letters are logged
		log.Fatal(err)
	}
	// Output:
	// level=WARN msg="not handled" letter.reason=error letter.topic=stock.low letter.message_id=1 letter.subscription_id=1 letter.pattern=stock.* letter.subscription=stock letter.error="warehouse closed"
	// level=WARN msg="not handled" letter.reason=panic letter.topic=stock.low letter.message_id=2 letter.subscription_id=1 letter.pattern=stock.* letter.subscription=stock letter.error="pubsub: handler panicked: no article"
}

// At most three messages: then the subscription ends by itself.
func ExampleWithMaxMessages() {
	b := pubsub.New()
	sub, err := b.Subscribe("clicks", func(_ context.Context, msg pubsub.Message) error {
		fmt.Println("sample", msg.Payload)
		return nil
	}, pubsub.WithMaxMessages(3))
	if err != nil {
		log.Fatal(err)
	}
	for n := 1; n <= 10; n++ {
		if _, err := b.Publish(context.Background(), "clicks", n); err != nil {
			log.Fatal(err)
		}
	}
	<-sub.Done()
	fmt.Println("dead letters:", b.DeadLetters().Total())
	// Output:
	// sample 1
	// sample 2
	// sample 3
	// dead letters: 0
}

// Waiting for one event, with a timeout. Subscribe before you trigger what publishes
// it: nothing is replayed, so a later subscription can miss it.
func ExampleWithMaxMessages_waitForOne() {
	b := pubsub.New()
	pay := func(ctx context.Context) error { // stands for a call of another service
		_, err := b.Publish(ctx, "payments.P-7.settled", "49.00 EUR")
		return err
	}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	result := make(chan pubsub.Message, 1)
	sub, err := b.Subscribe("payments.P-7.*", func(_ context.Context, msg pubsub.Message) error {
		result <- msg // has room: there is only one
		return nil
	}, pubsub.WithMaxMessages(1))
	if err != nil {
		log.Fatal(err)
	}
	defer sub.Unsubscribe() // in case it does not come

	if err := pay(ctx); err != nil {
		log.Fatal(err)
	}
	select {
	case msg := <-result:
		fmt.Println(msg.Topic, msg.Payload)
	case <-ctx.Done():
		fmt.Println("not settled in time:", ctx.Err())
	}
	// Output: payments.P-7.settled 49.00 EUR
}
