// Quickstart is an order service in miniature, to see the broker work:
//
//	go run ./examples/quickstart
//
// It shows fan-out by wildcard, a slow consumer that drops while the others do
// not notice, a panicking handler that becomes a logged dead letter, and a
// graceful shutdown with the final counts.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/seed-b8032e04/pubsub"
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// run plays the four scenes on one broker, and prints them to w.
func run(w io.Writer) error {
	s := newService(w)
	defer s.broker.Close() // after an error; at the end it has nothing left to do
	for _, scene := range []func(context.Context) error{
		s.fanOut, s.slowConsumer, s.panickingHandler, s.shutDown,
	} {
		// A service would take its context from signal.NotifyContext; here the
		// timeout only says that nothing below may hang.
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := scene(ctx)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// order is the payload of every message. Subscribers share it, so nobody changes
// it after Publish.
type order struct {
	ID    string
	Cents int
}

// service is what the scenes share.
type service struct {
	w      io.Writer
	log    *bytes.Buffer // what slog has written since printLog
	broker *pubsub.Broker
}

// newService makes a broker whose dead letters are logged: without a handler for
// them, failures would be visible only in DeadLetters and Stats.
//
// A service logs to os.Stderr. This log goes into a buffer, which printLog prints
// after a Flush, so that the output is the same every time.
func newService(w io.Writer) *service {
	log := new(bytes.Buffer)
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{ReplaceAttr: brief}))
	return &service{
		w:   w,
		log: log,
		broker: pubsub.New(pubsub.WithDeadLetterHandler(func(letter pubsub.DeadLetter) {
			logger.Warn("not handled", "letter", letter)
		})),
	}
}

// brief leaves out of a log line what changes from run to run or is long.
func brief(_ []string, attr slog.Attr) slog.Attr {
	switch attr.Key {
	case slog.TimeKey, "subscription_id", "pattern":
		return slog.Attr{}
	}
	return attr
}

func (s *service) fanOut(ctx context.Context) error {
	s.heading("Fan-out by wildcard")
	consumers := []struct{ name, pattern string }{
		{"billing", "orders.created.*"}, // '*' is exactly one segment
		{"europe", "orders.*.eu"},
		{"audit", "orders.#"}, // '#' is one or more, at the end
	}
	var subs []*pubsub.Subscription
	seen := make([][]string, len(consumers))
	for i, c := range consumers {
		// Calls of one asynchronous subscription never overlap, and Flush
		// returns after them: its slice needs no lock.
		sub, err := s.broker.Subscribe(c.pattern, pubsub.Typed(
			func(_ context.Context, _ pubsub.Message, o order) error {
				seen[i] = append(seen[i], o.ID)
				return nil
			}), pubsub.WithName(c.name))
		if err != nil {
			return err
		}
		subs = append(subs, sub)
	}
	for _, event := range []struct {
		topic string
		order order
	}{
		{"orders.created.eu", order{"A1", 1999}},
		{"orders.created.us", order{"B2", 500}},
		{"orders.paid.eu", order{"A1", 1999}},
		{"orders.shipped.us.express", order{"B2", 500}},
	} {
		id, err := s.broker.Publish(ctx, event.topic, event.order)
		if err != nil {
			return err
		}
		s.printf("publish #%d  %-26s order %s", id, event.topic, event.order.ID)
	}
	if err := s.broker.Flush(ctx); err != nil {
		return err
	}
	for i, c := range consumers {
		s.printf("%-10s  %-26s got %s", c.name, c.pattern, strings.Join(seen[i], ", "))
	}
	for _, sub := range subs {
		sub.Unsubscribe()
	}
	return nil
}

func (s *service) slowConsumer(ctx context.Context) error {
	s.heading("A slow consumer drops, the others do not notice")
	// The slow consumer is stuck in its first message until the gate opens.
	started, gate := make(chan struct{}, 1), make(chan struct{})
	var kept []string
	slow, err := s.broker.Subscribe("orders.#", pubsub.Typed(
		func(_ context.Context, _ pubsub.Message, o order) error {
			select {
			case started <- struct{}{}:
			default:
			}
			<-gate
			kept = append(kept, o.ID)
			return nil
		}),
		pubsub.WithName("recommendations"),
		pubsub.WithQueueSize(4),
		pubsub.WithDropPolicy(pubsub.DropOldest), // the newest count; this is the default
	)
	if err != nil {
		return err
	}
	warehouse, err := s.broker.Subscribe("orders.created.*",
		func(context.Context, pubsub.Message) error { return nil },
		pubsub.WithName("warehouse"),
		pubsub.WithDropPolicy(pubsub.Block), // lossless: rather wait than drop
	)
	if err != nil {
		return err
	}

	publish := func(n int) error {
		_, err := s.broker.Publish(ctx, "orders.created.eu", order{ID: fmt.Sprintf("C%d", n)})
		return err
	}
	if err := publish(1); err != nil {
		return err
	}
	<-started
	for n := 2; n <= 8; n++ {
		if err := publish(n); err != nil {
			return err
		}
	}
	// Drain, and not Flush, which would wait for the slow one as well.
	if err := warehouse.Drain(ctx); err != nil {
		return err
	}
	s.printf("8 orders published while recommendations is stuck in the first")
	s.printStats(warehouse)
	s.printStats(slow)

	close(gate)
	if err := slow.Drain(ctx); err != nil {
		return err
	}
	if err := s.broker.Flush(ctx); err != nil { // the log is complete after it
		return err
	}
	s.printf("later, recommendations has handled %s", strings.Join(kept, ", "))
	s.printLog()
	return nil
}

func (s *service) panickingHandler(ctx context.Context) error {
	s.heading("A panic becomes a logged dead letter")
	invoices, err := s.broker.Subscribe("orders.paid.*", pubsub.Typed(
		func(_ context.Context, _ pubsub.Message, o order) error {
			_ = 100 / o.Cents // panics for a free order
			return nil
		}), pubsub.WithName("invoices"))
	if err != nil {
		return err
	}
	for _, o := range []order{{"D1", 999}, {"D2", 0}, {"D3", 4500}} {
		if _, err := s.broker.Publish(ctx, "orders.paid.eu", o); err != nil {
			return err
		}
	}
	if err := s.broker.Flush(ctx); err != nil {
		return err
	}
	s.printf("3 orders paid, the second is free")
	s.printStats(invoices)
	s.printLog()
	letters := s.broker.DeadLetters().Snapshot()
	last := letters[len(letters)-1]
	s.printf("the letter has the order, to repair it by hand: %+v", last.Message.Payload)
	return nil
}

func (s *service) shutDown(ctx context.Context) error {
	s.heading("Graceful shutdown")
	emails, err := s.broker.Subscribe("orders.shipped.*",
		func(context.Context, pubsub.Message) error { return nil },
		pubsub.WithName("emails"))
	if err != nil {
		return err
	}
	for n := 1; n <= 100; n++ {
		if _, err := s.broker.Publish(ctx, "orders.shipped.eu", order{ID: fmt.Sprintf("E%d", n)}); err != nil {
			return err
		}
	}
	// Nothing new is taken from here on, and what is queued is handled. When ctx
	// ends first, the rest is discarded.
	if err := s.broker.Shutdown(ctx); err != nil {
		return err
	}
	s.printf("100 orders shipped, then Shutdown: what was queued has been handled")
	s.printStats(emails)
	if _, err := s.broker.Publish(ctx, "orders.created.eu", order{}); !errors.Is(err, pubsub.ErrClosed) {
		return fmt.Errorf("publish after shutdown did not return %w", pubsub.ErrClosed)
	}
	s.printf("a later Publish returns %q", pubsub.ErrClosed)

	total := s.broker.Stats()
	s.heading("Final counts")
	s.printf("published  %4d", total.Published)
	s.printf("matched    %4d  = delivered %d + failed %d + dropped %d",
		total.Matched, total.Delivered, total.Failed, total.Dropped)
	s.printf("letters    %4d  = failed + dropped", s.broker.DeadLetters().Total())
	return nil
}

func (s *service) heading(text string) { fmt.Fprintf(s.w, "\n== %s\n", text) }

func (s *service) printf(format string, args ...any) {
	fmt.Fprintf(s.w, "   "+format+"\n", args...)
}

func (s *service) printStats(sub *pubsub.Subscription) {
	n := sub.Stats()
	s.printf("%-16s matched %d, delivered %d, failed %d, dropped %d, queued %d, running %d",
		sub.Name(), n.Matched, n.Delivered, n.Failed, n.Dropped, n.Queued, n.Running)
}

// printLog prints what has been logged, and empties the log. Only after Flush:
// dead letters are announced on a goroutine of the broker.
func (s *service) printLog() {
	for line := range strings.Lines(s.log.String()) {
		s.printf("log: %s", strings.TrimSpace(line))
	}
	s.log.Reset()
}
