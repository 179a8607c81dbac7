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
