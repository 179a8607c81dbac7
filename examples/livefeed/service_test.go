package main

import (
	"bufio"
	"context"
	"flag"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// request makes one as a client of the API would, without a connection.
func request(h http.Handler, method, target, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func newHandler(t *testing.T) http.Handler {
	s, err := newService(defaults, io.Discard, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { s.broker.Close() })
	return s.handler()
}

func TestHostileInput(t *testing.T) {
	h := newHandler(t)
	deep := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	for _, c := range []struct {
		name, method, target, body string
		status                     int
		answer                     string
	}{
		{"no JSON", "POST", "/events/a", `{"a":`, 400, "not JSON"},
		{"nothing", "POST", "/events/a", ``, 400, "not JSON"},
		{"two values", "POST", "/events/a", `1 2`, 400, "not JSON"},
		{"too deep", "POST", "/events/a", deep, 400, "not JSON"},
		{"not UTF-8", "POST", "/events/a", "\"\xff\"", 400, "not UTF-8"},
		{"too large", "POST", "/events/a", `"` + strings.Repeat("x", maxBody) + `"`, 413, "at most 65536 bytes"},
		{"a wildcard", "POST", "/events/a.*", `1`, 400, "invalid topic"},
		{"a wildcard, escaped", "POST", "/events/%23", `1`, 400, "invalid topic"},
		{"an empty segment", "POST", "/events/a..b", `1`, 400, "empty segment"},
		{"a line break", "POST", "/events/a%0Adata:%20x", `1`, 400, "control character"},
		{"a topic that is not UTF-8", "POST", "/events/%ff", `1`, 400, "not UTF-8"},
		{"a long topic", "POST", "/events/" + strings.Repeat("a", 257), `1`, 400, "at most 256 bytes"},
		{"no topic", "POST", "/events/", `1`, 404, ""},
		{"another method", "PUT", "/events/a", `1`, 405, ""},
		{"another path", "GET", "/etc/passwd", ``, 404, ""},
		{"a bad pattern", "GET", "/events?pattern=a.b*", ``, 400, "invalid pattern"},
		{"a long pattern", "GET", "/events?pattern=" + strings.Repeat("a", 257), ``, 400, "at most 256 bytes"},
		{"a pattern with a line break", "GET", "/events?pattern=a%0A", ``, 400, "control character"},
		{"only the header", "HEAD", "/events", ``, 200, ""},
		{"a writer that cannot stream", "GET", "/events", ``, 500, "not supported"},
		{"a segment with a slash", "POST", "/events/a%2Fb", `{"a": 1}`, 202, `{"id":`},
		{"markup", "POST", "/events/%3Cscript%3E", `"<script>"`, 202, `{"id":`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := request(h, c.method, c.target, c.body)
			require.Equal(t, c.status, w.Code)
			require.Contains(t, w.Body.String(), c.answer)
			require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
			if c.answer != "" {
				require.Equal(t, "application/json", w.Header().Get("Content-Type"))
			}
		})
	}
	t.Run("another type of content, as a form of another site sends", func(t *testing.T) {
		r := httptest.NewRequest("POST", "/events/a", strings.NewReader("1"))
		r.Header.Set("Content-Type", "text/plain")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, http.StatusUnsupportedMediaType, w.Code)
	})
	t.Run("another site", func(t *testing.T) {
		r := httptest.NewRequest("POST", "/events/a", strings.NewReader("1"))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, http.StatusForbidden, w.Code)
	})
}

func TestPage(t *testing.T) {
	h := newHandler(t)
	for target, contentType := range map[string]string{
		"/": "text/html", "/page.css": "text/css", "/page.js": "text/javascript",
	} {
		w := request(h, "GET", target, "")
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, contentType+"; charset=utf-8", w.Header().Get("Content-Type"))
		require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'")
		require.NotRegexp(t, `https?://|innerHTML|insertAdjacentHTML|document\.write`, w.Body.String())
	}
}

func TestDebugPage(t *testing.T) {
	h := newHandler(t)
	w := request(h, "GET", "/debug/pubsub/", "")
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), "<html")
	w = request(h, "GET", "/debug/pubsub/api/state", "")
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), `"journal"`)
}

// The whole program, on a socket.
func TestRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var journal lines
	stderr, log := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, []string{"-addr", "localhost:0"}, &journal, log) }()

	line, err := bufio.NewReader(stderr).ReadString('\n')
	require.NoError(t, err)
	go io.Copy(io.Discard, stderr)
	defer log.Close()
	url := regexp.MustCompile(`url=(\S+)`).FindStringSubmatch(line)[1]

	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	stream, err := client.Get(url + "events?pattern=orders.*")
	require.NoError(t, err)
	defer stream.Body.Close()
	for range 3 {
		res, err := client.Post(url+"events/orders.created", "application/json", strings.NewReader(`{"order": "A-17"}`))
		require.NoError(t, err)
		res.Body.Close()
		require.Equal(t, http.StatusAccepted, res.StatusCode)
	}
	cancel()
	text, err := io.ReadAll(stream.Body)
	require.NoError(t, err)
	require.Equal(t, 3, strings.Count(string(text), `"payload":{"order":"A-17"}}`))
	require.True(t, strings.HasSuffix(string(text), "event: end\ndata: {}\n\n"), string(text))
	require.NoError(t, <-ended)
	require.Equal(t, []uint64{1, 2, 3}, journal.ids(t))
}

func TestRunRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"flag provided but not defined": {"-port", "1"},
		"listen tcp":                    {"-addr", "localhost:no"},
		"invalid value":                 {"-grace", "long"},
	} {
		err := run(t.Context(), args, io.Discard, io.Discard)
		require.ErrorContains(t, err, want)
	}
	require.ErrorIs(t, run(t.Context(), []string{"-h"}, io.Discard, io.Discard), flag.ErrHelp)
}

// The README's requests are those of the service.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, want := range []string{"/events/orders.created", "/events?pattern=orders.*", "/events?pattern=orders.%23", "event: dropped", "event: end"} {
		require.Contains(t, string(text), want)
	}
}
