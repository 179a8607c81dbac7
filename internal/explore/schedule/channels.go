package schedule

import (
	"context"
	"reflect"
	"runtime/debug"
)

// Go starts a goroutine of the code under test, which sleeps before it does
// anything.
func Go(f func()) {
	s := current
	s.yield("go")
	s.begin(f, "", true)
}

// GoWith is Go for a function of one argument.
func GoWith[A any](f func(A), a A) {
	s := current
	s.yield("go")
	s.begin(func() { f(a) }, "", true)
}

// Go starts a goroutine of the scenario's.
func (s *Schedule) Go(name string, f func()) { s.begin(f, name, false) }

func (s *Schedule) begin(f func(), name string, counted bool) {
	s.mu.Lock()
	if counted {
		s.live++
	}
	wake := s.reserve(s.delay(s.draw()))
	if s.trace != nil {
		if name == "" {
			name = s.newName()
		}
		s.describe("-- starts " + name)
	}
	s.mu.Unlock()
	go func() {
		defer func() {
			if v := recover(); v != nil {
				s.Fail("panic: %v\n%s", v, debug.Stack())
			}
			if counted {
				s.mu.Lock()
				s.live--
				s.mu.Unlock()
			}
		}()
		s.sleepUntil(wake)
		s.Name(name)
		f()
	}()
}

// Gosched is in place of runtime.Gosched.
func Gosched() { current.yield("Gosched") }

// Call is a yield before a call of a handler.
func Call[F any](f F) F {
	current.yield("call")
	return f
}

// Cancel is in place of a call of a context's cancel function.
func Cancel(f context.CancelFunc) {
	s := current
	s.yield("cancel")
	f()
	s.wakes()
}

// Close is in place of close.
func Close[T any](ch chan<- T) {
	s := current
	s.yield("close")
	close(ch)
	s.wakes()
}

// Send is in place of a send statement.
func Send[T any](ch chan<- T, v T) {
	s := current
	s.yield("send")
	select {
	case ch <- v:
		s.wakes()
		return
	default:
	}
	ticket := s.ticket()
	ch <- v
	s.woken(ticket)
}

// Receive is in place of a receive operation.
func Receive[T any](ch <-chan T) T {
	s := current
	s.yield("receive")
	select {
	case v := <-ch:
		s.wakes()
		return v
	default:
	}
	ticket := s.ticket()
	v := <-ch
	s.woken(ticket)
	return v
}

// Case is one case of a select statement: it sends or receives a signal.
type Case struct {
	from <-chan struct{}
	to   chan<- struct{}
}

// From is a case that receives.
func From(ch <-chan struct{}) Case { return Case{from: ch} }

// To is a case that sends.
func To(ch chan<- struct{}) Case { return Case{to: ch} }

func (c Case) try() bool {
	if c.to != nil {
		select {
		case c.to <- struct{}{}:
			return true
		default:
			return false
		}
	}
	select {
	case <-c.from:
		return true
	default:
		return false
	}
}

// Select is in place of a select statement. It returns which case was carried out,
// of several that were ready at random; without block, which is a default case, -1
// when none was ready.
func Select(block bool, cases ...Case) int {
	s := current
	s.yield("select")
	first := 0
	if len(cases) > 1 {
		first = s.Choose(len(cases))
	}
	for i := range cases {
		chosen := (first + i) % len(cases)
		if cases[chosen].try() {
			s.wakes()
			return chosen
		}
	}
	if !block {
		return -1
	}
	ticket := s.ticket()
	chosen := wait(cases)
	s.woken(ticket)
	return chosen
}

func wait(cases []Case) int {
	if len(cases) == 2 && cases[0].to == nil && cases[1].to == nil {
		select {
		case <-cases[0].from:
			return 0
		case <-cases[1].from:
			return 1
		}
	}
	all := make([]reflect.SelectCase, len(cases))
	for i, c := range cases {
		all[i] = reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c.from)}
		if c.to != nil {
			all[i] = reflect.SelectCase{Dir: reflect.SelectSend, Chan: reflect.ValueOf(c.to), Send: reflect.ValueOf(struct{}{})}
		}
	}
	chosen, _, _ := reflect.Select(all)
	return chosen
}

// Hash is in place of functions of hash/maphash, whose seeds are random.
func Hash(text string) uint64 {
	h := uint64(len(text))
	for i := range len(text) {
		h = mix(h ^ uint64(text[i]))
	}
	return h
}
