package scenarios

import (
	"math/rand/v2"
	"strconv"
	"strings"
)

// repeat is n times the hot topic itself.
func repeat(n int) []string {
	patterns := make([]string, n)
	for i := range patterns {
		patterns[i] = hotTopic
	}
	return patterns
}

// hotPatterns are three subscriptions that match the hot topic.
func hotPatterns(wildcards bool) []string {
	if !wildcards {
		return repeat(3)
	}
	return []string{hotTopic, "orders.*.eu", "orders.#"}
}

// unrelated are n different patterns that do not match the hot topic: seven of
// ten are literal, one has a wildcard in the middle, one at the end and one at
// the start, where every topic has to look.
func unrelated(n int, wildcards bool) []string {
	patterns := make([]string, n)
	for i := range patterns {
		number := strconv.Itoa(i)
		switch kind := i % 10; {
		case !wildcards || kind < 7:
			patterns[i] = "tenant." + number + ".orders.created"
		case kind == 7:
			patterns[i] = "tenant." + number + ".*.created"
		case kind == 8:
			patterns[i] = "tenant." + number + ".#"
		default:
			patterns[i] = "*.shipped-" + number + ".eu"
		}
	}
	return patterns
}

// grid has side * side * side topics in three levels, and patterns on them of
// which each topic matches two to four. The side is at least 9.
type grid struct {
	side     int
	topics   []string
	literals []bool // by topic: whether a pattern is that topic
	patterns []string
}

// newGrid takes the literal patterns at random, but the same each time.
func newGrid(side int) *grid {
	g := &grid{side: side, topics: make([]string, side*side*side), literals: make([]bool, side*side*side)}

	// All topics share one string, so that the garbage collector has one
	// object to look at and not a million.
	var names strings.Builder
	ends := make([]int, len(g.topics))
	for i := range g.topics {
		names.WriteString(g.name(i))
		ends[i] = names.Len()
	}
	all, start := names.String(), 0
	for i, end := range ends {
		g.topics[i], start = all[start:end], end
	}

	// With side 100: 85,000 literals, 10,000 + 4,900 with a star, 100 with #.
	random := rand.New(rand.NewPCG(1, 2))
	for _, i := range random.Perm(len(g.topics))[:side*side*17/2] {
		g.literals[i] = true
		g.patterns = append(g.patterns, g.topics[i])
	}
	for i := range side * side {
		a, b := strconv.Itoa(i/side), strconv.Itoa(i%side)
		g.patterns = append(g.patterns, "region-"+a+".site-"+b+".*")
		if i < g.middle() {
			g.patterns = append(g.patterns, "*.site-"+a+".sensor-"+b)
		}
	}
	for i := range side {
		g.patterns = append(g.patterns, "region-"+strconv.Itoa(i)+".#")
	}
	random.Shuffle(len(g.patterns), func(i, j int) { g.patterns[i], g.patterns[j] = g.patterns[j], g.patterns[i] })
	return g
}

// middle is how many patterns start with a star.
func (g *grid) middle() int { return g.side*g.side/2 - g.side }

func (g *grid) name(i int) string {
	return "region-" + strconv.Itoa(i/g.side/g.side) +
		".site-" + strconv.Itoa(i/g.side%g.side) +
		".sensor-" + strconv.Itoa(i%g.side)
}

// matching is how many patterns match topic i.
func (g *grid) matching(i int) int {
	n := 2 // one of its site and one of its region
	if i%(g.side*g.side) < g.middle() {
		n++
	}
	if g.literals[i] {
		n++
	}
	return n
}

// shuffled returns the numbers of all topics in an order that no cache foresees.
func (g *grid) shuffled() []int {
	return rand.New(rand.NewPCG(3, 4)).Perm(len(g.topics))
}
