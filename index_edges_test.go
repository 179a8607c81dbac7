package pubsub

import (
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Paths whose keys are the same are told apart, whichever of them comes and goes
// first: among as many nodes as these some always are.
func TestIndexTellsEqualKeysApart(t *testing.T) {
	x := index{seed: maphash.MakeSeed(), edges: make(map[uint32]*node)}
	byKey := make(map[uint32]string)
	twins := make(map[uint32][]string)
	for i := range 400_000 {
		name := "n" + strconv.Itoa(i)
		key := x.key(x.hash(0, name))
		if first, ok := byKey[key]; ok {
			twins[key] = []string{first, name}
		}
		byKey[key] = name
	}
	require.NotEmpty(t, twins, "18 are to be expected")
	for _, names := range twins {
		same := []*Subscription{{id: 1, pattern: names[0]}, {id: 2, pattern: names[1]}}
		for range 2 { // Whichever was there first, and is in its own place.
			slices.Reverse(same)
			x.add(same[0])
			require.Empty(t, x.match(same[1].pattern, nil))
			x.add(same[1])
			for _, s := range same {
				require.Equal(t, []*Subscription{s}, x.match(s.pattern, nil))
				require.Same(t, s, x.find(s.pattern, s.id))
			}
			require.True(t, x.remove(same[0]))
			require.Empty(t, x.match(same[0].pattern, nil))
			require.Equal(t, same[1:], x.match(same[1].pattern, nil))
			x.add(same[0])
			requireSoundIndex(t, &x, same)
			require.True(t, x.remove(same[0]))
			require.True(t, x.remove(same[1]))
		}
	}
	requireEmptyIndex(t, &x)
}

// Whatever was linked and unlinked before, also round the end of the numbers, every
// node that is linked is found from its own key on without a gap.
func TestIndexLinksLeaveNoGap(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	x := index{edges: make(map[uint32]*node)}
	var linked []*node
	for range 20_000 {
		if len(linked) == 0 || len(linked) < 12 && rng.IntN(2) == 0 {
			n := &node{key: uint32(rng.IntN(8)) - 4}
			x.link(n)
			linked = append(linked, n)
		} else {
			i := rng.IntN(len(linked))
			x.unlink(linked[i])
			linked = slices.Delete(linked, i, i+1)
		}
		require.Len(t, x.edges, len(linked))
		for _, n := range linked {
			at := n.key
			for x.edges[at] != nil && x.edges[at] != n {
				at++
			}
			require.Same(t, n, x.edges[at])
		}
	}
}

// A segment is told from every other, whether a node has it inside or apart, whatever
// its bytes are, and keeps its name while some of its members go.
func TestIndexTellsSegmentsApart(t *testing.T) {
	long := strings.Repeat("x", 300)
	segments := []string{"a", "b", "\x00", "\x00\x00", "a\x00", "\x0f", "\xff"}
	for _, n := range []int{13, 14, 15, 16, 17, 254, 255, 256, 257} {
		segments = append(segments, long[:n], long[:n-1]+"y", "y"+long[:n-1])
	}
	x := index{coarse: ^uint32(0)} // One key for all.
	var live []*Subscription
	for _, a := range segments {
		for _, pattern := range []string{a, a, a, "a." + a, a + ".a"} {
			live = append(live, &Subscription{id: uint64(len(live)), pattern: pattern})
			x.add(live[len(live)-1])
		}
	}
	rng := rand.New(rand.NewPCG(9, 10))
	rng.Shuffle(len(live), func(i, j int) { live[i], live[j] = live[j], live[i] })
	for len(live) > 0 {
		requireSoundIndex(t, &x, live)
		for _, segment := range segments {
			for _, topic := range []string{segment, "a." + segment, segment + ".a"} {
				want := 0
				for _, s := range live {
					if s.pattern == topic {
						want++
					}
				}
				require.Len(t, x.match(topic, nil), want)
			}
		}
		n := min(len(live), 20)
		for _, s := range live[:n] {
			x.remove(s)
		}
		live = live[n:]
	}
	requireEmptyIndex(t, &x)
}

// A name that repeats one segment, as deep as can be, is as quick as any other: the
// hashes of its paths do not go round in a circle.
func TestIndexIsLinearInDepth(t *testing.T) {
	for i := range 100 {
		x := index{seed: maphash.MakeSeed(), edges: make(map[uint32]*node)}
		keys := make([]uint32, maxNameLength/2)
		path := pathHash(0)
		for depth := range keys {
			path = x.hash(path, strconv.Itoa(i%10))
			keys[depth] = x.key(path)
		}
		slices.Sort(keys)
		require.Greater(t, len(slices.Compact(keys)), maxNameLength/2-10)
	}
}
