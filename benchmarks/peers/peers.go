// Package peers puts one thin adapter around each publish/subscribe library and
// each topic index that is compared, so that the same scenario can drive all.
//
// An adapter adds what its peer leaves to the caller, such as the goroutine that
// reads a subscription's channel, and nothing else. What a peer cannot do is not
// emulated: its [Traits] say so, and scenarios that need it leave the peer out.
package peers

import (
	"encoding/binary"
)

// QueueSize is how many messages a subscription may have waiting, wherever the
// peer lets its caller choose: pubsub's default.
const QueueSize = 128

// Handler is what a subscriber runs for each message: the number that the
// publisher gave it, and its body.
type Handler func(seq uint64, body []byte)

// Payload is what is published. Peers that take any value carry a pointer to
// it. Those that take only bytes carry Wire, which is encoded before any clock
// starts, so that no peer is charged for a codec.
type Payload struct {
	Seq  uint64
	Body []byte
	Wire []byte
}

// NewPayload makes a payload and its encoding.
func NewPayload(seq uint64, body []byte) Payload {
	wire := binary.LittleEndian.AppendUint64(make([]byte, 0, 8+len(body)), seq)
	return Payload{Seq: seq, Body: body, Wire: append(wire, body...)}
}

// decode takes apart what [NewPayload] encoded.
func decode(wire []byte) (seq uint64, body []byte) {
	return binary.LittleEndian.Uint64(wire), wire[8:]
}

// Bus is one open instance of a peer.
type Bus interface {
	// Publish hands the payload to every subscription that matches the topic.
	// A peer without topics ignores it.
	Publish(topic string, payload *Payload) error
	// Subscribe has h called with what is published to topics that match the
	// pattern, until cancel is called.
	Subscribe(pattern string, h Handler) (cancel func(), err error)
	// Settle returns when every Subscribe and cancel before it is in force.
	Settle() error
	// Close ends all subscriptions and returns when no handler runs any more.
	// No handler may be stuck then.
	Close() error
}

// Traits say what a peer offers beside speed, since a bus that does less has
// less to do.
type Traits struct {
	Topics         bool // publishers name a topic
	Wildcards      bool // one subscription can match many topics
	IDs            bool // each message gets a number or name from the bus
	Time           bool // each message is stamped with a time
	Ordered        bool // one publisher's messages arrive in the order sent
	Bounded        bool // what can be waiting has a limit
	WakesAtOnce    bool // a subscriber is woken by the publish, not by a timer
	BlocksEveryone bool // one stuck subscriber stops publishers for good
	Drops          bool // a full subscriber loses messages instead
}

// Peer is one way of using one library.
type Peer struct {
	Name   string
	Module string // path of the module measured; empty for what is written here
	Traits Traits
	Note   string // what else differs
	Open   func() (Bus, error)
}

// Index is a structure that finds the subscriptions of a topic and delivers
// nothing.
type Index interface {
	// Topic and Pattern give the index's own spelling of a name. They are
	// called before any clock starts.
	Topic(name string) string
	Pattern(name string) string
	Insert(pattern string) (remove func(), err error)
	// Match returns how many subscriptions match.
	Match(topic string) int
}

// Matcher is one kind of [Index].
type Matcher struct {
	Name   string
	Module string
	Note   string
	Open   func() (Index, error)
}

// Asynchronous are the peers that deliver in another goroutine than the
// publisher's and, used this way, lose nothing.
func Asynchronous() []Peer {
	return []Peer{
		Channel, Pubsub, KelindarEvent, Libp2p, Broadcast, Cskr, Moby,
		NATS, EventBusTransactional, EventBusAsync, WatermillAcked, Watermill,
	}
}

// Synchronous are the peers that call the handler in the publisher's goroutine.
func Synchronous() []Peer {
	return []Peer{Call, PubsubSync, EventBusSync}
}

// Unstoppable are the peers whose publishers go on when a subscriber is stuck,
// each used the way that lets them.
func Unstoppable() []Peer {
	return []Peer{PubsubDropOldest, PubsubDropNewest, MobyDropping, EventBusAsync, Watermill, NATSDropping}
}

// All are all peers, each way of using them once.
func All() []Peer {
	return append(append(Asynchronous(), Synchronous()...), PubsubDropOldest, PubsubDropNewest, MobyDropping, NATSDropping)
}

// Matchers are the indexes.
func Matchers() []Matcher {
	return []Matcher{SublistCached, SublistUncached, GSL, Mochi}
}
