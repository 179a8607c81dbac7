package pubsub

import (
	"fmt"
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
type index struct {
	root node
	// edges holds the literal children of all nodes. One map for all takes a
	// fraction of the memory of a small map in each node.
	edges map[edge]*node
	peak  int // the largest len(edges) since the map was made
}

type edge struct {
	parent  *node
	segment string
}

// node is one segment of a pattern. A node without members has children.
type node struct {
	parent   *node
	wild     *wildcards      // nil when it has none
	literals int             // how many edges lead on from here
	members  []*Subscription // those whose pattern ends here, in no order
}

// wildcards are the wildcard children of a node. Few nodes have any.
type wildcards struct {
	one  *node // '*'
	rest *node // '#', which has no children
}

// place is where the index keeps a subscription; the zero place is nowhere.
type place struct {
	node *node
	slot int // in node.members
}

// add puts s, which is not in the index, under its pattern.
func (x *index) add(s *Subscription) {
	n := &x.root
	for rest, more := s.pattern, true; more; {
		var segment string
		segment, rest, more = strings.Cut(rest, ".")
		n = x.child(n, segment)
	}
	s.place = place{node: n, slot: len(n.members)}
	n.members = append(n.members, s)
}

// child returns the child of n for a pattern's segment and makes it if needed.
func (x *index) child(n *node, segment string) *node {
	if c := x.existing(n, segment); c != nil {
		return c
	}
	c := &node{parent: n}
	switch segment {
	case "*", "#":
		if n.wild == nil {
			n.wild = new(wildcards)
		}
		if segment == "*" {
			n.wild.one = c
		} else {
			n.wild.rest = c
		}
		return c
	}
	if x.edges == nil {
		x.edges = make(map[edge]*node)
	}
	// A copy of the segment: the node may outlive the subscription whose
	// pattern, up to 64 KiB of it, the segment is cut from.
	x.edges[edge{n, strings.Clone(segment)}] = c
	x.peak = max(x.peak, len(x.edges))
	n.literals++
	return c
}

// existing returns the child of n for a pattern's segment, or nil.
func (x *index) existing(n *node, segment string) *node {
	switch {
	case segment != "*" && segment != "#":
		return x.edges[edge{n, segment}]
	case n.wild == nil:
		return nil
	case segment == "*":
		return n.wild.one
	default:
		return n.wild.rest
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
		for _, s := range n.members {
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
	last := n.members[len(n.members)-1]
	n.members[s.place.slot] = last
	last.place.slot = s.place.slot
	n.members = dropLast(n.members)
	s.place = place{}
	pattern := s.pattern
	for n.parent != nil && len(n.members) == 0 && n.literals == 0 && n.wild == nil {
		dot := strings.LastIndexByte(pattern, '.')
		x.prune(n.parent, pattern[dot+1:])
		n, pattern = n.parent, pattern[:max(dot, 0)]
	}
	return true
}

// prune takes the child of n for a segment, which leads nowhere, away.
func (x *index) prune(n *node, segment string) {
	switch segment {
	case "*":
		n.wild.one = nil
	case "#":
		n.wild.rest = nil
	default:
		delete(x.edges, edge{n, segment})
		n.literals--
		x.edges, x.peak = shrunk(x.edges, x.peak)
		return
	}
	if *n.wild == (wildcards{}) {
		n.wild = nil
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
	for {
		segment, rest, more := strings.Cut(topic, ".")
		if w := n.wild; w != nil {
			if w.rest != nil {
				found = append(found, w.rest.members...)
			}
			if w.one != nil && more {
				found = x.matchBelow(w.one, rest, found)
			} else if w.one != nil {
				found = append(found, w.one.members...)
			}
		}
		if n.literals == 0 {
			return found
		}
		next, ok := x.edges[edge{n, segment}]
		if !ok {
			return found
		}
		if !more {
			return append(found, next.members...)
		}
		n, topic = next, rest
	}
}
