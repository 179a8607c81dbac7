package pubsub

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
)

var policies = map[DropPolicy]string{DropOldest: "drop_oldest", DropNewest: "drop_newest", Block: "block"}

// A policy can be written to and read from a configuration file or a flag, and comes
// back as it was.
func TestDropPolicyText(t *testing.T) {
	require.Equal(t, []DropPolicy{0, 1, 2}, []DropPolicy{DropOldest, DropNewest, Block}, "callers may have stored them")
	for p, want := range policies {
		require.Equal(t, want, p.String())
		require.Equal(t, want, fmt.Sprint(p))
		text, err := p.MarshalText()
		require.NoError(t, err)
		require.Equal(t, want, string(text))
		back := DropPolicy(99)
		require.NoError(t, back.UnmarshalText(text))
		require.Equal(t, p, back)

		encoded, err := json.Marshal(map[string]DropPolicy{"policy": p})
		require.NoError(t, err)
		var decoded struct{ Policy DropPolicy }
		require.NoError(t, json.Unmarshal(encoded, &decoded))
		require.Equal(t, p, decoded.Policy)

		var parsed DropPolicy
		flags := flag.NewFlagSet("", flag.ContinueOnError)
		flags.TextVar(&parsed, "policy", DropOldest, "")
		require.NoError(t, flags.Parse([]string{"-policy", want}))
		require.Equal(t, p, parsed)
	}
	for _, p := range []DropPolicy{-1, 3, 1 << 30} {
		require.Equal(t, fmt.Sprintf("DropPolicy(%d)", int(p)), p.String())
		_, err := p.MarshalText()
		require.ErrorIs(t, err, ErrInvalidOption)
		require.ErrorContains(t, err, fmt.Sprint(int(p)))
	}
	for _, text := range []string{"", "Block", "block ", "drop-oldest", "0", "DropPolicy(3)", strings.Repeat("x", 100_000)} {
		p := DropNewest
		err := p.UnmarshalText([]byte(text))
		require.ErrorIs(t, err, ErrInvalidOption)
		require.ErrorContains(t, err, text[:min(len(text), 64)])
		require.Less(t, len(err.Error()), 200)
		require.Equal(t, DropNewest, p, "left as it was")
	}
}

// Options are often put together by code: one that is nil, or carries nil, is the
// default and no panic.
func TestNilOptionsAreDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, Broker: New(nil, WithClock(nil), WithDeadLetterHandler(nil), nil)}
		var got sightings
		s := r.on("a", got.handle, nil, WithName("first"), nil, WithName("last"))
		require.Equal(t, "last", s.Name())
		require.EqualValues(t, 128, s.queue.size)
		require.Equal(t, DropOldest, s.policy)
		require.False(t, s.sync)
		require.Zero(t, s.limit)
		require.EqualValues(t, 1000, r.deadLetters.capacity)
		require.Empty(t, r.deadLetters.handlers)
		r.pub("a", nil)
		synctest.Wait()
		require.Equal(t, time.Now(), got.msgs[0].Time)

		r = &rig{T: t, Broker: New(WithClock(ticking()), WithClock(nil))}
		r.on("a", got.handle)
		r.pub("a", nil)
		synctest.Wait()
		require.Equal(t, time.Now(), got.msgs[1].Time, "nil is the default, not the clock before")
	})
}

// An option out of range is refused, whatever other options say and wherever it
// stands, and leaves no subscription.
func TestInvalidOptions(t *testing.T) {
	b := New()
	for name, invalid := range map[string]SubscribeOption{
		"queue size 0 is less than 1":             WithQueueSize(0),
		"queue size -7 is less than 1":            WithQueueSize(-7),
		"drop policy 3":                           WithDropPolicy(3),
		"drop policy -1":                          WithDropPolicy(-1),
		"max messages 0 is less than 1":           WithMaxMessages(0),
		"max messages -2147483648 is less than 1": WithMaxMessages(-1 << 31),
	} {
		for _, opts := range [][]SubscribeOption{
			{invalid},
			{WithSync(), invalid}, // Validated, though not used.
			{invalid, WithSync()},
			{invalid, WithQueueSize(1), WithDropPolicy(Block), WithMaxMessages(1)},
			{WithQueueSize(1), WithDropPolicy(Block), WithMaxMessages(1), invalid, nil},
			{invalid, WithQueueSize(-100), WithDropPolicy(100), WithMaxMessages(-100)}, // The first is named.
		} {
			s, err := b.Subscribe("a", nothing, opts...)
			require.ErrorIs(t, err, ErrInvalidOption)
			require.ErrorContains(t, err, name)
			require.Nil(t, s)
		}
	}
	_, err := b.Subscribe("", nil, WithQueueSize(0))
	require.ErrorIs(t, err, ErrInvalidPattern, "before a nil handler")
	_, err = b.Subscribe("a", nil, WithQueueSize(0))
	require.ErrorIs(t, err, ErrNilHandler, "before an invalid option")
	require.Empty(t, b.Subscriptions())
	requireEmptyIndex(t, &b.index)
	s, err := b.Subscribe("a", nothing, WithQueueSize(1<<31-1), WithMaxMessages(1<<31-1))
	require.NoError(t, err)
	require.EqualValues(t, 1, s.ID(), "what was refused took no id")
	require.NoError(t, b.Close())
	_, err = b.Subscribe("", nil, WithQueueSize(0))
	require.Equal(t, ErrClosed, err, "before any other error")
}

// heapAfter returns how much more is in use after do than before, when what is garbage
// has gone.
func heapAfter(do func()) int64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.GC() // A sync.Pool gives up what it has in two.
	runtime.ReadMemStats(&before)
	do()
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

// The row Bounded of the contract.
func TestBounded(t *testing.T) {
	for p, name := range policies {
		inBubble(t, "a queue never holds more than its size: "+name, func(r *rig) {
			for _, size := range []int{1, 2, 3, 7} {
				g := r.turnstile()
				topic := fmt.Sprint("size.", size)
				s := r.on(topic, g.handle, WithQueueSize(size), WithDropPolicy(p))
				r.pub(topic, 0)
				synctest.Wait() // The first runs, which is not in the queue.
				for i := range 10 {
					_, _ = r.Publish(canceled(), topic, i+1)
					require.Equal(r, min(size, i+1), s.Stats().Queued)
				}
				letters := payloadsOf(r.letters(10 - size))
				g.open()
				synctest.Wait()
				all := []any{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
				if p == DropOldest {
					require.Equal(r, all[1:11-size], letters, "the oldest not yet started is evicted")
					require.Equal(r, append([]any{0}, all[11-size:]...), g.payloads())
				} else {
					require.Equal(r, all[1+size:], letters, "the new one is refused")
					require.Equal(r, all[:1+size], g.payloads())
				}
			}
		})
	}

	inBubble(t, "an idle queue, also after a burst, is small, whatever its size", func(r *rig) {
		g := r.turnstile()
		s := r.on("a", g.handle, WithQueueSize(1<<31-1))
		slots := func() int {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.queue.in.slots) + len(s.queue.out.slots)
		}
		require.Zero(r, slots())
		for i := range 1000 {
			r.pub("a", nil)
			require.LessOrEqual(r, slots(), max(2*smallBuffer, 2*i+2))
		}
		require.GreaterOrEqual(r, slots(), 999)
		g.open()
		synctest.Wait()
		require.LessOrEqual(r, slots(), 2*smallBuffer)
	})

	const many, long = 4_000, 1_000
	name := func(i int) string { return fmt.Sprintf("%d.%s", i, strings.Repeat("x", long)) }
	t.Run("distinct topics and patterns leave nothing behind", func(t *testing.T) {
		r := &rig{T: t, Broker: New()}
		r.on("#", nothing, WithSync())
		publishes := func() {
			for i := range many {
				r.pub(name(i), nil)
			}
		}
		kept := heapAfter(publishes)
		require.Less(t, kept, int64(routeSlots*(long+500)), "the cache keeps %d of %d bytes", kept, many*long)
		kept = heapAfter(func() {
			for i := range many {
				s := r.on(name(i), nothing, WithSync())
				if i%2 == 0 {
					r.pub(name(i), nil)
				}
				s.Unsubscribe()
			}
			publishes() // Which replaces the routes of those that have gone.
		})
		require.Less(t, kept, int64(routeSlots*500))
		require.NoError(t, r.Close())
	})
	t.Run("a deleted topic leaves nothing behind", func(t *testing.T) {
		r := &rig{T: t, Broker: New()}
		require.NoError(t, r.CreateTopic("stays"))
		kept := heapAfter(func() {
			for i := range 30_000 {
				require.NoError(t, r.CreateTopic(fmt.Sprint("topic.", i)))
			}
			for i := range 30_000 {
				require.NoError(t, r.DeleteTopic(fmt.Sprint("topic.", i)))
			}
		})
		require.Less(t, kept, int64(300_000), "broken once: the map kept its size")
		require.Equal(t, []string{"stays"}, r.Topics())
	})
	testFreedSlots(t)
}

// testFreedSlots are the cases of Bounded in which a payload and its publisher's
// context must be gone while the subscription, and often a call, lives on.
func testFreedSlots(t *testing.T) {
	type large struct{ _ [1 << 16]byte }
	type key struct{}
	held := func(values []weak.Pointer[large]) (n int) {
		runtime.GC()
		for _, v := range values {
			if v.Value() != nil {
				n++
			}
		}
		return n
	}
	// publish sends one message whose payload and context are large, and can be
	// found again only if somebody keeps them.
	publish := func(r *rig, topic string) []weak.Pointer[large] {
		payload, value := new(large), new(large)
		ctx, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, value))
		go func() { _, _ = r.Publish(ctx, topic, payload) }()
		synctest.Wait()
		cancel() // One that waits for room gives up.
		synctest.Wait()
		return []weak.Pointer[large]{weak.Make(payload), weak.Make(value)}
	}
	for _, alone := range []bool{true, false} {
		free := func(promise string, test func(r *rig)) {
			inBubble(t, fmt.Sprintf("a freed slot keeps nothing alive: %s, alone %v", promise, alone), func(r *rig) {
				if !alone { // Then the queues share one message.
					r.on("a", nothing)
				}
				test(r)
			}, WithDeadLetterCapacity(0))
		}
		free("handled, idle", func(r *rig) {
			s := r.on("a", nothing)
			require.Zero(r, held(publish(r, "a")))
			runtime.KeepAlive(s)
		})
		free("handled, and the next runs", func(r *rig) {
			g := r.turnstile()
			r.on("a", func(ctx context.Context, _ Message) error { return g.handle(ctx, Message{}) })
			first, second := publish(r, "a"), publish(r, "a")
			require.Equal(r, 4, held(append(first, second...)), "queued and running: they must be there")
			g.let()
			require.Zero(r, held(first))
			require.NotZero(r, held(second))
		})
		free("evicted", func(r *rig) {
			r.full("a", DropOldest)
			require.Equal(r, 2, held(publish(r, "a")))
			evicted := publish(r, "a")
			r.pub("a", nil)
			require.Zero(r, held(evicted))
		})
		free("refused", func(r *rig) {
			r.full("a", DropNewest)
			require.Zero(r, held(publish(r, "a")))
		})
		free("given up", func(r *rig) {
			r.full("a", Block)
			require.Zero(r, held(publish(r, "a")))
		})
		free("unsubscribed", func(r *rig) {
			s, _ := r.full("a", DropOldest)
			queued := publish(r, "a")
			require.Equal(r, 2, held(queued))
			s.Unsubscribe()
			require.Zero(r, held(queued))
		})
		free("failed", func(r *rig) {
			r.on("a", failing[ReasonError])
			r.on("a", failing[ReasonPanic])
			r.on("a", failing[ReasonGoexit])
			require.Zero(r, held(publish(r, "a")))
		})
	}
	inBubble(t, "a freed slot keeps nothing alive: a dead letter taken or evicted", func(r *rig) {
		r.on("a", failing[ReasonError], WithSync())
		taken := publish(r, "a")
		require.Equal(r, 1, held(taken), "the letter has the payload")
		r.letters(1)
		require.Zero(r, held(taken))
		evicted := publish(r, "a")
		r.pub("a", nil)
		r.pub("a", nil)
		require.Zero(r, held(evicted))
		require.Equal(r, 2, r.DeadLetters().Len())
	}, WithDeadLetterCapacity(2))
}
