// Package pubsubdebug serves a live page about one broker: who is subscribed and how
// full each queue is, what is running and for how long, what failed or was dropped
// and why, which subscriptions a topic reaches, and a live tail of messages.
//
//	mux.Handle("/debug/pubsub/", requireAdmin(pubsubdebug.Handler(b)))
//
// The page shows the payloads of messages, errors and stacks to whoever can open it.
// It has no authentication of its own: put it behind the service's, or on a listener
// that only the service's owners reach.
//
// It is read-only and costs nothing while nobody looks: it keeps no state and no
// goroutine. While a tail is open, a synchronous subscription named "pubsubdebug tail"
// copies the messages of its pattern into a small ring; a browser that reads more
// slowly than messages come loses the oldest and is told how many, and leaves no dead
// letters. Like any subscription it counts in [pubsub.Stats]. The page polls once a
// second while it is visible. A call's running time is counted from when the page first
// saw it.
//
// Payloads and errors are shown as strings and bytes are, by their Error or String
// method, or else as JSON, so those methods are called while the page is open, from its
// requests' goroutines. One that panics is survived.
//
// # JSON
//
// What the page shows is served as JSON at api/state below the handler's path: see
// [State]. Query parameters:
//
//   - filter: only subscriptions whose id, name or pattern contains it, letter case
//     aside
//   - sort: id (the default), queued, delivered, failed or dropped; all but id
//     largest first
//   - limit: how many subscriptions at most, 200 unless given, 1000 at most
//   - topic: also say which subscriptions the topic reaches
//
// The live tail is a stream of server-sent events at api/tail?pattern=: an event
// "message" is a [TailMessage] as JSON, an event "dropped" a number of messages that
// the reader was too slow for, and an event "end" that the broker is closed. At most
// eight tails are open at a time.
//
// An open tail holds [net/http.Server.Shutdown], which waits for requests, until the
// broker is shut down: shut down both at once, as examples/livefeed does.
package pubsubdebug
