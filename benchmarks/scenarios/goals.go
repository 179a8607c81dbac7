package scenarios

import "github.com/seed-b8032e04/pubsub/benchmarks/peers"

// Ref names one figure of one contender in one case.
type Ref struct {
	Scenario, Case, Contender, Figure string
}

// Goal is a promise about speed: each of its pairs, Of divided by To, is at most
// Limit. A pair without To is compared as it is.
type Goal struct {
	Work  string // what is done
	Than  string // what it is compared to; empty when it is not
	Unit  string // of the limit, when it is compared to nothing
	Limit float64
	Pairs []Pair
}

// Pair is one comparison.
type Pair struct {
	Of, To Ref
}

// Goals are the rows of the design's table "Speed to reach", at this size.
func Goals(size Size) []Goal {
	goals := deliveryGoals()
	goals = append(goals, routingGoals(size)...)
	return append(goals, idleGoals(size)...)
}

func publishRef(scenario, c, contender string) Ref { return Ref{scenario, c, contender, "publish"} }

// versus compares two contenders in the same cases.
func versus(scenario, of, to string, cases ...string) []Pair {
	var pairs []Pair
	for _, c := range cases {
		pairs = append(pairs, Pair{publishRef(scenario, c, of), publishRef(scenario, c, to)})
	}
	return pairs
}

func deliveryGoals() []Goal {
	goals := []Goal{
		{Work: "synchronous publish, 1 subscriber", Than: "call", Limit: 1.25,
			Pairs: versus("sync", peers.PubsubSync.Name, peers.Call.Name, "1 subscriber")},
		{Work: "synchronous publish, 10 subscribers", Than: "call", Limit: 2,
			Pairs: versus("sync", peers.PubsubSync.Name, peers.Call.Name, "10 subscribers")},
	}
	limits := map[int]float64{1: 0.9, 10: 0.7, 100: 0.5}
	var ahead []Pair
	for _, n := range []int{1, 10, 100} {
		c := plural(n, "subscriber")
		goals = append(goals, Goal{Work: "asynchronous, lossless, end to end, " + c, Than: "channel", Limit: limits[n],
			Pairs: versus("async", peers.Pubsub.Name, peers.Channel.Name, c)})
		for _, p := range peers.Asynchronous() {
			own := p.Name == peers.Pubsub.Name || p.Name == peers.Channel.Name
			if t := p.Traits; !own && t.Topics && t.Ordered && t.WakesAtOnce {
				ahead = append(ahead, versus("async", peers.Pubsub.Name, p.Name, c)...)
			}
		}
	}
	goals = append(goals, Goal{Work: "the same", Than: "every peer that has topics, keeps order and wakes at once", Limit: 1, Pairs: ahead})

	past := func(name string) Pair {
		return Pair{publishRef("stuck", "stuck", name), publishRef("stuck", "healthy", name)}
	}
	return append(goals,
		Goal{Work: "publish past a stuck subscriber", Than: "the same, healthy", Limit: 1.2,
			Pairs: []Pair{past(peers.PubsubDropOldest.Name), past(peers.PubsubDropNewest.Name)}},
		Goal{Work: "parallel publishers, 2, 4 and 8, one topic", Than: "channel", Limit: 0.8,
			Pairs: versus("parallel", peers.Pubsub.Name, peers.Channel.Name, "2 publishers", "4 publishers", "8 publishers")},
		Goal{Work: "parallel publishers, 2, 4 and 8, a topic each", Than: "channel", Limit: 0.8,
			Pairs: versus("parallel", peers.Pubsub.Name, peers.Channel.Name, "2, own topics", "4, own topics", "8, own topics")},
	)
}

func routingGoals(size Size) []Goal {
	grid := plural(size.Side*size.Side*size.Side, "topic")
	first, last := "10 subscriptions", plural(size.Many, "subscription")
	quiet := func(name string) Pair {
		return Pair{publishRef("churn", "churning", name), publishRef("churn", "quiet", name)}
	}
	return []Goal{
		{Work: "hot topic, " + count(size.Many) + " subscriptions, 3 matching", Than: "10 subscriptions", Limit: 1.1,
			Pairs: []Pair{{publishRef("subscriptions", last, peers.PubsubSync.Name), publishRef("subscriptions", first, peers.PubsubSync.Name)}}},
		{Work: grid + ", " + plural(size.Side*size.Side*10, "subscription"), Unit: "ns", Limit: 1000,
			Pairs: []Pair{{Of: publishRef("topics", grid, peers.PubsubSync.Name)}}},
		{Work: "the same", Than: "the NATS server's subject list", Limit: 1,
			Pairs: append(versus("topics", peers.PubsubSync.Name, peers.SublistCached.Name, grid),
				versus("topics", peers.PubsubSync.Name, peers.SublistUncached.Name, grid)...)},
		{Work: "hot topic under churn", Than: "the same, quiet", Limit: 1.2,
			Pairs: []Pair{quiet(peers.PubsubSync.Name), quiet(peers.Pubsub.Name)}},
	}
}

func idleGoals(size Size) []Goal {
	woken := func(figure string) []Pair {
		c := "1 subscriber"
		return []Pair{{Ref{"wake", c, peers.Pubsub.Name, figure}, Ref{"wake", c, peers.Channel.Name, figure}}}
	}
	pair := func(c string) Ref { return Ref{"subscribe", c, peers.Pubsub.Name, "pair"} }
	few, many, alike := "10 present", count(size.Many)+" present", count(size.Many)+" of one pattern"
	idle := func(figure string) []Pair {
		million := plural(size.Million, "subscription")
		return []Pair{
			{Of: Ref{"memory", "idle", peers.Pubsub.Name, figure}},
			{Of: Ref{"memory", "after a burst", peers.Pubsub.Name, figure}},
			{Of: Ref{"scale", million, peers.Pubsub.Name, figure}},
		}
	}
	return []Goal{
		{Work: "idle wake, p50", Than: "channel", Limit: 1.2, Pairs: woken("p50")},
		{Work: "idle wake, p99", Than: "channel", Limit: 1.2, Pairs: woken("p99")},
		{Work: "subscribe and unsubscribe, 10 and " + count(size.Many) + " present", Unit: "ns", Limit: 3000,
			Pairs: []Pair{{Of: pair(few)}, {Of: pair(many)}, {Of: pair(alike)}}},
		{Work: "subscribe and unsubscribe, " + count(size.Many) + " present", Than: "10 present", Limit: 1.5,
			Pairs: []Pair{{pair(many), pair(few)}, {pair(alike), pair(few)}}},
		{Work: "memory of an idle subscription", Unit: "B", Limit: 1024, Pairs: idle("memory")},
		{Work: "goroutines of an idle subscription", Unit: "goroutines", Limit: 0, Pairs: idle("goroutines")},
	}
}
