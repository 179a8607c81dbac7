package pubsub

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestInspect(t *testing.T) {
	b := New()
	handler := func(context.Context, Message) error { return nil }
	queued, err := b.Subscribe("a", handler, WithQueueSize(7), WithDropPolicy(Block))
	require.NoError(t, err)
	require.False(t, queued.Sync())
	require.False(t, queued.Pulled())
	require.Equal(t, 7, queued.QueueSize())
	require.Equal(t, Block, queued.DropPolicy())
	called, err := b.Subscribe("a", handler, WithQueueSize(7), WithSync())
	require.NoError(t, err)
	require.True(t, called.Sync())
	require.Zero(t, called.QueueSize())
	pulled, err := b.Pull("a")
	require.NoError(t, err)
	require.True(t, pulled.Pulled())
	require.Equal(t, defaultQueueSize, pulled.QueueSize())
}

// The id is that of the message that runs, also when newer ones have been evicted
// from behind it, and none when nothing runs.
func TestRunningMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New()
		next := make(chan struct{})
		s, err := b.Subscribe("a", func(context.Context, Message) error {
			<-next
			return nil
		}, WithQueueSize(3))
		require.NoError(t, err)
		_, ok := s.RunningMessage()
		require.False(t, ok)
		for range 20 { // 1 runs; 18, 19 and 20 are left.
			_, err := b.Publish(t.Context(), "a", nil)
			require.NoError(t, err)
			synctest.Wait()
			id, ok := s.RunningMessage()
			require.True(t, ok)
			require.EqualValues(t, 1, id)
		}
		for want := 18; want <= 20; want++ {
			next <- struct{}{}
			synctest.Wait()
			id, ok := s.RunningMessage()
			require.True(t, ok)
			require.EqualValues(t, want, id)
		}
		s.Unsubscribe()
		id, ok := s.RunningMessage()
		require.True(t, ok, "the call goes on")
		require.EqualValues(t, 20, id)
		next <- struct{}{}
		<-s.Done()
		_, ok = s.RunningMessage()
		require.False(t, ok)

		called, err := b.Subscribe("b", func(context.Context, Message) error {
			<-next
			return nil
		}, WithSync())
		require.NoError(t, err)
		go b.Publish(t.Context(), "b", nil)
		synctest.Wait()
		require.Equal(t, 1, called.Stats().Running)
		_, ok = called.RunningMessage()
		require.False(t, ok, "several calls of a synchronous handler can run")
		next <- struct{}{}
	})
}

// It is read while a worker claims without the lock and publishers evict.
func TestRunningMessageUnderLoad(t *testing.T) {
	b := New()
	s, err := b.Subscribe("a", func(context.Context, Message) error { return nil }, WithQueueSize(4))
	require.NoError(t, err)
	published := make(chan struct{})
	go func() {
		defer close(published)
		for range 20_000 {
			if _, err := b.Publish(context.Background(), "a", nil); err != nil {
				panic(err)
			}
		}
	}()
	last := uint64(0)
	for open := true; open; {
		select {
		case <-published:
			open = false
		default:
			runtime.Gosched() // Where there is one thread, nobody else makes way.
		}
		if id, ok := s.RunningMessage(); ok {
			require.GreaterOrEqual(t, id, last, "ids grow with the messages of one publisher")
			last = id
		}
	}
	require.NoError(t, b.Shutdown(t.Context()))
}
