package oracles

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server/gsl"
	"github.com/stretchr/testify/require"

	"github.com/seed-b8032e04/pubsub"
)

// leastPairs is how many pairs of a pattern and a topic each test has to compare, so
// that a mistake in what it generates does not go unnoticed.
const leastPairs = 500_000

// everyName are all names of up to four segments. One segment begins another, two
// differ in case only, one has more than one byte.
func everyName() (patterns, topics []string) {
	literals := []string{"a", "ab", "A", "b", "é"}
	topicsBefore, patternsBefore := []string{""}, []string{""}
	for range 4 {
		topicsNow, patternsNow := []string(nil), []string(nil)
		for _, before := range topicsBefore {
			for _, literal := range literals {
				topicsNow = append(topicsNow, before+literal)
			}
		}
		for _, before := range patternsBefore {
			for _, segment := range append([]string{"*"}, literals...) {
				patternsNow = append(patternsNow, before+segment)
			}
			patterns = append(patterns, before+"#")
		}
		topics = append(topics, topicsNow...)
		patterns = append(patterns, patternsNow...)
		topicsBefore, patternsBefore = dotted(topicsNow), dotted(patternsNow)
	}
	return patterns, topics
}

func dotted(names []string) []string {
	longer := make([]string, len(names))
	for i, name := range names {
		longer[i] = name + "."
	}
	return longer
}

// randomNames are topics of up to twelve segments, and patterns made from them, so
// that many match.
func randomNames(r *rand.Rand) (patterns, topics []string) {
	// No segment is '>' alone: that is a wildcard of NATS and none of ours.
	segments := []string{
		"a", "aa", "é", "e\u0301", "日本", "日本語", "🙂", " ", "a b", ">a", "a>", "$", "\x00", "\xff", "\xc3",
		strings.Repeat("long", 20),
	}
	topic := func() string {
		name := make([]string, 1+r.IntN(12))
		for i := range name {
			// Near the root few segments are likely, so that names share their beginnings.
			name[i] = segments[r.IntN(min(len(segments), 2+2*i))]
		}
		return strings.Join(name, ".")
	}
	seen := make(map[string]bool)
	fresh := func(name string) bool {
		was := seen[name]
		seen[name] = true
		return !was
	}
	for len(topics) < 800 {
		if name := topic(); fresh(name) {
			topics = append(topics, name)
		}
	}
	for len(patterns) < 1200 {
		name := strings.Split(topics[r.IntN(len(topics))], ".")
		if r.IntN(2) == 0 {
			name = append(name[:r.IntN(len(name))], "#")
		}
		for i := range name {
			switch {
			case name[i] == "#":
			case r.IntN(3) == 0:
				name[i] = "*"
			case r.IntN(12) == 0:
				name[i] = segments[r.IntN(len(segments))]
			}
		}
		if pattern := strings.Join(name, "."); fresh(pattern) {
			patterns = append(patterns, pattern)
		}
	}
	return patterns, topics
}

// natsSubject is how NATS spells a pattern.
func natsSubject(pattern string) string {
	if prefix, ok := strings.CutSuffix(pattern, "#"); ok {
		return prefix + ">"
	}
	return pattern
}

// TestMatchIsTheOracles holds Match against the oracle.
func TestMatchIsTheOracles(t *testing.T) {
	compare := func(t *testing.T, patterns, topics []string) {
		oracle := gsl.NewSublist[int]()
		for i, pattern := range patterns {
			require.NoError(t, oracle.Insert(natsSubject(pattern), i))
		}
		pairs, matching := 0, 0
		for _, topic := range topics {
			want := make([]bool, len(patterns))
			oracle.Match(topic, func(i int) { want[i] = true })
			for i, pattern := range patterns {
				got, err := pubsub.Match(pattern, topic)
				if err != nil || got != want[i] {
					t.Errorf("Match(%q, %q) = %v, %v, the oracle says %v", pattern, topic, got, err, want[i])
				}
				pairs++
				if got {
					matching++
				}
			}
		}
		t.Logf("%d patterns, %d topics: %d pairs compared, of which %d match",
			len(patterns), len(topics), pairs, matching)
		require.GreaterOrEqual(t, pairs, leastPairs)
	}
	t.Run("every name of up to four segments", func(t *testing.T) {
		patterns, topics := everyName()
		compare(t, patterns, topics)
	})
	t.Run("random names", func(t *testing.T) {
		seed := seed(t)
		for round := range times(t, 1) {
			patterns, topics := randomNames(random(seed, round))
			compare(t, patterns, topics)
		}
	})
}

// router is a broker beside the oracle, with the same patterns in both.
type router struct {
	broker *pubsub.Broker
	oracle *gsl.GenericSublist[int]
	live   []binding // in order of subscription
	last   int
	got    []int // whom the message being published has reached
	pairs  int
}

type binding struct {
	number       int
	pattern      string
	subscription *pubsub.Subscription
}

func (r *router) add(t *testing.T, pattern string) {
	r.last++
	number := r.last
	sub, err := r.broker.Subscribe(pattern, func(context.Context, pubsub.Message) error {
		r.got = append(r.got, number)
		return nil
	}, pubsub.WithSync())
	require.NoError(t, err)
	require.NoError(t, r.oracle.Insert(natsSubject(pattern), number))
	r.live = append(r.live, binding{number, pattern, sub})
}

// remove takes n out, in random order.
func (r *router) remove(t *testing.T, random *rand.Rand, n int) {
	for range n {
		i := random.IntN(len(r.live))
		r.live[i].subscription.Unsubscribe()
		require.NoError(t, r.oracle.Remove(natsSubject(r.live[i].pattern), r.live[i].number))
		r.live = slices.Delete(r.live, i, i+1)
	}
}

// compare publishes to each topic twice, the second time from the cache of routes,
// and compares whom it reaches, and in which order, with the oracle's answer.
func (r *router) compare(t *testing.T, topics []string) {
	for _, topic := range topics {
		want := []int(nil)
		r.oracle.Match(topic, func(number int) { want = append(want, number) })
		slices.Sort(want)
		for range 2 {
			r.got = nil
			_, err := r.broker.Publish(context.Background(), topic, nil)
			if err != nil || !slices.Equal(want, r.got) {
				t.Errorf("%q reaches %v, %v, the oracle says %v", topic, r.got, err, want)
			}
		}
		r.pairs += len(r.live)
	}
}

// TestRoutingIsTheOracles holds the index against the oracle: with all patterns, and
// while half of them go, and come again, several times.
func TestRoutingIsTheOracles(t *testing.T) {
	compare := func(t *testing.T, random *rand.Rand, patterns, topics []string) {
		r := &router{broker: pubsub.New(), oracle: gsl.NewSublist[int]()}
		defer r.broker.Close()
		for _, i := range random.Perm(len(patterns)) {
			r.add(t, patterns[i])
		}
		r.compare(t, topics)
		require.GreaterOrEqual(t, r.pairs, leastPairs)
		for range 4 {
			r.remove(t, random, len(r.live)/2)
			r.compare(t, topics)
			for range random.IntN(len(patterns)) {
				r.add(t, patterns[random.IntN(len(patterns))]) // Some now twice.
			}
			r.compare(t, topics)
		}
		r.remove(t, random, len(r.live)-10)
		r.compare(t, topics)
		r.remove(t, random, len(r.live))
		r.compare(t, topics)
		t.Logf("%d subscriptions in all, %d topics: %d pairs compared", r.last, len(topics), r.pairs)
	}
	t.Run("every name of up to four segments", func(t *testing.T) {
		patterns, topics := everyName()
		compare(t, random(seed(t), 0), patterns, topics)
	})
	t.Run("random names", func(t *testing.T) {
		seed := seed(t)
		for round := range times(t, 1) {
			random := random(seed, round)
			patterns, topics := randomNames(random)
			compare(t, random, patterns, topics)
		}
	})
}
