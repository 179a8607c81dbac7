package pubsubdebug_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-b8032e04/pubsub"
	"github.com/seed-b8032e04/pubsub/pubsubdebug"
)

const tailName = "pubsubdebug tail"

// patience is how long a test waits for what must come: only one that fails waits so
// long, and a slow, emulated or paused machine is no fault.
const patience = 5 * time.Minute

// tail is a browser that reads a tail.
type tail struct {
	t      *testing.T
	answer *http.Response
	lines  *bufio.Reader
	leave  context.CancelFunc
}

func openTail(t *testing.T, server *httptest.Server, pattern string) *tail {
	t.Helper()
	ctx, leave := context.WithTimeout(t.Context(), patience)
	t.Cleanup(leave)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		server.URL+"/api/tail?"+url.Values{"pattern": {pattern}}.Encode(), http.NoBody)
	require.NoError(t, err)
	answer, err := server.Client().Do(request)
	require.NoError(t, err)
	t.Cleanup(func() { answer.Body.Close() })
	return &tail{t, answer, bufio.NewReader(answer.Body), leave}
}

// event returns the next event's name and data, comments left out; "" at the end.
func (l *tail) event() (name, data string) {
	l.t.Helper()
	for {
		line, err := l.lines.ReadString('\n')
		if err != nil {
			return "", ""
		}
		line = strings.TrimSuffix(line, "\n")
		switch key, value, _ := strings.Cut(line, ": "); key {
		case "event":
			name = value
		case "data":
			data = value
		case "":
			if name != "" || data != "" {
				return name, data
			}
		}
	}
}

func (l *tail) message() (m pubsubdebug.TailMessage) {
	l.t.Helper()
	name, data := l.event()
	require.Equal(l.t, "message", name)
	require.NoError(l.t, json.Unmarshal([]byte(data), &m))
	return m
}

func serveBroker(t *testing.T, b *pubsub.Broker) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(pubsubdebug.Handler(b))
	t.Cleanup(server.Close)
	t.Cleanup(func() { b.Close() }) // before the server waits for its tails
	return server
}

// requireNoTail waits until the subscriptions of tails are gone.
func requireNoTail(t *testing.T, b *pubsub.Broker) {
	t.Helper()
	for _, s := range b.Subscriptions() {
		if s.Name() != tailName {
			continue
		}
		select {
		case <-s.Done():
		case <-time.After(patience):
			require.Fail(t, "the tail's subscription is left")
		}
	}
}

func TestTailSendsWhatMatches(t *testing.T) {
	b := newBroker(t)
	l := openTail(t, serveBroker(t, b), "orders.*")
	assert.Equal(t, http.StatusOK, l.answer.StatusCode)
	assert.Equal(t, "text/event-stream; charset=utf-8", l.answer.Header.Get("Content-Type"))
	assert.Equal(t, "no-store", l.answer.Header.Get("Cache-Control"))
	row := state(t, b, nil).Subscriptions[0]
	assert.Equal(t, tailName, row.Name)
	assert.Equal(t, "sync", row.Mode)

	publish(t, b, "others.x", 0)
	id := publish(t, b, "orders.created", map[string]int{"n": 1})
	m := l.message()
	assert.Equal(t, id, m.ID)
	assert.Equal(t, "orders.created", m.Topic)
	assert.JSONEq(t, `{"n":1}`, m.Payload)
	assert.WithinDuration(t, time.Now(), m.Time, time.Minute)

	// Hostile texts stay inside their event.
	hostile := "a\n\nevent: dropped\ndata: 7\n\n\r\x00\u2028<script>" + strings.Repeat("x", 50_000)
	publish(t, b, "orders."+hostile, hostile)
	m = l.message()
	assert.True(t, strings.HasPrefix(m.Topic, "orders.a\n\nevent: dropped"))
	assert.True(t, strings.HasPrefix(m.Payload, hostile[:50]))
	assert.Less(t, len(m.Topic), 600)
	assert.Less(t, len(m.Payload), 2100)
	for i := range 100 {
		publish(t, b, "orders.x", i)
	}
	last := m.ID
	for range 100 {
		m = l.message()
		assert.Equal(t, last+1, m.ID, "in order")
		last = m.ID
	}
	l.leave()
	requireNoTail(t, b)
}

func TestTailRefuses(t *testing.T) {
	b := newBroker(t)
	server := serveBroker(t, b)
	for _, pattern := range []string{"", "a..b", "#.a", "x*", strings.Repeat("x", 70_000)} {
		l := openTail(t, server, pattern)
		assert.Equal(t, http.StatusBadRequest, l.answer.StatusCode)
		text := body(t, l.answer)
		assert.Contains(t, text, "invalid pattern")
		assert.Less(t, len(text), 300, "bounded")
	}

	var tails []*tail
	for range 8 { // the refused ones gave their places back
		tails = append(tails, openTail(t, server, "#"))
		require.Equal(t, http.StatusOK, tails[len(tails)-1].answer.StatusCode)
	}
	ninth := openTail(t, server, "#")
	assert.Equal(t, http.StatusServiceUnavailable, ninth.answer.StatusCode)
	assert.Contains(t, body(t, ninth.answer), "8 tails are open")
	assert.Len(t, b.Subscriptions(), 8)

	tails[0].leave()
	select {
	case <-b.Subscriptions()[0].Done():
	case <-time.After(patience):
		require.Fail(t, "a tail outlives its browser")
	}
	require.Eventually(t, func() bool { // its place is given back just after
		l := openTail(t, server, "#")
		return l.answer.StatusCode == http.StatusOK
	}, patience, time.Millisecond)
	for _, l := range tails {
		l.leave()
	}
	b.Close()
	requireNoTail(t, b)
}

func TestTailEndsWithTheBroker(t *testing.T) {
	b := newBroker(t)
	server := serveBroker(t, b)
	l := openTail(t, server, "#")
	publish(t, b, "a", 1)
	require.NoError(t, b.Shutdown(t.Context()), "a tail does not hold it")
	assert.Equal(t, uint64(1), l.message().ID, "what came before is sent")
	name, data := l.event()
	assert.Equal(t, "end", name)
	assert.Equal(t, "the broker is closed", data)
	name, _ = l.event()
	assert.Empty(t, name, "the stream ends")
	require.NoError(t, server.Config.Shutdown(t.Context()), "nothing is left that holds the server")
}

// stalled is a browser that takes nothing until it is told to.
type stalled struct {
	http.ResponseWriter
	writing chan struct{} // one for each write that is stalled
	resume  chan struct{}

	mu   sync.Mutex
	text strings.Builder
}

func (s *stalled) Write(p []byte) (int, error) {
	if strings.HasPrefix(string(p), "event") {
		select {
		case s.writing <- struct{}{}:
		default:
		}
		<-s.resume
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *stalled) Flush() {}

func (s *stalled) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// A wrapper that cannot flush would leave the browser with an empty stream and no word.
func TestTailThroughAWrapperWithoutFlush(t *testing.T) {
	b := newBroker(t)
	w := httptest.NewRecorder()
	pubsubdebug.Handler(b).ServeHTTP(struct{ http.ResponseWriter }{w},
		httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/tail?pattern=%23", http.NoBody))
	assert.Equal(t, http.StatusInternalServerError, w.Code)
	assert.Contains(t, w.Body.String(), "lacks Flush")
	assert.Empty(t, b.Subscriptions())
}

// A slow browser holds no publisher, loses the oldest, is told so, and is no reason for
// dead letters.
func TestTailOfASlowReader(t *testing.T) {
	b := newBroker(t)
	h := pubsubdebug.Handler(b)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	s := &stalled{ResponseWriter: httptest.NewRecorder(), writing: make(chan struct{}, 1), resume: make(chan struct{})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.ServeHTTP(s, httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/tail?pattern=%23", http.NoBody))
	}()
	require.Eventually(t, func() bool { return len(b.Subscriptions()) == 1 }, patience, time.Millisecond)
	publish(t, b, "first", 0)
	<-s.writing
	for i := range 1000 {
		publish(t, b, "a", i)
	}
	require.NoError(t, b.Flush(t.Context()))
	st := state(t, b, nil)
	assert.Zero(t, st.Stats.Dropped)
	assert.Zero(t, st.Letters)
	close(s.resume)
	require.Eventually(t, func() bool { return strings.Contains(s.String(), `"payload":"999"`) }, patience, time.Millisecond)
	text := s.String()
	assert.Equal(t, 1, strings.Count(text, "event: dropped\ndata: 744\n\n"), "1000 less the 256 that it keeps")
	assert.Equal(t, 1+256, strings.Count(text, "event: message\n"))
	assert.Less(t, strings.Index(text, "event: dropped"), strings.Index(text, `"payload":"744"`), "said where they are missing")
	publish(t, b, "a", "later")
	require.Eventually(t, func() bool { return strings.Contains(s.String(), `"payload":"later"`) }, patience, time.Millisecond)
	assert.Equal(t, 1, strings.Count(s.String(), "event: dropped"), "said once")

	leave()
	<-ended
	assert.Empty(t, b.Subscriptions())
	assert.Zero(t, b.DeadLetters().Total())
}

// A browser that comes and goes while others publish leaves nothing: TestMain looks for
// goroutines.
func TestTailsComeAndGo(t *testing.T) {
	b := newBroker(t)
	server := serveBroker(t, b)
	stop := make(chan struct{})
	var publishers sync.WaitGroup
	for range 2 {
		publishers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = b.Publish(context.Background(), "a.b", "x")
					runtime.Gosched() // Where there is one thread, nobody else makes way.
				}
			}
		})
	}
	for range 5 {
		l := openTail(t, server, "a.*")
		require.Equal(t, http.StatusOK, l.answer.StatusCode)
		name, _ := l.event()
		assert.Contains(t, []string{"message", "dropped"}, name)
		sub := b.Subscriptions()[0]
		l.leave()
		<-sub.Done()
	}
	close(stop)
	publishers.Wait()
	requireNoTail(t, b)
	assert.Zero(t, b.DeadLetters().Total())
	st := b.Stats()
	assert.Equal(t, st.Matched, st.Delivered)
}
