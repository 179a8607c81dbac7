// Package scenarios has the situations in which the peers are compared. Each
// counts what was delivered and fails when a message is lost, doubled or, where
// its peer promises an order, out of it.
package scenarios

import (
	"strconv"
	"time"

	"github.com/seed-b8032e04/pubsub/benchmarks/peers"
)

// Scenario is one situation, in one or more cases, for several contenders.
type Scenario struct {
	Name  string // for flags and files
	Title string
	About string // what is done and what the figures mean

	Figures []Figure
	// Baseline is the contender that the others of a case are compared to.
	// Where it is empty, a contender is compared to itself in the first case.
	Baseline string
	// Ops is how many operations one measurement does. 0 means as many as fit
	// into the time asked for.
	Ops int
	// Passes bounds the passes, for what takes long or repeats exactly.
	Passes int

	Cases []Case
}

// Figure is one thing that a scenario measures.
type Figure struct {
	Name string
	Unit string
}

// Case is a scenario at one size.
type Case struct {
	Name       string
	X          float64 // the size, for charts
	Contenders []Contender
}

// Contender is who is measured.
type Contender struct {
	Name    string
	Prepare func() (*Trial, error)
}

// Trial is a contender made ready: all that comes before the clock is done.
type Trial struct {
	// Run does n operations and returns the scenario's figures by name. A
	// figure may be missing where it means nothing.
	Run func(n int) (Values, error)
	// Close ends the trial and makes the checks that need a quiet bus.
	Close func() error
}

// Values are figures by name.
type Values map[string]float64

// nsPerOp is the time since start for each of n operations.
func nsPerOp(start time.Time, n int) float64 {
	return float64(time.Since(start).Nanoseconds()) / float64(n)
}

// Size says how big the big cases are.
type Size struct {
	Many    int // subscriptions where the comparison speaks of 100,000
	Side    int // the grid of topics has Side * Side * Side of them
	Million int // subscriptions where the comparison speaks of 1,000,000
}

// Full is the size of the comparison, Quick a small one that shows within
// seconds that everything still works.
var (
	Full  = Size{Many: 100_000, Side: 100, Million: 1_000_000}
	Quick = Size{Many: 1_000, Side: 20, Million: 10_000}
)

// All are all scenarios, in the order of the design's table.
func All(size Size) []Scenario {
	return []Scenario{
		synchronous(), asynchronous(), stuck(),
		subscriptions(size), matches(size), topics(size),
		parallel(), wake(), lifecycle(size), memory(size),
		churn(), payloads(), onePattern(size), scale(size),
	}
}

var publishFigure = []Figure{{Name: "publish", Unit: "ns"}}

// count spells a number as the tables do: 100,000.
func count(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// plural is "1 thing" or "10 things".
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return count(n) + " " + thing + "s"
}

// contenders makes one contender of each peer.
func contenders(of []peers.Peer, prepare func(peers.Peer) (*Trial, error)) []Contender {
	var cs []Contender
	for _, p := range of {
		cs = append(cs, Contender{Name: p.Name, Prepare: func() (*Trial, error) { return prepare(p) }})
	}
	return cs
}

// matchers makes one contender of each index.
func matchers(of []peers.Matcher, prepare func(peers.Matcher) (*Trial, error)) []Contender {
	var cs []Contender
	for _, m := range of {
		cs = append(cs, Contender{Name: m.Name, Prepare: func() (*Trial, error) { return prepare(m) }})
	}
	return cs
}
