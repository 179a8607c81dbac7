package pubsubdebug_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-b8032e04/pubsub"
	"github.com/seed-b8032e04/pubsub/pubsubdebug"
)

// TestMain fails the run when a goroutine is left, a tail's for instance.
func TestMain(m *testing.M) {
	// On js the runtime has a goroutine of its own, for what the host calls.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("runtime.handleEvent"))
}

func newBroker(t *testing.T, opts ...pubsub.Option) *pubsub.Broker {
	t.Helper()
	b := pubsub.New(opts...)
	t.Cleanup(func() { b.Close() })
	return b
}

// get asks the handler, without a connection.
func get(t *testing.T, h http.Handler, target string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, http.NoBody))
	return w
}

// state asks for the state of a broker.
func state(t *testing.T, b *pubsub.Broker, query url.Values) pubsubdebug.State {
	t.Helper()
	w := get(t, pubsubdebug.Handler(b), "/debug/pubsub/api/state?"+query.Encode())
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	var st pubsubdebug.State
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &st))
	return st
}

func subscribe(t *testing.T, b *pubsub.Broker, pattern string, f pubsub.Handler, opts ...pubsub.SubscribeOption) *pubsub.Subscription {
	t.Helper()
	s, err := b.Subscribe(pattern, f, opts...)
	require.NoError(t, err)
	return s
}

func publish(t *testing.T, b *pubsub.Broker, topic string, payload any) uint64 {
	t.Helper()
	id, err := b.Publish(t.Context(), topic, payload)
	require.NoError(t, err)
	return id
}

func nothing(context.Context, pubsub.Message) error { return nil }

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return string(text)
}
