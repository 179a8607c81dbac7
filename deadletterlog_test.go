package pubsub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// logOf returns a logger and a function that returns the lines it has written since
// the last call, without the time of each.
func logOf() (*slog.Logger, func() []string) {
	var buf bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, attr slog.Attr) slog.Attr {
			if attr.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return attr
		},
	}))
	return logger, func() []string {
		text := strings.TrimSuffix(buf.String(), "\n")
		buf.Reset()
		if text == "" {
			return nil
		}
		return strings.Split(text, "\n")
	}
}

// letterOf is one of a subscription's dead letters.
func letterOf(subscription uint64, reason Reason) DeadLetter {
	return DeadLetter{
		SubscriptionID: subscription, SubscriptionName: fmt.Sprint("s", subscription), Pattern: "a.*",
		Message: Message{ID: 7, Topic: "a.b", Payload: "secret"}, Reason: reason,
	}
}

// noPanicError says that it is a PanicError, and has none.
type noPanicError struct{}

func (noPanicError) Error() string { return "none" }

func (noPanicError) As(target any) bool {
	p, ok := target.(**PanicError)
	if ok {
		*p = nil
	}
	return ok
}

func TestDeadLetterLog(t *testing.T) {
	t.Run("Flush begins a new interval with the next letter", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			logger, lines := logOf()
			d := DeadLetterLog{Logger: logger, Interval: time.Hour, Burst: 1}
			d.Handle(letterOf(1, ReasonDroppedOldest))
			time.Sleep(30 * time.Minute)
			d.Flush()
			d.Handle(letterOf(1, ReasonDroppedOldest))
			time.Sleep(40 * time.Minute)
			require.Len(t, lines(), 2)
			d.Handle(letterOf(1, ReasonDroppedOldest))
			require.Empty(t, lines(), "the interval from the first letter is no more")
		})
	})
	t.Run("the first letters of an interval in full, then a count", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			logger, lines := logOf()
			began := time.Now().Format("2006-01-02T15:04:05.000Z07:00")
			d := DeadLetterLog{Logger: logger, Interval: time.Second, Burst: 2}
			for range 1000 {
				d.Handle(letterOf(1, ReasonDroppedOldest))
			}
			got := lines()
			require.Len(t, got, 2)
			require.Contains(t, got[0], `level=WARN msg="message not handled" letter.reason=dropped_oldest letter.topic=a.b letter.message_id=7 letter.subscription_id=1 letter.pattern=a.*`)
			require.Contains(t, got[0], "letter.subscription=s1")

			time.Sleep(time.Second - 1)
			d.Handle(letterOf(1, ReasonDroppedOldest))
			require.Empty(t, lines(), "the interval has not ended")

			time.Sleep(time.Nanosecond)
			d.Handle(letterOf(1, ReasonDroppedOldest))
			got = lines()
			require.Len(t, got, 2, "the count, and the first of the next interval")
			require.Equal(t, `level=WARN msg="more messages not handled" count=999 since=`+began+
				` letter.reason=dropped_oldest letter.subscription_id=1 letter.pattern=a.* letter.subscription=s1`, got[0])
			require.Contains(t, got[1], `msg="message not handled"`)

			time.Sleep(time.Hour)
			d.Handle(letterOf(1, ReasonDroppedOldest))
			require.Len(t, lines(), 1, "nothing was counted, so no count is logged")
		})
	})

	t.Run("by subscription and reason", func(t *testing.T) {
		logger, lines := logOf()
		d := DeadLetterLog{Logger: logger, Interval: time.Hour, Burst: 1}
		for range 3 {
			d.Handle(letterOf(2, ReasonError))
			d.Handle(letterOf(1, ReasonError))
			d.Handle(letterOf(1, ReasonDroppedNewest))
		}
		require.Len(t, lines(), 3)
		d.Flush()
		got := lines()
		require.Len(t, got, 3)
		for i, want := range []string{
			"letter.reason=dropped_newest letter.subscription_id=1",
			"letter.reason=error letter.subscription_id=1",
			"letter.reason=error letter.subscription_id=2",
		} {
			require.Contains(t, got[i], " count=2 ")
			require.Contains(t, got[i], want)
		}
		d.Flush()
		require.Empty(t, lines(), "all has been logged")
	})

	t.Run("levels, errors, and a panic's stack", func(t *testing.T) {
		logger, lines := logOf()
		d := DeadLetterLog{Logger: logger}
		for reason, level := range map[Reason]slog.Level{
			0:                   slog.LevelWarn,
			ReasonDroppedOldest: slog.LevelWarn,
			ReasonDroppedNewest: slog.LevelWarn,
			ReasonCanceled:      slog.LevelWarn,
			ReasonUnsubscribed:  slog.LevelWarn,
			ReasonError:         slog.LevelError,
			ReasonPanic:         slog.LevelError,
			ReasonGoexit:        slog.LevelError,
		} {
			d.Handle(letterOf(1, reason))
			got := lines()
			require.Len(t, got, 1)
			require.Contains(t, got[0], "level="+level.String()+" ")
			require.NotContains(t, got[0], "secret")
			require.NotContains(t, got[0], "stack=")
		}
		l := letterOf(1, ReasonError)
		l.Err = errors.New("declined")
		d.Handle(l)
		require.Contains(t, lines()[0], "letter.error=declined")

		l = letterOf(1, ReasonPanic)
		l.Err = &PanicError{Value: "boom", Stack: []byte("billing.go:7" + strings.Repeat("x", 1<<20))}
		d.Handle(l)
		got := lines()[0]
		require.Contains(t, got, `letter.error="pubsub: handler panicked: boom"`)
		require.Contains(t, got, "stack=billing.go:7")
		require.Less(t, len(got), loggedStack+1000)

		l.Err = noPanicError{} // Somebody has made this letter himself.
		require.NotPanics(t, func() { d.Handle(l) })
		require.Contains(t, lines()[0], "letter.reason=panic")
	})

	t.Run("thousands of subscriptions that drop hide no panic", func(t *testing.T) {
		logger, lines := logOf()
		d := DeadLetterLog{Logger: logger, Interval: time.Hour}
		for id := range uint64(10_000) {
			for range 8 {
				d.Handle(letterOf(id, ReasonDroppedOldest))
			}
		}
		require.Len(t, lines(), loggedSubscriptions*defaultLogBurst)
		require.LessOrEqual(t, len(d.counts), loggedSubscriptions+1)
		d.Handle(letterOf(77_777, ReasonPanic))
		require.Contains(t, strings.Join(lines(), "\n"), "letter.subscription_id=77777")
		d.Flush()
		got := lines()
		require.Len(t, got, loggedSubscriptions+1)
		for _, line := range got[:loggedSubscriptions] {
			require.Contains(t, line, `msg="more messages not handled" count=3 `)
		}
		require.Contains(t, got[loggedSubscriptions],
			fmt.Sprintf(`msg="more messages not handled by other subscriptions" count=%d `, (10_000-loggedSubscriptions)*8))
	})

	t.Run("the default logger at the time of the call", func(t *testing.T) {
		before := slog.Default()
		defer slog.SetDefault(before)
		d := new(DeadLetterLog)
		logger, lines := logOf()
		slog.SetDefault(logger)
		d.Handle(letterOf(1, ReasonError))
		require.Len(t, lines(), 1)
	})

	t.Run("with a broker: all is logged when Shutdown and Flush have returned", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			logger, lines := logOf()
			d := DeadLetterLog{Logger: logger}
			b := New(WithDeadLetterHandler(d.Handle))
			_, err := b.Subscribe("a", func(_ context.Context, msg Message) error {
				switch msg.Payload {
				case "panic":
					panic("out of paper")
				case "goexit":
					runtime.Goexit()
				}
				return errors.New("no printer")
			}, WithName("printer"), WithQueueSize(1000))
			require.NoError(t, err)
			for _, payload := range append([]any{"panic", "goexit"}, make([]any, 100)...) {
				_, err := b.Publish(t.Context(), "a", payload)
				require.NoError(t, err)
			}
			require.NoError(t, b.Shutdown(t.Context()))
			d.Flush()
			text := strings.Join(lines(), "\n")
			require.Contains(t, text, "handler panicked: out of paper")
			require.Contains(t, text, "deadletterlog_test.go", "the stack leads to the handler")
			require.Contains(t, text, "letter.reason=goexit")
			require.Equal(t, 2+defaultLogBurst, strings.Count(text, `msg="message not handled"`))
			require.Contains(t, text, fmt.Sprint(" count=", 100-defaultLogBurst, " "))
		})
	})

	t.Run("concurrent calls lose no count", func(t *testing.T) {
		var counter countingHandler
		d := DeadLetterLog{Logger: slog.New(&counter), Interval: time.Nanosecond, Burst: 1}
		done := make(chan struct{})
		const each = 2000
		for id := range uint64(4) {
			go func() {
				defer func() { done <- struct{}{} }()
				for i := range each {
					d.Handle(letterOf(id%2, ReasonError))
					if i%100 == 0 {
						d.Flush()
					}
				}
			}()
		}
		for range 4 {
			<-done
		}
		d.Flush()
		require.EqualValues(t, 4*each, counter.letters.Load())
	})

	t.Run("a logger that blocks holds no other call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			gate := make(chan struct{})
			d := DeadLetterLog{Logger: slog.New(blockingHandler{gate}), Burst: 1}
			go d.Handle(letterOf(1, ReasonError))
			synctest.Wait()
			d.Handle(letterOf(1, ReasonError)) // is only counted
			close(gate)
		})
	})
}

// countingHandler adds up how many letters are logged, in full or in counts.
type countingHandler struct {
	slog.Handler
	letters atomic.Uint64
}

func (h *countingHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *countingHandler) Handle(_ context.Context, r slog.Record) error {
	n := uint64(1)
	r.Attrs(func(attr slog.Attr) bool {
		if attr.Key == "count" {
			n = attr.Value.Uint64()
		}
		return true
	})
	h.letters.Add(n)
	return nil
}

// blockingHandler blocks until its gate is opened.
type blockingHandler struct{ gate chan struct{} }

func (h blockingHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h blockingHandler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h blockingHandler) WithGroup(string) slog.Handler            { return h }

func (h blockingHandler) Handle(context.Context, slog.Record) error {
	<-h.gate
	return nil
}
