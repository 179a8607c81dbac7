package pubsub

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	defaultLogInterval = time.Minute
	defaultLogBurst    = 5

	// loggedSubscriptions is how many subscriptions are told apart for each reason in
	// one interval. For each reason, so that no number of subscriptions that drop
	// hides the first that panics.
	loggedSubscriptions = 32

	// loggedStack is how many bytes of a panic's stack are logged.
	loggedStack = 16 << 10
)

// DeadLetterLog writes dead letters to a [log/slog] logger, and no more than a few
// lines when thousands come. The zero value is ready:
//
//	letters := new(pubsub.DeadLetterLog)
//	b := pubsub.New(pubsub.WithDeadLetterHandler(letters.Handle))
//	...
//	err := b.Shutdown(ctx)
//	letters.Flush()
//
// In each interval the first letters of a subscription and reason are logged in full,
// one line each; those that follow are counted, and so are all letters of further
// subscriptions when 32 have had some with that reason. The first letter after the interval
// has that count logged before it, and so has Flush: there is no timer and no
// goroutine that would have to be stopped. So when a burst ends and nothing follows,
// its count waits for Flush, which a service may call now and then.
//
// Failures (an error, a panic, a Goexit) are logged at [slog.LevelError], what was
// dropped at [slog.LevelWarn]. A line has the letter as a group that [DeadLetter.LogValue]
// makes, and for a panic the start of the handler's stack; the payload is never logged. A handler's
// error or panic value is, so what must not be in a log must not be in those.
//
// One log is for one broker. Its fields must not be changed once it is in use, and its
// methods may be called concurrently.
type DeadLetterLog struct {
	// Logger is where the lines go. When it is nil they go to what [slog.Default]
	// returns at the time.
	Logger *slog.Logger
	// Interval is how long counts are collected before they are logged; a minute when
	// it is 0 or less.
	Interval time.Duration
	// Burst is how many letters of one subscription and reason are logged in full in
	// each interval; 5 when it is 0 or less.
	Burst int

	// mu guards the rest. Nothing is logged under it.
	mu     sync.Mutex
	began  time.Time // the interval
	counts map[letterKind]*letterCount
	apart  map[Reason]int // how many subscriptions are told apart
}

// letterKind is what is counted apart: the letters of a reason and a subscription, or
// of all the subscriptions that are not told apart.
type letterKind struct {
	reason       Reason
	subscription uint64
	others       bool
}

// letterCount is what came of one kind in one interval.
type letterCount struct {
	kind          letterKind
	name, pattern string // the subscription's
	since         time.Time
	logged        int    // in full
	counted       uint64 // only
}

// Handle logs one letter or counts it: see [WithDeadLetterHandler]. It takes as long
// as the logger does.
//
// It counts the letters that it is called with. When letters come so fast that the
// broker skips announcements, those are in [DeadLetters.Total] and [Broker.Stats] only.
func (d *DeadLetterLog) Handle(l DeadLetter) {
	now := time.Now()
	interval := d.Interval
	if interval <= 0 {
		interval = defaultLogInterval
	}
	d.mu.Lock()
	var ended []letterCount
	if now.Sub(d.began) >= interval {
		ended = d.take()
		d.began = now
	}
	full := d.add(l, now)
	d.mu.Unlock()

	logger := d.logger()
	logCounts(logger, ended)
	if full {
		logLetter(logger, l)
	}
}

// Flush logs the counts that have not been logged yet, and begins a new interval. Call
// it when [Broker.Shutdown] has returned. It takes as long as the logger does, and
// without counts does nothing.
func (d *DeadLetterLog) Flush() {
	d.mu.Lock()
	ended := d.take()
	d.began = time.Time{}
	d.mu.Unlock()
	logCounts(d.logger(), ended)
}

func (d *DeadLetterLog) logger() *slog.Logger {
	if d.Logger == nil {
		return slog.Default()
	}
	return d.Logger
}

// add counts a letter and reports whether it is to be logged in full. It needs mu.
func (d *DeadLetterLog) add(l DeadLetter, now time.Time) (full bool) {
	kind := letterKind{reason: l.Reason, subscription: l.SubscriptionID}
	c := d.counts[kind]
	if c == nil && d.apart[l.Reason] >= loggedSubscriptions {
		kind = letterKind{reason: l.Reason, others: true}
		c = d.counts[kind]
	}
	if c == nil {
		c = &letterCount{kind: kind, since: now}
		if d.counts == nil {
			d.counts, d.apart = make(map[letterKind]*letterCount), make(map[Reason]int)
		}
		d.counts[kind] = c
		if !kind.others {
			c.name, c.pattern = l.SubscriptionName, l.Pattern
			d.apart[l.Reason]++
		}
	}
	burst := d.Burst
	if burst <= 0 {
		burst = defaultLogBurst
	}
	if !kind.others && c.logged < burst {
		c.logged++
		return true
	}
	c.counted++
	return false
}

// take returns the counts to be logged, in the order of their subscriptions, the others
// last, and starts anew. It needs mu.
func (d *DeadLetterLog) take() []letterCount {
	var counts []letterCount
	for _, c := range d.counts {
		if c.counted > 0 {
			counts = append(counts, *c)
		}
	}
	d.counts, d.apart = nil, nil
	slices.SortFunc(counts, func(a, b letterCount) int {
		switch {
		case a.kind.others == b.kind.others:
			return cmp.Or(
				cmp.Compare(a.kind.subscription, b.kind.subscription),
				cmp.Compare(a.kind.reason, b.kind.reason))
		case b.kind.others:
			return -1
		default:
			return 1
		}
	})
	return counts
}

// logLevel returns the level of a reason's lines.
func logLevel(r Reason) slog.Level {
	switch r {
	case ReasonError, ReasonPanic, ReasonGoexit:
		return slog.LevelError
	default:
		return slog.LevelWarn
	}
}

func logLetter(logger *slog.Logger, l DeadLetter) {
	attrs := []slog.Attr{slog.Any("letter", l)}
	if p := (*PanicError)(nil); l.Reason == ReasonPanic && errors.As(l.Err, &p) && p != nil {
		stack := p.Stack[:min(len(p.Stack), loggedStack)]
		attrs = append(attrs, slog.String("stack", string(stack)))
	}
	logger.LogAttrs(context.Background(), logLevel(l.Reason), "message not handled", attrs...)
}

func logCounts(logger *slog.Logger, counts []letterCount) {
	for _, c := range counts {
		text := "more messages not handled"
		letter := []any{slog.String("reason", c.kind.reason.String())}
		if c.kind.others {
			text = "more messages not handled by other subscriptions"
		} else {
			letter = append(letter,
				slog.Uint64("subscription_id", c.kind.subscription),
				slog.String("pattern", c.pattern))
			if c.name != "" {
				letter = append(letter, slog.String("subscription", c.name))
			}
		}
		logger.LogAttrs(context.Background(), logLevel(c.kind.reason), text,
			slog.Uint64("count", c.counted),
			slog.Time("since", c.since),
			slog.Group("letter", letter...))
	}
}
