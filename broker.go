package pubsub

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Broker delivers what is published to topics to the subscriptions that match.
// Make one with [New]; all its methods may be called concurrently, and by
// handlers. See the package documentation for what it guarantees.
type Broker struct {
	// Lock order: a subscription's mu, then the dead letters' mu. The broker's mu
	// is a leaf: no other lock is taken under it, and it is never taken under a
	// subscription's. No two subscriptions' locks are held together. Under none
	// of them is code of the user's run, a clock included, or anything waited for.

	// Immutable.

	now         func() time.Time
	strict      bool
	deadLetters *DeadLetters
	background  *call // ctx of a synchronous handler whose publisher has none

	// Atomic.

	// generation counts the changes of the registry that concern routes. A
	// writer changes the index, then adds one, both under mu; a route is built
	// with the generation loaded under mu, before the index is read; a cached
	// route is valid while its generation, compared with one loaded after
	// Publish began, is the current one. Subscribe adds one, every way in which
	// a subscription ends, Close, Shutdown, and with strict topics CreateTopic
	// and DeleteTopic: so a closed broker and an unknown topic are never found
	// in the cache, and a hit needs no other check.
	generation atomic.Uint64
	routes     routeCache
	lastID     atomic.Uint64 // of messages: how many have been published
	unrouted   atomic.Uint64

	// mu guards the rest. The lists are the truth, the index is derived from
	// them.

	mu               sync.RWMutex
	closed           bool
	topics           map[string]struct{}
	topicsPeak       int // the largest len(topics) since the map was made
	lastSubscription uint64
	index            index
	live             []*Subscription   // in no order: Subscriptions sorts
	ending           []*Subscription   // no longer listed, but not yet in ended
	ended            SubscriptionStats // the sum over those in neither list
}

// listing says in which of the broker's lists a subscription is.
type listing uint8

const (
	inLive   listing = iota // open, draining, or about to be unlisted
	inEnding                // closed, settled or done: from inLive, by unlist
	inNone                  // done, and counted in ended: from inEnding, by retire
)

// New returns a broker, which needs no start. It has no goroutine while nothing
// is queued: one that is no longer used is garbage like anything else, closed or
// not.
//
// Without [WithDeadLetterHandler] failures of handlers are visible only in
// [Broker.DeadLetters] and [Broker.Stats]: a service wants one that logs.
func New(opts ...Option) *Broker {
	o := newBrokerOptions(opts)
	b := &Broker{
		now:         o.clock,
		strict:      o.strictTopics,
		deadLetters: newDeadLetters(o),
	}
	b.background = &call{Context: context.Background(), broker: b}
	b.routes.seed = maphash.MakeSeed()
	return b
}

// CreateTopic declares a topic: [Broker.Topics] lists it, and with
// [WithStrictTopics] it may be published to. Declaring it again changes nothing.
// It returns [ErrClosed] or [ErrInvalidTopic].
func (b *Broker) CreateTopic(name string) error {
	fault := checkTopic(name)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrClosed
	}
	if fault != nil {
		return fault
	}
	if _, ok := b.topics[name]; ok {
		return nil
	}
	if b.topics == nil {
		b.topics = make(map[string]struct{})
	}
	b.topics[strings.Clone(name)] = struct{}{}
	b.topicsPeak = max(b.topicsPeak, len(b.topics))
	if b.strict {
		b.generation.Add(1)
	}
	return nil
}

// DeleteTopic takes back what CreateTopic declared. Subscriptions stay; with
// [WithStrictTopics] they get nothing from the topic until it is created again.
// It returns [ErrClosed], [ErrInvalidTopic], or [ErrUnknownTopic] when the topic
// is not declared.
func (b *Broker) DeleteTopic(name string) error {
	fault := checkTopic(name)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrClosed
	}
	if fault != nil {
		return fault
	}
	if _, ok := b.topics[name]; !ok {
		return unknownTopic(name)
	}
	delete(b.topics, name)
	b.topics, b.topicsPeak = shrunk(b.topics, b.topicsPeak)
	if b.strict {
		b.generation.Add(1)
	}
	return nil
}

func unknownTopic(name string) error {
	return fmt.Errorf("%w: %s", ErrUnknownTopic, quoteShort(name))
}

// Topics returns the declared topics, sorted. The slice is the caller's. It works
// after Close.
func (b *Broker) Topics() []string {
	b.mu.RLock()
	names := make([]string, 0, len(b.topics))
	for name := range b.topics {
		names = append(names, name)
	}
	b.mu.RUnlock()
	slices.Sort(names)
	return names
}

// Subscribe has h called with every message published from now on to a topic that
// matches pattern: see [Match]. A message whose Publish begins after Subscribe
// has returned is delivered; earlier ones never are. The handler can be called
// before Subscribe returns, with a message published meanwhile.
//
// Without options the subscription is asynchronous, with a queue of 128 messages
// and [DropOldest]. It lasts until it is unsubscribed or drained, has had its
// [WithMaxMessages], or the broker is closed.
//
// It returns [ErrClosed], [ErrInvalidPattern], [ErrNilHandler] or
// [ErrInvalidOption], and does not block. A topic need not exist.
func (b *Broker) Subscribe(pattern string, h Handler, opts ...SubscribeOption) (*Subscription, error) {
	fault := checkPattern(pattern)
	if fault == nil && h == nil {
		fault = fmt.Errorf("%w: subscribing to %s", ErrNilHandler, quoteShort(pattern))
	}
	o := newSubscribeOptions(opts)
	return b.add(newSubscription(b, pattern, h, o), cmp.Or(fault, o.err))
}

// add numbers and lists a new subscription, unless the broker is closed or there is
// a fault.
func (b *Broker) add(s *Subscription, fault error) (*Subscription, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, ErrClosed
	}
	if fault != nil {
		return nil, fault
	}
	b.lastSubscription++
	s.id = b.lastSubscription
	s.slot = len(b.live)
	b.live = append(b.live, s)
	b.index.add(s)
	b.routesChanged()
	return s, nil
}

// routesChanged makes every cached route out of date. It needs mu.
func (b *Broker) routesChanged() {
	b.generation.Add(1)
	b.routes.dropWide()
}

// unroute takes a subscription out of the index, so that no publish that begins
// after it looks at it.
func (b *Broker) unroute(s *Subscription) {
	b.mu.Lock()
	b.unindex(s)
	b.mu.Unlock()
}

// unindex needs mu.
func (b *Broker) unindex(s *Subscription) {
	if b.closed {
		s.place = place{} // The whole index is gone.
		return
	}
	if b.index.remove(s) {
		b.routesChanged()
	}
}

// unlist takes a subscription that takes nothing more out of what Subscriptions
// returns. A call of it may still run.
func (b *Broker) unlist(s *Subscription) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unindex(s)
	if s.listing == inLive {
		b.live = removeSlot(b.live, s)
		s.listing, s.slot = inEnding, len(b.ending)
		b.ending = append(b.ending, s)
	}
}

// retire books a subscription that is done and was unlisted.
func (b *Broker) retire(s *Subscription, last SubscriptionStats) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.listing == inEnding {
		b.ending = removeSlot(b.ending, s)
		s.listing = inNone
		b.ended.add(last)
	}
}

// removeSlot moves the last of a list into the place of s.
func removeSlot(list []*Subscription, s *Subscription) []*Subscription {
	last := list[len(list)-1]
	list[s.slot] = last
	last.slot = s.slot
	return dropLast(list)
}

// Subscriptions returns those that have not ended, in the order they were made;
// one that is draining is still among them. The slice is the caller's. It works
// after Close.
func (b *Broker) Subscriptions() []*Subscription {
	b.mu.RLock()
	subs := slices.Clone(b.live)
	b.mu.RUnlock()
	slices.SortFunc(subs, func(a, b *Subscription) int { return cmp.Compare(a.id, b.id) })
	return subs
}

// DeadLetters returns the broker's record of what was not handled.
func (b *Broker) DeadLetters() *DeadLetters { return b.deadLetters }

// Stats are the counters of a broker. The sums are over its subscriptions, those
// that have ended included:
//
//	Matched = Delivered + Failed + Dropped + Queued + Running
type Stats struct {
	// Published counts the accepted publishes.
	Published uint64
	// Unrouted counts those of them that matched no subscription.
	Unrouted uint64
	// Matched, Delivered, Failed, Dropped, Queued and Running are the sums of
	// the fields of that name in [SubscriptionStats].
	Matched   uint64
	Delivered uint64
	Failed    uint64
	Dropped   uint64
	Queued    int
	Running   int
	// Subscriptions is how many [Broker.Subscriptions] returns.
	Subscriptions int
	// Topics is how many [Broker.Topics] returns.
	Topics int
}

// Stats adds up the counters, which takes time in proportion to the number of
// subscriptions but delays no publisher or subscriber. It works after Close.
// Each subscription is counted as it is at one moment, not all at the same; no
// count is ever less than an earlier call returned, except Queued and Running.
func (b *Broker) Stats() Stats {
	st := Stats{Unrouted: b.unrouted.Load()}
	b.mu.RLock()
	sum := b.ended
	subs := b.unfinished()
	st.Subscriptions, st.Topics = len(b.live), len(b.topics)
	b.mu.RUnlock()
	// One that ends now is not in ended but keeps its last counts: each is
	// counted once.
	for _, s := range subs {
		sum.add(s.Stats())
	}
	st.Matched, st.Delivered, st.Failed, st.Dropped = sum.Matched, sum.Delivered, sum.Failed, sum.Dropped
	st.Queued, st.Running = sum.Queued, sum.Running
	st.Published = b.lastID.Load()
	return st
}

func (st *SubscriptionStats) add(more SubscriptionStats) {
	st.Matched += more.Matched
	st.Delivered += more.Delivered
	st.Failed += more.Failed
	st.Dropped += more.Dropped
	st.Queued += more.Queued
	st.Running += more.Running
}

// unfinished returns the subscriptions that are not yet in ended, listed or not.
// It needs mu.
func (b *Broker) unfinished() []*Subscription {
	return append(slices.Clip(slices.Clone(b.live)), b.ending...)
}
