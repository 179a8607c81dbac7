package pubsub

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// failedOnce makes a broker in which "first" has failed to handle one message that
// "second" has handled, and returns what each has handled since.
func failedOnce(t *testing.T, opts ...SubscribeOption) (b *Broker, letter DeadLetter, got map[string][]Message) {
	t.Helper()
	b = New()
	got = make(map[string][]Message)
	fail := true
	_, err := b.Subscribe("a.*", func(_ context.Context, msg Message) error {
		if fail {
			fail = false
			return errors.New("not yet")
		}
		got["first"] = append(got["first"], msg)
		return nil
	}, append([]SubscribeOption{WithName("first")}, opts...)...)
	require.NoError(t, err)
	_, err = b.Subscribe("a.*", func(_ context.Context, msg Message) error {
		got["second"] = append(got["second"], msg)
		return nil
	}, opts...)
	require.NoError(t, err)
	_, err = b.Publish(t.Context(), "a.b", "payload")
	require.NoError(t, err)
	require.NoError(t, b.Flush(t.Context()))
	require.Len(t, got["second"], 1)
	delete(got, "second")
	return b, b.DeadLetters().Take()[0], got
}

func TestRedeliver(t *testing.T) {
	for name, opts := range map[string][]SubscribeOption{"asynchronous": nil, "synchronous": {WithSync()}} {
		t.Run("once more, to that subscription only, "+name, func(t *testing.T) {
			b, letter, got := failedOnce(t, opts...)
			published := b.Stats().Published
			require.NoError(t, b.Redeliver(t.Context(), letter))
			require.NoError(t, b.Flush(t.Context()))
			require.Equal(t, map[string][]Message{"first": {letter.Message}}, got, "id and time are kept")
			require.Equal(t, SubscriptionStats{Matched: 2, Delivered: 1, Failed: 1}, b.Subscriptions()[0].Stats())
			require.Equal(t, published, b.Stats().Published, "it takes no id")
			require.NoError(t, b.Shutdown(t.Context()))
		})

		t.Run("a gone subscription, "+name, func(t *testing.T) {
			b, letter, got := failedOnce(t, opts...)
			b.Subscriptions()[0].Unsubscribe()
			err := b.Redeliver(t.Context(), letter)
			require.ErrorIs(t, err, ErrNoSubscription)
			require.ErrorContains(t, err, `1 on "a.*"`)
			require.Empty(t, got)
			require.NoError(t, b.Close())
			require.ErrorIs(t, b.Redeliver(t.Context(), letter), ErrClosed)
		})
	}

	t.Run("a letter of another broker, alike in all else", func(t *testing.T) {
		_, letter, _ := failedOnce(t)
		b, own, got := failedOnce(t)
		letter.Time, letter.Message.Time = own.Time, own.Message.Time
		require.Equal(t, own, letter)
		require.ErrorIs(t, b.Redeliver(t.Context(), letter), ErrNoSubscription)
		require.ErrorIs(t, b.Redeliver(t.Context(), DeadLetter{}), ErrNoSubscription)
		require.NoError(t, b.Flush(t.Context()))
		require.Empty(t, got)
	})

	t.Run("a letter that has been decoded", func(t *testing.T) {
		b, letter, _ := failedOnce(t)
		letter.Err = nil
		text, err := json.Marshal(letter)
		require.NoError(t, err)
		letter.Reason = 0
		var decoded struct{ Pattern string }
		require.NoError(t, json.Unmarshal(text, &decoded))
		letter.Pattern = decoded.Pattern
		require.ErrorIs(t, b.Redeliver(t.Context(), letter), ErrNoSubscription)
	})

	t.Run("it takes part in max messages", func(t *testing.T) {
		b := New()
		s, err := b.Subscribe("a", func(context.Context, Message) error { return errors.New("no") }, WithMaxMessages(2))
		require.NoError(t, err)
		_, err = b.Publish(t.Context(), "a", nil)
		require.NoError(t, err)
		require.NoError(t, b.Flush(t.Context()))
		letter := b.DeadLetters().Snapshot()[0]
		require.NoError(t, b.Redeliver(t.Context(), letter))
		<-s.Done()
		require.ErrorIs(t, b.Redeliver(t.Context(), letter), ErrNoSubscription)
		require.Equal(t, SubscriptionStats{Matched: 2, Failed: 2}, s.Stats())
	})

	t.Run("it waits for room in a Block queue, and ctx bounds the wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := New()
			release := make(chan struct{})
			fail := true
			s, err := b.Subscribe("a", func(context.Context, Message) error {
				if fail {
					fail = false
					return errors.New("no")
				}
				<-release
				return nil
			}, WithQueueSize(1), WithDropPolicy(Block))
			require.NoError(t, err)
			for range 3 { // One fails, one is held, one is queued.
				_, err = b.Publish(t.Context(), "a", nil)
				require.NoError(t, err)
				synctest.Wait()
			}
			letter := b.DeadLetters().Take()[0]
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			require.ErrorIs(t, b.Redeliver(ctx, letter), context.DeadlineExceeded)
			require.Equal(t, ReasonCanceled, b.DeadLetters().Snapshot()[0].Reason)
			go func() {
				time.Sleep(time.Hour)
				close(release)
			}()
			require.NoError(t, b.Redeliver(t.Context(), letter))
			require.NoError(t, b.Shutdown(t.Context()))
			require.Equal(t, SubscriptionStats{Matched: 5, Delivered: 3, Failed: 1, Dropped: 1}, s.Stats())
		})
	})

	t.Run("a handler may call it", func(t *testing.T) {
		b, letter, got := failedOnce(t)
		errs := make(chan error, 1)
		_, err := b.Subscribe("again", func(ctx context.Context, _ Message) error {
			errs <- b.Redeliver(ctx, letter)
			return nil
		})
		require.NoError(t, err)
		_, err = b.Publish(t.Context(), "again", nil)
		require.NoError(t, err)
		require.NoError(t, <-errs)
		require.NoError(t, b.Shutdown(t.Context()))
		require.Len(t, got["first"], 1)
	})
}
