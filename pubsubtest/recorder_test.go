package pubsubtest_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-b8032e04/pubsub"
	"github.com/seed-b8032e04/pubsub/pubsubtest"
)

// The examples of the documentation are tests like any other.
func TestPlace(t *testing.T)  { testPlace(t) }
func TestMailer(t *testing.T) { testMailer(t) }

func publish(t testing.TB, b *pubsubtest.Broker, topic string, payloads ...any) {
	t.Helper()
	for _, payload := range payloads {
		if _, err := b.Publish(t.Context(), topic, payload); err != nil {
			t.Fatal(err)
		}
	}
}

func payloads(msgs []pubsub.Message) []any {
	all := make([]any, len(msgs))
	for i, msg := range msgs {
		all[i] = msg.Payload
	}
	return all
}

func TestRecorder(t *testing.T) {
	t.Run("what is published before Publish returns is recorded, what does not match is not", func(t *testing.T) {
		b := pubsubtest.New(t)
		publish(t, b, "a.b", "too early")
		r := b.Record("a.*")
		publish(t, b, "a.b", 1, 2)
		publish(t, b, "b.a", 3)
		publish(t, b, "a.c", 4)
		require.Equal(t, []any{1, 2, 4}, payloads(r.Messages()))
		require.Equal(t, "a.c", r.Wait(3).Topic)
		require.Equal(t, 1, r.Wait(1).Payload, "an earlier one can be asked for again")
		r.Messages()[0].Payload = "changed"
		require.Equal(t, 1, r.Wait(1).Payload)
	})

	t.Run("nothing is lost", func(t *testing.T) {
		b := pubsubtest.New(t)
		r := b.Record("load.#")
		const publishers, each = 8, 2000
		var wg sync.WaitGroup
		for p := range publishers {
			wg.Go(func() {
				for n := range each {
					publish(t, b, fmt.Sprint("load.", p), n)
				}
			})
		}
		r.Wait(publishers * each)
		wg.Wait()
		next := make(map[string]int)
		for _, msg := range r.Messages() {
			require.Equal(t, next[msg.Topic], msg.Payload)
			next[msg.Topic]++
		}
		require.Len(t, next, publishers)
		require.Len(t, r.Messages(), publishers*each)
	})

	t.Run("several goroutines wait", func(t *testing.T) {
		b := pubsubtest.New(t)
		r := b.Record("a")
		var wg sync.WaitGroup
		for n := range 10 {
			wg.Go(func() {
				if msg := r.Wait(n + 1); msg.Payload != n {
					t.Errorf("message %d is %v", n+1, msg.Payload)
				}
			})
		}
		for n := range 10 {
			publish(t, b, "a", n)
		}
		wg.Wait()
	})

	t.Run("WaitFor finds what has come and what comes", func(t *testing.T) {
		b := pubsubtest.New(t)
		r := b.Record("a")
		is := func(want any) func(pubsub.Message) bool {
			return func(msg pubsub.Message) bool { return msg.Payload == want }
		}
		publish(t, b, "a", 1, 2)
		require.EqualValues(t, 2, r.WaitFor(is(2)).ID)
		require.EqualValues(t, 1, r.WaitFor(is(1)).ID)
		calls := 0
		done := make(chan pubsub.Message)
		go func() {
			done <- r.WaitFor(func(msg pubsub.Message) bool {
				calls++
				return msg.Payload == 5
			})
		}()
		publish(t, b, "a", 3, 4, 5, 5)
		require.EqualValues(t, 5, (<-done).ID)
		require.Equal(t, 5, calls, "once for each message")
	})

	t.Run("a broker from elsewhere, and recorders of subtests", func(t *testing.T) {
		b := pubsub.New()
		defer b.Close()
		for _, name := range []string{"one", "two"} {
			t.Run(name, func(t *testing.T) {
				r := pubsubtest.Record(t, b, "a")
				if _, err := b.Publish(t.Context(), "a", name); err != nil {
					t.Fatal(err)
				}
				require.Equal(t, name, r.Wait(1).Payload)
				require.Len(t, r.Messages(), 1)
				require.Equal(t, t.Name(), b.Subscriptions()[0].Name())
			})
		}
		require.Empty(t, b.Subscriptions(), "a recorder ends with its test")
	})

	t.Run("what is published when the test is over does no harm", func(t *testing.T) {
		b := pubsub.New()
		defer b.Close()
		var r *pubsubtest.Recorder
		try("T", func(t testing.TB) { r = pubsubtest.Record(t, b, "a") })
		_, err := b.Publish(t.Context(), "a", 1)
		require.NoError(t, err)
		require.Empty(t, r.Messages())
	})
}

func TestRecorderFails(t *testing.T) {
	t.Run("with the list of what came, and nothing after it runs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { // So that nothing else takes its millisecond.
			got := try("T", func(t testing.TB) {
				b := pubsubtest.New(t)
				b.Timeout = time.Millisecond
				r := b.Record("a.*")
				publish(t, b, "a.b", "first", struct{ N int }{2})
				r.Wait(3)
				t.Errorf("goes on")
			})
			require.Len(t, got.messages(), 1)
			lines := strings.Split(got.messages()[0], "\n")
			require.Equal(t, "pubsubtest: no message 3 on a.* within 1ms; recorded so far: 2", lines[0])
			require.Regexp(t, `^    #1  \d\d:\d\d:\d\d\.\d\d\d  a\.b  "first"$`, lines[1])
			require.Regexp(t, `a\.b  struct { N int } {N:2}$`, lines[2])
			require.Len(t, lines, 3)
			require.True(t, got.stopped)
		})
	})
	t.Run("when nothing came, with what was published elsewhere", func(t *testing.T) {
		got := try("T", func(t testing.TB) {
			b := pubsubtest.New(t)
			b.Timeout = 0
			publish(t, b, "order.placed")
			r := b.Record("orders.*")
			publish(t, b, "order.placed", 1)
			r.WaitFor(func(pubsub.Message) bool { return true })
		})
		require.Equal(t, []string{"pubsubtest: no message that match accepts on orders.* within 0s; " +
			"nothing was recorded, though 1 message was published meanwhile, to topics that do not match"}, got.messages())

		got = try("T", func(t testing.TB) {
			b := pubsubtest.New(t)
			b.Timeout = 0
			b.Record("orders.*").Wait(1)
		})
		require.Equal(t, []string{"pubsubtest: no message 1 on orders.* within 0s; " +
			"nothing was published meanwhile, to any topic"}, got.messages())
	})
	t.Run("with the last of many", func(t *testing.T) {
		got := try("T", func(t testing.TB) {
			b := pubsubtest.New(t)
			b.Timeout = 0
			r := b.Record("a")
			for n := range 1000 {
				publish(t, b, "a", n)
			}
			r.Wait(1001)
		})
		text := got.messages()[0]
		require.Contains(t, text, "recorded so far: 1000\n    ... 980 earlier\n    #981 ")
		require.Contains(t, text, "int 999")
		require.Less(t, len(text), 2000)
	})
	t.Run("at once when the broker is closed", func(t *testing.T) {
		got := try("T", func(t testing.TB) {
			b := pubsubtest.New(t)
			b.Timeout = time.Hour // of real time
			r := b.Record("a")
			publish(t, b, "a", 1)
			b.Close()
			r.Wait(1)
			r.Wait(2)
		})
		require.Len(t, got.messages(), 1)
		require.Contains(t, got.messages()[0], "no message 2 on a before the broker was closed; recorded so far: 1")
	})
	t.Run("what cannot be", func(t *testing.T) {
		for want, test := range map[string]func(t testing.TB, b *pubsubtest.Broker){
			"Wait(0): messages are counted from 1": func(_ testing.TB, b *pubsubtest.Broker) { b.Record("a").Wait(0) },
			"recording a..b: pubsub: invalid":      func(_ testing.TB, b *pubsubtest.Broker) { b.Record("a..b") },
			`recording "": pubsub: invalid`:        func(_ testing.TB, b *pubsubtest.Broker) { b.Record("") },
			"recording a: pubsub: broker closed": func(t testing.TB, b *pubsubtest.Broker) {
				b.Close()
				pubsubtest.Record(t, b.Broker, "a")
			},
			"pubsubtest: pubsub: invalid pattern": func(_ testing.TB, b *pubsubtest.Broker) { b.AllowDeadLetters("a.b*") },
			`inside a segment: "b*"`:              func(_ testing.TB, b *pubsubtest.Broker) { b.WaitDeadLetter("b*") },
		} {
			got := try("T", func(t testing.TB) {
				test(t, pubsubtest.New(t))
				t.Errorf("goes on")
			})
			require.Len(t, got.messages(), 1)
			require.Contains(t, got.messages()[0], want)
			require.True(t, got.stopped)
		}
	})
}

func TestRecorderInBubble(t *testing.T) {
	t.Run("waits for what comes tomorrow", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := pubsubtest.New(t)
			b.Timeout = 48 * time.Hour
			r := b.Record("carts.forgotten")
			began := time.Now()
			time.AfterFunc(24*time.Hour, func() { publish(t, b, "carts.forgotten", "C-3") })
			require.Equal(t, "C-3", r.Wait(1).Payload)
			require.Equal(t, 24*time.Hour, time.Since(began))
		})
	})
	t.Run("a missing message fails at the virtual deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			got := try("T", func(t testing.TB) {
				b := pubsubtest.New(t)
				b.Timeout = 1000 * time.Hour
				b.Record("a").Wait(1)
			})
			require.Contains(t, got.messages()[0], "no message 1 on a within 1000h0m0s")
			require.Equal(t, 1000*time.Hour, time.Since(began))
		})
	})
	t.Run("nothing more comes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := pubsubtest.New(t)
			r := b.Record("a")
			publish(t, b, "a", 1)
			synctest.Wait()
			require.Len(t, r.Messages(), 1)
		})
	})
}
