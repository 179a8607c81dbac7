package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/seed-b8032e04/pubsub"
)

// watcher publishes a stream to the subscribers, each of which is in a file of its
// own.
type watcher struct {
	broker  *pubsub.Broker
	console *console
	topics  topics
	events  int   // of the input
	foreign int   // lines of the input that were no events, or not only
	cutOff  bool  // the input ends within an event
	err     error // the first of Publish

	archive  *archive
	failures *failures
	totals   *totals
	slowest  slowest
}

// watch reports on the stream until it ends, and returns whether all is well with
// the tests. On log is what subscribers have failed to do.
func watch(stream io.Reader, c *console, log *slog.Logger) (ok bool, err error) {
	w := &watcher{
		console: c,
		totals:  newTotals(c),
		broker: pubsub.New(
			pubsub.WithDeadLetterCapacity(0), // they would hold on to events
			pubsub.WithDeadLetterHandler(func(letter pubsub.DeadLetter) {
				if letter.Reason != pubsub.ReasonDroppedNewest { // those are reported at the end
					log.Error("a subscriber failed", "letter", letter)
				}
			})),
	}
	defer w.broker.Close()
	w.failures = newFailures(c, w.publish)
	if err := w.subscribe(); err != nil {
		return false, err
	}
	stopProgress := func() {}
	if c.screen != nil {
		p := newProgress(c)
		if err := w.subscribeTo("progress", p.routes()); err != nil {
			return false, err
		}
		stopProgress = p.run()
	}
	readErr := w.read(stream)
	w.failures.finish()
	stopProgress()

	// Nobody waits for more than a little for an archive.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := w.broker.Shutdown(ctx); err != nil {
		log.Warn("some events are not in the archive", "error", err)
	}
	w.printSummary()
	if failed := w.broker.Stats().Failed; failed > 0 {
		err = fmt.Errorf("the report is not complete: subscribers failed %d times", failed)
	}
	return w.totals.ok() && !w.cutOff, errors.Join(readErr, w.err, c.failure(), err)
}

// subscribe makes the subscriptions that every stream has. Synchronous ones are
// served in this order: failures publishes what is unfinished before totals
// counts the package.
func (w *watcher) subscribe() (err error) {
	if w.archive, err = newArchive(w.broker); err != nil {
		return err
	}
	for _, s := range []struct {
		name   string
		routes []route
	}{
		{"failures", w.failures.routes()},
		{"benchmarks", (&benchmarks{console: w.console}).routes()},
		{"totals", w.totals.routes()},
		{"slowest", w.slowest.routes()},
	} {
		if err := w.subscribeTo(s.name, s.routes); err != nil {
			return err
		}
	}
	_, err = w.broker.Subscribe(foreignTopic, pubsub.Typed(w.printForeign),
		pubsub.WithName("foreign"), pubsub.WithSync())
	return err
}

// route is a pattern, and what a subscriber does with the events that match it.
type route struct {
	pattern string
	handle  func(*event)
}

// subscribeTo makes synchronous subscriptions: nothing is lost, and since there is
// one publisher, a subscriber sees all its events in order and needs no lock.
func (w *watcher) subscribeTo(name string, routes []route) error {
	for _, r := range routes {
		_, err := w.broker.Subscribe(r.pattern, pubsub.Typed(
			func(_ context.Context, _ pubsub.Message, ev *event) error {
				r.handle(ev)
				return nil
			}), pubsub.WithName(name), pubsub.WithSync())
		if err != nil {
			return err
		}
	}
	return nil
}

// read publishes the stream, line by line.
func (w *watcher) read(stream io.Reader) error {
	in := newInput(stream)
	for {
		line, err := in.next()
		if in.number == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff")) // Windows likes to write it
		}
		if len(bytes.TrimSpace(line)) > 0 {
			ok := w.publishLine(in.number, line)
			w.cutOff = !ok && !in.ended && line[0] == '{'
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// publishLine reports whether the line was an event.
func (w *watcher) publishLine(number int, line []byte) bool {
	ev, rest := decode(line)
	if len(rest) > 0 {
		w.foreign++
		_, err := w.broker.Publish(context.Background(), foreignTopic, foreign{number, string(rest)})
		w.failed(err)
	}
	if ev != nil {
		w.events++
		w.publish(ev)
	}
	return ev != nil
}

// publish needs no context of a handler's, since the archive drops and all others
// are synchronous: no publish ever waits for room in a queue.
func (w *watcher) publish(ev *event) {
	_, err := w.broker.Publish(context.Background(), w.topics.of(ev), ev)
	w.failed(err)
}

func (w *watcher) failed(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *watcher) printForeign(_ context.Context, _ pubsub.Message, f foreign) error {
	w.console.print(fmt.Sprintf("input line %d: %s", f.line, f.text))
	return nil
}

func (w *watcher) printSummary() {
	input := list("nothing", count{w.events, "events"}, count{w.foreign, "other lines"})
	verdict := "PASS"
	switch {
	case w.totals.seen() == 0:
		verdict = "FAIL: no package in the input; is it the output of go test -json?"
	case w.cutOff:
		verdict = "FAIL: the input ends within an event"
	case !w.totals.ok():
		verdict = "FAIL"
	}
	w.console.print("\n" + w.failures.summary() + w.slowest.summary() + w.totals.summary() +
		w.archive.summary() + "Input:     " + input + "\n" + verdict)
}
