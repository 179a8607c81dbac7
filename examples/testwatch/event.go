package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
)

// event is one line of go test -json: a TestEvent as cmd/test2json documents it,
// or a BuildEvent as go help buildjson does, which has an ImportPath and no
// Package. Fields that nobody here needs are not decoded. Subscribers share the
// event, so nobody changes it.
type event struct {
	Action      string
	Package     string
	ImportPath  string
	Test        string // empty for events of the package
	Output      string
	Elapsed     float64 // seconds
	FailedBuild string  // the ImportPath whose build failed
}

// unfinished is an action of testwatch itself: failures publishes it for tests,
// and for packages, that have begun and will not end.
const unfinished = "unfinished"

// foreignTopic is where lines that are no events are published, as foreign. It
// has two segments and no event's topic has, so neither takes the other's.
const foreignTopic = "input.foreign"

// foreign is input that is not an event, such as the compiler's words among the
// events when standard error has been redirected as well.
type foreign struct {
	line int // from 1
	text string
}

// decode returns the event of a line, and what of the line is not part of it:
// all when there is no event. What has a value of an unexpected type is an event
// without that value, and the text as well, so that nothing is lost.
func decode(line []byte) (ev *event, rest []byte) {
	ev, err := unmarshal(line)
	if err == nil {
		return ev, nil
	}
	if ev != nil {
		return ev, line
	}
	// A program that wrote to the same file without a last newline is followed
	// by an event on the same line. Within a JSON string quotes are escaped, so
	// the event begins where these bytes are for the last time.
	at := -1
	for _, first := range []string{`{"Time":`, `{"Action":`, `{"ImportPath":`} {
		at = max(at, bytes.LastIndex(line, []byte(first)))
	}
	if at > 0 {
		if ev, err := unmarshal(line[at:]); err == nil {
			return ev, line[:at]
		}
	}
	return nil, line
}

var errNoEvent = errors.New("no action")

// unmarshal returns an event and no error, an event that is not all of the line
// and an error, or no event and an error.
func unmarshal(line []byte) (*event, error) {
	ev := new(event)
	err := json.Unmarshal(line, ev)
	var wrongType *json.UnmarshalTypeError
	switch {
	case err != nil && !errors.As(err, &wrongType):
		return nil, err
	case ev.Action == "":
		return nil, errNoEvent
	}
	return ev, err
}

// topics names the topics of events. It remembers the names, since a stream has
// few of them and many events.
type topics struct {
	names map[[2]string]string
}

// maxTopics bounds what topics remembers.
const maxTopics = 10_000

// of returns test.<action>.<package>, or the same with the import path for an
// event of a build. Both come from outside, hence are escaped.
func (t *topics) of(ev *event) string {
	id := ev.Package
	if id == "" {
		id = ev.ImportPath
	}
	key := [2]string{ev.Action, id}
	if name, ok := t.names[key]; ok {
		return name
	}
	if t.names == nil || len(t.names) >= maxTopics {
		t.names = make(map[[2]string]string)
	}
	name := "test." + segment(ev.Action) + "." + segment(id)
	t.names[key] = name
	return name
}

// maxSegment keeps topics far below the broker's limit of 65,535 bytes.
const maxSegment = 4096

// segment returns id as one segment of a topic: without dots, which separate
// segments, without the wildcards * and #, and never empty. An empty id is "%",
// and one that is cut ends in "%": url.PathEscape never writes it alone, so
// neither can be mistaken for another id.
func segment(id string) string {
	escaped := strings.ReplaceAll(url.PathEscape(id), ".", "%2E")
	switch {
	case escaped == "":
		return "%"
	case len(escaped) > maxSegment:
		return escaped[:maxSegment] + "%"
	}
	return escaped
}
