package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// On js the runtime has a goroutine of its own, for what the host calls.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("runtime.handleEvent"))
}

// network is a listener without sockets, so that a service, its clients and the clock
// are in one bubble. A pipe has no buffer: a client that does not read stalls at once.
type network struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *network) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

func (n *network) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

func (n *network) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case n.conns <- server:
		return client, nil
	case <-n.closed:
		return nil, errors.New("connection refused")
	}
}

// rig is a service that runs in a bubble.
type rig struct {
	*testing.T
	*service
	net    *network
	client *http.Client
	log    *lines
	kept   *lines // the journal
	stop   func()
	served chan error
}

// inBubble runs a test with a service that is stopped in the end, unless the test has
// stopped it.
func inBubble(t *testing.T, name string, c config, test func(r *rig)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := &rig{
				T: t, net: &network{conns: make(chan net.Conn), closed: make(chan struct{})},
				log: new(lines), kept: new(lines), served: make(chan error, 1),
			}
			transport := &http.Transport{DialContext: r.net.dial}
			r.client = &http.Client{Transport: transport}
			var err error
			r.service, err = newService(c, r.kept, slog.New(slog.NewTextHandler(r.log, nil)))
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			r.stop = cancel
			go func() { r.served <- r.serve(ctx, r.net) }()
			t.Cleanup(func() {
				transport.CloseIdleConnections()
				r.end()
			})
			test(r)
		})
	})
}

// end stops the service, if it has not been stopped, and waits for its end.
func (r *rig) end() {
	r.Helper()
	r.stop()
	select {
	case err := <-r.served:
		require.NoError(r, err)
		r.served <- err // for the next call
	case <-time.After(2 * r.grace):
		require.Fail(r, "the service does not end")
	}
}

// post publishes and returns the status and the id.
func (r *rig) post(topic, payload string) (status int, id uint64) {
	res, err := r.client.Post("http://service/events/"+topic, "application/json", strings.NewReader(payload))
	if err != nil {
		return 0, 0
	}
	defer res.Body.Close()
	var answer struct{ ID uint64 }
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		r.Errorf("answer to %s: %v", topic, err)
	}
	return res.StatusCode, answer.ID
}

func (r *rig) accepted(topic, payload string) uint64 {
	r.Helper()
	status, id := r.post(topic, payload)
	require.Equal(r, http.StatusAccepted, status)
	return id
}

// browser is a client with a stream. It takes nothing that is not asked for with next.
type browser struct {
	conn  net.Conn
	lines *bufio.Scanner
}

// connect opens a stream and reads up to where it is open.
func (r *rig) connect(query string) *browser {
	r.Helper()
	conn, err := r.net.dial(r.Context(), "", "")
	require.NoError(r, err)
	r.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "GET /events?%s HTTP/1.1\r\nHost: service\r\n\r\n", query)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(r, err)
	require.Equal(r, http.StatusOK, res.StatusCode)
	require.Equal(r, "text/event-stream", res.Header.Get("Content-Type"))
	b := &browser{conn: conn, lines: bufio.NewScanner(res.Body)}
	require.Equal(r, []string{"retry: 2000"}, b.block())
	return b
}

// block returns the lines up to the next empty one; nil when the stream has ended.
func (b *browser) block() (lines []string) {
	for b.lines.Scan() {
		if b.lines.Text() == "" {
			return lines
		}
		lines = append(lines, b.lines.Text())
	}
	return nil
}

// next returns the next event's name, empty for an ordinary one, and its data. At the end
// of the stream the name is "closed", and "silent" when there are only signs of life.
func (b *browser) next() (name, data string) {
	for range 1000 {
		lines := b.block()
		if lines == nil {
			return "closed", ""
		}
		for _, line := range lines {
			field, value, _ := strings.Cut(line, ": ")
			switch field {
			case "event":
				name = value
			case "data":
				data = value
			}
		}
		if data != "" {
			return name, data
		}
	}
	return "silent", ""
}

// rest reads until the stream ends.
func (b *browser) rest() (events []event, dropped int, ended bool) {
	for {
		name, data := b.next()
		switch name {
		case "closed", "silent":
			return events, dropped, ended
		case "end":
			ended = true
		case "dropped":
			var d struct{ Count int }
			if err := json.Unmarshal([]byte(data), &d); err != nil {
				panic(err)
			}
			dropped += d.Count
		default:
			var e event
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				panic(err)
			}
			events = append(events, e)
		}
	}
}

// lines is a writer that keeps what is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// ids returns those of the journal's events.
func (l *lines) ids(t testing.TB) (ids []uint64) {
	dec := json.NewDecoder(strings.NewReader(l.String()))
	for {
		var e event
		err := dec.Decode(&e)
		if errors.Is(err, io.EOF) {
			return ids
		}
		require.NoError(t, err)
		ids = append(ids, e.ID)
	}
}
