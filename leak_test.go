//go:build goexperiment.goroutineleakprofile

package pubsub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// leaks returns the entries of the runtime's profile of leaked goroutines that have
// code of this module in them. Leaked is one that waits for what nothing can reach.
func leaks(t *testing.T) (entries []string) {
	t.Helper()
	p := pprof.Lookup("goroutineleak")
	require.NotNil(t, p, "the experiment is on")
	var text bytes.Buffer
	require.NoError(t, p.WriteTo(&text, 1))
	for entry := range strings.SplitSeq(text.String(), "\n\n") {
		if strings.Contains(entry, "seed-b8032e04/pubsub") {
			entries = append(entries, entry)
		}
	}
	return entries
}

// No goroutine of the broker's is ever left waiting for what nobody can reach, whatever
// was done to it: not for a queue of a broker that is gone, nor for room, nor for a
// flush.
func TestNoGoroutineLeaks(t *testing.T) {
	for range 3 {
		stuckAndReleased(t)
		churnWide(t)
		dropped(t)
	}
	for range 100 { // Workers may be about to end.
		runtime.Gosched()
	}
	require.Empty(t, leaks(t), "goroutines are leaked")
}

// stuckAndReleased has handlers, publishers, flushes and drains wait for each other when
// Close and Shutdown come.
func stuckAndReleased(t *testing.T) {
	for _, how := range []string{"Close", "Shutdown"} {
		release := make(chan struct{})
		r := newTestRig(t, WithDeadLetterHandler(func(DeadLetter) { <-release }))
		var waiting sync.WaitGroup
		ctx, cancel := context.WithCancel(context.Background())
		var subs []*Subscription
		for _, m := range modes {
			s := r.sub("a."+m.name, func(ctx context.Context, _ Message) error {
				derived, cancel := context.WithCancel(ctx)
				defer cancel()
				select {
				case <-release:
				case <-derived.Done():
					<-release
				}
				panic("late")
			}, m.opts...)
			subs = append(subs, s)
			for range 8 {
				waiting.Go(func() { _, _ = r.Publish(ctx, "a."+m.name, new(ballast)) })
			}
			waiting.Go(func() { _ = s.Drain(ctx) })
			waiting.Go(func() { _ = r.Flush(ctx) })
		}
		pulled, err := r.Pull("a.#")
		require.NoError(t, err)
		waiting.Go(func() {
			for range pulled.Messages(ctx) {
				runtime.Gosched()
			}
		})
		for range 1000 {
			runtime.Gosched()
		}
		require.Empty(t, leaks(t), "who waits for what can still come is not leaked")
		cancel()
		if how == "Close" {
			require.NoError(t, r.Close())
		} else {
			deadline, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			require.Equal(t, context.DeadlineExceeded, r.Shutdown(deadline))
			cancel()
		}
		close(release)
		waiting.Wait()
		for _, s := range subs {
			await(t, s.Done(), "Done")
		}
		require.NoError(t, r.Shutdown(context.Background()))
	}
}

// churnWide makes and ends many subscriptions to one topic under publishers.
func churnWide(t *testing.T) {
	r := newTestRig(t, WithDeadLetterHandler(func(DeadLetter) { runtime.Goexit() }))
	stop := r.storm(2, "a.b")
	for i := range 20 {
		var subs []*Subscription
		for n := range 2 * wideRoute / 20 {
			m := modes[n%len(modes)]
			h := func(context.Context, Message) error {
				if n%7 == 0 && !m.sync {
					runtime.Goexit()
				}
				return errors.New("no")
			}
			subs = append(subs, r.sub([]string{"a.b", "a.*", "#"}[n%3], h, with(m.opts, WithName(fmt.Sprint(i, n)))...))
		}
		for n, s := range subs {
			if n%2 == 0 {
				s.Unsubscribe()
			} else {
				require.NoError(t, s.Drain(context.Background()))
			}
		}
	}
	stop()
	require.NoError(t, r.Close())
	require.NoError(t, r.Flush(context.Background()))
}

// dropped has a broker work, and lets go of it without Close.
func dropped(t *testing.T) {
	r := newTestRig(t, WithDeadLetterHandler(func(DeadLetter) {}))
	for _, m := range modes {
		for _, h := range []Handler{ignore, failing[ReasonError], failing[ReasonPanic]} {
			r.sub("a", h, m.opts...)
		}
	}
	for range 50 {
		r.pub("a", r)
	}
}

// The profile does see a goroutine that is leaked: that it is empty says something. In a
// process of its own, since such a goroutine can never be ended.
func TestLeakProfileSees(t *testing.T) {
	const inChild = "PUBSUB_LEAK"
	if os.Getenv(inChild) == "" {
		child := exec.Command(os.Args[0], "-test.run", "^TestLeakProfileSees$")
		child.Env = append(os.Environ(), inChild+"=1")
		out, err := child.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "TestLeakProfileSees.func1")
		return
	}
	go func() { <-make(chan struct{}) }()
	var found []string
	for range 1000 {
		if found = leaks(t); len(found) > 0 {
			fmt.Println(found)
			os.Exit(0)
		}
		runtime.Gosched()
	}
	t.Error("not seen")
}
