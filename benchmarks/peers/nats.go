package peers

import (
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

const natsModule = "github.com/nats-io/nats-server/v2"

const natsNote = "a server, used without a socket: bytes through a pipe and its protocol; no ids or times"

// NATS is a NATS server in the process and one client connection to it, with no
// limit on what a subscription may have waiting.
var NATS = Peer{
	Name:   "NATS server",
	Module: natsModule,
	Traits: Traits{Topics: true, Wildcards: true, Ordered: true, WakesAtOnce: true},
	Note:   natsNote + "; unbounded, so that nothing is lost",
	Open:   openNATS(-1),
}

// NATSDropping loses what does not fit a subscription's limit.
var NATSDropping = Peer{
	Name:   "NATS server, dropping",
	Module: natsModule,
	Traits: Traits{Topics: true, Wildcards: true, Ordered: true, Bounded: true, WakesAtOnce: true, Drops: true},
	Note:   natsNote,
	Open:   openNATS(QueueSize),
}

type natsBus struct {
	server  *server.Server
	conn    *nats.Conn
	closed  chan struct{}
	pending int // messages that may wait for a handler; -1 is no limit
}

func openNATS(pending int) func() (Bus, error) {
	return func() (Bus, error) {
		s, err := server.NewServer(&server.Options{DontListen: true, NoLog: true, NoSigs: true})
		if err != nil {
			return nil, err
		}
		s.Start()
		if !s.ReadyForConnections(10 * time.Second) {
			s.Shutdown()
			return nil, errors.New("the NATS server is not ready after 10 seconds")
		}
		closed := make(chan struct{})
		conn, err := nats.Connect("", nats.InProcessServer(s),
			nats.ClosedHandler(func(*nats.Conn) { close(closed) }),
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		if err != nil {
			s.Shutdown()
			return nil, err
		}
		return &natsBus{server: s, conn: conn, closed: closed, pending: pending}, nil
	}
}

func (b *natsBus) Publish(topic string, payload *Payload) error {
	return b.conn.Publish(topic, payload.Wire)
}

func (b *natsBus) Subscribe(pattern string, h Handler) (func(), error) {
	s, err := b.conn.Subscribe(natsPattern(pattern), func(msg *nats.Msg) { h(decode(msg.Data)) })
	if err != nil {
		return nil, err
	}
	if err := s.SetPendingLimits(b.pending, -1); err != nil {
		return nil, err
	}
	return func() { _ = s.Unsubscribe() }, nil
}

func (b *natsBus) Settle() error { return b.conn.Flush() }

// Close drains, so that no handler runs after it.
func (b *natsBus) Close() error {
	err := b.conn.Drain()
	if err == nil {
		<-b.closed
	}
	b.server.Shutdown()
	b.server.WaitForShutdown()
	return err
}

// natsPattern spells a pattern of pubsub's grammar as NATS does. The two mean
// the same: `>` too needs at least one segment.
func natsPattern(pattern string) string {
	if pattern == "#" || strings.HasSuffix(pattern, ".#") {
		return pattern[:len(pattern)-1] + ">"
	}
	return pattern
}
