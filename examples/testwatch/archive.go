package main

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-b8032e04/pubsub"
)

// archive stands for a consumer that cannot keep up, such as a database far away.
// It has the only subscription that drops, and shows that nothing else waits for
// it: what it did not store is counted, and reported.
//
// A record of what happened should be complete from its beginning to where it
// breaks off, so it drops the newest.
type archive struct {
	sub *pubsub.Subscription
}

const (
	archiveQueue = 64
	archiveDelay = time.Millisecond // for each event
)

func newArchive(broker *pubsub.Broker) (*archive, error) {
	sub, err := broker.Subscribe("test.#", store,
		pubsub.WithName("archive"),
		pubsub.WithQueueSize(archiveQueue),
		pubsub.WithDropPolicy(pubsub.DropNewest))
	if err != nil {
		return nil, err
	}
	return &archive{sub}, nil
}

// store is slow on purpose.
func store(context.Context, pubsub.Message) error {
	time.Sleep(archiveDelay)
	return nil
}

func (a *archive) summary() string {
	n := a.sub.Stats()
	return fmt.Sprintf("Archive:   %d of %d messages stored, %d dropped (slow on purpose; nothing waits for it)\n",
		n.Delivered, n.Matched, n.Dropped)
}
