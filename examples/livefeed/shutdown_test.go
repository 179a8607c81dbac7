package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestShutDown(t *testing.T) {
	// A busy machine may run the publishers long before the clients, and what a client is
	// then told that it lost is no fault.
	roomy := defaults
	roomy.queue = 1 << 20
	inBubble(t, "loses nothing that was accepted", roomy, func(r *rig) {
		streams := []*browser{r.connect(""), r.connect("pattern=load.*")}
		got := make([][]event, len(streams))
		var wg sync.WaitGroup
		for i, b := range streams {
			wg.Go(func() {
				events, dropped, ended := b.rest()
				if dropped > 0 || !ended {
					t.Errorf("lost %d, ended: %v", dropped, ended)
				}
				got[i] = events
			})
		}
		var mu sync.Mutex
		accepted := make(map[uint64]bool)
		refused := 0
		for p := range 8 {
			wg.Go(func() {
				for {
					status, id := r.post(fmt.Sprint("load.", p), "1")
					mu.Lock()
					switch status {
					case http.StatusAccepted:
						accepted[id] = true
					case http.StatusServiceUnavailable, 0: // 0: the connection is refused
						refused++
						mu.Unlock()
						return
					default:
						t.Errorf("status %d", status)
					}
					if len(accepted) == 200 {
						r.stop() // while the others publish
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		r.end()
		require.GreaterOrEqual(r, len(accepted), 200)
		require.Equal(r, 8, refused)
		ids := make(map[uint64]bool)
		for _, id := range r.kept.ids(r) {
			ids[id] = true
		}
		require.Equal(r, accepted, ids, "the journal")
		for _, events := range got {
			ids := make(map[uint64]bool)
			for _, e := range events {
				ids[e.ID] = true
			}
			require.Equal(r, accepted, ids, "a stream")
		}
	})

	inBubble(t, "sends what is queued for a client that is behind", defaults, func(r *rig) {
		b := r.connect("")
		for range 50 {
			r.accepted("a", "1")
		}
		r.stop()
		synctest.Wait()
		require.Empty(r, r.served, "it waits for the client")
		status, _ := r.post("a", "1")
		require.Zero(r, status, "and takes nothing more")
		time.Sleep(defaults.grace / 4)
		events, dropped, ended := b.rest()
		require.Len(r, events, 50)
		require.Zero(r, dropped)
		require.True(r, ended)
	})

	stalled := defaults
	stalled.stall = defaults.grace * 3 / 4
	inBubble(t, "does not wait for one that has stalled, and keeps its journal", stalled, func(r *rig) {
		r.connect("")
		for range 50 {
			r.accepted("a", "1")
		}
		began := time.Now()
		r.end()
		require.LessOrEqual(r, time.Since(began), defaults.grace)
		require.Len(r, r.kept.ids(r), 50)
		require.Contains(r, r.log.String(), "stream not drained")
	})

	inBubble(t, "ends the live tail of the debug page", defaults, func(r *rig) {
		res, err := r.client.Get("http://service/debug/pubsub/api/tail?pattern=a")
		require.NoError(r, err)
		defer res.Body.Close()
		require.Equal(r, http.StatusOK, res.StatusCode)
		r.accepted("a", "1")
		r.stop()
		text, err := io.ReadAll(res.Body)
		require.NoError(r, err)
		require.Contains(r, string(text), "event: message\n")
		began := time.Now()
		r.end()
		require.Less(r, time.Since(began), time.Second)
	})

	inBubble(t, "refuses what comes on a connection that was open", defaults, func(r *rig) {
		r.connect("") // holds the server
		r.accepted("a", "1")
		r.publishing.close()
		status, _ := r.post("a", "1")
		require.Equal(r, http.StatusServiceUnavailable, status)
		res, err := r.client.Get("http://service/events")
		require.NoError(r, err)
		res.Body.Close()
		require.Equal(r, http.StatusServiceUnavailable, res.StatusCode)
	})
}

// A journal that cannot be written is no secret.
func TestJournalFails(t *testing.T) {
	t.Run("its dead letters are logged", func(t *testing.T) {
		log := new(lines)
		s, err := newService(defaults, failingWriter{}, slog.New(slog.NewTextHandler(log, nil)))
		require.NoError(t, err)
		h := s.handler()
		require.Equal(t, http.StatusAccepted, request(h, "POST", "/events/a", "1").Code)
		require.NoError(t, s.shutDown())
		require.Contains(t, log.String(), `level=ERROR msg="message not handled" letter.reason=error letter.topic=a`)
		require.Contains(t, log.String(), "disk full")
	})
	t.Run("a publisher that waits for room is refused, and the shutdown says what is lost", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			gate := make(chan bool)
			log := new(lines)
			s, err := newService(defaults, blockedWriter{gate}, slog.New(slog.NewTextHandler(log, nil)))
			require.NoError(t, err)
			h := s.handler()
			for range 1025 {
				require.Equal(t, http.StatusAccepted, request(h, "POST", "/events/a", "1").Code)
				synctest.Wait() // until the journal has taken the first
			}
			done := make(chan int)
			go func() { done <- request(h, "POST", "/events/a", "1").Code }()
			synctest.Wait()
			ended := make(chan error)
			go func() { ended <- s.shutDown() }()
			require.Equal(t, http.StatusServiceUnavailable, <-done)
			require.Error(t, <-ended)
			synctest.Wait() // A shutdown that gives up does not wait for the dead letters.
			require.Contains(t, log.String(), "letter.reason=unsubscribed")
			require.Contains(t, log.String(), "published=1026 delivered=0 failed=0 dropped=1025")
			close(gate)
		})
	})
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

type blockedWriter struct{ gate chan bool }

func (w blockedWriter) Write([]byte) (int, error) {
	<-w.gate
	return 0, io.ErrClosedPipe
}

func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		require.True(t, g.enter())
		require.True(t, g.enter())
		g.leave()
		g.close()
		require.False(t, g.enter())
		done := make(chan error)
		go func() { done <- g.wait(t.Context()) }()
		synctest.Wait()
		require.Empty(t, done)
		g.leave()
		require.NoError(t, <-done)
		require.NoError(t, g.wait(t.Context()))
	})
}
