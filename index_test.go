package pubsub

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"
	"weak"

	"github.com/stretchr/testify/require"
)

func requireEmptyIndex(t *testing.T, x *index) {
	t.Helper()
	require.Empty(t, x.edges)
	require.Equal(t, node{}, x.root)
}

// requireSoundIndex walks the whole trie: every node is reached by the path that
// its members' patterns spell, knows its children, and is there for a reason; every
// member knows its place; and no edge leads from a node that is gone.
func requireSoundIndex(t *testing.T, x *index, live []*Subscription) {
	t.Helper()
	name := func(n *node) string {
		if n.segment[15] != longSegment {
			return string(n.segment[:n.segment[15]])
		}
		return n.extra.segment
	}
	children := make(map[*node]map[string]*node)
	for at, n := range x.edges {
		for before := n.key; before != at; before++ {
			require.NotNil(t, x.edges[before], "nothing leads to %s", name(n))
		}
		if children[n.parent] == nil {
			children[n.parent] = make(map[string]*node)
		}
		children[n.parent][name(n)] = n
	}
	edges := 0
	var members []*Subscription
	var walk func(n *node, hash pathHash, path string)
	walk = func(n *node, hash pathHash, path string) {
		require.Len(t, children[n], int(n.literals), path)
		edges += int(n.literals)
		below := make(map[string]*node)
		maps.Copy(below, children[n])
		for segment, child := range map[string]*node{"*": n.one, "#": n.rest} {
			if child != nil {
				require.Equal(t, segment, name(child))
				below[segment] = child
			}
		}
		own := n.appendMembers(nil)
		require.False(t, n != &x.root && len(own)+len(below) == 0, "%s leads nowhere", path)
		for i, s := range own {
			require.Equal(t, place{n, i}, s.place)
			require.Equal(t, s.pattern, path)
			require.Same(t, s, x.find(path, s.id))
			members = append(members, s)
		}
		for segment, child := range below {
			require.Same(t, n, child.parent)
			hash := x.hash(hash, segment)
			require.Equal(t, x.key(hash), child.key, path)
			walk(child, hash, strings.TrimPrefix(path+"."+segment, "."))
		}
	}
	walk(&x.root, 0, "")
	require.Equal(t, len(x.edges), edges, "an edge whose parent is gone")
	require.GreaterOrEqual(t, x.peak, edges)
	require.ElementsMatch(t, live, members)
	for _, pattern := range append(patternsOf("a"), "", ".", "a..b", "#.a", "a.#.b", "**") {
		require.Nil(t, x.find(pattern, 1<<60), pattern)
	}
}

// patternsOf returns all valid patterns of up to four segments over an alphabet.
func patternsOf(alphabet ...string) []string {
	return slices.DeleteFunc(namesOf(4, append(alphabet, "*", "#")...), func(name string) bool {
		return !naiveValid(name, true)
	})
}

// Every pattern of up to four segments in one index, then ever fewer of them: for
// every topic the index returns what Match says of each pattern, once.
func TestIndexAgreesWithMatch(t *testing.T) {
	t.Run("a key for each path", func(t *testing.T) { checkIndexAgainstMatch(t, &index{}) })
	t.Run("few keys", func(t *testing.T) { checkIndexAgainstMatch(t, &index{coarse: fewKeys}) })
}

// fewKeys leaves eight keys, at both ends of the numbers, so that most paths share one.
const fewKeys = 1<<31 - 1<<2

func checkIndexAgainstMatch(t *testing.T, x *index) {
	var live []*Subscription
	for _, pattern := range patternsOf("a", "b") {
		s := &Subscription{id: uint64(len(live)), pattern: pattern}
		x.add(s)
		live = append(live, s)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	rng.Shuffle(len(live), func(i, j int) { live[i], live[j] = live[j], live[i] })
	for {
		requireSoundIndex(t, x, live)
		for _, topic := range namesOf(5, "a", "b", "c") {
			var want []*Subscription
			for _, s := range live {
				if matched, _ := Match(s.pattern, topic); matched {
					want = append(want, s)
				}
			}
			found := x.match(topic, nil)
			byID := func(a, b *Subscription) int { return int(a.id) - int(b.id) }
			slices.SortFunc(found, byID)
			slices.SortFunc(want, byID)
			require.True(t, slices.Equal(want, found), topic)
		}
		if len(live) == 0 {
			requireEmptyIndex(t, x)
			return
		}
		for range (len(live) + 1) / 2 {
			require.True(t, x.remove(live[0]))
			require.False(t, x.remove(live[0]), "it is in no longer")
			live = live[1:]
		}
	}
}

// indexModel is a broker beside a plain list of its subscriptions.
type indexModel struct {
	t    *testing.T
	b    *Broker
	ops  []byte
	hits int // how many publishes the cache answers
	live []*Subscription
	left map[*Subscription]int // of its max messages; 0 is no limit
}

// draw takes a number below n from the operations; 0 when they are used up.
func (m *indexModel) draw(n int) int {
	if len(m.ops) == 0 {
		return 0
	}
	v := int(m.ops[0]) % n
	m.ops = m.ops[1:]
	return v
}

func (m *indexModel) name(alphabet ...string) string {
	segments := make([]string, 1+m.draw(4))
	for i := range segments {
		segments[i] = alphabet[m.draw(len(alphabet))]
	}
	return strings.Join(segments, ".")
}

func (m *indexModel) subscribe() {
	pattern := m.name("a", "b", "c", "*")
	if m.draw(3) == 0 {
		pattern += ".#"
	}
	opts := [][]SubscribeOption{nil, {WithDropPolicy(Block)}, {WithSync()}}[m.draw(3)]
	left := m.draw(4)
	if left > 0 {
		opts = append(opts, WithMaxMessages(left))
	}
	s, err := m.b.Subscribe(pattern, func(context.Context, Message) error { return nil }, opts...)
	require.NoError(m.t, err)
	m.live = append(m.live, s)
	m.left[s] = left
}

func (m *indexModel) end() {
	if len(m.live) == 0 {
		return
	}
	i := m.draw(len(m.live))
	s := m.live[i]
	if m.draw(2) == 0 {
		s.Unsubscribe()
	} else {
		require.NoError(m.t, s.Drain(context.Background()))
	}
	require.Nil(m.t, m.b.index.find(s.pattern, s.id))
	m.live = slices.Delete(m.live, i, i+1)
}

// publish checks the route, order included, and that exactly those that Match says
// get the message.
func (m *indexModel) publish(topic string) {
	var want [3][]*Subscription
	for _, s := range m.live {
		if matched, _ := Match(s.pattern, topic); matched {
			want[s.rank()] = append(want[s.rank()], s)
		}
	}
	if fresh(m.b, topic) != nil {
		m.hits++
	}
	r := routeOf(m.t, m.b, topic)
	for rank, got := range [][]*Subscription{r.dropping, r.blocking, r.synchronous} {
		require.True(m.t, slices.Equal(want[rank], got), "%s, rank %d", topic, rank)
	}
	before := make(map[*Subscription]uint64)
	for _, s := range m.live {
		before[s] = s.Stats().Delivered
	}
	_, err := m.b.Publish(context.Background(), topic, nil)
	require.NoError(m.t, err)
	require.NoError(m.t, m.b.Flush(context.Background()))
	m.live = slices.DeleteFunc(m.live, func(s *Subscription) bool {
		got := s.Stats().Delivered - before[s]
		if !slices.Contains(want[s.rank()], s) {
			require.Zero(m.t, got)
			return false
		}
		require.EqualValues(m.t, 1, got)
		m.left[s]--
		return m.left[s] == 0
	})
}

// checkIndexModel runs operations on a broker and says where it differs from the
// list, and how many publishes the cache has answered.
func checkIndexModel(t *testing.T, ops []byte) (hits int) {
	m := &indexModel{t: t, b: New(), ops: ops, left: make(map[*Subscription]int)}
	if len(ops)%2 == 0 {
		m.b.index.coarse = fewKeys
	}
	for len(m.ops) > 0 {
		switch m.draw(8) {
		case 0, 1, 2:
			m.subscribe()
		case 3:
			m.end()
		default:
			topic := m.name("a", "b", "c", "d")
			for range 3 { // The second and third time the cache can answer.
				m.publish(topic)
			}
		}
	}
	requireSoundIndex(t, &m.b.index, m.live)
	for len(m.live) > 0 {
		m.end()
	}
	requireEmptyIndex(t, &m.b.index)
	return m.hits
}

// Whatever is subscribed and ended in between, in each of the ways to end, a publish
// reaches exactly the subscriptions whose pattern matches, and none is left behind.
func TestIndexModel(t *testing.T) {
	hits := 0
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 0))
		ops := make([]byte, 600+seed%2)
		for i := range ops {
			ops[i] = byte(rng.Uint32())
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) { hits += checkIndexModel(t, ops) })
	}
	require.Greater(t, hits, 2000, "the cache hardly answered")
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 4, 0, 0, 3, 0, 0, 4, 0, 0})
	f.Add([]byte{0, 3, 3, 3, 3, 3, 0, 2, 0, 4, 3, 0, 1, 2, 3, 4, 3, 0, 1, 2, 3})
	f.Add([]byte{0, 1, 0, 3, 1, 1, 1, 0, 1, 0, 3, 1, 1, 2, 4, 1, 0, 2, 4, 1, 0, 2, 4, 1, 0, 2})
	f.Fuzz(func(t *testing.T, ops []byte) { checkIndexModel(t, ops[:min(len(ops), 400)]) })
}

// A topic that has gone leaves no map of its former size and no array of its former
// members behind.
func TestIndexShrinks(t *testing.T) {
	var x index
	var subs []*Subscription
	for i := range 20_000 {
		s := &Subscription{id: uint64(i), pattern: "one"}
		if i%2 == 0 {
			s.pattern = fmt.Sprintf("many.%d.a", i)
		}
		x.add(s)
		subs = append(subs, s)
	}
	require.Len(t, x.edges, 20_002, "many, one, and two for each of the many")
	for _, s := range subs[4:] {
		x.remove(s)
	}
	requireSoundIndex(t, &x, subs[:4])
	require.Less(t, cap(subs[1].place.node.extra.more), 64)
	x.remove(subs[2])
	x.remove(subs[3])
	requireSoundIndex(t, &x, subs[:2])
	require.Less(t, x.peak, 1024)
	require.Nil(t, subs[1].place.node.extra)
	require.Equal(t, subs[:1], x.match("many.0.a", nil))
	require.Equal(t, subs[1:2], x.match("one", nil))
}

// A map is copied when seven of eight entries have gone from one that was large, and an
// array when three of four have: not before, so that each removal costs a constant time.
func TestShrinkingIsSeldomAndInTime(t *testing.T) {
	mapOf := func(n int) map[int]bool {
		m := make(map[int]bool)
		for i := range n {
			m[i] = true
		}
		return m
	}
	for _, c := range []struct{ entries, peak, want int }{
		{128, 1024, 128}, {129, 1024, 1024}, {0, 1023, 1023}, {1000, 8000, 1000}, {1001, 8000, 8000},
	} {
		m, peak := shrunk(mapOf(c.entries), c.peak)
		require.Equal(t, c.want, peak)
		require.Equal(t, mapOf(c.entries), m)
	}

	for _, n := range []int{32, 63, 64, 256, 1000} {
		list := make([]*Subscription, n)
		for i := range list {
			list[i] = &Subscription{id: uint64(i)}
		}
		for len(list) > 1 {
			first, size := &list[0], cap(list)
			list = dropLast(list)
			moves := size >= 64 && len(list) <= size/4
			require.Equal(t, moves, first != &list[0], "%d of %d", len(list), size)
			if moves {
				require.Equal(t, size/2, cap(list))
			}
			require.EqualValues(t, len(list)-1, list[len(list)-1].id)
		}
		require.Nil(t, dropLast(list))
	}
}

// Looking for a subscription, under a lock for readers, changes nothing.
func TestIndexIsNotChangedByLooking(t *testing.T) {
	var x index
	require.Nil(t, x.find("a.b", 1))
	require.Empty(t, x.match("a.b", nil))
	require.Equal(t, index{}, x)
}

// A node outlives the subscription that made it when another shares its path: it
// must not keep that one's pattern, which can be 64 KiB, nor its subscription.
func TestIndexKeepsNoPatternAlive(t *testing.T) {
	var x index
	long := strings.Repeat("x", 60_000)
	shared := "orders.created-in-the-shop" // Too long for a node to have it inside.
	first := &Subscription{pattern: shared + "." + long}
	second := &Subscription{pattern: shared}
	x.add(first)
	x.add(second)
	pattern := weak.Make(unsafe.StringData(first.pattern))
	gone := weak.Make(first)
	x.remove(first)
	first = nil
	runtime.GC()
	require.Nil(t, pattern.Value())
	require.Nil(t, gone.Value())
	require.Equal(t, []*Subscription{second}, x.match(shared, nil))
	runtime.KeepAlive(&x)
}

// Neither the registry nor an index node keeps, in the unused end of an array, a
// subscription that it has let go.
func TestUnsubscribedIsNotKeptAlive(t *testing.T) {
	r := &rig{T: t, Broker: New()}
	gone := make([]weak.Pointer[Subscription], 0, 5)
	for i := range 8 {
		s := r.on("a", nothing)
		if i%3 > 0 {
			gone = append(gone, weak.Make(s))
		}
	}
	for _, s := range gone {
		s.Value().Unsubscribe()
	}
	runtime.GC()
	for _, s := range gone {
		require.Nil(t, s.Value())
	}
	require.Len(t, r.Subscriptions(), 3)
}

// A pattern or name is often cut from a larger buffer, a request's or a file's: a
// subscription must not keep that.
func TestSubscriptionKeepsNoBufferAlive(t *testing.T) {
	r := &rig{T: t, Broker: New()}
	buffer := strings.Repeat("orders.", 10_000)
	gone := weak.Make(unsafe.StringData(buffer))
	s := r.on(buffer[:6], func(context.Context, Message) error { return nil }, WithName(buffer[7:13]))
	buffer = ""
	runtime.GC()
	require.Nil(t, gone.Value())
	require.Equal(t, "orders", s.Pattern())
	require.Equal(t, "orders", s.Name())
}

// Removal moves the last member into the freed place, in the registry and in an
// index node alike: of many patterns, and of as many subscriptions with one pattern,
// whatever the order, exactly those that were not ended are left, in order.
func TestUnsubscribeAmongMany(t *testing.T) {
	const n = 10_000
	r := &rig{T: t, Broker: New()}
	got := make(map[int]int)
	var subs []*Subscription
	for i := range n {
		for _, pattern := range []string{"same", fmt.Sprintf("p%d.*", i)} {
			at := len(subs)
			subs = append(subs, r.on(pattern, func(context.Context, Message) error { got[at]++; return nil }, WithSync()))
		}
	}
	rng := rand.New(rand.NewPCG(3, 4))
	order := rng.Perm(len(subs))
	for _, i := range order[:len(subs)-1000] {
		subs[i].Unsubscribe()
	}
	left := order[len(subs)-1000:]
	slices.Sort(left)
	listed := r.Subscriptions()
	require.Len(t, listed, len(left))
	for i, at := range left {
		require.Same(t, subs[at], listed[i])
	}
	for _, i := range order[:1000] { // which have been unsubscribed
		if subs[i].Pattern() != "same" {
			r.pub(strings.Replace(subs[i].Pattern(), "*", "a", 1), nil)
		}
	}
	require.Empty(t, got)
	r.pub("same", nil)
	for _, at := range left {
		if subs[at].Pattern() != "same" {
			r.pub(strings.Replace(subs[at].Pattern(), "*", "a", 1), nil)
		}
	}
	require.Len(t, got, len(left))
	for _, at := range left {
		require.Equal(t, 1, got[at])
		subs[at].Unsubscribe()
	}
	requireEmptyIndex(t, &r.index)
	require.Zero(t, r.Stats().Subscriptions)
	require.EqualValues(t, len(left), r.Stats().Delivered)
	require.Empty(t, r.live)
	require.Empty(t, r.ending)
}
