package pubsubdebug_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-b8032e04/pubsub"
)

type (
	panicsInString  struct{}
	panicsInMarshal struct{}
	order           struct {
		ID     string `json:"id"`
		Amount int    `json:"amount"`
		hidden int
	}
	node struct{ Next *node }
	word string
)

func (panicsInString) String() string                { panic("no text") }
func (panicsInMarshal) MarshalJSON() ([]byte, error) { panic(map[string]int{"no": 1}) }

// Payloads are shown as text, whatever they are and whatever their methods do.
func TestPayloads(t *testing.T) {
	cyclicMap := map[string]any{}
	cyclicMap["me"] = cyclicMap
	cyclicSlice := make([]any, 1)
	cyclicSlice[0] = cyclicSlice
	cyclicList := &node{}
	cyclicList.Next = cyclicList
	var nilStringer *netip.Addr

	long := strings.Repeat("x", 2048) + "..."
	for _, test := range []struct {
		name    string
		payload any
		want    string // a prefix when it ends in "…"
	}{
		{"nil", nil, "nil"},
		{"string", "a<b>&\"", "a<b>&\""},
		{"empty string", "", ""},
		{"long string", strings.Repeat("x", 1<<20), long},
		{"own string", word("<w>"), `"<w>"`},
		{"number", 42, "42"},
		{"struct", order{ID: "<A>", Amount: 3, hidden: 1}, `{"id":"<A>","amount":3}`},
		{"pointer", &order{ID: "A"}, `{"id":"A","amount":0}`},
		{"nil pointer", (*order)(nil), "null"},
		{"bytes", []byte("abc"), "abc"},
		{"big bytes", make([]byte, 8<<20), strings.Repeat("\x00", 2048) + "..."},
		{"invalid bytes", []byte("a\xff\xfeb"), "a\ufffdb"},
		{"invalid string", "a\xffb", "a\ufffdb"},
		{"long invalid string", strings.Repeat("\x80", 5000), strings.Repeat("\ufffd", 100) + "…"},
		{"long runes", strings.Repeat("é", 5000), strings.Repeat("é", 1024) + "..."},
		{"error", errors.New("bad"), "bad"},
		{"Stringer", netip.MustParseAddr("::1"), "::1"},
		{"nil in a Stringer", nilStringer, "(its text panicked: a …"},
		{"String panics", panicsInString{}, "(its text panicked: a string)"},
		{"MarshalJSON panics", panicsInMarshal{}, "(its text panicked: a map[string]int)"},
		{"channel", make(chan int), "(chan int)"},
		{"function", func(int) string { return "" }, "(func(int) string)"},
		{"channel inside", struct{ C chan int }{}, "(struct { C chan int }, not shown: json: unsupported type: chan int)"},
		{"cyclic map", cyclicMap, "(map[string]interface {}, not shown: …"},
		{"cyclic slice", cyclicSlice, "([]interface {}, not shown: …"},
		{"cyclic list", cyclicList, "(*pubsubdebug_test.node, not shown: …"},
		{"big slice", make([]int, 1<<16), "[0,0,0…"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBroker(t)
			subscribe(t, b, "a", func(context.Context, pubsub.Message) error { return errors.New("no") }, pubsub.WithSync())
			publish(t, b, "a", test.payload)
			letters := state(t, b, nil).DeadLetters
			require.Len(t, letters, 1)
			got := letters[0].Payload
			if prefix, ok := strings.CutSuffix(test.want, "…"); ok {
				assert.True(t, strings.HasPrefix(got, prefix), got)
			} else {
				assert.Equal(t, test.want, got)
			}
			assert.LessOrEqual(t, utf8.RuneCountInString(got), 2051, "bounded")
			if test.name == "long invalid string" {
				assert.Greater(t, utf8.RuneCountInString(got), 2000, "cut no more than must be")
			}
		})
	}
}
