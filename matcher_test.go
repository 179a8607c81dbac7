package pubsub

import (
	"context"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// naiveValid is the grammar of names by splitting, which is independent of the
// one pass over the bytes that the package makes.
func naiveValid(name string, pattern bool) bool {
	segments := strings.Split(name, ".")
	for i, s := range segments {
		switch {
		case s == "*" && pattern:
		case s == "#" && pattern && i == len(segments)-1:
		case s == "" || strings.ContainsAny(s, "*#"):
			return false
		}
	}
	return len(name) <= 65_535
}

// naiveMatch is what the wildcards mean, by recursion over split names.
func naiveMatch(pattern, topic []string) bool {
	switch {
	case len(pattern) == 1 && pattern[0] == "#":
		return len(topic) > 0
	case len(pattern) == 0 || len(topic) == 0:
		return len(pattern) == len(topic)
	}
	return (pattern[0] == "*" || pattern[0] == topic[0]) && naiveMatch(pattern[1:], topic[1:])
}

// namesOf returns every name of one to depth segments over an alphabet.
func namesOf(depth int, alphabet ...string) []string {
	names := slices.Clone(alphabet)
	for last := names; depth > 1; depth-- {
		var longer []string
		for _, name := range last {
			for _, segment := range alphabet {
				longer = append(longer, name+"."+segment)
			}
		}
		names, last = append(names, longer...), longer
	}
	return names
}

// requireMatchAgrees checks one pair against the naive reference: the answer, the
// kind of error, that the pattern's fault comes first, and the error's text.
func requireMatchAgrees(t *testing.T, pattern, topic string) {
	t.Helper()
	matched, err := Match(pattern, topic)
	switch {
	case !naiveValid(pattern, true):
		require.ErrorIs(t, err, ErrInvalidPattern, "%q %q", pattern, topic)
		require.NotErrorIs(t, err, ErrInvalidTopic)
	case !naiveValid(topic, false):
		require.ErrorIs(t, err, ErrInvalidTopic, "%q %q", pattern, topic)
		require.NotErrorIs(t, err, ErrInvalidPattern)
	default:
		require.NoError(t, err, "%q %q", pattern, topic)
		want := naiveMatch(strings.Split(pattern, "."), strings.Split(topic, "."))
		require.Equal(t, want, matched, "%q %q", pattern, topic)
		return
	}
	require.False(t, matched)
	require.Less(t, len(err.Error()), 400, "the text is bounded however long the name is")
	require.True(t, utf8.ValidString(err.Error()), "the name is quoted")
}

// Every pattern and topic of up to four segments, wildcards and empty segments
// included, and the forms of a wildcard that is not alone in its segment.
func TestMatchAgreesWithNaiveReference(t *testing.T) {
	names := namesOf(4, "", "a", "b", "*", "#")
	split := make([][]string, len(names))
	for i, name := range names {
		split[i] = strings.Split(name, ".")
	}
	for i, pattern := range names {
		if !naiveValid(pattern, true) {
			continue
		}
		for j, topic := range names {
			want := naiveValid(topic, false) && naiveMatch(split[i], split[j])
			// There are many pairs: require is for those that differ.
			if matched, _ := Match(pattern, topic); matched != want {
				require.Equal(t, want, matched, "%q %q", pattern, topic)
			}
		}
	}
	for _, name := range append(names, namesOf(2, "a", "a*", "*a", "**", "a#", "#a", "##", "*#", "#*")...) {
		for _, other := range []string{"a", "*", "#", "", "b*", "a.b"} {
			requireMatchAgrees(t, name, other)
			requireMatchAgrees(t, other, name)
		}
	}
}

func FuzzMatch(f *testing.F) {
	for _, names := range [][2]string{
		{"orders.created.eu", "orders.created.eu"},
		{"orders.*.eu", "orders.created.eu"},
		{"orders.#", "orders"},
		{"#", "a.b.c"},
		{"*.#", "a"},
		{"a.#.b", "a.b"},
		{"cre*", "created"},
		{"", "\x00"},
		{"*.\xff", ".\xff"},
		{"é.#", "e\u0301.a"},
		{strings.Repeat("*.", 100) + "#", strings.Repeat("a.", 100) + "b"},
		{strings.Repeat("\xff", 65), strings.Repeat("€", 30)},
	} {
		f.Add(names[0], names[1])
	}
	f.Fuzz(func(t *testing.T, pattern, topic string) {
		requireMatchAgrees(t, pattern, topic)
		if !naiveValid(pattern, true) || !naiveValid(topic, false) {
			return
		}
		var x index
		s := &Subscription{pattern: pattern}
		x.add(s)
		matched, _ := Match(pattern, topic)
		require.Equal(t, matched, slices.Contains(x.match(topic, nil), s), "the index says the same as Match")
		require.True(t, x.remove(s))
		requireEmptyIndex(t, &x)
	})
}

// The row Names of the contract.
func TestNames(t *testing.T) {
	// accepts reports whether every function that takes a topic takes this one,
	// and as a pattern it matches itself and nothing else.
	accepts := func(t *testing.T, topic string) {
		t.Helper()
		b := New()
		n := 0
		_, err := b.Subscribe(topic, func(context.Context, Message) error { n++; return nil }, WithSync())
		require.NoError(t, err)
		for _, name := range []string{topic, topic[:len(topic)-1] + "\x01"} {
			_, err = b.Publish(context.Background(), name, nil)
			require.NoError(t, err)
		}
		require.Equal(t, 1, n)
		require.NoError(t, b.CreateTopic(topic))
		require.Equal(t, []string{topic}, b.Topics())
		require.NoError(t, b.DeleteTopic(topic))
		requireMatchAgrees(t, topic, topic)
	}
	// refuses reports whether every function that takes the name says why not.
	refuses := func(t *testing.T, name, topicReason, patternReason string) {
		t.Helper()
		b := New()
		_, published := b.Publish(context.Background(), name, nil)
		_, matched := Match("#", name)
		for _, err := range []error{published, matched, b.CreateTopic(name), b.DeleteTopic(name)} {
			require.ErrorIs(t, err, ErrInvalidTopic)
			require.ErrorContains(t, err, topicReason)
		}
		if patternReason == "" {
			return
		}
		_, subscribed := b.Subscribe(name, func(context.Context, Message) error { return nil })
		_, matched = Match(name, "a")
		for _, err := range []error{subscribed, matched} {
			require.ErrorIs(t, err, ErrInvalidPattern)
			require.ErrorContains(t, err, patternReason)
		}
	}

	t.Run("a literal segment is any non-empty bytes", func(t *testing.T) {
		for _, name := range []string{
			"a", "A", " ", "\x00", "\n", "a b", "/", "$SYS", "+", ">", "\xff\xfe", "\xc3", "日本.語",
			"orders.created.eu", strings.Repeat("a.", 40) + "\x00", "\\", `"`, "%d.%s",
		} {
			accepts(t, name)
		}
		for b := range 256 {
			if name := string([]byte{byte(b)}); !strings.Contains(".*#", name) && b != 1 {
				accepts(t, "a"+name)
				accepts(t, name+".a")
			}
		}
	})

	t.Run("at most 65,535 bytes", func(t *testing.T) {
		for _, fill := range []string{"a", "\xff", "\x00"} {
			accepts(t, strings.Repeat(fill, 65_535))
			refuses(t, strings.Repeat(fill, 65_536), "longer than 65535 bytes", "longer than 65535 bytes")
		}
		pattern := "*." + strings.Repeat("a", 65_533)
		matched, err := Match(pattern, "b"+pattern[1:])
		require.NoError(t, err)
		require.True(t, matched)
		_, err = Match(pattern+"a", "b")
		require.ErrorIs(t, err, ErrInvalidPattern)
	})

	t.Run("wildcards inside a segment are refused", func(t *testing.T) {
		for _, name := range []string{
			"cre*", "*ted", "c*d", "a.cre*", "cre*.a", "**", "a.**", "*#", "#*", "##", "a#", "#a", "a.#b", "b#.a",
		} {
			refuses(t, name, "wildcard in a topic", "wildcard inside a segment")
		}
		for _, name := range []string{"*", "#", "a.*", "*.a", "a.#", "*.*.#"} {
			refuses(t, name, "wildcard in a topic", "")
		}
		for _, name := range []string{"#.a", "a.#.b", "#.#", "#.*", "#."} {
			refuses(t, name, "wildcard in a topic", "'#' before the last segment")
		}
	})

	t.Run("no segment is empty", func(t *testing.T) {
		refuses(t, "", "empty name", "empty name")
		for _, name := range []string{".", "..", ".a", "a.", "a..b", "a.b.."} {
			refuses(t, name, "empty segment", "empty segment")
		}
	})

	t.Run("bytes are compared", func(t *testing.T) {
		for _, names := range [][2]string{
			{"orders", "Orders"},
			{"caf\u00e9", "cafe\u0301"},
			{"\xff", "\ufffd"},
			{"a", "a "},
			{"a.b", "a.b\x00"},
		} {
			matched, err := Match(names[0], names[1])
			require.NoError(t, err)
			require.False(t, matched, "%q", names)
		}
	})

	t.Run("an error has the reason and the name, shortened when long", func(t *testing.T) {
		_, err := Match("orders.cre*", "a")
		require.EqualError(t, err, `pubsub: invalid pattern: wildcard inside a segment: "orders.cre*"`)
		_, err = Match("a", "a\x00.\xff..")
		require.EqualError(t, err, `pubsub: invalid topic: empty segment: "a\x00.\xff.."`)
		whole := strings.Repeat("a", 62) + ".."
		_, err = Match("a", whole)
		require.EqualError(t, err, `pubsub: invalid topic: empty segment: "`+whole+`"`)
		_, err = Match("a", "b"+whole)
		require.EqualError(t, err, `pubsub: invalid topic: empty segment: "b`+whole[:63]+`"... (65 bytes)`)
		err = New(WithStrictTopics()).DeleteTopic(strings.Repeat("\xff", 65_535))
		require.ErrorIs(t, err, ErrUnknownTopic)
		require.Less(t, len(err.Error()), 400)
	})

	// Quadratic work on names of this size, let alone exponential, would show as
	// a test that takes minutes.
	t.Run("no name panics or takes more than linear time", func(t *testing.T) {
		deep := func(segment string) string { return strings.Repeat(segment+".", 32_767) + segment }
		topic := deep("a")
		require.Len(t, topic, 65_535)
		b := New()
		n := 0
		patterns := []string{deep("a"), deep("*"), deep("a")[:65_534] + "#", deep("*")[:65_534] + "#", "a.#", strings.Repeat("a.*.", 16_383) + "a.*"}
		var subs []*Subscription
		for _, pattern := range patterns {
			matched, err := Match(pattern, topic)
			require.NoError(t, err)
			require.True(t, matched)
			s, err := b.Subscribe(pattern, func(context.Context, Message) error { n++; return nil }, WithSync())
			require.NoError(t, err)
			subs = append(subs, s)
		}
		for _, name := range []string{topic, topic[:65_533], "a", topic[:65_534] + "b"} {
			n = 0
			_, err := b.Publish(context.Background(), name, nil)
			require.NoError(t, err)
			want := 0
			for _, pattern := range patterns {
				if matched, _ := Match(pattern, name); matched {
					want++
				}
			}
			require.Equal(t, want, n)
		}
		for _, s := range subs {
			s.Unsubscribe()
		}
		requireEmptyIndex(t, &b.index)
		for _, name := range []string{deep(""), deep("#"), deep("**"), strings.Repeat(topic, 50)} {
			requireMatchAgrees(t, name, "a")
			requireMatchAgrees(t, "#", name)
		}
	})
}

// The package documentation says so: matching is on the way of every publish that
// the cache does not answer.
func TestMatchDoesNotAllocate(t *testing.T) {
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_, _ = Match("orders.*.#", "orders.created.eu.berlin")
		_, _ = Match("orders.*", "orders.created.eu.berlin")
	}))
}

// A wildcard needs a segment to stand for: the case in which '#' differs from
// MQTT and AMQP, and the one in which '*' differs from a glob.
func TestMatchWildcardsNeedASegment(t *testing.T) {
	for _, c := range []struct {
		pattern, topic string
		want           bool
	}{
		{"orders.#", "orders", false},
		{"orders.#", "orders.created", true},
		{"orders.#", "orders.created.eu", true},
		{"#", "orders", true},
		{"*.#", "orders", false},
		{"*", "orders", true},
		{"*", "orders.created", false},
		{"orders.*", "orders", false},
		{"*.*", "orders.created", true},
		{"orders.*.eu", "orders.eu", false},
	} {
		matched, err := Match(c.pattern, c.topic)
		require.NoError(t, err)
		require.Equal(t, c.want, matched, "%s %s", c.pattern, c.topic)
	}
}
