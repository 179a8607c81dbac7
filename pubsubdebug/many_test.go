//go:build !race

package pubsubdebug_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-b8032e04/pubsub"
	"github.com/seed-b8032e04/pubsub/pubsubdebug"
)

// A broker of any size is answered in bounds: how long it takes is not this test's. The race
// detector takes half a minute to watch as many locks, and would find nothing here.
func TestStateOfManySubscriptions(t *testing.T) {
	const n = 100_000
	b := newBroker(t)
	name := strings.Repeat("n", 2000)
	for i := range n {
		if i == 1000 { // those shown have long names
			name = "nn"
		}
		if _, err := b.Subscribe("t"+strconv.Itoa(i%1000)+".*", nothing, pubsub.WithName(name)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 1000 {
		require.NoError(t, b.CreateTopic(fmt.Sprintf("%02000d", i)))
	}
	for _, order := range []string{"id", "queued"} {
		began := time.Now()
		w := get(t, pubsubdebug.Handler(b), "/api/state?limit=9999999&topic=t7.x&sort="+order)
		t.Logf("%s: %d bytes after %v", order, w.Body.Len(), time.Since(began))
		assert.Less(t, w.Body.Len(), 2<<20)
		var st pubsubdebug.State
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &st))
		assert.Len(t, st.Subscriptions, 1000)
		assert.Equal(t, n, st.Filtered)
		assert.Equal(t, n, st.Stats.Subscriptions)
		assert.Equal(t, 100, st.Match.Total)
		assert.Len(t, st.Topics, 500)
		assert.Equal(t, 1000, st.Stats.Topics)
		assert.Less(t, st.Subscriptions[0].ID, st.Subscriptions[999].ID, "those equal stay in order of subscription")
	}
	assert.Len(t, state(t, b, nil).Subscriptions, 200)
	assert.Equal(t, n, state(t, b, url.Values{"topic": {"t7.x"}, "filter": {"nn"}}).Filtered)
}
