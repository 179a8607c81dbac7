package main

import (
	"context"
	"io"

	"github.com/seed-b8032e04/pubsub"
)

// keepJournal writes every event to w, one JSON line each. It is an ordinary subscriber
// that must miss nothing: when its queue is full, publishers wait. A line that cannot be
// written is a dead letter, which is logged.
func keepJournal(b *pubsub.Broker, w io.Writer) error {
	// Calls of one asynchronous subscription never overlap: w needs no lock.
	_, err := b.Subscribe("#", func(_ context.Context, msg pubsub.Message) error {
		line, err := encode(msg)
		if err != nil {
			return err
		}
		_, err = w.Write(line)
		return err
	}, pubsub.WithName("journal"), pubsub.WithQueueSize(1024), pubsub.WithDropPolicy(pubsub.Block))
	return err
}
