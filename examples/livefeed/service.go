package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-b8032e04/pubsub"
	"github.com/seed-b8032e04/pubsub/pubsubdebug"
)

// service is the broker and the HTTP server around it.
type service struct {
	config
	log     *slog.Logger
	letters *pubsub.DeadLetterLog
	broker  *pubsub.Broker
	server  *http.Server

	connected  atomic.Int64 // streams
	publishing gate
}

func newService(c config, journal io.Writer, log *slog.Logger) (*service, error) {
	s := &service{config: c, log: log, letters: &pubsub.DeadLetterLog{Logger: log}}
	s.broker = pubsub.New(pubsub.WithDeadLetterHandler(s.letters.Handle))
	if err := keepJournal(s.broker, journal); err != nil {
		return nil, err
	}
	s.server = &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second, // ends with the request's body
		WriteTimeout:      15 * time.Second, // streams set their own
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	return s, nil
}

func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /events/{topic}", s.publish)
	mux.HandleFunc("GET /events", s.stream)
	mux.HandleFunc("GET /{$}", servePage)
	mux.HandleFunc("GET /page.css", servePage)
	mux.HandleFunc("GET /page.js", servePage)
	// It shows payloads. A service that is not only for its developers puts its own
	// authentication around this one.
	mux.Handle("/debug/pubsub/", pubsubdebug.Handler(s.broker))
	// A page of another site must not publish with the user's browser. That it cannot
	// read the stream is the browser's default.
	return http.NewCrossOriginProtection().Handler(noSniffing(mux))
}

// serve serves until ctx is done, then shuts down. It returns nil when nothing that was
// accepted has been lost.
func (s *service) serve(ctx context.Context, l net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- s.server.Serve(l) }()
	var failed error
	select {
	case failed = <-served:
	case <-ctx.Done():
		s.log.Info("shutting down", "within", s.grace)
	}
	return errors.Join(failed, s.shutDown())
}

// shutDown ends everything in the order in which nothing is lost: first what brings
// events in, then those whom they go to.
func (s *service) shutDown() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.grace)
	defer cancel()

	// No more comes in: requests are answered with 503, new connections refused. The
	// server's Shutdown also waits for all requests, streams too, so they have to be ended
	// meanwhile.
	s.publishing.close()
	served := make(chan error, 1)
	go func() { served <- s.server.Shutdown(ctx) }()

	// Once the last publish has returned, every event is in the queues that it goes to.
	errPublish := s.publishing.wait(ctx)

	// The clients get what is queued for them. One that has stalled has half of the time,
	// so that the rest is left for the journal.
	s.drainStreams(ctx, s.grace/2)

	// The journal is written: Flush follows each event to its handlers (call it once
	// for each topic that one leads to), Shutdown ends them.
	errFlush := s.broker.Flush(ctx)
	errShutdown := s.broker.Shutdown(ctx)
	s.letters.Flush()

	errServer := <-served
	if errServer != nil {
		_ = s.server.Close() // Whoever is still connected has stalled.
	}
	total := s.broker.Stats()
	s.log.Info("shut down", "published", total.Published,
		"delivered", total.Delivered, "failed", total.Failed, "dropped", total.Dropped)
	return errors.Join(errPublish, errFlush, errShutdown, errServer)
}

// drainStreams lets every stream send what is queued for it, which ends it.
func (s *service) drainStreams(ctx context.Context, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, sub := range s.broker.Subscriptions() {
		if sub.Pulled() {
			wg.Go(func() {
				if err := sub.Drain(ctx); err != nil {
					s.log.Warn("stream not drained", "stream", sub.Name(), "error", err)
				}
			})
		}
	}
	wg.Wait()
}

// gate lets callers in until it is closed, and knows when the last has left.
type gate struct {
	mu     sync.Mutex // guards the rest
	closed bool
	inside int
	empty  chan struct{} // closed when it is closed and nobody is inside; nil until somebody waits
}

// enter lets the caller in, who then has to leave; false when the gate is closed.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inside++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.inside == 0 && g.empty != nil {
		close(g.empty)
	}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

func (g *gate) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// wait waits until nobody is inside a closed gate. It is called once.
func (g *gate) wait(ctx context.Context) error {
	g.mu.Lock()
	if g.inside == 0 {
		g.mu.Unlock()
		return nil
	}
	empty := make(chan struct{})
	g.empty = empty
	g.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
