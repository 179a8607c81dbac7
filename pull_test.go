package pubsub

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
)

// pulled publishes payloads 0 to n-1 to a pulled subscription on "a".
func pulled(t *testing.T, n int, opts ...SubscribeOption) (*Broker, *Subscription) {
	t.Helper()
	b := New()
	s, err := b.Pull("a", opts...)
	require.NoError(t, err)
	for i := range n {
		_, err := b.Publish(t.Context(), "a", i)
		require.NoError(t, err)
	}
	return b, s
}

// take pulls up to n payloads.
func take(s *Subscription, n int) (payloads []any) {
	for msg := range s.Messages(context.Background()) {
		payloads = append(payloads, msg.Payload)
		if len(payloads) == n {
			break
		}
	}
	return payloads
}

func TestPull(t *testing.T) {
	t.Run("in order, settled when the body is left", func(t *testing.T) {
		_, s := pulled(t, 3)
		n := uint64(0)
		for msg := range s.Messages(t.Context()) {
			require.EqualValues(t, n, msg.Payload)
			require.Equal(t, SubscriptionStats{Matched: 3, Delivered: n, Queued: int(2 - n), Running: 1}, s.Stats())
			if n++; n == 2 {
				break
			}
		}
		require.Equal(t, SubscriptionStats{Matched: 3, Delivered: 2, Queued: 1}, s.Stats())
		require.Equal(t, []any{2}, take(s, 1), "a later loop goes on where the first left")
	})

	t.Run("it waits for the next, and no goroutine does it for it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b, s := pulled(t, 0)
			before := bubbleGoroutines()
			var got []any
			done := make(chan struct{})
			go func() {
				defer close(done)
				for msg := range s.Messages(t.Context()) {
					got = append(got, msg.Payload)
				}
			}()
			for i := range 3 {
				synctest.Wait()
				require.Equal(t, before+1, bubbleGoroutines())
				_, err := b.Publish(t.Context(), "a", i)
				require.NoError(t, err)
			}
			synctest.Wait()
			s.Unsubscribe()
			<-done
			require.Equal(t, []any{0, 1, 2}, got)
		})
	})

	t.Run("what the body has had is not kept while the loop waits", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b, s := pulled(t, 0)
			var none context.Context // is as good as Background.
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range s.Messages(none) {
				}
			}()
			sent := func() weak.Pointer[[100]byte] {
				payload := new([100]byte)
				_, err := b.Publish(none, "a", payload)
				require.NoError(t, err)
				return weak.Make(payload)
			}()
			synctest.Wait()
			require.EqualValues(t, 1, s.Stats().Delivered)
			runtime.GC()
			require.Nil(t, sent.Value())
			s.Unsubscribe()
			<-done
		})
	})

	t.Run("Shutdown does not wait for it, but for those made after it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b, s := pulled(t, 1)
			release := make(chan struct{})
			after, err := b.Subscribe("b", func(context.Context, Message) error { <-release; return nil })
			require.NoError(t, err)
			require.Nil(t, s.work, "it has no worker")
			require.NotNil(t, after.work)
			_, err = b.Publish(t.Context(), "b", nil)
			require.NoError(t, err)
			ended := make(chan error, 1)
			go func() { ended <- b.Shutdown(context.Background()) }()
			synctest.Wait()
			require.Empty(t, ended)
			close(release)
			require.NoError(t, <-ended)
			require.EqualValues(t, 1, after.Stats().Delivered)
			require.EqualValues(t, 1, s.Stats().Dropped)
		})
	})

	t.Run("a done ctx ends the loop and keeps the rest", func(t *testing.T) {
		_, s := pulled(t, 3)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		n := 0
		for range s.Messages(ctx) {
			n++
			cancel()
		}
		require.Equal(t, 1, n)
		require.Equal(t, SubscriptionStats{Matched: 3, Delivered: 1, Queued: 2}, s.Stats())
		for range s.Messages(ctx) {
			require.Fail(t, "ctx is done")
		}
	})

	t.Run("a ctx that ends while it waits", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, s := pulled(t, 0)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			for range s.Messages(ctx) {
				require.Fail(t, "nothing was published")
			}
			require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
		})
	})

	t.Run("its policies are those of any queue", func(t *testing.T) {
		b, s := pulled(t, 5, WithQueueSize(2))
		require.Equal(t, []any{3, 4}, take(s, 2))
		require.Equal(t, 3, b.DeadLetters().Len())
		b, s = pulled(t, 5, WithQueueSize(2), WithDropPolicy(DropNewest))
		require.Equal(t, []any{0, 1}, take(s, 2))
		require.Equal(t, ReasonDroppedNewest, b.DeadLetters().Snapshot()[0].Reason)
	})

	t.Run("a publisher that waits for room is let in by the loop", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b, s := pulled(t, 1, WithQueueSize(1), WithDropPolicy(Block))
			errs := make(chan error, 3)
			go func() {
				for i := range 3 {
					_, err := b.Publish(t.Context(), "a", 1+i)
					errs <- err
				}
			}()
			synctest.Wait()
			require.Equal(t, []any{0, 1, 2, 3}, take(s, 4))
			for range 3 {
				require.NoError(t, <-errs)
			}
		})
	})

	t.Run("max messages end the loop", func(t *testing.T) {
		_, s := pulled(t, 5, WithMaxMessages(3))
		require.Equal(t, []any{0, 1, 2}, take(s, -1))
		<-s.Done()
		require.Equal(t, SubscriptionStats{Matched: 3, Delivered: 3}, s.Stats())
	})

	t.Run("a panic and a Goexit in the body are dead letters and go on", func(t *testing.T) {
		b, s := pulled(t, 3)
		cause := errors.New("body")
		require.PanicsWithError(t, "body", func() {
			for range s.Messages(t.Context()) {
				panic(cause)
			}
		})
		var wg sync.WaitGroup
		wg.Go(func() {
			for range s.Messages(context.Background()) {
				runtime.Goexit()
			}
		})
		wg.Wait()
		letters := b.DeadLetters().Snapshot()
		require.Len(t, letters, 2)
		require.Equal(t, ReasonPanic, letters[0].Reason)
		require.ErrorIs(t, letters[0].Err, cause)
		require.Equal(t, ReasonGoexit, letters[1].Reason)
		require.ErrorIs(t, letters[1].Err, ErrGoexit)
		require.Equal(t, []any{2}, take(s, 1))
		require.Equal(t, SubscriptionStats{Matched: 3, Delivered: 1, Failed: 2}, s.Stats())
	})

	t.Run("Unsubscribe in the body", func(t *testing.T) {
		b, s := pulled(t, 3)
		for range s.Messages(t.Context()) {
			s.Unsubscribe()
			require.Empty(t, b.Subscriptions())
			require.Equal(t, SubscriptionStats{Matched: 3, Dropped: 2, Running: 1}, s.Stats())
			select {
			case <-s.Done():
				require.Fail(t, "the body still has a message")
			default:
			}
		}
		<-s.Done()
		require.Equal(t, SubscriptionStats{Matched: 3, Delivered: 1, Dropped: 2}, s.Stats())
		require.Empty(t, take(s, 1), "a loop over one that has ended")
	})

	t.Run("leaving the loop ends a subscription that is draining and empty", func(t *testing.T) {
		_, s := pulled(t, 1)
		for range s.Messages(t.Context()) {
			s.drain()
			break
		}
		<-s.Done()
		require.Equal(t, SubscriptionStats{Matched: 1, Delivered: 1}, s.Stats())
	})

	t.Run("Drain waits for the owner", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, s := pulled(t, 3)
			go func() {
				time.Sleep(time.Hour)
				take(s, -1)
			}()
			start := time.Now()
			require.NoError(t, s.Drain(t.Context()))
			require.Equal(t, time.Hour, time.Since(start))
			require.EqualValues(t, 3, s.Stats().Delivered)
		})
	})

	t.Run("Drain discards when ctx ends first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b, s := pulled(t, 3)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			require.ErrorIs(t, s.Drain(ctx), context.DeadlineExceeded)
			require.Equal(t, SubscriptionStats{Matched: 3, Dropped: 3}, s.Stats())
			require.Equal(t, ReasonUnsubscribed, b.DeadLetters().Snapshot()[0].Reason)
		})
	})

	t.Run("Flush and Shutdown do not wait for the owner", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b, s := pulled(t, 3)
			handled := 0
			_, err := b.Subscribe("a", func(context.Context, Message) error {
				time.Sleep(time.Second)
				handled++
				return nil
			})
			require.NoError(t, err)
			_, err = b.Publish(t.Context(), "a", 3)
			require.NoError(t, err)
			require.NoError(t, b.Flush(t.Context()))
			require.Equal(t, 1, handled)
			require.Equal(t, 4, s.Stats().Queued)
			require.NoError(t, b.Shutdown(t.Context()))
			require.Equal(t, SubscriptionStats{Matched: 4, Dropped: 4}, s.Stats())
			require.Equal(t, 4, b.DeadLetters().Len())
		})
	})

	t.Run("a loop left at its last message keeps no large buffer", func(t *testing.T) {
		_, s := pulled(t, 1000, WithQueueSize(1000))
		require.Len(t, take(s, 1000), 1000)
		require.LessOrEqual(t, len(s.queue.in.slots)+len(s.queue.out.slots), smallBuffer)
	})

	t.Run("Shutdown in a handler that has returned discards what is left", func(t *testing.T) {
		b, s := pulled(t, 1)
		contexts := make(chan context.Context, 1)
		_, err := b.Subscribe("b", func(ctx context.Context, _ Message) error {
			contexts <- ctx
			return nil
		})
		require.NoError(t, err)
		_, err = b.Publish(t.Context(), "b", nil)
		require.NoError(t, err)
		require.NoError(t, b.Flush(t.Context()))
		require.NoError(t, b.Shutdown(<-contexts))
		<-s.Done()
		require.Equal(t, SubscriptionStats{Matched: 1, Dropped: 1}, s.Stats())
	})

	t.Run("mistakes", func(t *testing.T) {
		b, s := pulled(t, 1)
		_, err := b.Pull("a", WithSync())
		require.ErrorIs(t, err, ErrInvalidOption)
		_, err = b.Pull("a..b", WithQueueSize(0))
		require.ErrorIs(t, err, ErrInvalidPattern)
		_, err = b.Pull("a", WithQueueSize(0))
		require.ErrorIs(t, err, ErrInvalidOption)
		handled, err := b.Subscribe("b", func(context.Context, Message) error { return nil })
		require.NoError(t, err)
		require.Panics(t, func() { handled.Messages(t.Context()) })
		for range s.Messages(t.Context()) {
			require.PanicsWithValue(t, "pubsub: two loops over the Messages of one subscription", func() { take(s, 1) })
			break
		}
		require.EqualValues(t, 1, s.Stats().Delivered, "the first loop is not disturbed")
		require.NoError(t, b.Close())
		_, err = b.Pull("a..b")
		require.ErrorIs(t, err, ErrClosed)
	})

	t.Run("the lock-step of many publishers and a loop", func(t *testing.T) {
		b, s := pulled(t, 0, WithQueueSize(3), WithDropPolicy(Block))
		const publishers, each = 4, 500
		var wg sync.WaitGroup
		for p := range publishers {
			wg.Go(func() {
				for i := range each {
					if _, err := b.Publish(context.Background(), "a", [2]int{p, i}); err != nil {
						panic(err)
					}
				}
			})
		}
		var next [publishers]int
		for range publishers * each / 10 {
			for _, payload := range take(s, 10) {
				from := payload.([2]int)
				require.Equal(t, next[from[0]], from[1], "in the order of its publisher")
				next[from[0]]++
			}
		}
		wg.Wait()
		require.Equal(t, SubscriptionStats{Matched: publishers * each, Delivered: publishers * each}, s.Stats())
	})
}
