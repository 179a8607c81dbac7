package peers

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Channel is what a service writes by hand: a map from topic to subscribers,
// and a channel and a goroutine for each subscriber.
var Channel = Peer{
	Name:   "channel",
	Traits: Traits{Topics: true, IDs: true, Time: true, Ordered: true, Bounded: true, WakesAtOnce: true, BlocksEveryone: true},
	Note:   "baseline, written here: a map under an RWMutex, id, time.Now, a buffered channel and a goroutine for each subscriber",
	Open:   func() (Bus, error) { return &channelBus{}, nil },
}

// Call is the same with a function call where Channel has a channel.
var Call = Peer{
	Name:   "call",
	Traits: Traits{Topics: true, IDs: true, Time: true, Ordered: true, Bounded: true, WakesAtOnce: true, BlocksEveryone: true},
	Note:   "baseline, written here: a map under an RWMutex, id, time.Now, a function call",
	Open:   func() (Bus, error) { return &callBus{}, nil },
}

// message has the fields of a pubsub.Message, 64 bytes, and travels by value
// like it.
type message struct {
	ID      uint64
	Topic   string
	Payload any
	Time    time.Time
}

func (m message) handle(h Handler) {
	p := m.Payload.(*Payload)
	h(p.Seq, p.Body)
}

// registry maps a topic to its subscribers. What is in a slice never changes:
// add writes behind its end and remove makes another, so that publishers hold
// the lock for the look-up alone.
type registry[S comparable] struct {
	mu     sync.RWMutex
	topics map[string][]S
	lastID atomic.Uint64
}

func (r *registry[S]) add(topic string, s S) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.topics == nil {
		r.topics = make(map[string][]S)
	}
	r.topics[topic] = append(r.topics[topic], s)
}

// remove reports whether s was there.
func (r *registry[S]) remove(topic string, s S) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.topics[topic]
	i := slices.Index(old, s)
	if i < 0 {
		return false
	}
	if len(old) == 1 {
		delete(r.topics, topic)
	} else {
		r.topics[topic] = slices.Concat(old[:i], old[i+1:])
	}
	return true
}

func (r *registry[S]) route(topic string) []S {
	r.mu.RLock()
	subs := r.topics[topic]
	r.mu.RUnlock()
	return subs
}

func (r *registry[S]) stamp(topic string, payload *Payload) message {
	return message{ID: r.lastID.Add(1), Topic: topic, Payload: payload, Time: time.Now()}
}

type channelBus struct {
	registry[chan message]
	readers sync.WaitGroup
}

func (b *channelBus) Publish(topic string, payload *Payload) error {
	subs := b.route(topic)
	msg := b.stamp(topic, payload)
	for _, ch := range subs {
		ch <- msg
	}
	return nil
}

// Subscribe's cancel must not run during a Publish to the same topic: a hand-made
// bus that allows it pays for that with a lock around every send.
func (b *channelBus) Subscribe(topic string, h Handler) (func(), error) {
	ch := make(chan message, QueueSize)
	b.readers.Go(func() {
		for msg := range ch {
			msg.handle(h)
		}
	})
	b.add(topic, ch)
	return func() {
		if b.remove(topic, ch) {
			close(ch)
		}
	}, nil
}

func (b *channelBus) Settle() error { return nil }

func (b *channelBus) Close() error {
	b.mu.Lock()
	for _, subs := range b.topics {
		for _, ch := range subs {
			close(ch)
		}
	}
	b.topics = nil
	b.mu.Unlock()
	b.readers.Wait()
	return nil
}

// callSubscriber is a pointer's target, so that subscribers can be compared.
type callSubscriber struct {
	handle func(message)
}

type callBus struct {
	registry[*callSubscriber]
}

func (b *callBus) Publish(topic string, payload *Payload) error {
	subs := b.route(topic)
	msg := b.stamp(topic, payload)
	for _, s := range subs {
		s.handle(msg)
	}
	return nil
}

func (b *callBus) Subscribe(topic string, h Handler) (func(), error) {
	s := &callSubscriber{func(msg message) { msg.handle(h) }}
	b.add(topic, s)
	return func() { b.remove(topic, s) }, nil
}

func (b *callBus) Settle() error { return nil }

func (b *callBus) Close() error { return nil }
