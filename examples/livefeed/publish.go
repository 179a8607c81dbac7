package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed-b8032e04/pubsub"
)

const (
	maxBody = 64 << 10 // bytes of an event
	maxName = 256      // bytes of a topic or pattern

	// journalWait is how long a publisher waits for room in the journal's queue at most.
	journalWait = 5 * time.Second
)

// event is what a client is sent and the journal has of a message.
type event struct {
	ID      uint64          `json:"id"`
	Topic   string          `json:"topic"`
	Time    time.Time       `json:"time"`
	Payload json.RawMessage `json:"payload"`
}

// encode returns the JSON of a message, which is one line. The payload is what publish
// has checked, since nobody else publishes at this service's broker.
func encode(msg pubsub.Message) ([]byte, error) {
	payload, ok := msg.Payload.(json.RawMessage)
	if !ok {
		return nil, fmt.Errorf("payload is a %T", msg.Payload)
	}
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false) // It goes into no HTML.
	err := enc.Encode(event{msg.ID, msg.Topic, msg.Time, payload})
	return line.Bytes(), err
}

// publish takes one event. It answers 202 with the event's id when the event is on its
// way to the journal and to the clients, and 4xx or 503 when it is not.
func (s *service) publish(w http.ResponseWriter, r *http.Request) {
	topic := r.PathValue("topic")
	if err := checkName("topic", topic); err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		fail(w, http.StatusUnsupportedMediaType, errors.New("Content-Type must be application/json"))
		return
	}
	payload, status, err := readJSON(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		fail(w, status, err)
		return
	}

	if !s.publishing.enter() {
		fail(w, http.StatusServiceUnavailable, errShuttingDown)
		return
	}
	defer s.publishing.leave()
	// Less than the shutdown may take, since it waits for this.
	ctx, cancel := context.WithTimeout(r.Context(), min(journalWait, s.grace/2))
	defer cancel()
	id, err := s.broker.Publish(ctx, topic, payload)
	switch {
	case errors.Is(err, pubsub.ErrInvalidTopic):
		fail(w, http.StatusBadRequest, err)
	case err != nil:
		// With an id the streams have it, but the journal had no room in time. That is
		// what counts here: it is not accepted, and the client may send it again.
		s.log.Error("event not accepted", "topic", topic, "id", id, "error", err)
		fail(w, http.StatusServiceUnavailable, errors.New("overloaded, try again"))
	default:
		writeJSON(w, http.StatusAccepted, map[string]any{"id": id})
	}
}

// readJSON reads one JSON value, without the white space around and inside it.
func readJSON(body io.Reader) (payload json.RawMessage, status int, err error) {
	raw, err := io.ReadAll(body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("an event has at most %d bytes", tooLarge.Limit)
	case err != nil:
		return nil, http.StatusBadRequest, fmt.Errorf("reading the event: %w", err)
	case !utf8.Valid(raw):
		return nil, http.StatusBadRequest, errors.New("the event is not UTF-8")
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return nil, http.StatusBadRequest, fmt.Errorf("the event is not JSON: %w", err)
	}
	return compact.Bytes(), 0, nil
}

// checkName refuses topics and patterns that a log or a page would not like. That they
// are well formed the broker checks.
func checkName(what, name string) error {
	switch {
	case len(name) > maxName:
		return fmt.Errorf("a %s has at most %d bytes", what, maxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("the %s is not UTF-8", what)
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("the %s has a control character", what)
	}
	return nil
}

var errShuttingDown = errors.New("shutting down")

// fail answers a request that is not granted.
func fail(w http.ResponseWriter, status int, err error) {
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "2")
	}
	writeJSON(w, status, map[string]any{"error": err.Error()})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // A client that has gone needs no answer.
}

// noSniffing keeps browsers from taking an answer for another type than it says.
func noSniffing(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		h.ServeHTTP(w, r)
	})
}
