package pubsub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// ticking is a clock that is a second later each time it is read, so that no two
// readings are alike.
func ticking() func() time.Time {
	var reads atomic.Int64
	return func() time.Time { return time.Unix(reads.Add(1), 0) }
}

// failing are handlers that fail, by the reason of their dead letter.
var errFailing = errors.New("fault")

var failing = map[Reason]Handler{
	ReasonError:  func(context.Context, Message) error { return errFailing },
	ReasonPanic:  func(context.Context, Message) error { panic(errFailing) },
	ReasonGoexit: func(context.Context, Message) error { runtime.Goexit(); return nil },
}

// announcers counts the goroutines that announce dead letters.
func announcers() int {
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "pubsub.(*DeadLetters).announce(")
}

func payloadsOf(letters []DeadLetter) (all []any) {
	for _, l := range letters {
		all = append(all, l.Message.Payload)
	}
	return all
}

// The row Dead letters of the contract; testDeadLetterHandlers has what is done with
// them.
func TestDeadLetters(t *testing.T) {
	drops := map[Reason]func(r *rig, s *Subscription){
		ReasonDroppedOldest: func(r *rig, _ *Subscription) { r.pub("a", "newest") },
		ReasonDroppedNewest: func(r *rig, _ *Subscription) { r.pub("a", "newest") },
		ReasonCanceled: func(r *rig, _ *Subscription) {
			_, err := r.Publish(canceled(), "a", "newest")
			require.ErrorIs(r, err, context.Canceled)
		},
		ReasonUnsubscribed: func(_ *rig, s *Subscription) { s.Unsubscribe() },
	}
	policies := map[Reason]DropPolicy{ReasonDroppedNewest: DropNewest, ReasonCanceled: Block}
	dropped := map[Reason]string{ReasonDroppedOldest: "queued", ReasonUnsubscribed: "queued"}
	for reason, drop := range drops {
		inBubble(t, "every drop is one, and its Time the moment: "+reason.String(), func(r *rig) {
			s, _ := r.full("a", policies[reason])
			require.Zero(r, r.DeadLetters().Total())
			drop(r, s)
			l := r.letters(1)[0]
			require.Equal(r, reason, l.Reason)
			require.Equal(r, s.ID(), l.SubscriptionID)
			require.Equal(r, "a", l.Pattern)
			payload := dropped[reason]
			if payload == "" {
				payload = "newest"
			}
			require.Equal(r, payload, l.Message.Payload)
			if reason == ReasonCanceled {
				require.ErrorIs(r, l.Err, context.Canceled)
			} else {
				require.NoError(r, l.Err)
			}
			require.EqualValues(r, 1, s.Stats().Dropped)
			require.Zero(r, s.Stats().Failed)
			// The messages had the first two readings. That of the third is the
			// letter's, unless a clock of its own is right.
			switch reason {
			case ReasonDroppedOldest:
				require.EqualValues(r, 3, l.Time.Unix(), "the Time of the message that caused it")
			case ReasonDroppedNewest:
				require.Equal(r, l.Message.Time, l.Time, "the Time of the message that caused it")
			default:
				require.Greater(r, l.Time.Unix(), max(2, l.Message.Time.Unix()))
			}
		}, WithClock(ticking()))
	}
	for reason, h := range failing {
		for mode, opts := range map[string][]SubscribeOption{"synchronous": {WithSync()}, "asynchronous": nil} {
			inBubble(t, fmt.Sprintf("every failure is one, and its Time the moment: %v, %s", reason, mode), func(r *rig) {
				s := r.on("a.*", h, append(opts, WithName("billing"))...)
				publisher := make(chan struct{})
				go func() { // whom a synchronous Goexit ends
					defer close(publisher)
					_, _ = r.Publish(context.Background(), "a.b", "x")
				}()
				<-publisher
				synctest.Wait()
				l := r.letters(1)[0]
				require.Equal(r, DeadLetter{
					Time: time.Unix(2, 0), SubscriptionID: s.ID(), SubscriptionName: "billing", Pattern: "a.*",
					Message: Message{ID: 1, Topic: "a.b", Payload: "x", Time: time.Unix(1, 0)},
					Reason:  reason, Err: l.Err,
				}, l)
				switch reason {
				case ReasonGoexit:
					require.Equal(r, ErrGoexit, l.Err)
				case ReasonPanic:
					var fault *PanicError
					require.ErrorAs(r, l.Err, &fault)
					require.Contains(r, string(fault.Stack), "deadletter_test.go")
					require.ErrorIs(r, l.Err, errFailing)
				default:
					require.Equal(r, errFailing, l.Err)
				}
				require.Equal(r, SubscriptionStats{Matched: 1, Failed: 1}, s.Stats())
			}, WithClock(ticking()))
		}
	}

	for call, do := range map[string]func(r *rig, s *Subscription){
		"Publish":     func(r *rig, _ *Subscription) { r.pub("a", nil) },
		"Unsubscribe": func(_ *rig, s *Subscription) { s.Unsubscribe() },
		"Close":       func(r *rig, _ *Subscription) { require.NoError(r, r.Close()) },
		"Drain":       func(r *rig, s *Subscription) { require.ErrorIs(r, s.Drain(canceled()), context.Canceled) },
		"Shutdown":    func(r *rig, _ *Subscription) { require.ErrorIs(r, r.Shutdown(canceled()), context.Canceled) },
	} {
		inBubble(t, "it is there when the call that says so returns: "+call, func(r *rig) {
			s, _ := r.full("a", DropOldest)
			do(r, s)
			require.Equal(r, 1, r.DeadLetters().Len())
			require.EqualValues(r, 1, r.DeadLetters().Total())
		})
	}
	inBubble(t, "it is there when Flush returns, and when Done is closed", func(r *rig) {
		s := r.on("a", failing[ReasonPanic], WithMaxMessages(2))
		r.pub("a", nil)
		require.NoError(r, r.Flush(context.Background()))
		require.EqualValues(r, 1, r.DeadLetters().Total())
		r.pub("a", nil)
		<-s.Done()
		require.EqualValues(r, 2, r.DeadLetters().Total())
	})
	inBubble(t, "without a handler they are visible only in DeadLetters and Stats", func(r *rig) {
		r.on("a", failing[ReasonPanic])
		r.pub("a", nil)
		require.NoError(r, r.Flush(context.Background()))
		require.Equal(r, Stats{Published: 1, Matched: 1, Failed: 1, Subscriptions: 1}, r.Stats())
		require.Zero(r, r.DeadLetters().announcements.tail, "nothing is kept for nobody")
		r.letters(1)
	})
	t.Run("handlers", testDeadLetterHandlers)
}

// testDeadLetterHandlers are the promises of the row about WithDeadLetterHandler.
func testDeadLetterHandlers(t *testing.T) {
	var calls []string // of the dead-letter handlers of a bubble
	note := func(name string) Option {
		return WithDeadLetterHandler(func(l DeadLetter) { calls = append(calls, fmt.Sprint(name, l.Message.Payload)) })
	}
	// fail makes n dead letters, with payloads 1 to n.
	fail := func(r *rig, n int) {
		r.on("fail", failing[ReasonError], WithSync())
		for i := range n {
			r.pub("fail", i+1)
		}
	}

	calls = nil
	inBubble(t, "all are called, in order, one letter at a time", func(r *rig) {
		fail(r, 3)
		synctest.Wait()
		require.Equal(r, []string{"x1", "y1", "z1", "x2", "y2", "z2", "x3", "y3", "z3"}, calls)
	}, note("x"), WithDeadLetterHandler(nil), note("y"), note("z"))

	gate := make(chan struct{})
	held := WithDeadLetterHandler(func(DeadLetter) { <-gate })
	inBubble(t, "on a goroutine that exists only while there is something to announce, and holds nobody", func(r *rig) {
		gate = make(chan struct{})
		require.Zero(r, announcers())
		s, handler := r.full("a", DropOldest)
		fail(r, 100)
		synctest.Wait()
		require.Equal(r, 1, announcers())
		s.Unsubscribe()
		require.NoError(r, r.Close())
		require.EqualValues(r, 101, r.DeadLetters().Total())
		handler.open()
		<-s.Done()
		returned := make(chan error, 2)
		go func() { returned <- r.Flush(context.Background()) }()
		go func() { returned <- r.Shutdown(context.Background()) }()
		synctest.Wait()
		require.Empty(r, returned, "Flush and Shutdown wait for announcements")
		require.ErrorIs(r, r.Flush(canceled()), context.Canceled)
		close(gate)
		synctest.Wait()
		require.Len(r, returned, 2)
		require.Zero(r, announcers())
		require.False(r, r.DeadLetters().announcements.active)
	}, held)

	calls = nil
	inBubble(t, "more than 1,024 behind, the oldest are skipped and still counted", func(r *rig) {
		gate = make(chan struct{})
		fail(r, 1)
		synctest.Wait() // The first is being announced.
		for i := range 1024 + 100 {
			r.pub("fail", i+2)
		}
		require.EqualValues(r, 1125, r.DeadLetters().Total())
		require.Empty(r, calls)
		close(gate)
		synctest.Wait()
		require.Len(r, calls, 1+1024)
		require.Equal(r, []string{"x1", "x102", "x103"}, calls[:3])
		require.Equal(r, "x1125", calls[1024])
		require.Empty(r, r.DeadLetters().announcements.out.slots, "a burst leaves no buffer")
	}, held, note("x"))

	t.Setenv("GODEBUG", "panicnil=1")
	for name, fault := range map[string]func(){
		"a panic":                func() { panic("fault") },
		"panic(nil)":             func() { panic(nil) },
		"Goexit":                 runtime.Goexit,
		"a panic while it exits": func() { defer func() { panic("fault") }(); runtime.Goexit() },
	} {
		faulty := WithDeadLetterHandler(func(DeadLetter) { fault() })
		calls = nil
		inBubble(t, "is survived, and the other handlers still get the letter: "+name, func(r *rig) {
			fail(r, 2)
			require.NoError(r, r.Flush(context.Background()))
			require.Equal(r, []string{"x1", "y1", "x2", "y2"}, calls)
			synctest.Wait()
			require.Zero(r, announcers())
			r.pub("fail", 3)
			synctest.Wait()
			require.Len(r, calls, 6)
		}, faulty, note("x"), faulty, faulty, note("y"), faulty)
	}

	var again func(l DeadLetter)
	inBubble(t, "they may publish, subscribe, unsubscribe, read and close", func(r *rig) {
		var alerts sightings
		r.on("alerts", alerts.handle, WithSync())
		s, _ := r.full("a", DropNewest)
		again = func(l DeadLetter) {
			_, err := r.Publish(context.Background(), "alerts", l.Message.Payload)
			alerts.handle(context.Background(), Message{Payload: err})
			s.Unsubscribe() // One more letter: of what was queued.
			other, err := r.Subscribe("b", nothing)
			alerts.handle(context.Background(), Message{Payload: err})
			other.Unsubscribe()
			if r.DeadLetters().Total() == 2 && l.Message.Payload == "queued" {
				_ = r.Close()
			}
		}
		r.pub("a", "refused")
		synctest.Wait()
		got := alerts.payloads()
		require.ElementsMatch(r, []any{nil, nil, nil, nil, "refused", "queued"}, got)
		_, err := r.Publish(context.Background(), "a", nil)
		require.ErrorIs(r, err, ErrClosed)
	}, WithDeadLetterHandler(func(l DeadLetter) { again(l) }))
}

// The letters are a ring: the newest that it has room for, oldest first, whatever has
// been taken out in between, and nothing else is kept alive. All are counted.
func TestDeadLetterRing(t *testing.T) {
	for _, c := range []struct {
		name     string
		capacity int
		opts     []Option
	}{
		{"negative", 0, []Option{WithDeadLetterCapacity(-5)}},
		{"0", 0, []Option{WithDeadLetterCapacity(0)}},
		{"1", 1, []Option{WithDeadLetterCapacity(1)}},
		{"3", 3, []Option{WithDeadLetterCapacity(3)}},
		{"5", 5, []Option{WithDeadLetterCapacity(7), WithDeadLetterCapacity(5)}},
		{"default", 1000, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := New(c.opts...).DeadLetters()
			require.NotNil(t, d.Snapshot())
			var kept []any // the model
			for i := range 2*c.capacity + 20 {
				payload := fmt.Sprint(i)
				d.record(DeadLetter{Message: Message{Payload: payload}})
				kept = append(kept, payload)
				kept = kept[max(0, len(kept)-c.capacity):]
				if i == c.capacity+c.capacity/2+1 {
					require.Equal(t, kept, append([]any{}, payloadsOf(d.Take())...))
					require.Empty(t, d.Take())
					require.Empty(t, d.kept.slots)
					kept = kept[:0]
				}
				require.EqualValues(t, i+1, d.Total())
				require.Equal(t, len(kept), d.Len())
				if i > 50 && i%97 > 0 {
					continue
				}
				letters := d.Snapshot()
				require.Equal(t, kept, append([]any{}, payloadsOf(letters)...))
				clear(letters) // The slice is the caller's.
				require.Equal(t, kept, append([]any{}, payloadsOf(d.Snapshot())...))
				held := 0
				for _, l := range d.kept.slots {
					if l.item.Message.Payload != nil {
						held++
					}
				}
				require.Equal(t, len(kept), held, "an evicted letter is kept alive")
			}
			require.LessOrEqual(t, len(d.kept.slots), max(4, 2*c.capacity))
		})
	}
}

// Of concurrent calls of Take each letter goes to one.
func TestDeadLettersAreTakenOnce(t *testing.T) {
	d := New(WithDeadLetterCapacity(100_000)).DeadLetters()
	const writers, each = 4, 500
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				d.record(DeadLetter{Message: Message{Payload: w*each + i}})
			}
		})
	}
	var taken [4][]DeadLetter
	for i := range taken {
		wg.Go(func() {
			for range 200 {
				taken[i] = append(taken[i], d.Take()...)
				runtime.Gosched()
			}
		})
	}
	wg.Wait()
	seen := make(map[any]bool)
	for _, letters := range append(taken[:], d.Take()) {
		for _, l := range letters {
			require.False(t, seen[l.Message.Payload])
			seen[l.Message.Payload] = true
		}
	}
	require.Len(t, seen, writers*each)
	require.EqualValues(t, writers*each, d.Total())
}

// The texts are for logs and metrics: others match on them.
func TestReasonText(t *testing.T) {
	for reason, want := range map[Reason]string{
		0: "unknown", -1: "unknown", 8: "unknown", 1 << 30: "unknown",
		ReasonDroppedOldest: "dropped_oldest", ReasonDroppedNewest: "dropped_newest", ReasonCanceled: "canceled",
		ReasonError: "error", ReasonPanic: "panic", ReasonGoexit: "goexit", ReasonUnsubscribed: "unsubscribed",
	} {
		require.Equal(t, want, reason.String())
		text, err := reason.MarshalText()
		require.NoError(t, err)
		require.Equal(t, want, string(text))
		encoded, err := json.Marshal(map[Reason]Reason{reason: reason})
		require.NoError(t, err)
		require.JSONEq(t, fmt.Sprintf(`{"%s": "%s"}`, want, want), string(encoded))
	}
}

// secret is a payload that would show itself in whatever way it is formatted.
type secret struct{ Text string }

func (s secret) String() string               { return s.Text }
func (s secret) LogValue() slog.Value         { return slog.StringValue(s.Text) }
func (s secret) MarshalText() ([]byte, error) { return []byte(s.Text), nil }

// A payload may be large or not for the eyes of whoever reads logs, and a stack is not
// for one line.
func TestDeadLetterLogValueShowsNoPayload(t *testing.T) {
	l := DeadLetter{
		Time: time.Unix(0, 0).UTC(), SubscriptionID: 7, SubscriptionName: "billing", Pattern: "orders.*",
		Message: Message{ID: 42, Topic: "orders.created", Payload: secret{"hunter2"}, Time: time.Unix(1, 0)},
		Reason:  ReasonPanic, Err: &PanicError{Value: "boom", Stack: []byte("goroutine 1")},
	}
	plain := l
	plain.SubscriptionName, plain.Err = "", nil
	for _, letter := range []any{l, &l, plain} {
		var text, encoded bytes.Buffer
		slog.New(slog.NewTextHandler(&text, nil)).Error("dead letter", "letter", letter)
		slog.New(slog.NewJSONHandler(&encoded, nil)).Error("dead letter", slog.Any("letter", letter))
		for _, line := range []string{text.String(), encoded.String()} {
			require.NotContains(t, line, "hunter2")
			require.NotContains(t, line, "goroutine 1")
			require.Contains(t, line, "orders.created")
		}
		var got struct{ Letter map[string]any }
		require.NoError(t, json.Unmarshal(encoded.Bytes(), &got))
		want := map[string]any{
			"reason": "panic", "topic": "orders.created", "message_id": 42.0, "subscription_id": 7.0,
			"pattern": "orders.*", "time": "1970-01-01T00:00:00Z",
			"subscription": "billing", "error": "pubsub: handler panicked: boom",
		}
		if letter == any(plain) {
			delete(want, "subscription")
			delete(want, "error")
		}
		require.Equal(t, want, got.Letter)
	}
}
