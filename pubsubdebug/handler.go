package pubsubdebug

import (
	_ "embed" // the page's files
	"encoding/json"
	"net/http"
	"path"
	"strings"

	"github.com/seed-b8032e04/pubsub"
)

//go:embed page.html
var pageHTML []byte

//go:embed page.css
var pageCSS []byte

//go:embed page.js
var pageJS []byte

// maxTails is how many live tails a handler serves at a time.
const maxTails = 8

// Handler returns a handler that serves the page and the JSON of a broker. Mount it
// at any path that ends in a slash, with or without [http.StripPrefix], and behind
// the service's authentication: it shows payloads. It answers GET and HEAD only.
//
// It goes on working when the broker is closed. The handler may be used by any number
// of requests at once; a request blocks only where it writes, and a tail until its
// browser goes or, after 15 seconds, takes no more bytes.
func Handler(b *pubsub.Broker) http.Handler {
	return &handler{broker: b, tails: make(chan struct{}, maxTails)}
}

type handler struct {
	broker *pubsub.Broker
	tails  chan struct{} // one element for each open tail
}

// ServeHTTP goes by the end of the path, since it does not know its beginning.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; "+
		"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "this page is read-only", http.StatusMethodNotAllowed)
		return
	}
	switch p := r.URL.Path; {
	case strings.HasSuffix(p, "/api/state"), p == "api/state":
		h.serveState(w, r)
	case strings.HasSuffix(p, "/api/tail"), p == "api/tail":
		h.serveTail(w, r)
	case strings.HasSuffix(p, "/page.css"), p == "page.css":
		serve(w, "text/css; charset=utf-8", pageCSS)
	case strings.HasSuffix(p, "/page.js"), p == "page.js":
		serve(w, "text/javascript; charset=utf-8", pageJS)
	case strings.HasSuffix(p, "/"), p == "" && strings.HasSuffix(requested(r), "/"):
		serve(w, "text/html; charset=utf-8", pageHTML)
	case p == "":
		// http.StripPrefix took all: the page's relative links need a slash. The dot
		// keeps a name with a colon from being read as a scheme.
		header.Set("Location", "./"+path.Base(requested(r))+"/")
		w.WriteHeader(http.StatusMovedPermanently)
	default:
		http.NotFound(w, r)
	}
}

// requested returns the path as the client wrote it, which http.StripPrefix leaves.
func requested(r *http.Request) string {
	whole, _, _ := strings.Cut(r.RequestURI, "?")
	return whole
}

func serve(w http.ResponseWriter, contentType string, content []byte) {
	w.Header().Set("Content-Type", contentType)
	_, _ = w.Write(content) // A browser that has gone needs no answer.
}

func (h *handler) serveState(w http.ResponseWriter, r *http.Request) {
	query, err := parseQuery(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	text, err := json.Marshal(newState(h.broker, query))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	serve(w, "application/json; charset=utf-8", text)
}
