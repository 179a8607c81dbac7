package pubsubdebug

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/seed-b8032e04/pubsub"
)

// maxPayloadLength is how many bytes of a payload are shown.
const maxPayloadLength = 2048

// cut shortens a text to about n bytes, at the start of a rune.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	end := n
	for end > 0 && n-end < utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "..."
}

// What follows calls code of the service's, which may panic.

func errorText(err error) (text string) {
	defer sayPanic(&text)
	if p, ok := err.(*pubsub.PanicError); ok { //nolint:errorlint // its own text, not that of what wraps it
		// Its Error would have fmt follow a map that contains itself.
		return "pubsub: handler panicked: " + render(p.Value)
	}
	return err.Error()
}

func stackText(err error) (text string) {
	defer sayPanic(&text)
	if p := (*pubsub.PanicError)(nil); errors.As(err, &p) {
		return string(p.Stack)
	}
	return ""
}

// render returns a payload as text, cut short. What has no text of its own is shown as
// JSON rather than by fmt, which would follow a map that contains itself for ever.
func render(payload any) (text string) {
	defer sayPanic(&text)
	switch p := payload.(type) {
	case nil:
		return "nil"
	case string:
		return cut(p, maxPayloadLength)
	case []byte:
		return cut(strings.ToValidUTF8(string(p[:min(len(p), maxPayloadLength+1)]), "\uFFFD"), maxPayloadLength)
	case error:
		return cut(p.Error(), maxPayloadLength)
	case fmt.Stringer:
		return cut(p.String(), maxPayloadLength)
	}
	switch reflect.TypeOf(payload).Kind() {
	case reflect.Chan, reflect.Func, reflect.UnsafePointer:
		return fmt.Sprintf("(%T)", payload)
	}
	var encoded strings.Builder
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false) // It is read by people.
	if err := encoder.Encode(payload); err != nil {
		return cut(fmt.Sprintf("(%T, not shown: %v)", payload, err), maxPayloadLength)
	}
	return cut(strings.TrimSuffix(encoded.String(), "\n"), maxPayloadLength)
}

func sayPanic(text *string) {
	if v := recover(); v != nil {
		*text = fmt.Sprintf("(its text panicked: a %T)", v)
	}
}
