package pubsub

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync/atomic"
)

// route is whom a message goes to, in the order they are served: in order of
// subscription each. It is immutable, and the three share one array.
type route struct {
	dropping    []*Subscription // asynchronous, with a policy that drops
	blocking    []*Subscription // asynchronous, with Block
	synchronous []*Subscription
}

// newRoute sorts the subscriptions found into a route, which keeps their array.
func newRoute(found []*Subscription) route {
	// Counting looks at all of them at once, as far as waiting for memory is
	// concerned; comparing looks at one after the other.
	var ofRank [3]int
	for _, s := range found {
		ofRank[s.rank()]++
	}
	blocking := ofRank[0]
	synchronous := blocking + ofRank[1]
	slices.SortFunc(found, func(a, b *Subscription) int {
		if byRank := a.rank() - b.rank(); byRank != 0 {
			return byRank
		}
		return cmp.Compare(a.id, b.id)
	})
	return route{
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
//
// A topic takes the place of another when it is looked up in vain twice. So those
// that do not recur push nothing out and leave no garbage: a publish to each of a
// million topics takes a sixth less time.
type routeCache struct {
	seed   maphash.Seed
	routes [routeSlots]atomic.Pointer[cachedRoute]
	wide   [wideRouteSlots]atomic.Pointer[cachedRoute]
	// missed is, for each slot of routes, half of the hash of the topic that was
	// last looked up in vain.
	missed [routeSlots]atomic.Uint32
}

// cachedRoute is the answer of the index for one topic at one generation of the
// registry. It is immutable.
type cachedRoute struct {
	topic      string
	generation uint64
	route
}

// hash returns what the other methods want to know of a topic.
func (c *routeCache) hash(topic string) uint64 { return maphash.String(c.seed, topic) }

// get returns the route of a topic, which has a hash, as of a generation, or nil.
func (c *routeCache) get(hash uint64, topic string, generation uint64) *cachedRoute {
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

// admits reports whether to put the route of a topic that was looked up in vain: when
// its slot is free, or has what was true before a generation; and when the topic was
// the last one looked up in vain there too. Another topic of the same hash does no
// harm: a route is kept for nothing.
func (c *routeCache) admits(hash, generation uint64) bool {
	if r := c.routes[hash%routeSlots].Load(); r == nil || r.generation < generation {
		return true
	}
	missed := &c.missed[hash%routeSlots]
	half := uint32(hash >> 32)
	if missed.Load() == half {
		return true
	}
	missed.Store(half)
	return false
}

func (c *routeCache) put(hash uint64, r *cachedRoute) { c.slot(hash, r).Store(r) }

// drop takes a route out that is still where it was put.
func (c *routeCache) drop(hash uint64, r *cachedRoute) { c.slot(hash, r).CompareAndSwap(r, nil) }

func (c *routeCache) slot(hash uint64, r *cachedRoute) *atomic.Pointer[cachedRoute] {
	if r.size() < wideRoute {
		return &c.routes[hash%routeSlots]
	}
	return &c.wide[hash%wideRouteSlots]
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
