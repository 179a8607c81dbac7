package pubsub

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// flushLater starts a Flush in another goroutine, in a bubble; what it returned is in
// the channel.
func flushLater(ctx context.Context, r testRig) <-chan error {
	returned := make(chan error, 1)
	go func() { returned <- r.Flush(ctx) }()
	synctest.Wait()
	return returned
}

// TestFlush: it returns when what was published before is handled or dropped and its
// dead letters are announced, and waits for nothing else.
func TestFlush(t *testing.T) {
	background := context.Background()
	canceled, cancel := context.WithCancel(background)
	cancel()
	bubble(t, "waits for every message published before", func(t *testing.T, r testRig) {
		g, slow := newGate(t), newGate(t)
		r.sub("a", g.handle)
		r.sub("#", slow.handle)
		r.sub("a", ignore)
		r.pub("a", 1, 2)
		flushed := flushLater(background, r)
		g.open()
		slow.one(nil)
		require.Empty(t, flushed)
		require.Equal(t, []any{1, 2}, slow.calls())
		slow.one(nil)
		require.Len(t, flushed, 1)
		require.NoError(t, <-flushed)
	})
	bubble(t, "does not wait for what is published after", func(t *testing.T, r testRig) {
		g, late := newGate(t), newGate(t)
		r.sub("a", g.handle)
		r.pub("a", 1)
		flushed := flushLater(background, r)
		r.pub("a", 2, 3)
		r.sub("a", late.handle)
		r.pub("a", 4)
		g.one(nil)
		require.NoError(t, <-flushed)
		require.Equal(t, []any{1, 2}, g.calls()) // 2 runs, 3 and 4 are queued.
		require.Equal(t, []any{4}, late.calls())
		g.open()
		late.open()
	})
	bubble(t, "does not wait for a publish that has not returned", func(t *testing.T, r testRig) {
		g := newGate(t)
		r.sub("a", g.handle, WithQueueSize(1), WithDropPolicy(Block))
		r.pub("a", 1)
		synctest.Wait()
		r.pub("a", 2)
		waiting := r.later(background, "a", 3)
		flushed := flushLater(background, r)
		g.one(nil)
		require.Len(t, waiting, 1)
		require.Empty(t, flushed)
		g.one(nil)
		require.NoError(t, <-flushed)
		require.Equal(t, []any{1, 2, 3}, g.calls()) // 3 runs.
		g.open()
	})
	bubble(t, "later drops do not count as earlier messages", func(t *testing.T, r testRig) {
		g := newGate(t)
		r.sub("a", g.handle, WithQueueSize(2))
		r.pub("a", 1)
		synctest.Wait()
		r.pub("a", 2, 3)
		flushed := flushLater(background, r)
		for i := 4; i <= 20; i++ {
			r.pub("a", i) // evicts 2, 3 and many more than the three waited for
		}
		again := flushLater(background, r)
		synctest.Wait()
		require.Empty(t, flushed) // 1 still runs.
		g.one(nil)
		require.NoError(t, <-flushed) // 2 and 3 are evicted.
		require.Equal(t, []any{1, 19}, g.calls())
		r.pub("a", 21, 22)
		require.Empty(t, again) // evicted 20, and yet 19 still runs
		g.one(nil)
		require.NoError(t, <-again)
		g.open()
	})
	bubble(t, "nor do drops before a queue's turn to be waited for", func(t *testing.T, r testRig) {
		first, g := newGate(t), newGate(t)
		r.sub("a", first.handle)
		r.sub("b", g.handle, WithQueueSize(2))
		r.pub("a", 1)
		r.pub("b", 1)
		flushed := flushLater(background, r) // It waits for the first subscription.
		for i := 2; i <= 9; i++ {
			r.pub("b", i) // evicts 2 to 7, one by one, while 1 runs
		}
		first.one(nil)
		require.Empty(t, flushed)
		g.one(nil)
		require.NoError(t, <-flushed)
		require.Equal(t, []any{1, 8}, g.calls())
		g.open()
	})
	bubble(t, "nor does what Unsubscribe discards", func(t *testing.T, r testRig) {
		g := newGate(t)
		s := r.sub("a", g.handle)
		r.pub("a", 1)
		flushed := flushLater(background, r)
		r.pub("a", 2, 3, 4)
		s.Unsubscribe()
		synctest.Wait()
		require.Empty(t, flushed) // 1 still runs.
		g.one(nil)
		require.NoError(t, <-flushed)
	})
	bubble(t, "refused ones are not waited for", func(t *testing.T, r testRig) {
		g := newGate(t)
		r.sub("a", g.handle, WithQueueSize(1), WithDropPolicy(DropNewest))
		r.pub("a", 1)
		synctest.Wait()
		r.pub("a", 2, 3, 4)
		flushed := flushLater(background, r)
		g.one(nil)
		require.Empty(t, flushed)
		r.pub("a", 5)
		r.pub("a", 6)
		g.one(nil)
		require.NoError(t, <-flushed)
		g.open()
	})
	bubble(t, "ended subscriptions that are not Done are covered", func(t *testing.T, r testRig) {
		g := newGate(t)
		s := r.sub("a", g.handle)
		r.pub("a", 1, 2, 3)
		synctest.Wait()
		before := flushLater(background, r)
		s.Unsubscribe() // 2 and 3 are discarded.
		synctest.Wait()
		after := flushLater(background, r)
		require.Empty(t, r.Subscriptions())
		require.Empty(t, before)
		require.Empty(t, after)
		g.one(nil)
		require.NoError(t, <-before)
		require.NoError(t, <-after)
	})
	for _, how := range []string{"Drain", "WithMaxMessages"} {
		bubble(t, "draining ones are covered/"+how, func(t *testing.T, r testRig) {
			g := newGate(t)
			s := r.sub("a", g.handle, WithMaxMessages(2))
			if how == "Drain" {
				s = r.sub("a", g.handle)
			}
			r.pub("a", 1, 2)
			if how == "Drain" {
				drainLater(background, s)
			}
			flushed := flushLater(background, r)
			for s.Stats().Queued+s.Stats().Running > 0 {
				require.Empty(t, flushed)
				g.one(nil)
			}
			g.open()
			require.NoError(t, <-flushed)
			require.True(t, isClosed(s.Done()))
		})
	}
	for _, ended := range []string{"Flush", "Shutdown"} {
		t.Run("dead letters are announced/"+ended, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate(t)
				r := newTestRig(t, WithDeadLetterHandler(func(l DeadLetter) { _ = g.handle(background, l.Message) }))
				r.sub("a", func(context.Context, Message) error { return errors.New("no") })
				r.sub("b", func(context.Context, Message) error { return errors.New("no") }, WithSync())
				r.pub("a", 1)
				synctest.Wait()
				r.pub("b", 2)
				flushed := flushLater(background, r)
				if ended == "Shutdown" {
					flushed = shutdownLater(background, r)
				} else {
					r.pub("b", 3) // for a later Flush to wait for
				}
				g.one(nil)
				require.Empty(t, flushed)
				g.one(nil)
				require.NoError(t, <-flushed)
				g.open()
				require.NoError(t, r.Flush(canceled))
			})
		})
	}
	bubble(t, "a ctx that ends leaves nothing behind", func(t *testing.T, r testRig) {
		g := newGate(t)
		s := r.sub("a", g.handle, WithQueueSize(1), WithDropPolicy(Block))
		r.pub("a", 1)
		for range 3 {
			ctx, cancel := context.WithTimeoutCause(background, time.Minute, errors.New("not the cause but Err"))
			start := time.Now()
			require.Equal(t, context.DeadlineExceeded, r.Flush(ctx))
			require.Equal(t, time.Minute, time.Since(start))
			cancel()
		}
		require.Equal(t, context.Canceled, r.Flush(canceled))
		require.Empty(t, s.queue.marks)
		require.Zero(t, s.queue.state.Load()&queueWaiting)
		flushed := flushLater(background, r) // One that goes on is not given up with it.
		require.Equal(t, context.Canceled, r.Flush(canceled))
		r.pub("a", 2)
		waiting := r.later(background, "a", 3) // nor a publisher that waits for room
		synctest.Wait()
		require.Equal(t, context.Canceled, r.Flush(canceled))
		g.one(nil)
		require.NoError(t, <-flushed)
		require.NoError(t, (<-waiting).err)
		g.open()
		require.NoError(t, r.Flush(canceled)) // Nothing is left to wait for.
		require.Empty(t, s.queue.marks)
		require.Zero(t, s.queue.state.Load()&queueWaiting)
	})
	bubble(t, "one given up does not take a waiting publisher's turn", func(t *testing.T, r testRig) {
		g := newGate(t)
		r.sub("a", g.handle, WithQueueSize(4), WithDropPolicy(Block))
		r.pub("a", 1)
		synctest.Wait()
		r.pub("a", 2, 3, 4, 5)
		first, second := r.later(background, "a", 6), r.later(background, "a", 6)
		synctest.Wait()
		for i, room := range []int{1, 2} {
			require.Equal(t, context.Canceled, r.Flush(canceled))
			require.Equal(t, i, len(first)+len(second))
			g.one(nil)
			require.Equal(t, room, len(first)+len(second))
		}
		g.open()
	})
	t.Run("a ctx that ends before the announcement leaves nothing behind", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := newGate(t)
			r := newTestRig(t, WithDeadLetterHandler(func(l DeadLetter) { _ = g.handle(background, l.Message) }))
			var inside context.Context
			r.sub("a", func(ctx context.Context, _ Message) error { inside = ctx; return errors.New("no") }, WithSync())
			r.pub("a", 1)
			ctx, cancel := context.WithTimeout(background, time.Minute)
			defer cancel()
			require.Equal(t, context.DeadlineExceeded, r.Flush(ctx))
			require.Equal(t, ErrInHandler, r.Flush(inside)) // It is still something to wait for.
			require.Empty(t, r.DeadLetters().announcements.marks)
			require.Zero(t, r.DeadLetters().announcements.state.Load()&queueWaiting)
			g.open()
		})
	})
	bubble(t, "works after Close", func(t *testing.T, r testRig) {
		require.NoError(t, r.Flush(canceled)) // and before anything
		g := newGate(t)
		r.sub("a", g.handle)
		r.pub("a", 1, 2)
		synctest.Wait()
		require.NoError(t, r.Close())
		flushed := flushLater(background, r)
		require.Empty(t, flushed)
		g.one(nil)
		require.NoError(t, <-flushed)
		require.NoError(t, r.Flush(canceled))
	})
	bubble(t, "concurrently: each returns at its own position", func(t *testing.T, r testRig) {
		g := newGate(t)
		r.sub("a", g.handle)
		flushes := [5][2]<-chan error{}
		for i := range flushes {
			r.pub("a", i)
			flushes[i][0], flushes[i][1] = flushLater(background, r), flushLater(background, r)
		}
		for i := range flushes {
			for _, later := range flushes[i:] {
				require.Empty(t, later[0])
				require.Empty(t, later[1])
			}
			g.one(nil)
			require.NoError(t, <-flushes[i][0])
			require.NoError(t, <-flushes[i][1])
		}
	})
	bubble(t, "whatever the calls do, and how many processors there are", func(t *testing.T, r testRig) {
		s := r.sub("a", func(_ context.Context, msg Message) error {
			switch msg.Payload.(int) % 4 {
			case 1:
				return errors.New("no")
			case 2:
				panic("no")
			case 3:
				runtime.Goexit()
			}
			return nil
		})
		for i := range 100 {
			r.pub("a", i)
			require.NoError(t, r.Flush(background))
			require.EqualValues(t, i+1, s.Stats().Delivered+s.Stats().Failed)
		}
	})
	bubble(t, "a chain of k topics needs k calls", func(t *testing.T, r testRig) {
		const hops = 4
		gates := [hops]*gate{}
		for i := range gates {
			gates[i] = newGate(t)
			r.sub(fmt.Sprint("hop.", i), func(ctx context.Context, msg Message) error {
				_ = gates[i].handle(ctx, msg)
				_, err := r.Publish(ctx, fmt.Sprint("hop.", i+1), msg.Payload)
				return err
			})
		}
		r.pub("hop.0", 1)
		for i, g := range gates {
			flushed := flushLater(background, r)
			require.Empty(t, flushed)
			g.one(nil)
			require.NoError(t, <-flushed)
			require.Len(t, g.calls(), 1)
			if i+1 < hops { // The next has begun, and was not waited for.
				require.Equal(t, 1, r.Stats().Running)
			}
		}
		require.Zero(t, r.Stats().Running)
		require.NoError(t, r.Flush(canceled))
	})
	bubble(t, "in a handler it does not wait", func(t *testing.T, r testRig) {
		var inside error
		var ctx context.Context
		r.sub("a", func(c context.Context, _ Message) error {
			ctx, inside = c, r.Flush(c)
			return nil
		}, WithSync())
		r.pub("a", 1)
		require.Equal(t, ErrInHandler, inside)
		require.NoError(t, r.Flush(ctx)) // Nothing is left to wait for.
	})
	for _, m := range modes {
		t.Run("of many publishers/"+m.name, func(t *testing.T) {
			for range 20 {
				flushUnderPublishers(t, m.opts)
			}
		})
	}
}

// flushUnderPublishers checks that after its own Publish and Flush a publisher finds
// its message handled, or its letter announced; the handlers' plain writes are
// visible to it, which the race detector checks.
func flushUnderPublishers(t *testing.T, opts []SubscribeOption) {
	const publishers, rounds = 4, 30
	type slot struct{ handled, announced int } // of one publisher's latest message
	var slots [publishers][rounds]slot
	at := func(msg Message) *slot { p := msg.Payload.([2]int); return &slots[p[0]][p[1]] }
	r := newTestRig(t, WithDeadLetterHandler(func(l DeadLetter) { at(l.Message).announced++ }))
	r.sub("a", func(_ context.Context, msg Message) error {
		runtime.Gosched()
		if msg.ID%3 == 0 {
			return errors.New("no")
		}
		at(msg).handled++
		return nil
	}, opts...)
	var all sync.WaitGroup
	for p := range publishers {
		all.Go(func() {
			for i := range rounds {
				if _, err := r.Publish(context.Background(), "a", [2]int{p, i}); err != nil {
					t.Error(err)
				}
				if i%3 != 0 { // Several are on their way at a time.
					continue
				}
				if err := r.Flush(context.Background()); err != nil {
					t.Error(err)
				}
				for j := range i + 1 {
					if got := slots[p][j]; got.handled+got.announced != 1 {
						t.Errorf("message %d of %d: %+v after Flush", j, i, got)
					}
				}
			}
		})
	}
	all.Wait()
	require.NoError(t, r.Shutdown(context.Background()))
	require.EqualValues(t, publishers*rounds, r.Stats().Matched)
}
