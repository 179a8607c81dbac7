package pubsub

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"
)

// route is the answer of the index for one topic at one generation of the
// registry: whom a message goes to, in the order they are served. It is
// immutable.
type route struct {
	topic      string
	generation uint64
	// In order of subscription each. The three share one array.
	dropping    []*Subscription // asynchronous, with a policy that drops
	blocking    []*Subscription // asynchronous, with Block
	synchronous []*Subscription
}

func newRoute(topic string, generation uint64, found []*Subscription) *route {
	slices.SortFunc(found, func(a, b *Subscription) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.id, b.id))
	})
	blocking := firstOfRank(found, 1)
	synchronous := firstOfRank(found, 2)
	return &route{
		// A copy, so that neither the cache nor the messages keep alive a large
		// buffer that the caller cut the name from.
		topic:       strings.Clone(topic),
		generation:  generation,
		dropping:    found[:blocking],
		blocking:    found[blocking:synchronous],
		synchronous: found[synchronous:],
	}
}

// rank is the place of s in the order in which a publish serves: first those
// that cannot hold it up, last those that run user code.
func (s *Subscription) rank() int {
	switch {
	case s.sync:
		return 2
	case s.policy == Block:
		return 1
	default:
		return 0
	}
}

func firstOfRank(sorted []*Subscription, rank int) int {
	at, _ := slices.BinarySearchFunc(sorted, rank, func(s *Subscription, rank int) int {
		return cmp.Compare(s.rank(), rank)
	})
	return at
}

func (r *route) size() int { return len(r.dropping) + len(r.blocking) + len(r.synchronous) }

const (
	routeSlots     = 1024
	wideRouteSlots = 4
	wideRoute      = 256 // subscriptions from which a route is wide
)

// routeCache holds recent routes, without a lock: two arrays of atomic pointers,
// indexed by the topic's hash, in which a new route replaces what was there. Its
// size is fixed, and what it points to is bounded: wide routes have few slots of
// their own, which are emptied when a subscription comes or goes.
type routeCache struct {
	seed   maphash.Seed
	routes [routeSlots]atomic.Pointer[route]
	wide   [wideRouteSlots]atomic.Pointer[route]
}

// get returns the route of a topic as of a generation, or nil.
func (c *routeCache) get(topic string, generation uint64) *route {
	hash := maphash.String(c.seed, topic)
	r := c.routes[hash%routeSlots].Load()
	if r != nil && r.generation == generation && r.topic == topic {
		return r
	}
	r = c.wide[hash%wideRouteSlots].Load()
	if r != nil && r.generation == generation && r.topic == topic {
		return r
	}
	return nil
}

func (c *routeCache) put(r *route) {
	hash := maphash.String(c.seed, r.topic)
	if r.size() < wideRoute {
		c.routes[hash%routeSlots].Store(r)
	} else {
		c.wide[hash%wideRouteSlots].Store(r)
	}
}

// dropWide empties the slots of wide routes, which are out of date.
func (c *routeCache) dropWide() {
	for i := range c.wide {
		if c.wide[i].Load() != nil {
			c.wide[i].Store(nil)
		}
	}
}

func (c *routeCache) clear() {
	for i := range c.routes {
		c.routes[i].Store(nil)
	}
	c.dropWide()
}
