package pubsub

import (
	"fmt"
	"hash/maphash"
	"strconv"
	"strings"
)

// maxNameLength is the most bytes a topic or pattern may have.
const maxNameLength = 65_535

// Match reports whether topic matches pattern. In a pattern, '*' stands for
// exactly one segment and '#', only as the last segment, for one or more; every
// other segment matches itself, byte for byte.
//
// A name that is not a pattern is [ErrInvalidPattern], one that is not a topic
// [ErrInvalidTopic]; then matched is false. Match takes linear time and does
// not allocate when it returns no error.
func Match(pattern, topic string) (matched bool, err error) {
	if err := checkPattern(pattern); err != nil {
		return false, err
	}
	if err := checkTopic(topic); err != nil {
		return false, err
	}
	for {
		want, patternRest, patternMore := strings.Cut(pattern, ".")
		if want == "#" {
			return true, nil
		}
		have, topicRest, topicMore := strings.Cut(topic, ".")
		if want != "*" && want != have {
			return false, nil
		}
		if !patternMore || !topicMore {
			return patternMore == topicMore, nil
		}
		pattern, topic = patternRest, topicRest
	}
}

func checkTopic(name string) error {
	if reason := nameFault(name, false); reason != "" {
		return fmt.Errorf("%w: %s: %s", ErrInvalidTopic, reason, quoteShort(name))
	}
	return nil
}

func checkPattern(name string) error {
	if reason := nameFault(name, true); reason != "" {
		return fmt.Errorf("%w: %s: %s", ErrInvalidPattern, reason, quoteShort(name))
	}
	return nil
}

// nameFault returns what is wrong with a name, or "".
func nameFault(name string, pattern bool) string {
	switch {
	case name == "":
		return "empty name"
	case len(name) > maxNameLength:
		return "longer than 65535 bytes"
	}
	for start, i := 0, 0; i <= len(name); i++ {
		if i < len(name) && name[i] != '.' {
			if name[i] != '*' && name[i] != '#' {
				continue
			}
			if !pattern {
				return "wildcard in a topic"
			}
			// A wildcard is taken literally nowhere: 'orders.cre*' would be a
			// subscription that silently never matches.
			if i != start || i+1 < len(name) && name[i+1] != '.' {
				return "wildcard inside a segment"
			}
			if name[i] == '#' && i+1 < len(name) {
				return "'#' before the last segment"
			}
			continue
		}
		if i == start {
			return "empty segment"
		}
		start = i + 1
	}
	return ""
}

// quoteShort quotes a name for an error's text, and says how long it was when
// it shows only the start.
func quoteShort(name string) string {
	const shown = 64
	if len(name) <= shown {
		return strconv.Quote(name)
	}
	return fmt.Sprintf("%q... (%d bytes)", name[:shown], len(name))
}

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
	seed maphash.Seed // made with edges
	// edges holds the literal children of all nodes by the hash of their path. One
	// map for all takes a fraction of the memory of a small map in each node. Of
	// nodes with the same hash each but the first is under the next number that was
	// free.
	edges map[uint32]*node
	peak  int // the largest len(edges) since the map was made
}

// node is one segment of a pattern. A node without members has children.
type node struct {
	parent *node
	one    *node         // the child '*', or nil
	rest   *node         // the child '#', which has no children, or nil
	first  *Subscription // one of those whose pattern ends here, or nil
	extra  *extra        // nil when there is none
	path   uint32        // the hash of its path
	// literals is how many of its children are.
	literals uint32
	segment  shortSegment // empty when the segment is in extra
}

// extra is what few nodes have.
type extra struct {
	segment string          // one that is too long for the node
	more    []*Subscription // the members but the first, in no order
}

// shortSegment is a segment of up to 15 bytes, and at the end their number.
type shortSegment [16]byte

func (s *shortSegment) set(segment string) { s[15] = byte(copy(s[:15], segment)) }

// is reports whether n's segment is a topic's.
func (n *node) is(segment string) bool {
	if len(segment) < len(n.segment) {
		return int(n.segment[15]) == len(segment) && string(n.segment[:len(segment)]) == segment
	}
	return n.extra != nil && n.extra.segment == segment
}

// place is where the index keeps a subscription; the zero place is nowhere.
type place struct {
	node *node
	slot int // 0 is the first, the others follow in more
}

// add puts s, which is not in the index, under its pattern.
func (x *index) add(s *Subscription) {
	n := &x.root
	for rest, more := s.pattern, true; more; {
		var segment string
		segment, rest, more = strings.Cut(rest, ".")
		n = x.child(n, segment)
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

// child returns the child of n for a pattern's segment and makes it if needed.
func (x *index) child(n *node, segment string) *node {
	if c := x.existing(n, segment); c != nil {
		return c
	}
	if x.edges == nil {
		x.seed = maphash.MakeSeed()
		x.edges = make(map[uint32]*node)
	}
	c := &node{parent: n, path: x.hash(n.path, segment)}
	if len(segment) < len(c.segment) {
		c.segment.set(segment)
	} else {
		// A copy: the node may outlive the subscription whose pattern, up to 64 KiB
		// of it, the segment is cut from.
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

// hash returns the hash of a path from that of the path above and its last segment.
func (x *index) hash(above uint32, segment string) uint32 {
	const spread = 0x9E3779B97F4A7C15 // odd, with bits that look random
	return uint32((maphash.String(x.seed, segment) ^ uint64(above)) * spread >> 32)
}

// link puts a literal node into edges.
func (x *index) link(c *node) {
	at := c.path
	for x.edges[at] != nil {
		at++
	}
	x.edges[at] = c
}

// unlink takes a literal node out of edges, and links those behind it again: they
// may have had to make way for it.
func (x *index) unlink(c *node) {
	at := c.path
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
func (x *index) literal(n *node, path uint32, segment string) *node {
	for at := path; ; at++ {
		c := x.edges[at]
		if c == nil || c.parent == n && c.is(segment) {
			return c
		}
	}
}

// existing returns the child of n for a pattern's segment, or nil.
func (x *index) existing(n *node, segment string) *node {
	switch {
	case segment == "*":
		return n.one
	case segment == "#":
		return n.rest
	case n.literals == 0:
		return nil
	default:
		return x.literal(n, x.hash(n.path, segment), segment)
	}
}

// find returns the subscription with a pattern and an id, or nil.
func (x *index) find(pattern string, id uint64) *Subscription {
	n := &x.root
	for more := true; more && n != nil; {
		var segment string
		segment, pattern, more = strings.Cut(pattern, ".")
		n = x.existing(n, segment)
	}
	if n != nil {
		for _, s := range n.appendMembers(nil) {
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
		if e.more == nil && e.segment == "" {
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
	return x.matchBelow(&x.root, topic, found)
}

func (x *index) matchBelow(n *node, topic string, found []*Subscription) []*Subscription {
	// The hash of the path is carried along: so the processor can look for the next
	// node while it still waits for this one.
	for path := n.path; ; {
		segment, rest, more := strings.Cut(topic, ".")
		if n.rest != nil {
			found = n.rest.appendMembers(found)
		}
		var next *node
		if n.literals > 0 {
			path = x.hash(path, segment)
			next = x.literal(n, path, segment)
		}
		switch {
		case n.one == nil:
		case more:
			found = x.matchBelow(n.one, rest, found)
		default:
			found = n.one.appendMembers(found)
		}
		switch {
		case next == nil:
			return found
		case !more:
			return next.appendMembers(found)
		}
		n, topic = next, rest
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
