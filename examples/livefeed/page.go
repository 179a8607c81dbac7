package main

import (
	"embed"
	"net/http"
)

//go:embed page
var pageFiles embed.FS

// servePage serves the page and what belongs to it. What the page shows comes from
// strangers: it puts all of it in as text, and the policy would run no script in it if it
// did not.
func servePage(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; "+
		"connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("Cache-Control", "no-cache")
	h.Set("Referrer-Policy", "no-referrer")
	// The types of the system's own table differ from machine to machine.
	name, contentType := "index.html", "text/html; charset=utf-8"
	switch r.URL.Path {
	case "/page.css":
		name, contentType = "page.css", "text/css; charset=utf-8"
	case "/page.js":
		name, contentType = "page.js", "text/javascript; charset=utf-8"
	}
	h.Set("Content-Type", contentType)
	http.ServeFileFS(w, r, pageFiles, "page/"+name)
}
