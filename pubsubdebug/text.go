package pubsubdebug

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"
)

// maxPayloadLength is how many bytes of a payload are shown.
const maxPayloadLength = 2048

// cut shortens a text to about n bytes, at the start of a rune.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "..."
}

// errorText and render call code of the service's, which may panic.

func errorText(err error) (text string) {
	defer sayPanic(&text)
	return err.Error()
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
	encoded, err := json.Marshal(payload)
	if err != nil {
		return cut(fmt.Sprintf("(%T, not shown: %v)", payload, err), maxPayloadLength)
	}
	return cut(string(encoded), maxPayloadLength)
}

func sayPanic(text *string) {
	if v := recover(); v != nil {
		*text = fmt.Sprintf("(its text panicked: a %T)", v)
	}
}
