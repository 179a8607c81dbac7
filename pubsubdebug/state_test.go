package pubsubdebug_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-b8032e04/pubsub"
	"github.com/seed-b8032e04/pubsub/pubsubdebug"
)

func TestStateOfSubscriptions(t *testing.T) {
	b := newBroker(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	stuck := subscribe(t, b, "orders.*", func(context.Context, pubsub.Message) error {
		entered <- struct{}{}
		<-leave
		return nil
	}, pubsub.WithName("stuck"), pubsub.WithQueueSize(2), pubsub.WithDropPolicy(pubsub.DropNewest))
	direct := subscribe(t, b, "orders.#", func(context.Context, pubsub.Message) error {
		return errors.New("no")
	}, pubsub.WithSync())
	pulled, err := b.Pull("orders.created", pubsub.WithDropPolicy(pubsub.Block))
	require.NoError(t, err)
	require.NoError(t, b.CreateTopic("orders.created"))

	first := publish(t, b, "orders.created", 1)
	<-entered
	for i := range 3 { // two wait, the third is refused
		publish(t, b, "orders.created", i)
	}
	before := time.Now()
	st := state(t, b, nil)

	assert.WithinDuration(t, before, st.Time, time.Minute)
	assert.Equal(t, pubsubdebug.Stats(b.Stats()), st.Stats)
	assert.Equal(t, []string{"orders.created"}, st.Topics)
	assert.Equal(t, 3, st.Filtered)
	assert.Equal(t, []pubsubdebug.Subscription{
		{ID: stuck.ID(), Name: "stuck", Pattern: "orders.*", Mode: "async", Policy: "drop_newest", Size: 2,
			Queued: 2, Running: 1, RunningMessage: first, Matched: 4, Dropped: 1},
		{ID: direct.ID(), Pattern: "orders.#", Mode: "sync", Matched: 4, Failed: 4},
		{ID: pulled.ID(), Pattern: "orders.created", Mode: "pulled", Policy: "block", Size: pulled.QueueSize(),
			Queued: 4, Matched: 4},
	}, st.Subscriptions)
	assert.Equal(t, st.Subscriptions[0].RunningMessage, state(t, b, nil).Subscriptions[0].RunningMessage,
		"the same id says that it is still the same call")
	close(leave)
	go func() { // the two that wait
		<-entered
		<-entered
	}()
	require.NoError(t, b.Flush(t.Context()))
}

func TestStateFilterSortLimit(t *testing.T) {
	b := newBroker(t)
	for i, name := range []string{"Alpha", "beta", "", "<script>"} {
		pattern := fmt.Sprintf("t%d.x", i)
		f := nothing
		if i == 2 {
			f = func(context.Context, pubsub.Message) error { return errors.New("no") }
		}
		subscribe(t, b, pattern, f, pubsub.WithName(name), pubsub.WithSync())
		for range 10 * i {
			publish(t, b, pattern, nil)
		}
	}
	full, err := b.Pull("full", pubsub.WithQueueSize(1))
	require.NoError(t, err)
	publish(t, b, "full", 1)
	publish(t, b, "full", 2)
	ids := make([]uint64, 0, 5)
	for _, s := range b.Subscriptions() {
		ids = append(ids, s.ID())
	}

	for _, test := range []struct {
		query    string
		want     []int
		filtered int
	}{
		{"", []int{0, 1, 2, 3, 4}, 5},
		{"sort=id", []int{0, 1, 2, 3, 4}, 5},
		{"sort=delivered", []int{3, 1, 0, 2, 4}, 5},
		{"sort=failed", []int{2, 0, 1, 3, 4}, 5},
		{"sort=queued", []int{4, 0, 1, 2, 3}, 5},
		{"sort=dropped&limit=2", []int{4, 0}, 5},
		{"limit=2", []int{0, 1}, 5},
		{"limit=0", nil, 5},
		{"limit=100000", []int{0, 1, 2, 3, 4}, 5},
		{"filter=ALPHA", []int{0}, 1},
		{"filter=T1.X", []int{1}, 1},
		{"filter=%3Cscript", []int{3}, 1},
		{"filter=t&limit=1&sort=delivered", []int{3}, 4},
		{"filter=nobody", nil, 0},
		{fmt.Sprintf("filter=%d", full.ID()), []int{4}, 1},
	} {
		query, err := url.ParseQuery(test.query)
		require.NoError(t, err)
		st := state(t, b, query)
		var got []int
		for _, s := range st.Subscriptions {
			got = append(got, slices.Index(ids, s.ID))
		}
		assert.Equal(t, test.want, got, test.query)
		assert.Equal(t, test.filtered, st.Filtered, test.query)
	}
}

func TestStateBadRequests(t *testing.T) {
	h := pubsubdebug.Handler(newBroker(t))
	for query, says := range map[string]string{
		"sort=name":                          "sort must be",
		"sort=<script>":                      "sort must be",
		"limit=x":                            "limit must be",
		"limit=-1":                           "limit must be",
		"limit=1.5":                          "limit must be",
		"limit=99999999999999999999":         "limit must be",
		"limit=" + strings.Repeat("x", 5000): "limit must be",
	} {
		w := get(t, h, "/api/state?"+strings.ReplaceAll(query, "<", "%3C"))
		assert.Equal(t, http.StatusBadRequest, w.Code, query)
		assert.Contains(t, w.Body.String(), says)
		assert.Less(t, w.Body.Len(), 200, "bounded")
		assert.Equal(t, "text/plain; charset=utf-8", w.Header().Get("Content-Type"))
	}
}

func TestStateMatch(t *testing.T) {
	b := newBroker(t)
	one := subscribe(t, b, "orders.*.eu", nothing, pubsub.WithName("one"))
	two := subscribe(t, b, "orders.#", nothing)
	subscribe(t, b, "orders.*", nothing)

	assert.Nil(t, state(t, b, nil).Match)
	assert.Equal(t, &pubsubdebug.Match{Topic: "orders.created.eu", Total: 2, Subscriptions: []pubsubdebug.MatchedSubscription{
		{ID: one.ID(), Name: "one", Pattern: "orders.*.eu"}, {ID: two.ID(), Pattern: "orders.#"},
	}}, state(t, b, url.Values{"topic": {"orders.created.eu"}}).Match)
	assert.Zero(t, state(t, b, url.Values{"topic": {"nobody"}}).Match.Total)
	assert.Len(t, state(t, b, url.Values{"topic": {"nobody"}, "filter": {"zzz"}}).Subscriptions, 0)
	assert.Equal(t, 2, state(t, b, url.Values{"topic": {"orders.created.eu"}, "filter": {"zzz"}}).Match.Total,
		"the filter is about the list only")

	for _, topic := range []string{"a..b", "orders.*", "#", ".", strings.Repeat("x", 70_000)} {
		m := state(t, b, url.Values{"topic": {topic}}).Match
		assert.Contains(t, m.Error, "invalid topic")
		assert.Less(t, len(m.Error)+len(m.Topic), 1024, "bounded")
		assert.Zero(t, m.Total)
		assert.Equal(t, []pubsubdebug.MatchedSubscription{}, m.Subscriptions)
	}
}

type rude struct{}

func (rude) Error() string { panic("no text") }
func (rude) Unwrap() error { panic("nothing inside") }

func TestStateDeadLetters(t *testing.T) {
	b := newBroker(t)
	hostile := "<script>alert(1)</script>\u202e\x00\xff\"'\u2028" + strings.Repeat("é", 40_000)
	topic := hostile[:65_000]
	cyclic := map[string]any{}
	cyclic["me"] = cyclic
	for _, f := range []pubsub.Handler{
		func(context.Context, pubsub.Message) error { return errors.New(hostile) },
		func(context.Context, pubsub.Message) error { panic(hostile) },
		func(context.Context, pubsub.Message) error { panic(cyclic) },
		func(context.Context, pubsub.Message) error { return rude{} },
		func(context.Context, pubsub.Message) error { return errors.New("the last") },
	} {
		subscribe(t, b, "#", f, pubsub.WithSync(), pubsub.WithName(hostile))
	}
	id := publish(t, b, topic, hostile)

	st := state(t, b, nil)
	require.Len(t, st.DeadLetters, 5)
	assert.Equal(t, uint64(5), st.Letters)
	last := st.DeadLetters[0]
	assert.Equal(t, "the last", last.Error, "newest first")
	assert.Equal(t, "error", last.Reason)
	assert.Equal(t, id, last.MessageID)
	assert.Equal(t, "#", last.Pattern)
	assert.NotZero(t, last.SubscriptionID)
	assert.False(t, last.Time.IsZero())
	assert.Empty(t, last.Stack)

	assert.Contains(t, st.DeadLetters[1].Error, "panicked", "an error whose methods panic")
	assert.Contains(t, st.DeadLetters[2].Error, "handler panicked: (map[string]interface {}, not shown",
		"fmt would follow it until the stack ends")
	assert.Equal(t, "panic", st.DeadLetters[3].Reason)
	assert.Contains(t, st.DeadLetters[3].Stack, "state_test.go")
	assert.Contains(t, st.DeadLetters[3].Error, "handler panicked: <script>")
	for _, l := range st.DeadLetters {
		for _, text := range []string{l.Topic, l.SubscriptionName, l.Payload} {
			assert.True(t, strings.HasPrefix(text, "<script>alert(1)</script>\u202e\x00\ufffd\"'\u2028é"), "as it is")
			assert.True(t, strings.HasSuffix(text, "é..."), "cut at a rune")
		}
		assert.Less(t, len(l.Topic), 600)
		assert.Less(t, len(l.Payload), 2100)
		assert.Less(t, len(l.Error), 4200)
		assert.Less(t, len(l.Stack), 4200)
	}

	// The JSON itself is safe inside markup.
	text := get(t, pubsubdebug.Handler(b), "/api/state").Body.String()
	assert.NotContains(t, text, "<script>")
	assert.NotContains(t, text, "\u2028")
	assert.True(t, json.Valid([]byte(text)))
}

func TestStateShowsTheNewestLetters(t *testing.T) {
	b := newBroker(t)
	subscribe(t, b, "#", func(_ context.Context, m pubsub.Message) error { return fmt.Errorf("no %v", m.Payload) }, pubsub.WithSync())
	for i := range 120 {
		publish(t, b, "a", i)
	}
	st := state(t, b, nil)
	require.Len(t, st.DeadLetters, 50)
	assert.Equal(t, "no 119", st.DeadLetters[0].Error)
	assert.Equal(t, "no 70", st.DeadLetters[49].Error)
	assert.Equal(t, uint64(120), st.Letters)
	assert.Len(t, state(t, newBroker(t, pubsub.WithDeadLetterCapacity(0)), nil).DeadLetters, 0)
}
