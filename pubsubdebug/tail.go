package pubsubdebug

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/seed-b8032e04/pubsub"
)

const (
	tailSize     = 256              // messages a reader may be behind
	tailPause    = 10 * time.Second // between signs of life when no message comes
	tailPatience = 15 * time.Second // for a browser that takes no bytes
	tailName     = "pubsubdebug tail"
)

// TailMessage is the data of an event "message" of api/tail.
type TailMessage struct {
	ID      uint64    `json:"id"`
	Time    time.Time `json:"time"`
	Topic   string    `json:"topic"`
	Payload string    `json:"payload"`
}

// tail is a ring of the newest messages that its reader has not had. Its subscription
// is synchronous and only copies into it, rather than one with a queue that drops: a
// debugging page must not fill the service's dead letters.
type tail struct {
	news chan struct{} // has an element when there is something to read

	mu      sync.Mutex // guards the rest
	ring    [tailSize]pubsub.Message
	first   uint64 // the position of the oldest message to be read
	next    uint64 // the position of the next message
	dropped uint64 // since the last read
}

func (t *tail) handle(_ context.Context, msg pubsub.Message) error {
	t.mu.Lock()
	if t.next-t.first == tailSize {
		t.first++
		t.dropped++
	}
	t.ring[t.next%tailSize] = msg
	t.next++
	t.mu.Unlock()
	select {
	case t.news <- struct{}{}:
	default: // The reader has been told.
	}
	return nil
}

// read returns and forgets what has come, oldest first, and how many were lost before
// that.
func (t *tail) read() (messages []pubsub.Message, dropped uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for ; t.first < t.next; t.first++ {
		slot := &t.ring[t.first%tailSize]
		messages = append(messages, *slot)
		*slot = pubsub.Message{}
	}
	dropped, t.dropped = t.dropped, 0
	return messages, dropped
}

func (h *handler) serveTail(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead {
		return
	}
	select {
	case h.tails <- struct{}{}:
		defer func() { <-h.tails }()
	default:
		http.Error(w, fmt.Sprintf("%d tails are open already: close one", maxTails), http.StatusServiceUnavailable)
		return
	}
	t := &tail{news: make(chan struct{}, 1)}
	sub, err := h.broker.Subscribe(r.URL.Query().Get("pattern"), t.handle, pubsub.WithSync(), pubsub.WithName(tailName))
	if errors.Is(err, pubsub.ErrClosed) {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	defer sub.Unsubscribe()
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	stream := &stream{w: w, control: http.NewResponseController(w)}
	if errors.Is(stream.control.Flush(), http.ErrNotSupported) {
		http.Error(w, "something around this handler wraps the http.ResponseWriter and lacks Flush and Unwrap: "+
			"a stream cannot be written", http.StatusInternalServerError)
		return
	}
	stream.write(": reading " + tailName + "\n\n")

	pause := time.NewTicker(tailPause)
	defer pause.Stop()
	for stream.err == nil {
		select {
		case <-t.news:
			stream.send(t.read())
		case <-pause.C:
			stream.write(": still there\n\n")
		case <-sub.Done():
			stream.send(t.read())
			stream.write("event: end\ndata: the broker is closed\n\n")
			return
		case <-r.Context().Done():
			return
		}
	}
}

// stream writes server-sent events until a write fails.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	err     error
}

func (s *stream) send(messages []pubsub.Message, dropped uint64) {
	var events strings.Builder
	if dropped > 0 {
		fmt.Fprintf(&events, "event: dropped\ndata: %d\n\n", dropped)
	}
	for _, msg := range messages {
		// JSON has no line breaks, which would end the event.
		data, err := json.Marshal(TailMessage{msg.ID, msg.Time, cut(msg.Topic, maxNameLength), render(msg.Payload)})
		if err != nil {
			continue // Nothing in it can fail.
		}
		fmt.Fprintf(&events, "event: message\ndata: %s\n\n", data)
	}
	s.write(events.String())
}

func (s *stream) write(text string) {
	if s.err != nil {
		return
	}
	// Not every writer has deadlines; then the browser's going ends the wait.
	_ = s.control.SetWriteDeadline(time.Now().Add(tailPatience))
	if _, s.err = s.w.Write([]byte(text)); s.err == nil {
		s.err = s.control.Flush()
	}
}
