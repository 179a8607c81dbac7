package pubsubdebug_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-b8032e04/pubsub/pubsubdebug"
)

// mounts are the ways to mount the handler, with the path of the page.
func mounts(h http.Handler) map[string]struct {
	handler http.Handler
	page    string
} {
	plain, stripped, keepSlash := http.NewServeMux(), http.NewServeMux(), http.NewServeMux()
	plain.Handle("/debug/pubsub/", h)
	stripped.Handle("/debug/pubsub/", http.StripPrefix("/debug/pubsub", h))
	keepSlash.Handle("/debug/pubsub/", http.StripPrefix("/debug/pubsub/", h))
	return map[string]struct {
		handler http.Handler
		page    string
	}{
		"root":                       {h, "/"},
		"mux":                        {plain, "/debug/pubsub/"},
		"StripPrefix":                {stripped, "/debug/pubsub/"},
		"StripPrefix with the slash": {keepSlash, "/debug/pubsub/"},
	}
}

func TestHandlerServesEveryPathHoweverMounted(t *testing.T) {
	b := newBroker(t)
	for name, m := range mounts(pubsubdebug.Handler(b)) {
		t.Run(name, func(t *testing.T) {
			for path, want := range map[string]struct{ contentType, has string }{
				"":          {"text/html; charset=utf-8", "<title>pubsub</title>"},
				"page.css":  {"text/css; charset=utf-8", "prefers-color-scheme"},
				"page.js":   {"text/javascript; charset=utf-8", "textContent"},
				"api/state": {"application/json; charset=utf-8", `"deadLetters":[]`},
			} {
				w := get(t, m.handler, m.page+path)
				assert.Equal(t, http.StatusOK, w.Code, path)
				assert.Equal(t, want.contentType, w.Header().Get("Content-Type"), path)
				assert.Contains(t, w.Body.String(), want.has, path)
			}
			for _, path := range []string{"nothing", "api", "page.html", "api/state/x", "xpage.js", "xapi/state"} {
				assert.Equal(t, http.StatusNotFound, get(t, m.handler, m.page+path).Code, path)
			}
			w := get(t, m.handler, m.page+"api/tail?pattern=a..b")
			assert.Equal(t, http.StatusBadRequest, w.Code, "the tail answers")
		})
	}
}

func TestHandlerRedirectsToTheSlash(t *testing.T) {
	h := pubsubdebug.Handler(newBroker(t))
	for prefix, want := range map[string]string{
		"/debug/pubsub": "/debug/pubsub/",
		"/debug/a:b":    "/debug/a:b/",
	} {
		mux := http.NewServeMux()
		mux.Handle(prefix, http.StripPrefix(prefix, h)) // without ServeMux's own redirect
		mux.Handle(prefix+"/", http.StripPrefix(prefix, h))
		server := httptest.NewServer(mux)
		answer, err := server.Client().Get(server.URL + prefix + "?x=//evil.example/")
		require.NoError(t, err)
		assert.Contains(t, body(t, answer), "<title>pubsub</title>")
		assert.Equal(t, want, answer.Request.URL.Path, "where it led to")
		assert.Equal(t, server.Listener.Addr().String(), answer.Request.URL.Host)
		server.Close()
	}
}

func TestHandlerIsReadOnly(t *testing.T) {
	h := pubsubdebug.Handler(newBroker(t))
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions} {
		for _, path := range []string{"/", "/page.js", "/api/state", "/api/tail?pattern=%23"} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader("x")))
			assert.Equal(t, http.StatusMethodNotAllowed, w.Code, "%s %s", method, path)
			assert.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
		}
	}
}

func TestHandlerAnswersHead(t *testing.T) {
	b := newBroker(t)
	server := httptest.NewServer(pubsubdebug.Handler(b))
	defer server.Close()
	for _, path := range []string{"/", "/page.css", "/page.js", "/api/state", "/api/tail?pattern=%23"} {
		answer, err := server.Client().Head(server.URL + path)
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, answer.StatusCode, path)
		assert.Empty(t, body(t, answer), path)
	}
	assert.Empty(t, b.Subscriptions(), "HEAD of a tail subscribes nothing")
}

// The policy is what stops a script that got into the page after all.
func TestHandlerHeaders(t *testing.T) {
	h := pubsubdebug.Handler(newBroker(t))
	for _, path := range []string{"/", "/page.css", "/page.js", "/api/state", "/api/state?limit=x", "/api/tail?pattern=", "/nothing"} {
		header := get(t, h, path).Header()
		policy := header.Get("Content-Security-Policy")
		assert.Contains(t, policy, "default-src 'none'", path)
		assert.Contains(t, policy, "frame-ancestors 'none'", path)
		assert.NotContains(t, policy, "unsafe", path)
		assert.NotContains(t, policy, "http", path)
		assert.Equal(t, "nosniff", header.Get("X-Content-Type-Options"), path)
		assert.Equal(t, "no-referrer", header.Get("Referrer-Policy"), path)
		assert.Equal(t, "no-store", header.Get("Cache-Control"), path)
		assert.NotEmpty(t, header.Get("Content-Type"), path)
	}
}

// Nothing in the page may come from elsewhere or be written as markup.
func TestPageIsSelfContained(t *testing.T) {
	h := pubsubdebug.Handler(newBroker(t))
	for _, path := range []string{"/", "/page.css", "/page.js"} {
		text := get(t, h, path).Body.String()
		for _, bad := range []string{"//cdn", "http:", "https:", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "@import", "url("} {
			assert.NotContains(t, text, bad, path)
		}
	}
	page := get(t, h, "/").Body.String()
	assert.NotContains(t, page, " style=", "the policy forbids it")
	assert.NotContains(t, page, " onclick=", "the policy forbids it")
}

func TestHandlerWorksAfterClose(t *testing.T) {
	b := newBroker(t)
	subscribe(t, b, "a", nothing)
	publish(t, b, "a", 1)
	require.NoError(t, b.Shutdown(t.Context()))

	st := state(t, b, nil)
	assert.Equal(t, uint64(1), st.Stats.Published)
	assert.Empty(t, st.Subscriptions)
	w := get(t, pubsubdebug.Handler(b), "/api/tail?pattern=%23")
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.Contains(t, w.Body.String(), "broker closed")
}

// The names are documented; a page or a script elsewhere may rely on them.
func TestStateShape(t *testing.T) {
	b := newBroker(t)
	subscribe(t, b, "a", nothing)
	w := get(t, pubsubdebug.Handler(b), "/api/state?topic=a")
	decoder := json.NewDecoder(w.Body)
	var shape struct {
		Time          string
		Stats         map[string]float64
		Subscriptions []map[string]any
		Filtered      int
		DeadLetters   []map[string]any
		Letters       int
		Topics        []string
		Match         map[string]any
	}
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&shape))
	_, err := decoder.Token()
	require.ErrorIs(t, err, io.EOF)

	assert.ElementsMatch(t, []string{"published", "unrouted", "matched", "delivered", "failed", "dropped", "queued",
		"running", "subscriptions", "topics"}, keys(shape.Stats))
	assert.ElementsMatch(t, []string{"id", "name", "pattern", "mode", "policy", "size", "queued", "running",
		"runningMessage", "matched", "delivered", "failed", "dropped"}, keys(shape.Subscriptions[0]))
	assert.ElementsMatch(t, []string{"topic", "error", "subscriptions", "total"}, keys(shape.Match))

	text := get(t, pubsubdebug.Handler(newBroker(t)), "/api/state").Body.String()
	for _, empty := range []string{`"subscriptions":[]`, `"deadLetters":[]`, `"topics":[]`, `"match":null`} {
		assert.Contains(t, text, empty, "a list is never null")
	}
}

func keys[V any](m map[string]V) (names []string) {
	for name := range m {
		names = append(names, name)
	}
	return names
}
