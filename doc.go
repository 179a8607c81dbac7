// Package pubsub is an in-process publish/subscribe broker: an event bus that a
// service imports. Publishers send messages to topics such as orders.created.eu;
// subscribers receive what matches their pattern. Delivery is at most once per
// Publish or Redeliver and lives in the memory of the process: there is no
// persistence, no replay and no acknowledgement.
//
//	b := pubsub.New(pubsub.WithDeadLetterHandler(func(l pubsub.DeadLetter) {
//		slog.Warn("not handled", "letter", l)
//	}))
//	sub, err := b.Subscribe("orders.*.eu", func(ctx context.Context, msg pubsub.Message) error {
//		return process(ctx, msg.Payload)
//	})
//	...
//	id, err := b.Publish(ctx, "orders.created.eu", order)
//	...
//	err = b.Shutdown(ctx)
//
// # Words
//
// A topic is a concrete name: one or more non-empty segments joined by dots. In a
// pattern a segment may also be '*', which stands for exactly one segment, or, at
// the end, '#', which stands for one or more: orders.# does not match orders. (So
// does '>' in NATS; '#' in MQTT and AMQP also matches no segment at all.)
//
// A subscription binds a pattern to a handler. It is asynchronous unless made
// with [WithSync]: it has a queue, a bounded ring, that a goroutine of its own,
// the worker, drains; or, made with [Broker.Pull], one that its owner drains in a
// loop. When the queue is full its [DropPolicy] decides. What a
// subscription does not handle becomes a dead letter: see [Broker.DeadLetters] and
// [WithDeadLetterHandler]. Without such a handler failures are visible only there
// and in [Broker.Stats].
//
// # Guarantees
//
// Each of these has a test of the same name.
//
//   - Names: a literal segment is any non-empty bytes without '.', '*' and '#', and
//     a name has at most 65,535 bytes. Bytes are compared, so case and Unicode form
//     matter. Anything else, a wildcard inside a longer segment too, is refused with
//     [ErrInvalidTopic] or [ErrInvalidPattern], the reason and the name. No name
//     panics or takes more than linear time.
//   - Topics: without [WithStrictTopics] a topic needs no creation. CreateTopic only
//     lists it, Publish never does, and a subscription to an unknown topic is fine.
//   - Message: ids are a broker's own, start at 1 and only grow; every accepted
//     Publish takes one, matched or not. Time is read once per publish that matched
//     something. The payload is not copied: subscribers and dead letters share it, so
//     nobody may change it after Publish.
//   - Fan-out: Publish delivers to every subscription that matches when it starts,
//     once each: one whose Subscribe had returned sees the message, a later one never
//     does. No match is no error. Queues that drop are served first, then Block
//     queues, then synchronous handlers, each in order of subscription.
//   - Accepted, not delivered: a nil error from Publish means accepted. What a handler
//     returns, a synchronous one too, is never Publish's error but a dead letter. With
//     an error and an id that is not zero the other subscriptions have the message: do
//     not publish it again.
//   - Publish does not wait: only synchronous handlers and full Block queues hold a
//     publisher. A done ctx does not stop a publish that need not wait; ctx bounds the
//     wait for room only. A wait given up drops that one copy ([ReasonCanceled]),
//     serves the other subscriptions, and returns the id with ctx's error.
//   - Order: messages that one goroutine publishes reach a subscription in that order;
//     between goroutines there is none. Calls of one asynchronous subscription never
//     overlap; a synchronous one is called in its publishers' goroutines, and its calls
//     can. What a synchronous handler publishes can reach a later synchronous
//     subscription before the message being handled does.
//   - Bounded: a queue never holds more than its size. [DropOldest] evicts the oldest
//     message not yet started, [DropNewest] refuses the new one. A queue's memory grows
//     with what it holds. Dead letters, caches and all else inside are bounded in
//     number; topics published to and patterns unsubscribed leave nothing behind, and a
//     freed slot keeps no payload or context alive.
//   - Isolation: a stuck, failing or panicking handler affects no other subscription,
//     no publisher and no later message of its own, but for what its mode says: a stuck
//     synchronous handler or a full Block queue holds its publisher, and what that
//     publisher serves after it. An error, a panic and a [runtime.Goexit] become one
//     dead letter each. After a Goexit the worker is replaced; in a synchronous handler
//     the remaining subscriptions are served while the goroutine exits.
//   - Dead letters: every drop and every failure is one, recorded in the same critical
//     section that counts it, in a ring that evicts its oldest. Handlers given with
//     [WithDeadLetterHandler] are called one letter at a time, in order, on a goroutine
//     that exists only while there is something to announce, never a publisher's. More
//     than 1,024 behind, the oldest announcements are skipped. Close does not wait for
//     announcements.
//   - Unsubscribe: never blocks, may be called anywhere and any number of times. When it
//     returns, no call of the handler begins any more, what was queued and the copies of
//     publishers that wait for room are dead letters, an asynchronous handler's ctx is
//     done, and the subscription is not listed. Done is closed when the last call has
//     returned and is counted, and nothing about the subscription changes afterwards.
//   - Drain: takes nothing new, releases publishers that wait for room, handles what is
//     queued, and returns nil when Done is closed. When ctx ends first it discards the
//     rest and returns ctx.Err(). With nothing left to wait for, Drain, Flush and
//     Shutdown return nil whatever ctx says.
//   - Max messages: a subscription with [WithMaxMessages] takes exactly n messages, those
//     evicted not counted, handles each, and is done. Publishers that wait for room when
//     the n-th is taken go on at once, their copy neither counted nor a dead letter.
//   - Late copies: a copy that finds its subscription ended, draining or full of its n
//     was not matched: it is not counted and leaves no dead letter. One whose publisher
//     waits for room is counted when it is queued or given up.
//   - Close, Shutdown: from then on Publish, Redeliver, Subscribe, Pull, CreateTopic and
//     DeleteTopic give [ErrClosed], before any other error; reading still works. Close unsubscribes all
//     and does not wait. Shutdown drains all, and when it returns nil no handler of the
//     broker is running and all dead letters are announced; when ctx ends first it
//     discards the rest. Any number, in any order, concurrently.
//   - Flush: returns when every message whose Publish had returned before the call has
//     been handled, evicted, refused or discarded by each of its subscriptions, listed or
//     not, and its dead letters are announced. It follows positions in the queues, so
//     what is published or dropped later does not matter. Works after Close.
//   - Re-entrancy: a handler may call anything. Flush, Drain and Shutdown, given the ctx of
//     a handler of the same broker, do what they can without waiting and return
//     [ErrInHandler]; Publish given one never waits for room in a queue whose own handler
//     is on that chain of calls. A synchronous call adds to the chain, an asynchronous one
//     starts its own.
//   - Context: an asynchronous handler's ctx has the publisher's values, not its
//     cancellation or deadline, and is done when the subscription ends, not when it starts
//     to drain; Err, Cause and derived contexts follow the subscription alone, and deriving
//     one starts no goroutine. A synchronous handler's ctx is the publisher's.
//   - Accounting: at any moment Matched = Delivered + Failed + Dropped + Queued + Running,
//     for a subscription and for the broker, and no counter decreases. Total of the dead
//     letters is at least the Failed + Dropped read before it, and equal when nothing runs.
//   - Typed: a payload of another type is a failure ([*PayloadTypeError]). nil is no T, and
//     T and *T differ.
//   - Idle cost: while nothing is queued there is no goroutine: the first message starts a
//     worker, which ends when its queue is empty. A broker dropped without Close is
//     garbage, with its subscriptions. An idle subscription costs at most 1 KiB, also after
//     a burst, and some 100 bytes more for each segment of its pattern after the second
//     that no other pattern shares, 200 for one longer than 15 bytes; one that is done lets go of its handler, context and
//     queue.
//   - Allocation: for a topic whose route is cached, as that of a topic published to
//     lately is, with [context.Background], Publish allocates nothing when no queue takes
//     the message, and at most once, the message itself, when queues do, however many;
//     growing a queue and waiting for room in one come on top, amortised.
//   - Pull: a subscription made with [Broker.Pull] has a queue like any other, and no
//     goroutine: its owner takes messages out in a loop over [Subscription.Messages], one
//     loop at a time. Leaving the loop keeps the subscription. Flush and Shutdown do not
//     wait for the owner; what is left at the end of Shutdown is discarded. Drain returns
//     when the owner has pulled the rest.
//   - Redeliver: [Broker.Redeliver] hands the message of a dead letter to the subscription
//     that did not handle it, and only to that, with its id and time kept. It counts as
//     Matched again, takes part in max messages, and has no order. So a message is handled
//     at most once per Publish or Redeliver.
//   - User code: handlers, dead-letter handlers and the clock are never called under a lock.
//   - Memory model: Publish happens before the start of the handler; one call of an
//     asynchronous subscription before the next; a handler's return before the return of
//     the Flush, Drain or Shutdown that waited for it, and before the close of Done.
//   - Testable: a broker made in a testing/synctest bubble settles in it: when idle it is
//     durably blocked, virtual time works, and no test needs to sleep.
//
// # What it does not do
//
// It does not store, replay, acknowledge or retry, and it does not leave the process. A
// crash loses what is queued. There is no order between publishers, and no way to know
// from Publish that a handler succeeded. A retry is a handler wrapped around a handler;
// see the examples.
//
// Some things cannot be told from faults, and are left to the caller:
//
//   - In a handler, Flush, Drain, Shutdown and a Publish into a full Block queue wait for
//     themselves when they are given another context than the handler's, as does receiving
//     from Done of the handler's own subscription.
//   - A goroutine that outlives its handler uses a fresh context: context.WithoutCancel
//     keeps the handler's mark.
//   - Two handlers that publish with Block into each other's full queues wait for each
//     other unless ctx bounds it.
//   - A dead-letter handler must not call Flush, Drain or Shutdown, and one that redelivers
//     what fails again, or publishes into a queue that drops, goes on without end.
//   - The body of a loop over Messages has no ctx of a handler: what waits for its own
//     subscription there waits for itself. So does Flush there while a dead-letter handler
//     waits for room in its queue, unless ctx bounds one of them.
//   - A synchronous handler that publishes to itself recurses until the stack ends, which
//     Go cannot recover from.
//   - A message that leads to the next for ever, as that of a job which requeues itself, is not
//     published with a ctx derived from the handler's: each hop would keep what the hop before
//     derived. The handler's own ctx and a fresh one do not add up.
//   - An asynchronous handler may run after the request that published has ended: no
//     transaction and no pooled buffer belongs in its context or payload.
//   - A clock given with [WithClock] must not panic, block or call runtime.Goexit.
//
// # Design
//
// A message travels one way: Publish asks for the route of its topic, stamps id and
// time, and queues or calls for each subscription; a worker takes, calls and settles.
//
// At most once. More would need the broker to keep a message until a handler confirms it,
// across a crash: a log on disk, acknowledgements, timeouts, and duplicates that every
// handler must recognise. A service that needs that needs a broker of its own process. In
// memory, at most once with every loss recorded is the honest promise.
//
// Why a snapshot. The registry, a slice of subscriptions under a read-write lock, is the
// truth; a trie by segment is derived from it, and in front of that stands a fixed,
// lock-free cache of the routes of recent topics. A route is immutable. So Publish iterates
// without a lock over who was subscribed when it began, handlers may subscribe and
// unsubscribe as they like, and what a publish costs depends on the subscriptions that
// match, not on how many there are.
//
// How a slow consumer is isolated. Every asynchronous subscription has its own ring and
// its own worker, and a full ring costs the publisher a constant time, unless Block was
// asked for. The worker takes over what has come in with one lock, and in between claims
// message by message without; who evicts claims the same way, so that it is always the
// oldest message not yet started that goes.
//
// Why '#' is last. A '#' in the middle would match in more than one way, and finding
// whom a topic matches would no longer visit each part of the trie at most once.
//
// Which code runs under which lock. None of the user's: handlers, dead-letter handlers,
// the clock and methods of contexts are called with no lock held. A subscription's lock
// covers its counters, its queue and the recording of its dead letters; the broker's
// covers the registry and the index. No two subscriptions' locks are held together.
//
// When to drop what. For telemetry, prices and state the newest message is worth most:
// [DropOldest]. For audits and lists of work the start of an overload must stay complete
// and the refusal be visible: [DropNewest]. When nothing may be lost and publishers can
// wait: [Block].
package pubsub
