package pubsub

import (
	"hash/maphash"
	"strings"
)

// index finds the subscriptions whose patterns match a topic. It is a trie by
// segment, so that what a look-up costs depends on the topic's length and on
// the patterns that share its segments, not on how many there are. It is
// derived from the registry, and guarded like it by the broker's mu.
//
// Among very many patterns the time of a look-up is that of waiting for memory: so
// a node fills one cache line, with its name in it, and is found by the hash of its
// path. benchmarks' "topics" shows what that gains.
type index struct {
	root node
	seed maphash.Seed // made with edges, when the first subscription is added
	// edges holds the literal children of all nodes by the key of their path. One
	// map for all takes a fraction of the memory of a small map in each node. Of
	// nodes with the same key each but the first is under the next number that was
	// free.
	edges map[uint32]*node
	peak  int // the largest len(edges) since the map was made
	// coarse are bits that keys do without: none, but in tests, where few keys make
	// many paths share one.
	coarse uint32
}

// pathHash is the hash of a path from the root; the root's is 0. It has twice the
// bits of a key: with fewer, the hashes of a name that repeats one segment would soon
// go round in a circle.
type pathHash uint64

// starHash stands for the hash of a segment '*'.
const starHash = 0xD1B54A32D192ED03

// below returns the hash of a path from that of the path above and of its last
// segment.
func (above pathHash) below(segment uint64) pathHash {
	const spread = 0x9E3779B97F4A7C15 // odd, with bits that look random
	return (above ^ pathHash(segment)) * spread
}

// node is one segment of a pattern. A node without members has children.
type node struct {
	parent *node
	one    *node         // the child '*', or nil
	rest   *node         // the child '#', which has no children, or nil
	first  *Subscription // one of those whose pattern ends here, or nil
	extra  *extra        // nil when there is none
	key    uint32        // of its path
	// literals is the number of children that are neither '*' nor '#'.
	literals uint32
	segment  shortSegment
}

// extra is what few nodes have.
type extra struct {
	segment string          // one that is too long for the node
	more    []*Subscription // the members but the first, in no order
}

// shortSegment is a segment of up to 15 bytes, and at the end their number. For a
// longer one, which is in extra, the number is longSegment.
type shortSegment [16]byte

const longSegment = 255

// is reports whether n's segment is a topic's.
func (n *node) is(segment string) bool {
	if len(segment) < len(n.segment) {
		return int(n.segment[15]) == len(segment) && string(n.segment[:len(segment)]) == segment
	}
	return n.segment[15] == longSegment && n.extra.segment == segment
}

// place is where the index keeps a subscription; the zero place is nowhere.
type place struct {
	node *node
	slot int // 0 is the first, the others follow in more
}

// add puts s, which is not in the index, under its pattern.
func (x *index) add(s *Subscription) {
	if x.edges == nil {
		x.seed = maphash.MakeSeed()
		x.edges = make(map[uint32]*node)
	}
	n, path := &x.root, pathHash(0)
	for rest, more := s.pattern, true; more; {
		var segment string
		segment, rest, more = strings.Cut(rest, ".")
		path = x.hash(path, segment)
		n = x.child(n, path, segment)
	}
	s.place.node = n
	if n.first == nil {
		n.first = s
		return
	}
	if n.extra == nil {
		n.extra = new(extra)
	}
	n.extra.more = append(n.extra.more, s)
	s.place.slot = len(n.extra.more)
}

// child returns the child of n for a pattern's segment, whose path has a hash, and
// makes it if needed.
func (x *index) child(n *node, path pathHash, segment string) *node {
	if c := x.existing(n, path, segment); c != nil {
		return c
	}
	c := &node{parent: n, key: x.key(path)}
	if len(segment) < len(c.segment) {
		c.segment[15] = byte(copy(c.segment[:15], segment))
	} else {
		// A copy: the node may outlive the subscription whose pattern, up to 64 KiB
		// of it, the segment is cut from.
		c.segment[15] = longSegment
		c.extra = &extra{segment: strings.Clone(segment)}
	}
	switch segment {
	case "*":
		n.one = c
	case "#":
		n.rest = c
	default:
		x.link(c)
		x.peak = max(x.peak, len(x.edges))
		n.literals++
	}
	return c
}

// hash returns the hash of a path from that of the path above and a pattern's
// segment. A subscription has been added before.
func (x *index) hash(above pathHash, segment string) pathHash {
	if segment == "*" || segment == "#" { // '#' has nothing below.
		return above.below(starHash)
	}
	return above.below(maphash.String(x.seed, segment))
}

func (x *index) key(path pathHash) uint32 { return uint32(path>>32) &^ x.coarse }

// link puts a literal node into edges.
func (x *index) link(c *node) {
	at := c.key
	for x.edges[at] != nil {
		at++
	}
	x.edges[at] = c
}

// unlink takes a literal node out of edges, and links those behind it again: they
// may have had to make way for it.
func (x *index) unlink(c *node) {
	at := c.key
	for x.edges[at] != c {
		at++
	}
	delete(x.edges, at)
	for at++; x.edges[at] != nil; at++ {
		behind := x.edges[at]
		delete(x.edges, at)
		x.link(behind)
	}
}

// literal returns the child of n for a topic's segment, whose path has a hash, or
// nil. n has literal children.
func (x *index) literal(n *node, path pathHash, segment string) *node {
	for at := x.key(path); ; at++ {
		c := x.edges[at]
		if c == nil || c.parent == n && c.is(segment) {
			return c
		}
	}
}

// existing returns the child of n for a pattern's segment, whose path has a hash, or
// nil.
func (x *index) existing(n *node, path pathHash, segment string) *node {
	switch {
	case segment == "*":
		return n.one
	case segment == "#":
		return n.rest
	case n.literals == 0:
		return nil
	default:
		return x.literal(n, path, segment)
	}
}

// find returns the subscription with a pattern and an id, or nil.
func (x *index) find(pattern string, id uint64) *Subscription {
	if x.edges == nil {
		return nil
	}
	n, path := &x.root, pathHash(0)
	for more := true; more; {
		var segment string
		segment, pattern, more = strings.Cut(pattern, ".")
		path = x.hash(path, segment)
		if n = x.existing(n, path, segment); n == nil {
			return nil
		}
	}
	if n.first != nil && n.first.id == id {
		return n.first
	}
	if n.extra != nil {
		for _, s := range n.extra.more {
			if s.id == id {
				return s
			}
		}
	}
	return nil
}

// remove takes s out and reports whether it was in.
func (x *index) remove(s *Subscription) bool {
	n := s.place.node
	if n == nil {
		return false
	}
	last := n.first
	if e := n.extra; e == nil || len(e.more) == 0 {
		n.first = nil
	} else {
		last = e.more[len(e.more)-1]
		if s.place.slot == 0 {
			n.first = last
		} else {
			e.more[s.place.slot-1] = last
		}
		e.more = dropLast(e.more)
		if e.more == nil && n.segment[15] != longSegment {
			n.extra = nil
		}
	}
	last.place.slot = s.place.slot
	s.place = place{}
	for n.parent != nil && n.first == nil && n.literals == 0 && n.one == nil && n.rest == nil {
		x.prune(n)
		n = n.parent
	}
	return true
}

// prune takes a node that leads nowhere away from its parent.
func (x *index) prune(n *node) {
	switch n {
	case n.parent.one:
		n.parent.one = nil
	case n.parent.rest:
		n.parent.rest = nil
	default:
		x.unlink(n)
		n.parent.literals--
		x.edges, x.peak = shrunk(x.edges, x.peak)
	}
}

// shrunk returns a map of its size in the place of one that seven of eight entries
// have gone from, and the peak from which to look at it again. A map does not shrink
// by itself; copying what is left costs each removal a constant time on average.
func shrunk[K comparable, V any](m map[K]V, peak int) (map[K]V, int) {
	if peak < 1024 || len(m) > peak/8 {
		return m, peak
	}
	smaller := make(map[K]V, len(m))
	for k, v := range m {
		smaller[k] = v
	}
	return smaller, len(smaller)
}

// dropLast cuts the last element off, lets go of it, and of most of an array
// that has become far too large.
func dropLast(list []*Subscription) []*Subscription {
	list[len(list)-1] = nil
	list = list[:len(list)-1]
	switch {
	case len(list) == 0:
		return nil
	case cap(list) >= 64 && len(list) <= cap(list)/4:
		return append(make([]*Subscription, 0, cap(list)/2), list...)
	}
	return list
}

// match appends to found the subscriptions that match a valid topic, in no
// order and each once. Every node is visited at most once, since one path leads
// to it.
func (x *index) match(topic string, found []*Subscription) []*Subscription {
	return x.matchBelow(&x.root, 0, topic, found)
}

// matchBelow is match for the rest of a topic below a node, whose path has a hash.
func (x *index) matchBelow(n *node, path pathHash, topic string, found []*Subscription) []*Subscription {
	for {
		segment, rest, more := strings.Cut(topic, ".")
		if n.rest != nil {
			found = n.rest.appendMembers(found)
		}
		var next *node
		nextPath := path
		if n.literals > 0 {
			// Not from the node: so the processor can look for the next one while it
			// still waits for this.
			nextPath = path.below(maphash.String(x.seed, segment))
			next = x.literal(n, nextPath, segment)
		}
		switch {
		case n.one == nil:
		case more:
			found = x.matchBelow(n.one, path.below(starHash), rest, found)
		default:
			found = n.one.appendMembers(found)
		}
		switch {
		case next == nil:
			return found
		case !more:
			return next.appendMembers(found)
		}
		n, path, topic = next, nextPath, rest
	}
}

func (n *node) appendMembers(found []*Subscription) []*Subscription {
	if n.first != nil {
		found = append(found, n.first)
	}
	if n.extra != nil {
		found = append(found, n.extra.more...)
	}
	return found
}
