package pubsub

import (
	"fmt"
	"time"
)

const (
	defaultDeadLetterCapacity = 1000
	defaultQueueSize          = 128
)

// Option configures a [Broker]. A nil Option changes nothing.
type Option func(*brokerOptions)

type brokerOptions struct {
	deadLetterCapacity int
	deadLetterHandlers []func(DeadLetter)
	strictTopics       bool
	clock              func() time.Time
}

func newBrokerOptions(opts []Option) brokerOptions {
	o := brokerOptions{deadLetterCapacity: defaultDeadLetterCapacity, clock: time.Now}
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	return o
}

// WithDeadLetterCapacity sets how many dead letters the broker keeps; the
// default is 1000. When there are more, the oldest go. With n <= 0 none is
// kept: they are still counted, and announced to the dead-letter handlers.
func WithDeadLetterCapacity(n int) Option {
	return func(o *brokerOptions) { o.deadLetterCapacity = max(n, 0) }
}

// WithDeadLetterHandler has f called with every dead letter. It may be given
// more than once: all are called, in the order given. A nil f is ignored.
//
// The calls are made one letter at a time, in the order recorded, on a
// goroutine of the broker that exists only while there is something to
// announce, so a slow f holds nobody but [Broker.Flush] and [Broker.Shutdown],
// which wait for it. When it is more than 1,024 letters behind, the oldest are
// skipped; [DeadLetters.Total] still counts them. A panic or [runtime.Goexit]
// in f is survived and ends that call only.
//
// f may publish, redeliver, subscribe and unsubscribe, but must not wait for the
// broker: Flush, Drain and Shutdown would wait for f itself. An f that publishes into
// a queue that drops, or redelivers to a handler that fails again, makes a new dead
// letter of each one, without end. While it waits for room in a [Block] queue nothing
// else is announced.
func WithDeadLetterHandler(f func(DeadLetter)) Option {
	return func(o *brokerOptions) {
		if f != nil {
			o.deadLetterHandlers = append(o.deadLetterHandlers, f)
		}
	}
}

// WithStrictTopics makes [Broker.Publish] return [ErrUnknownTopic] for topics
// that [Broker.CreateTopic] has not made. Subscribe takes any pattern still.
func WithStrictTopics() Option {
	return func(o *brokerOptions) { o.strictTopics = true }
}

// WithClock sets the clock that stamps messages and dead letters; the default,
// and what nil means, is [time.Now]. It is called from many goroutines, never
// under a lock of the broker. It must not panic, block or call
// [runtime.Goexit].
func WithClock(now func() time.Time) Option {
	return func(o *brokerOptions) {
		if now == nil {
			now = time.Now
		}
		o.clock = now
	}
}

// DropPolicy says what Publish does when the queue of an asynchronous
// subscription is full.
type DropPolicy int

const (
	// DropOldest evicts the oldest message not yet started and takes the new
	// one: for telemetry, state and prices, where the newest counts.
	DropOldest DropPolicy = iota
	// DropNewest refuses the new message and keeps what is queued: for audits
	// and job lists, where the start of an overload must stay complete.
	DropNewest
	// Block makes the publisher wait for room until its ctx is done. Nothing
	// is lost, but one slow subscriber then slows its publishers.
	Block
)

var dropPolicyNames = [...]string{DropOldest: "drop_oldest", DropNewest: "drop_newest", Block: "block"}

func (p DropPolicy) valid() bool { return p >= DropOldest && p <= Block }

// String returns drop_oldest, drop_newest or block, and DropPolicy(7), say, for a
// value that is no policy.
func (p DropPolicy) String() string {
	if !p.valid() {
		return fmt.Sprintf("DropPolicy(%d)", int(p))
	}
	return dropPolicyNames[p]
}

// MarshalText returns what String does, or [ErrInvalidOption] for a value that
// is no policy.
func (p DropPolicy) MarshalText() ([]byte, error) {
	if !p.valid() {
		return nil, fmt.Errorf("%w: drop policy %d", ErrInvalidOption, int(p))
	}
	return []byte(dropPolicyNames[p]), nil
}

// UnmarshalText accepts what MarshalText returns, so that a policy can be read
// from a configuration file or a flag. Anything else is [ErrInvalidOption] and
// leaves p as it was.
func (p *DropPolicy) UnmarshalText(text []byte) error {
	for policy, name := range dropPolicyNames {
		if string(text) == name {
			*p = DropPolicy(policy)
			return nil
		}
	}
	return fmt.Errorf("%w: drop policy %s", ErrInvalidOption, quoteShort(string(text)))
}

// SubscribeOption configures one [Subscription]. A nil SubscribeOption changes
// nothing. A value out of range makes [Broker.Subscribe] and [Broker.Pull]
// return [ErrInvalidOption].
type SubscribeOption func(*subscribeOptions)

type subscribeOptions struct {
	name        string
	sync        bool
	queueSize   int
	policy      DropPolicy
	maxMessages int // 0 means no limit
	err         error
}

func newSubscribeOptions(opts []SubscribeOption) subscribeOptions {
	o := subscribeOptions{queueSize: defaultQueueSize}
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	return o
}

// invalid keeps the first error, so that a later valid option does not hide an
// earlier mistake.
func (o *subscribeOptions) invalid(format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf("%w: "+format, append([]any{ErrInvalidOption}, args...)...)
	}
}

// WithName names the subscription in dead letters, logs and metrics. Names need
// not be unique; the default is empty.
func WithName(name string) SubscribeOption {
	return func(o *subscribeOptions) { o.name = name }
}

// WithSync makes the subscription synchronous: Publish calls the handler in the
// publisher's goroutine and returns after it. Concurrent publishers call it
// concurrently. It has no queue; a queue size and a drop policy given as well
// are checked and not used.
func WithSync() SubscribeOption {
	return func(o *subscribeOptions) { o.sync = true }
}

// WithQueueSize sets how many messages the queue of an asynchronous
// subscription holds, the one being handled not included; the default is 128.
// Memory grows with what is queued, not with n. n < 1 is [ErrInvalidOption].
func WithQueueSize(n int) SubscribeOption {
	return func(o *subscribeOptions) {
		if n < 1 {
			o.invalid("queue size %d is less than 1", n)
			return
		}
		o.queueSize = n
	}
}

// WithDropPolicy sets what happens when the queue is full; the default is
// [DropOldest]. A value that is no policy is [ErrInvalidOption].
func WithDropPolicy(p DropPolicy) SubscribeOption {
	return func(o *subscribeOptions) {
		if !p.valid() {
			o.invalid("drop policy %d", int(p))
			return
		}
		o.policy = p
	}
}

// WithMaxMessages makes the subscription end by itself after n messages: it
// takes exactly n, handles each, and is done. Messages that fail count, those
// that [DropOldest] evicts and [DropNewest] refuses do not. n < 1 is
// [ErrInvalidOption].
func WithMaxMessages(n int) SubscribeOption {
	return func(o *subscribeOptions) {
		if n < 1 {
			o.invalid("max messages %d is less than 1", n)
			return
		}
		o.maxMessages = n
	}
}
