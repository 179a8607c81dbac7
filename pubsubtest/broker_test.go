package pubsubtest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-b8032e04/pubsub"
	"github.com/seed-b8032e04/pubsub/pubsubtest"
)

var errFault = errors.New("fault")

func subscribe(t testing.TB, b *pubsubtest.Broker, pattern string, h pubsub.Handler, opts ...pubsub.SubscribeOption) *pubsub.Subscription {
	t.Helper()
	s, err := b.Subscribe(pattern, h, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func failing(context.Context, pubsub.Message) error { return errFault }

func TestNew(t *testing.T) {
	t.Run("the broker ends with the test, after the cleanups registered later", func(t *testing.T) {
		handled := 0
		var b *pubsubtest.Broker
		got := try("T", func(t testing.TB) {
			b = pubsubtest.New(t)
			subscribe(t, b, "a", func(context.Context, pubsub.Message) error {
				handled++
				return nil
			})
			t.Cleanup(func() { publish(t, b, "a", 1) })
			publish(t, b, "a", 2)
		})
		require.Empty(t, got.messages())
		require.Equal(t, 2, handled, "what was queued has been handled")
		_, err := b.Publish(t.Context(), "a", nil)
		require.ErrorIs(t, err, pubsub.ErrClosed)
	})
	t.Run("options are the broker's, but for the capacity of dead letters", func(t *testing.T) {
		var announced []pubsub.Reason
		got := try("T", func(t testing.TB) {
			b := pubsubtest.New(t, nil, pubsub.WithStrictTopics(), pubsub.WithDeadLetterCapacity(0),
				pubsub.WithDeadLetterHandler(func(l pubsub.DeadLetter) { announced = append(announced, l.Reason) }))
			if _, err := b.Publish(t.Context(), "a", nil); !errors.Is(err, pubsub.ErrUnknownTopic) {
				t.Errorf("not strict: %v", err)
			}
			if err := b.CreateTopic("a"); err != nil {
				t.Fatal(err)
			}
			subscribe(t, b, "a", failing)
			publish(t, b, "a", 1)
		})
		require.Len(t, got.messages(), 1)
		require.Contains(t, got.messages()[0], "1 unexpected dead letter\n    error  #1  a  int 1  in subscription 1 on a: fault")
		require.Equal(t, []pubsub.Reason{pubsub.ReasonError}, announced)
	})
	t.Run("a test that has closed its broker", func(t *testing.T) {
		got := try("T", func(t testing.TB) {
			b := pubsubtest.New(t)
			b.Close()
		})
		require.Empty(t, got.messages())
	})
}

func TestStuck(t *testing.T) {
	t.Run("an asynchronous handler", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan bool)
			defer close(release)
			got := try("T", func(t testing.TB) {
				b := pubsubtest.New(t)
				subscribe(t, b, "a.*", func(context.Context, pubsub.Message) error {
					<-release
					return nil
				}, pubsub.WithName("billing"))
				publish(t, b, "a.b", 1, 2, 3)
				synctest.Wait()
				subscribe(t, b, "b", failing)
				publish(t, b, "b", 4)
			})
			require.Equal(t, []string{
				"pubsubtest: the broker did not come to an end within 10s:\n" +
					"    the handler, with message #1, of subscription 1 on a.* (billing) still runs; discarded from its queue: 2",
				"pubsubtest: 1 unexpected dead letter\n" +
					"    error  #4  b  int 4  in subscription 2 on b: fault",
			}, got.messages())
		})
	})
	t.Run("synchronous ones, and one that has been unsubscribed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan bool)
			defer close(release)
			stuck := func(context.Context, pubsub.Message) error {
				<-release
				return nil
			}
			got := try("T", func(t testing.TB) {
				b := pubsubtest.New(t)
				subscribe(t, b, "a", stuck, pubsub.WithSync())
				subscribe(t, b, "b", stuck, pubsub.WithSync())
				s := subscribe(t, b, "c", stuck)
				for _, topic := range []string{"a", "a", "b", "c"} {
					go b.Publish(context.Background(), topic, nil)
				}
				synctest.Wait()
				s.Unsubscribe()
			})
			require.Equal(t, []string{"pubsubtest: the broker did not come to an end within 10s:\n" +
				"    2 calls of the handler of subscription 1 on a still runs\n" +
				"    the handler of subscription 2 on b still runs\n" +
				"    a handler of a subscription that ended before still runs (calls: 1)"}, got.messages())
		})
	})
	t.Run("a dead-letter handler", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan bool)
			defer close(release)
			got := try("T", func(t testing.TB) {
				b := pubsubtest.New(t, pubsub.WithDeadLetterHandler(func(pubsub.DeadLetter) { <-release }))
				subscribe(t, b, "a", failing)
				publish(t, b, "a", nil, nil)
				b.WaitDeadLetter("a") // is not behind it
				synctest.Wait()
				b.AllowDeadLetters("a")
			})
			require.Equal(t, []string{"pubsubtest: the broker did not come to an end within 10s:\n" +
				"    a dead-letter handler still runs"}, got.messages())
		})
	})
	t.Run("what nobody has pulled is a dead letter", func(t *testing.T) {
		got := try("T", func(t testing.TB) {
			b := pubsubtest.New(t)
			if _, err := b.Pull("a"); err != nil {
				t.Fatal(err)
			}
			publish(t, b, "a", 1)
		})
		require.Equal(t, []string{"pubsubtest: 1 unexpected dead letter\n" +
			"    unsubscribed  #1  a  int 1  in subscription 1 on a"}, got.messages())
	})
}

func TestDeadLetters(t *testing.T) {
	// failed publishes what fails: errors on a.b, a panic and a Goexit on a.c.
	failed := func(t testing.TB, b *pubsubtest.Broker) {
		subscribe(t, b, "a.b", failing)
		subscribe(t, b, "a.c", func(_ context.Context, msg pubsub.Message) error {
			if msg.Payload == "exit" {
				runtime.Goexit()
			}
			panic("boom")
		})
		publish(t, b, "a.b", 1, 2)
		publish(t, b, "a.c", "exit", "panic")
	}
	for name, expect := range map[string]func(b *pubsubtest.Broker){
		"allowed by topic":  func(b *pubsubtest.Broker) { b.AllowDeadLetters("#") },
		"allowed by reason": func(b *pubsubtest.Broker) { allow(b, pubsub.ReasonError, pubsub.ReasonPanic, pubsub.ReasonGoexit) },
		"allowed by both": func(b *pubsubtest.Broker) {
			b.AllowDeadLetters("a.b", pubsub.ReasonError)
			b.AllowDeadLetters("a.c", pubsub.ReasonPanic, pubsub.ReasonGoexit)
			b.AllowDeadLetters("none.comes")
		},
		"waited for": func(b *pubsubtest.Broker) {
			for range 4 {
				b.WaitDeadLetter("#")
			}
		},
		"waited for, in any order": func(b *pubsubtest.Broker) {
			b.WaitDeadLetter("a.c", pubsub.ReasonPanic)
			b.WaitDeadLetter("*.c")
			b.WaitDeadLetter("a.b")
			b.WaitDeadLetter("a.b", pubsub.ReasonPanic, pubsub.ReasonError)
		},
		"taken": func(b *pubsubtest.Broker) {
			if err := b.Flush(context.Background()); err != nil {
				panic(err)
			}
			b.DeadLetters().Take()
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := try("T", func(t testing.TB) {
				b := pubsubtest.New(t)
				failed(t, b)
				expect(b)
			})
			require.Empty(t, got.messages())
		})
	}
	t.Run("not allowed: the rest, with the frames of a panic", func(t *testing.T) {
		got := try("T", func(t testing.TB) {
			b := pubsubtest.New(t)
			failed(t, b)
			b.AllowDeadLetters("a.c", pubsub.ReasonGoexit)
			b.AllowDeadLetters("a", pubsub.ReasonError)
			if l := b.WaitDeadLetter("a.b"); l.Message.Payload != 1 || !errors.Is(l.Err, errFault) {
				t.Errorf("got %v", l)
			}
		})
		require.Len(t, got.messages(), 1)
		text := got.messages()[0]
		require.True(t, strings.HasPrefix(text, "pubsubtest: 2 unexpected dead letters\n"), text)
		require.Contains(t, text, "    error  #2  a.b  int 2  in subscription 1 on a.b: fault")
		require.Contains(t, text, `    panic  #4  a.c  "panic"  in subscription 2 on a.c: pubsub: handler panicked: boom`)
		require.Contains(t, text, "broker_test.go:")
		require.NotContains(t, text, "pubsub.(*")
	})
	t.Run("one that does not come, and each is returned once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { // So that nothing else takes its millisecond.
			got := try("T", func(t testing.TB) {
				b := pubsubtest.New(t, pubsub.WithClock(func() time.Time { return time.Time{} }))
				b.Timeout = time.Millisecond
				subscribe(t, b, "a", failing, pubsub.WithSync())
				publish(t, b, "a", 1)
				l := b.WaitDeadLetter("a")
				if err := b.Redeliver(t.Context(), l); err != nil { // a letter just like it
					t.Fatal(err)
				}
				b.WaitDeadLetter("a")
				publish(t, b, "a", 2)
				b.WaitDeadLetter("a", pubsub.ReasonPanic, pubsub.ReasonGoexit)
			})
			letter := "    error  #2  a  int 2  in subscription 1 on a: fault"
			require.Equal(t, []string{
				"pubsubtest: no dead letter on a with reason panic or goexit within 1ms; 1 other dead letter\n" + letter,
				"pubsubtest: 1 unexpected dead letter\n" + letter,
			}, got.messages())
			got = try("T", func(t testing.TB) {
				b := pubsubtest.New(t)
				b.Timeout = 0
				b.WaitDeadLetter("#")
			})
			require.Equal(t, []string{"pubsubtest: no dead letter on # within 0s; no other dead letter"}, got.messages())
		})
	})
	t.Run("an unexpected one among many more than are announced", func(t *testing.T) {
		got := try("T", func(t testing.TB) {
			b := pubsubtest.New(t)
			b.AllowDeadLetters("a", pubsub.ReasonDroppedOldest)
			gate := make(chan bool)
			subscribe(t, b, "a", func(context.Context, pubsub.Message) error {
				<-gate
				return nil
			}, pubsub.WithQueueSize(1))
			for n := range 10_000 {
				publish(t, b, "a", n)
				if n == 5000 {
					subscribe(t, b, "b", failing, pubsub.WithSync())
					publish(t, b, "b", "this one")
				}
			}
			close(gate)
		})
		require.Len(t, got.messages(), 1)
		require.Contains(t, got.messages()[0], "1 unexpected dead letter\n    error  #5002  b  \"this one\"")
	})
	t.Run("the first of many", func(t *testing.T) {
		got := try("T", func(t testing.TB) {
			b := pubsubtest.New(t)
			subscribe(t, b, "a", func(context.Context, pubsub.Message) error { panic("boom") }, pubsub.WithSync())
			for n := range 500 {
				publish(t, b, "a", n)
			}
		})
		text := got.messages()[0]
		require.Contains(t, text, "500 unexpected dead letters\n    panic  #1 ")
		require.True(t, strings.HasSuffix(text, "\n    ... 480 more"))
		require.Less(t, len(text), 8000)
	})
	t.Run("in a bubble a missing one fails at the virtual deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			got := try("T", func(t testing.TB) { pubsubtest.New(t).WaitDeadLetter("a") })
			require.Len(t, got.messages(), 1)
			require.Equal(t, 10*time.Second, time.Since(began))
		})
	})
}

func allow(b *pubsubtest.Broker, reasons ...pubsub.Reason) { b.AllowDeadLetters("#", reasons...) }

// What a failure prints of a hostile or large payload is short, on one line, and never
// ends the test.
func TestShownPayload(t *testing.T) {
	for _, c := range []struct {
		payload any
		want    string
	}{
		{nil, "nil"},
		{"line\nbreak \x1b[31m", `"line\nbreak \x1b[31m"`},
		{[]byte("raw"), `[]uint8 "raw"`},
		{rawJSON(`{"a":1}`), `pubsubtest_test.rawJSON "{\"a\":1}"`},
		{&Order{"A-17", 5}, "*pubsubtest_test.Order &{ID:A-17 Cents:5}"},
		{struct{ S string }{"two\nlines"}, `struct { S string } "{S:two\nlines}"`},
		{errFault, "*errors.errorString: fault"},
		{(*brokenText)(nil), "*pubsubtest_test.brokenText"},
		{brokenText{}, "PANIC="},
		{strings.Repeat("ä", 1<<20), strings.Repeat("ä", 120) + `..."`},
		{make([]byte, 1<<20), `\x00..."`},
		{make([]int, 1000), "0 0..."},
	} {
		got := try("T", func(t testing.TB) {
			b := pubsubtest.New(t)
			b.Timeout = 0
			r := b.Record("a")
			publish(t, b, "a", c.payload)
			r.Wait(2)
		})
		text := got.messages()[0]
		require.Contains(t, text, c.want)
		require.Equal(t, 1, strings.Count(text, "\n"), text)
		require.Less(t, len(text), 1500)
	}
}

func TestShownNames(t *testing.T) {
	topic := "<b>\n\x00" + strings.Repeat("x", 60_000)
	got := try("T", func(t testing.TB) {
		b := pubsubtest.New(t)
		b.Timeout = 0
		subscribe(t, b, topic, func(context.Context, pubsub.Message) error {
			return fmt.Errorf("%w:\n%s", errFault, topic)
		}, pubsub.WithName(topic), pubsub.WithSync())
		r := b.Record(topic)
		publish(t, b, topic, nil)
		r.Wait(2)
	})
	for _, text := range got.messages() {
		require.NotContains(t, text, "\x00")
		require.Less(t, len(text), 4000)
	}
}

type rawJSON []byte

type brokenText struct{}

func (brokenText) String() string { panic("broken") }
