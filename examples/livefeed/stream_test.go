package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStream(t *testing.T) {
	inBubble(t, "what matches, in order, as it came", defaults, func(r *rig) {
		b := r.connect("pattern=orders.*")
		r.accepted("orders.created", `{ "order": "<b>&", "n": 12345678901234567890 }`)
		r.accepted("payments.made", `1`)
		r.accepted("orders.paid", `"A\u0041"`)
		_, data := b.next()
		require.Equal(r, `{"id":1,"topic":"orders.created","time":"`+time.Now().Format(time.RFC3339Nano)+
			`","payload":{"order":"<b>&","n":12345678901234567890}}`, data)
		_, data = b.next()
		require.Contains(r, data, `"id":3,"topic":"orders.paid"`)
		require.Contains(r, data, `"payload":"A\u0041"}`)
	})
	inBubble(t, "without a pattern, everything", defaults, func(r *rig) {
		b := r.connect("")
		r.accepted("a.b.c", `1`)
		_, data := b.next()
		require.Contains(r, data, `"topic":"a.b.c"`)
	})
	inBubble(t, "signs of life while nothing comes, and no limit of the server's", defaults, func(r *rig) {
		b := r.connect("pattern=a")
		began := time.Now()
		for range 100 {
			require.Equal(r, []string{": still here"}, b.block())
		}
		require.Equal(r, 100*defaults.heartbeat, time.Since(began))
		r.accepted("a", "1")
		name, _ := b.next()
		require.Empty(r, name)
	})
	inBubble(t, "ends when the client goes", defaults, func(r *rig) {
		b := r.connect("pattern=a")
		require.Len(r, r.broker.Subscriptions(), 2)
		b.conn.Close()
		synctest.Wait()
		require.Len(r, r.broker.Subscriptions(), 1, "the journal")
		require.Zero(r, r.connected.Load())
	})
	few := defaults
	few.streams = 2
	inBubble(t, "so many clients and no more", few, func(r *rig) {
		a, _ := r.connect(""), r.connect("")
		res, err := r.client.Get("http://service/events")
		require.NoError(r, err)
		res.Body.Close()
		require.Equal(r, http.StatusServiceUnavailable, res.StatusCode)
		a.conn.Close()
		synctest.Wait()
		r.connect("")
	})
}

func TestSlowClient(t *testing.T) {
	small := defaults
	small.queue = 4
	inBubble(t, "is told what it lost, and holds up nobody", small, func(r *rig) {
		slow, quick := r.connect(""), r.connect("")
		synctest.Wait() // until both are waited for
		for n := range 10 {
			r.accepted("a", fmt.Sprint(n))
			synctest.Wait()
			_, data := quick.next()
			require.Contains(r, data, fmt.Sprintf(`"payload":%d}`, n))
		}
		// The first is on its way, the last four are queued.
		var got []string
		for len(got) < 6 {
			name, data := slow.next()
			if name != "dropped" {
				data = data[strings.LastIndex(data, ":")+1:]
			}
			got = append(got, name+" "+data)
		}
		require.Equal(r, []string{" 0}", `dropped {"count":5}`, " 6}", " 7}", " 8}", " 9}"}, got)
		r.accepted("a", "10")
		name, data := slow.next()
		require.Empty(r, name)
		require.Contains(r, data, `"payload":10}`)
		require.NoError(r, r.broker.Flush(r.Context()))
		require.Contains(r, r.log.String(), "letter.reason=dropped_oldest")
		require.Len(r, r.kept.ids(r), 11)
	})
	inBubble(t, "that takes nothing any more is disconnected", defaults, func(r *rig) {
		r.connect("")
		for n := range 1000 {
			r.accepted("a", fmt.Sprint(n))
		}
		require.Len(r, r.broker.Subscriptions(), 2)
		time.Sleep(defaults.stall)
		synctest.Wait()
		require.Len(r, r.broker.Subscriptions(), 1)
		require.Zero(r, r.connected.Load())
		require.Len(r, r.kept.ids(r), 1000)
	})
}

// Clients come, stall and go while others publish: those that read to the end get
// everything from when they came, and nothing is left of any.
func TestManyClients(t *testing.T) {
	c := defaults
	c.queue = 1 << 20 // so that a client that reads loses nothing, however late it is served
	inBubble(t, "that come, stall and go", c, func(r *rig) {
		const publishers, each, clients = 4, 50, 40
		var wg sync.WaitGroup
		var loyal []*browser
		for range 5 {
			loyal = append(loyal, r.connect("pattern=load.*"))
		}
		got := make([][]event, len(loyal))
		for i, b := range loyal {
			wg.Go(func() {
				events, dropped, ended := b.rest()
				if dropped > 0 || !ended {
					t.Errorf("a loyal client lost %d, ended: %v", dropped, ended)
				}
				got[i] = events
			})
		}
		var publishing sync.WaitGroup
		for p := range publishers {
			publishing.Go(func() {
				for n := range each {
					if status, _ := r.post(fmt.Sprint("load.", p), fmt.Sprint(n)); status != http.StatusAccepted {
						t.Errorf("status %d", status)
					}
				}
			})
		}
		for n := range clients {
			wg.Go(func() {
				b := r.connect("pattern=load.*")
				switch n % 4 {
				case 0: // goes at once
				case 1: // takes a few and goes
					for range n {
						b.next()
					}
				case 2: // stalls, is disconnected
					time.Sleep(time.Minute)
				case 3: // stalls for a while, reads on
					time.Sleep(defaults.stall / 2)
					for range n {
						b.next()
					}
				}
				b.conn.Close()
			})
		}
		publishing.Wait()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.EqualValues(r, len(loyal), r.connected.Load())
		r.stop()
		wg.Wait()
		for _, events := range got {
			require.Len(r, events, publishers*each)
			next := make(map[string]int)
			for _, e := range events {
				require.Equal(r, fmt.Sprint(next[e.Topic]), string(e.Payload))
				next[e.Topic]++
			}
		}
		require.Len(r, r.kept.ids(r), publishers*each)
	})
}
