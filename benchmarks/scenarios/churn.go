package scenarios

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/seed-b8032e04/pubsub/benchmarks/peers"
)

// churnRate is how many unrelated subscriptions come and go each second.
const churnRate = 10_000

func churn() Scenario {
	const subscribers = 10
	s := Scenario{
		Name:  "churn",
		Title: "Churn",
		About: "A hot topic with " + plural(subscribers, "subscriber") + " while nothing else happens, and while another goroutine " +
			"subscribes and unsubscribes " + count(churnRate) + " unrelated patterns a second. " +
			"Time of a publish, end to end; and how many pairs a second that goroutine really made.",
		Figures: []Figure{{Name: "publish", Unit: "ns"}, {Name: "churn", Unit: "pairs/s"}},
	}
	hot := repeat(subscribers)
	bus := func(p peers.Peer) (*Trial, subscribeFunc, error) {
		d, err := openDelivery(plan{peer: p, patterns: hot, batch: roundOf(subscribers)})
		if err != nil {
			return nil, nil, err
		}
		return &Trial{Run: d.run, Close: d.close}, func(pattern string) (func(), error) {
			return d.bus.Subscribe(pattern, func(uint64, []byte) { d.stray.Add(1) })
		}, nil
	}
	index := func(m peers.Matcher) (*Trial, subscribeFunc, error) {
		i, err := m.Open()
		if err != nil {
			return nil, nil, err
		}
		t, err := matchHot(i, hot, nil)
		return t, func(pattern string) (func(), error) { return i.Insert(i.Pattern(pattern)) }, err
	}
	for _, name := range []string{"quiet", "churning"} {
		perhaps := func(t *Trial, subscribe subscribeFunc, err error) (*Trial, error) {
			if err != nil || name == "quiet" {
				return t, err
			}
			return withChurn(t, subscribe), nil
		}
		s.Cases = append(s.Cases, Case{Name: name, Contenders: append(
			contenders([]peers.Peer{peers.PubsubSync, peers.Pubsub, peers.Call, peers.Channel, peers.EventBusSync},
				func(p peers.Peer) (*Trial, error) { return perhaps(bus(p)) }),
			matchers(peers.Matchers(),
				func(m peers.Matcher) (*Trial, error) { return perhaps(index(m)) })...)})
	}
	return s
}

type subscribeFunc func(pattern string) (cancel func(), err error)

// withChurn has patterns come and go for as long as the trial is open, from a
// goroutine that parks between its turns.
func withChurn(t *Trial, subscribe subscribeFunc) *Trial {
	patterns := fresh()
	var pairs atomic.Int64
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		turns := time.NewTicker(time.Millisecond)
		defer turns.Stop()
		for start := time.Now(); ; {
			select {
			case <-stop:
				ended <- nil
				return
			case now := <-turns.C:
				due := int64(now.Sub(start).Seconds() * churnRate)
				for made := pairs.Load(); made < due; made++ {
					cancel, err := subscribe(patterns[int(made)%len(patterns)])
					if err != nil {
						ended <- err
						return
					}
					cancel()
					pairs.Add(1)
				}
			}
		}
	}()
	return &Trial{
		Run: func(n int) (Values, error) {
			before, start := pairs.Load(), time.Now()
			values, err := t.Run(n)
			if err == nil {
				values["churn"] = float64(pairs.Load()-before) / time.Since(start).Seconds()
			}
			return values, err
		},
		Close: func() error {
			close(stop)
			return errors.Join(<-ended, t.Close())
		},
	}
}
