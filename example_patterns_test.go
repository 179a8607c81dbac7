package pubsub_test

import (
	"context"
	"fmt"
	"hash/maphash"
	"log"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/seed-b8032e04/pubsub"
)

// Forwarding into a channel, and closing it so that nobody sends on the closed
// channel. To have what is queued forwarded first, call Drain instead of
// Unsubscribe; receiving from Done is needed after either.
func ExampleSubscription_Done() {
	ctx := context.Background()
	b := pubsub.New()
	readings := make(chan pubsub.Message)
	sub, err := b.Subscribe("sensors.*", func(ctx context.Context, msg pubsub.Message) error {
		select {
		case readings <- msg:
			return nil
		case <-ctx.Done(): // The subscription has ended, and perhaps nobody receives.
			return ctx.Err()
		}
	})
	if err != nil {
		log.Fatal(err)
	}
	var consumer sync.WaitGroup
	consumer.Go(func() {
		for msg := range readings {
			fmt.Println(msg.Topic, msg.Payload)
		}
		fmt.Println("closed")
	})

	for _, sensor := range []string{"hall", "roof"} {
		if _, err := b.Publish(ctx, "sensors."+sensor, 21); err != nil {
			log.Fatal(err)
		}
	}
	if err := b.Flush(ctx); err != nil {
		log.Fatal(err)
	}

	sub.Unsubscribe() // From now on no call of the handler begins,
	<-sub.Done()      // now the last has returned,
	close(readings)   // and so nobody sends any more.
	consumer.Wait()
	// Output:
	// sensors.hall 21
	// sensors.roof 21
	// closed
}

// Only the newest value counts: a synchronous handler overwrites a channel with one
// slot. A slow receiver skips values, which are neither drops nor dead letters, and
// holds up nobody.
func Example_newestValue() {
	ctx := context.Background()
	b := pubsub.New()
	latest := make(chan pubsub.Message, 1)
	var mu sync.Mutex // Publishers call a synchronous handler concurrently.
	var newest uint64
	_, err := b.Subscribe("prices.tea", func(_ context.Context, msg pubsub.Message) error {
		mu.Lock()
		defer mu.Unlock()
		if msg.ID < newest {
			return nil // A later publish was faster.
		}
		newest = msg.ID
		select {
		case <-latest: // the value that nobody has received
		default:
		}
		latest <- msg // Has room: nobody else sends without mu.
		return nil
	}, pubsub.WithSync())
	if err != nil {
		log.Fatal(err)
	}

	for price := 1; price <= 1000; price++ {
		if _, err := b.Publish(ctx, "prices.tea", price); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("price:", (<-latest).Payload)
	fmt.Println("dead letters:", b.DeadLetters().Total())
	// Output:
	// price: 1000
	// dead letters: 0
}

// Unsubscribing inside the handler. It can be called before Subscribe has returned,
// and so before sub is assigned: without the channel that is a data race, and sub can
// be nil. (For a number of messages known before, WithMaxMessages is simpler.)
func ExampleSubscription_Unsubscribe_insideHandler() {
	ctx := context.Background()
	b := pubsub.New()
	var (
		sub      *pubsub.Subscription
		err      error
		assigned = make(chan struct{})
	)
	sub, err = b.Subscribe("jobs", func(_ context.Context, msg pubsub.Message) error {
		fmt.Println(msg.Payload)
		if msg.Payload == "last" {
			<-assigned
			sub.Unsubscribe()
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	close(assigned)

	for _, job := range []string{"first", "last", "late"} {
		if _, err := b.Publish(ctx, "jobs", job); err != nil {
			log.Fatal(err)
		}
	}
	<-sub.Done()
	// Output:
	// first
	// last
}

// A subscription that ends with a context, such as a request's.
func ExampleSubscription_Unsubscribe_withContext() {
	b := pubsub.New()
	request, disconnect := context.WithCancel(context.Background())
	sub, err := b.Subscribe("news.#", func(context.Context, pubsub.Message) error {
		return nil // write to the client
	})
	if err != nil {
		log.Fatal(err)
	}
	// stop lets the context go when the subscription ends in another way.
	stop := context.AfterFunc(request, sub.Unsubscribe)
	defer stop()

	disconnect()
	<-sub.Done()
	fmt.Println("subscriptions:", b.Stats().Subscriptions)
	// Output: subscriptions: 0
}

// Names from outside, such as a tenant's id, are escaped before they become a segment
// of a topic and above all of a pattern: a tenant called '*' must not subscribe to
// every tenant. url.PathEscape escapes '*', '#' and '%', but not '.', which is added
// here; url.PathUnescape turns the segment back. An empty id stays empty and is
// refused.
func Example_namesFromOutside() {
	segment := func(id string) string {
		return strings.ReplaceAll(url.PathEscape(id), ".", "%2E")
	}

	ctx := context.Background()
	b := pubsub.New()
	for _, tenant := range []string{"acme", "*", "#", "a.b", "50%", ""} {
		pattern := "tenants." + segment(tenant) + ".#"
		_, err := b.Subscribe(pattern, func(_ context.Context, msg pubsub.Message) error {
			fmt.Printf("tenant %q got %s\n", tenant, msg.Topic)
			return nil
		}, pubsub.WithSync())
		if err != nil {
			fmt.Printf("tenant %q: %v\n", tenant, err)
		}
	}
	for _, tenant := range []string{"acme", "*", "#", "a.b", "50%"} {
		if _, err := b.Publish(ctx, "tenants."+segment(tenant)+".login", nil); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// tenant "": pubsub: invalid pattern: empty segment: "tenants..#"
	// tenant "acme" got tenants.acme.login
	// tenant "*" got tenants.%2A.login
	// tenant "#" got tenants.%23.login
	// tenant "a.b" got tenants.a%2Eb.login
	// tenant "50%" got tenants.50%25.login
}

// Order by key: what belongs to one customer is handled in order, different customers
// in parallel. One subscription hands each message, by a hash of its key, to one of a
// fixed number of others, each with its own goroutine.
func Example_orderByKey() {
	const workers = 4
	ctx := context.Background()
	b := pubsub.New()
	var mu sync.Mutex
	handled := make(map[string][]any)
	work := func(_ context.Context, _ pubsub.Message, msg pubsub.Message) error {
		mu.Lock()
		defer mu.Unlock()
		handled[msg.Topic] = append(handled[msg.Topic], msg.Payload)
		return nil
	}
	for i := range workers {
		_, err := b.Subscribe(fmt.Sprintf("workers.%d", i), pubsub.Typed(work), pubsub.WithDropPolicy(pubsub.Block))
		if err != nil {
			log.Fatal(err)
		}
	}
	seed := maphash.MakeSeed()
	_, err := b.Subscribe("customers.*", func(ctx context.Context, msg pubsub.Message) error {
		worker := maphash.String(seed, msg.Topic) % workers
		_, err := b.Publish(ctx, fmt.Sprintf("workers.%d", worker), msg) // The message is the payload.
		return err
	}, pubsub.WithDropPolicy(pubsub.Block))
	if err != nil {
		log.Fatal(err)
	}

	for _, event := range []string{"placed", "paid", "shipped"} {
		for _, customer := range []string{"ann", "ben", "cy"} {
			if _, err := b.Publish(ctx, "customers."+customer, event); err != nil {
				log.Fatal(err)
			}
		}
	}
	for range 2 { // once for customers.*, once for workers.*
		if err := b.Flush(ctx); err != nil {
			log.Fatal(err)
		}
	}
	for _, topic := range slices.Sorted(maps.Keys(handled)) {
		fmt.Println(topic, handled[topic])
	}
	// Output:
	// customers.ann [placed paid shipped]
	// customers.ben [placed paid shipped]
	// customers.cy [placed paid shipped]
}

// A pipeline, in which handlers publish, stopped without loss: stop the sources, Flush
// once per hop, then Shutdown. Shutdown alone would be too early: from its start
// Publish returns ErrClosed, in handlers too.
func ExampleBroker_Shutdown_pipeline() {
	ctx := context.Background()
	b := pubsub.New()
	stored := 0
	stages := map[string]pubsub.Handler{
		"lines.read": func(ctx context.Context, msg pubsub.Message) error {
			_, err := b.Publish(ctx, "lines.parsed", msg.Payload)
			return err
		},
		"lines.parsed": func(context.Context, pubsub.Message) error {
			stored++
			return nil
		},
	}
	for topic, stage := range stages {
		if _, err := b.Subscribe(topic, stage, pubsub.WithDropPolicy(pubsub.Block)); err != nil {
			log.Fatal(err)
		}
	}
	var sources sync.WaitGroup
	for range 3 {
		sources.Go(func() {
			for line := range 1000 {
				if _, err := b.Publish(ctx, "lines.read", line); err != nil {
					log.Print(err)
				}
			}
		})
	}

	sources.Wait()
	for range stages {
		if err := b.Flush(ctx); err != nil {
			log.Fatal(err)
		}
	}
	if err := b.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("stored", stored, "of 3000, dead letters:", b.DeadLetters().Total())
	// Output: stored 3000 of 3000, dead letters: 0
}
