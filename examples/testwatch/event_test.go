package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-b8032e04/pubsub"
)

func TestDecode(t *testing.T) {
	pass := &event{Action: "pass", Package: "p", Test: "T", Elapsed: 0.5}
	const line = `{"Time":"2026-01-01T00:00:00Z","Action":"pass","Package":"p","Test":"T","Elapsed":0.5}`
	for _, test := range []struct {
		line string
		want *event
		rest string
	}{
		{line, pass, ""},
		{" " + line + "\t", pass, ""},
		{`{"Action":"attr","Package":"p","Key":"k","New":[{"a":1}]}`, &event{Action: "attr", Package: "p"}, ""},
		{`{"Action":"output","Output":"a\u0000\"{\"Action\":\"fail\"}"}`,
			&event{Action: "output", Output: "a\x00\"{\"Action\":\"fail\"}"}, ""},
		// An event that has lost its own line.
		{"go: downloading x" + line, pass, "go: downloading x"},
		{`{"Time":"2026-` + line, pass, `{"Time":"2026-`},
		{`{"a":1} {"Action":"x"` + line, pass, `{"a":1} {"Action":"x"`},
		// A value of another type.
		{`{"Action":"pass","Package":"p","Test":"T","Elapsed":"0.5s"}`,
			&event{Action: "pass", Package: "p", Test: "T"},
			`{"Action":"pass","Package":"p","Test":"T","Elapsed":"0.5s"}`},
		// No event.
		{"null", nil, "null"},
		{"42", nil, "42"},
		{`"Action"`, nil, `"Action"`},
		{"[]", nil, "[]"},
		{"{}", nil, "{}"},
		{`{"Action":""}`, nil, `{"Action":""}`},
		{`{"Action":7}`, nil, `{"Action":7}`},
		{`{"time":"x","msg":"a log line"}`, nil, `{"time":"x","msg":"a log line"}`},
		{line[:40], nil, line[:40]},
		{line + "}", nil, line + "}"},
		{"\x00" + line[1:], nil, "\x00" + line[1:]},
		{strings.Repeat("[", 100_000), nil, strings.Repeat("[", 100_000)},
	} {
		ev, rest := decode([]byte(test.line))
		assert.Equal(t, test.want, ev, "%.100q", test.line)
		assert.Equal(t, test.rest, string(rest), "%.100q", test.line)
	}
}

func TestTopics(t *testing.T) {
	var names topics
	for want, ev := range map[string]event{
		"test.pass.example%2Ecom%2Fshop":         {Action: "pass", Package: "example.com/shop"},
		"test.build-fail.a%2Fb%20%5Ba%2Etest%5D": {Action: "build-fail", ImportPath: "a/b [a.test]"},
		"test.pass.%2A":                          {Action: "pass", Package: "*"},
		"test.pass.%23":                          {Action: "pass", Package: "#"},
		"test.pass.%25":                          {Action: "pass", Package: "%"},
		"test.pass.%":                            {Action: "pass"},
		"test.a%2Eb.%":                           {Action: "a.b"},
	} {
		assert.Equal(t, want, names.of(&ev))
	}
}

// Whatever is in an event, its topic is valid and has three segments, so that it is
// published, and to those who want it.
func TestTopicsAreValid(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var names topics
	for range 20_000 {
		ev := &event{Action: anyName(random), Package: anyName(random)}
		topic := names.of(ev)
		ok, err := pubsub.Match("test.*.*", topic)
		require.NoError(t, err)
		require.True(t, ok, "%q", topic)
	}
	long := names.of(&event{Action: strings.Repeat("/", 100_000), Package: strings.Repeat(".", 100_000)})
	ok, err := pubsub.Match("test.*.*", long)
	require.NoError(t, err)
	require.True(t, ok)
	require.LessOrEqual(t, len(names.names), maxTopics)
}

func anyName(random *rand.Rand) string {
	name := make([]byte, random.IntN(8))
	for i := range name {
		const often = "./*#% []\x00\xff"
		if name[i] = byte(random.IntN(256)); random.IntN(2) == 0 {
			name[i] = often[random.IntN(len(often))]
		}
	}
	return string(name)
}

// Two packages never share a topic, short of very long names.
func TestTopicsAreDistinct(t *testing.T) {
	seen := map[string]string{}
	for _, id := range []string{"", "%", "%2E", ".", "a.b", "a/b", "a%2Eb", "a%2Fb", "a b", "a+b", "*", "#", "_"} {
		topic := new(topics).of(&event{Action: "run", Package: id})
		if other, ok := seen[topic]; ok {
			assert.Fail(t, "shared", fmt.Sprintf("%q and %q: %s", id, other, topic))
		}
		seen[topic] = id
	}
}
