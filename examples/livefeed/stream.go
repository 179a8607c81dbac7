package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-b8032e04/pubsub"
)

// stream sends the events that match a pattern as server-sent events until the client
// goes or the service shuts down. Besides events a client gets
//
//   - "dropped", with how many events it has lost at this point because it was too slow;
//   - "end", when the service shuts down;
//   - a comment now and then, so that both sides notice when the other is gone.
func (s *service) stream(w http.ResponseWriter, r *http.Request) {
	pattern := cmp.Or(r.URL.Query().Get("pattern"), "#")
	if err := checkName("pattern", pattern); err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	if r.Method == http.MethodHead {
		return // A stream of nothing would never end.
	}
	if s.publishing.isClosed() {
		fail(w, http.StatusServiceUnavailable, errShuttingDown)
		return
	}
	defer s.connected.Add(-1)
	if s.connected.Add(1) > int64(s.streams) {
		fail(w, http.StatusServiceUnavailable, errors.New("too many clients"))
		return
	}
	// The subscription is there before the client sees an answer: what is published
	// from then on, it gets.
	sub, err := s.broker.Pull(pattern, pubsub.WithName("stream to "+r.RemoteAddr), pubsub.WithQueueSize(s.queue))
	switch {
	case errors.Is(err, pubsub.ErrInvalidPattern):
		fail(w, http.StatusBadRequest, err)
		return
	case err != nil:
		fail(w, http.StatusServiceUnavailable, err)
		return
	}
	defer sub.Unsubscribe()

	c := client{w: w, control: http.NewResponseController(w), stall: s.stall, sub: sub}
	err = c.serve(r.Context(), s.heartbeat)
	st := sub.Stats()
	s.log.Info("stream ended", "stream", sub.Name(), "pattern", pattern,
		"delivered", st.Delivered, "dropped", st.Dropped, "error", err)
}

// client is one connected browser.
type client struct {
	w       http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
	sub     *pubsub.Subscription
	told    uint64 // how many of the dropped events the client knows of
}

// serve sends until the client goes, with ctx's error, or the subscription ends, with
// nil. In this goroutine and no other: while it waits for the client, the queue fills
// and then drops.
func (c *client) serve(ctx context.Context, heartbeat time.Duration) error {
	// A middleware may have wrapped the writer so that it cannot stream.
	if err := c.control.SetWriteDeadline(time.Time{}); err != nil {
		fail(c.w, http.StatusInternalServerError, err)
		return err
	}
	h := c.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // for a proxy that would collect events
	if err := c.send("retry: 2000\n\n"); err != nil {
		return err
	}
	for {
		// The loop ends for a heartbeat, and the next goes on where it left.
		beat, cancel := context.WithTimeout(ctx, heartbeat)
		for msg := range c.sub.Messages(beat) {
			if err := c.event(msg); err != nil {
				cancel()
				return err
			}
		}
		cancel()
		select {
		case <-c.sub.Done():
			return c.send(c.dropped() + "event: end\ndata: {}\n\n")
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		if err := c.send(c.dropped() + ": still here\n\n"); err != nil {
			return err
		}
	}
}

// event sends one message, and before it how many have been dropped: mostly while the one
// before it was on its way, so that is where they are missing.
func (c *client) event(msg pubsub.Message) error {
	data, err := encode(msg)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%sdata: %s\n", c.dropped(), data) // data ends with a line break
	if c.sub.Stats().Queued > 0 {
		return c.write(text) // and have it sent with the next
	}
	return c.send(text)
}

// dropped returns the event that says how many were dropped since it was last said,
// empty when none were.
func (c *client) dropped() string {
	n := c.sub.Stats().Dropped
	if n == c.told {
		return ""
	}
	text := fmt.Sprintf("event: dropped\ndata: {\"count\":%d}\n\n", n-c.told)
	c.told = n
	return text
}

// write waits for the client for as long as it may stall.
func (c *client) write(text string) error {
	if err := c.control.SetWriteDeadline(time.Now().Add(c.stall)); err != nil {
		return err
	}
	_, err := c.w.Write([]byte(text))
	return err
}

func (c *client) send(text string) error {
	if err := c.write(text); err != nil {
		return err
	}
	return c.control.Flush()
}
