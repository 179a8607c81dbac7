package schedule

import (
	"bytes"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// describe writes a line of the trace: step, virtual time, goroutine, what it is
// about to do, and where. It needs mu.
func (s *Schedule) describe(what string) {
	id := goroutineID()
	name := s.names[id]
	if name == "" {
		name = s.newName()
		s.names[id] = name
	}
	where := ""
	if !strings.HasPrefix(what, "-- ") {
		where = caller()
	}
	s.trace(fmt.Sprintf("%5d %9d  %-10s %-15s %s", s.steps, s.now/unit, name, what, where))
}

// newName needs mu.
func (s *Schedule) newName() string {
	s.named++
	return "g" + strconv.Itoa(s.named)
}

// caller returns the innermost function on the stack that is not of this package.
func caller() string {
	var pcs [24]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		if f.Function != "" && !strings.Contains(f.Function, "/explore/schedule.") {
			return fmt.Sprintf("%s:%d %s", filepath.Base(f.File), f.Line, f.Function[strings.LastIndexByte(f.Function, '/')+1:])
		}
		if !more {
			return ""
		}
	}
}

// goroutineID reads the number off the first line of the stack, which is all that
// the runtime tells; a trace needs it, nothing else does.
func goroutineID() uint64 {
	var buf [64]byte
	fields := bytes.Fields(buf[:runtime.Stack(buf[:], false)])
	id, _ := strconv.ParseUint(string(fields[1]), 10, 64)
	return id
}
