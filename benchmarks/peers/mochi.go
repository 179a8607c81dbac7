package peers

import (
	"fmt"
	"strconv"
	"strings"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"
)

// Mochi is the topic index of mochi-mqtt's server.
var Mochi = Matcher{
	Name:   "mochi-mqtt topics",
	Module: "github.com/mochi-mqtt/server/v2",
	Note:   "finds subscriptions, delivers nothing; `#` also matches its parent; a result is a map",
	Open:   func() (Index, error) { return &mochiIndex{topics: mqtt.NewTopicsIndex()}, nil },
}

type mochiIndex struct {
	topics  *mqtt.TopicsIndex
	clients int
}

var mqttSpelling = strings.NewReplacer(".", "/", "*", "+")

func (m *mochiIndex) Topic(name string) string   { return strings.ReplaceAll(name, ".", "/") }
func (m *mochiIndex) Pattern(name string) string { return mqttSpelling.Replace(name) }

// Insert makes each subscription a client's of its own, since a client that
// matches twice is found once.
func (m *mochiIndex) Insert(pattern string) (func(), error) {
	m.clients++
	client := strconv.Itoa(m.clients)
	if !m.topics.Subscribe(client, packets.Subscription{Filter: pattern}) {
		return nil, fmt.Errorf("client %s has subscribed to %s before", client, pattern)
	}
	return func() { m.topics.Unsubscribe(pattern, client) }, nil
}

func (m *mochiIndex) Match(topic string) int { return len(m.topics.Subscribers(topic).Subscriptions) }
