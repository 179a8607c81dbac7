package pubsubdebug_test

import (
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/seed-b8032e04/pubsub"
	"github.com/seed-b8032e04/pubsub/pubsubdebug"
)

// requireAdmin lets only those through who know the service's password. It stands for
// whatever the service has: sessions, single sign-on, client certificates.
func requireAdmin(password string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, given, _ := r.BasicAuth()
		if subtle.ConstantTimeCompare([]byte(given), []byte(password)) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="admin"`)
			http.Error(w, "for administrators", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// The page goes behind the service's authentication, since it shows payloads.
func Example() {
	b := pubsub.New()
	defer b.Close()

	mux := http.NewServeMux()
	mux.Handle("/debug/pubsub/", requireAdmin("correct horse", pubsubdebug.Handler(b)))
	server := httptest.NewServer(mux)
	defer server.Close()

	for _, password := range []string{"a guess", "correct horse"} {
		request, _ := http.NewRequest(http.MethodGet, server.URL+"/debug/pubsub/", http.NoBody)
		request.SetBasicAuth("admin", password)
		answer, err := server.Client().Do(request)
		if err != nil {
			fmt.Println(err)
			return
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		fmt.Println(answer.Status, answer.Header.Get("Content-Type"))
	}
	// Output:
	// 401 Unauthorized text/plain; charset=utf-8
	// 200 OK text/html; charset=utf-8
}

// A script asks which subscriptions a topic reaches.
func ExampleState() {
	b := pubsub.New()
	defer b.Close()
	_, _ = b.Pull("orders.*.eu", pubsub.WithName("billing"))
	_, _ = b.Pull("invoices.#", pubsub.WithName("archive"))
	server := httptest.NewServer(pubsubdebug.Handler(b))
	defer server.Close()

	answer, err := server.Client().Get(server.URL + "/api/state?topic=orders.created.eu")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer answer.Body.Close()
	var state pubsubdebug.State
	if err := json.NewDecoder(answer.Body).Decode(&state); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(state.Stats.Subscriptions, "subscriptions")
	for _, s := range state.Match.Subscriptions {
		fmt.Println(s.Name, s.Pattern)
	}
	// Output:
	// 2 subscriptions
	// billing orders.*.eu
}
