package pubsubdebug

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-b8032e04/pubsub"
)

const (
	defaultLimit  = 200
	maxLimit      = 1000
	maxTopics     = 500
	maxLetters    = 50
	maxMatches    = 200
	maxTextLength = 4096 // bytes of an error or a stack
	maxNameLength = 512  // bytes of a topic, pattern or name
)

// State is what api/state returns: a broker at about one moment. Long texts are cut,
// and end in "...".
type State struct {
	// Time is the server's.
	Time time.Time `json:"time"`
	// Stats are the broker's counters.
	Stats Stats `json:"stats"`
	// Subscriptions are those that pass the filter, as many as limit allows;
	// Filtered is how many pass it.
	Subscriptions []Subscription `json:"subscriptions"`
	Filtered      int            `json:"filtered"`
	// DeadLetters are the newest, newest first; Letters is how many were ever
	// recorded.
	DeadLetters []DeadLetter `json:"deadLetters"`
	Letters     uint64       `json:"letters"`
	// Topics are the declared topics, 500 at most; Stats has their number.
	Topics []string `json:"topics"`
	// Match answers the query's topic; null without one.
	Match *Match `json:"match"`
}

// Stats are [pubsub.Stats] as JSON.
type Stats struct {
	Published     uint64 `json:"published"`
	Unrouted      uint64 `json:"unrouted"`
	Matched       uint64 `json:"matched"`
	Delivered     uint64 `json:"delivered"`
	Failed        uint64 `json:"failed"`
	Dropped       uint64 `json:"dropped"`
	Queued        int    `json:"queued"`
	Running       int    `json:"running"`
	Subscriptions int    `json:"subscriptions"`
	Topics        int    `json:"topics"`
}

// Subscription is one subscription as JSON.
type Subscription struct {
	ID      uint64 `json:"id"`
	Name    string `json:"name"`
	Pattern string `json:"pattern"`
	// Mode is async, sync or pulled.
	Mode string `json:"mode"`
	// Policy and Size are the queue's; empty and 0 for a synchronous one.
	Policy string `json:"policy"`
	Size   int    `json:"size"`

	Queued  int `json:"queued"`
	Running int `json:"running"`
	// RunningMessage is the id of the message that the handler has, 0 when it
	// has none or the subscription is synchronous. The same id seen again is a
	// call that has been running since.
	RunningMessage uint64 `json:"runningMessage"`

	Matched   uint64 `json:"matched"`
	Delivered uint64 `json:"delivered"`
	Failed    uint64 `json:"failed"`
	Dropped   uint64 `json:"dropped"`
}

// DeadLetter is one dead letter as JSON.
type DeadLetter struct {
	Time             time.Time `json:"time"`
	Reason           string    `json:"reason"`
	Topic            string    `json:"topic"`
	MessageID        uint64    `json:"messageId"`
	Payload          string    `json:"payload"`
	SubscriptionID   uint64    `json:"subscriptionId"`
	SubscriptionName string    `json:"subscriptionName"`
	Pattern          string    `json:"pattern"`
	// Error and Stack are empty when there is none.
	Error string `json:"error"`
	Stack string `json:"stack"`
}

// Match says which subscriptions a topic reaches.
type Match struct {
	Topic string `json:"topic"`
	// Error says why the topic is none; then nothing matches.
	Error string `json:"error"`
	// Subscriptions are 200 at most; Total is how many match.
	Subscriptions []MatchedSubscription `json:"subscriptions"`
	Total         int                   `json:"total"`
}

// MatchedSubscription is a subscription that a topic reaches.
type MatchedSubscription struct {
	ID      uint64 `json:"id"`
	Name    string `json:"name"`
	Pattern string `json:"pattern"`
}

// query is what a request asks for.
type query struct {
	filter, sort, topic string
	hasTopic            bool
	limit               int
}

func parseQuery(values url.Values) (query, error) {
	q := query{
		filter:   strings.ToLower(values.Get("filter")),
		sort:     cmp.Or(values.Get("sort"), "id"),
		topic:    values.Get("topic"),
		hasTopic: values.Get("topic") != "",
		limit:    defaultLimit,
	}
	if _, ok := orders[q.sort]; !ok {
		return q, fmt.Errorf("sort must be id, queued, delivered, failed or dropped, not %q", cut(q.sort, 64))
	}
	if text := values.Get("limit"); text != "" {
		limit, err := strconv.Atoi(text)
		if err != nil || limit < 0 {
			return q, fmt.Errorf("limit must be a number, not %q", cut(text, 64))
		}
		q.limit = min(limit, maxLimit)
	}
	return q, nil
}

// orders are what to sort by, largest first; those equal stay in order of subscription.
var orders = map[string]func(pubsub.SubscriptionStats) uint64{
	"id":        func(pubsub.SubscriptionStats) uint64 { return 0 },
	"queued":    func(st pubsub.SubscriptionStats) uint64 { return uint64(st.Queued) },
	"delivered": func(st pubsub.SubscriptionStats) uint64 { return st.Delivered },
	"failed":    func(st pubsub.SubscriptionStats) uint64 { return st.Failed },
	"dropped":   func(st pubsub.SubscriptionStats) uint64 { return st.Dropped },
}

func newState(b *pubsub.Broker, q query) State {
	subs := b.Subscriptions()
	st := State{
		Time:        time.Now(),
		Stats:       Stats(b.Stats()),
		Letters:     b.DeadLetters().Total(),
		DeadLetters: newDeadLetters(b.DeadLetters().Snapshot()),
		Topics:      b.Topics(),
	}
	st.Topics = st.Topics[:min(len(st.Topics), maxTopics)]
	for i, topic := range st.Topics {
		st.Topics[i] = cut(topic, maxNameLength)
	}
	if q.hasTopic {
		st.Match = newMatch(subs, q.topic)
	}
	st.Subscriptions, st.Filtered = newSubscriptions(subs, q) // The last: it sorts subs in place.
	return st
}

func newSubscriptions(subs []*pubsub.Subscription, q query) (rows []Subscription, filtered int) {
	if q.filter != "" {
		subs = slices.DeleteFunc(subs, func(s *pubsub.Subscription) bool { return !passes(s, q.filter) })
	}
	filtered = len(subs)
	if q.sort != "id" {
		sortBy(subs, orders[q.sort])
	}
	rows = make([]Subscription, 0, min(filtered, q.limit))
	for _, s := range subs[:min(filtered, q.limit)] {
		rows = append(rows, newSubscription(s))
	}
	return rows, filtered
}

// sortBy reads each key once: the counters change meanwhile.
func sortBy(subs []*pubsub.Subscription, key func(pubsub.SubscriptionStats) uint64) {
	type keyed struct {
		key      uint64
		position int
		sub      *pubsub.Subscription
	}
	list := make([]keyed, len(subs))
	for i, s := range subs {
		list[i] = keyed{key(s.Stats()), i, s}
	}
	slices.SortFunc(list, func(a, b keyed) int {
		return cmp.Or(cmp.Compare(b.key, a.key), cmp.Compare(a.position, b.position))
	})
	for i, k := range list {
		subs[i] = k.sub
	}
}

func passes(s *pubsub.Subscription, filter string) bool {
	return strings.Contains(strings.ToLower(s.Name()), filter) ||
		strings.Contains(strings.ToLower(s.Pattern()), filter) ||
		strings.Contains(strconv.FormatUint(s.ID(), 10), filter)
}

func newSubscription(s *pubsub.Subscription) Subscription {
	st := s.Stats()
	row := Subscription{
		ID:        s.ID(),
		Name:      cut(s.Name(), maxNameLength),
		Pattern:   cut(s.Pattern(), maxNameLength),
		Mode:      "async",
		Policy:    s.DropPolicy().String(),
		Size:      s.QueueSize(),
		Queued:    st.Queued,
		Running:   st.Running,
		Matched:   st.Matched,
		Delivered: st.Delivered,
		Failed:    st.Failed,
		Dropped:   st.Dropped,
	}
	switch {
	case s.Sync():
		row.Mode, row.Policy = "sync", ""
	case s.Pulled():
		row.Mode = "pulled"
	}
	row.RunningMessage, _ = s.RunningMessage()
	return row
}

func newDeadLetters(letters []pubsub.DeadLetter) []DeadLetter {
	newest := letters[len(letters)-min(len(letters), maxLetters):]
	rows := make([]DeadLetter, 0, len(newest))
	for _, l := range slices.Backward(newest) {
		row := DeadLetter{
			Time:             l.Time,
			Reason:           l.Reason.String(),
			Topic:            cut(l.Message.Topic, maxNameLength),
			MessageID:        l.Message.ID,
			Payload:          render(l.Message.Payload),
			SubscriptionID:   l.SubscriptionID,
			SubscriptionName: cut(l.SubscriptionName, maxNameLength),
			Pattern:          cut(l.Pattern, maxNameLength),
		}
		if l.Err != nil {
			row.Error = cut(errorText(l.Err), maxTextLength)
			row.Stack = cut(stackText(l.Err), maxTextLength)
		}
		rows = append(rows, row)
	}
	return rows
}

func newMatch(subs []*pubsub.Subscription, topic string) *Match {
	m := &Match{Topic: cut(topic, maxNameLength), Subscriptions: []MatchedSubscription{}}
	if _, err := pubsub.Match("#", topic); err != nil {
		m.Error = err.Error()
		return m
	}
	for _, s := range subs {
		if ok, err := pubsub.Match(s.Pattern(), topic); err != nil || !ok {
			continue
		}
		if m.Total++; m.Total <= maxMatches {
			m.Subscriptions = append(m.Subscriptions, MatchedSubscription{
				ID: s.ID(), Name: cut(s.Name(), maxNameLength), Pattern: cut(s.Pattern(), maxNameLength),
			})
		}
	}
	return m
}
