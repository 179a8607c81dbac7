package oracles

import "context"

// begin begins a call of Drain, Flush or Shutdown.
func (m *model) begin(p *pause) {
	m.pauses = append(m.pauses, p)
	switch {
	case p.drains != nil:
		m.drain(p.drains)
	case p.shutdown:
		m.closed = true
		for _, s := range m.subjects {
			m.drain(s)
		}
	default:
		for _, s := range m.subjects {
			if s.sync {
				continue // It has no queue, and its publishers have not returned.
			}
			p.flushes = append(p.flushes, s.running...)
			p.flushes = append(p.flushes, s.queue...)
		}
	}
	m.settlePauses()
	if p.canceled && !p.ended {
		m.cancelPause(p)
	}
}

// cancelPause ends the ctx of a call that waits.
func (m *model) cancelPause(p *pause) {
	p.canceled, p.ended, p.err = true, true, context.Canceled
	switch {
	case p.drains != nil:
		m.unsubscribe(p.drains)
	case p.shutdown:
		for _, s := range m.subjects {
			m.unsubscribe(s)
		}
	}
	m.settlePauses()
}

// settlePauses ends the calls that have nothing left to wait for.
func (m *model) settlePauses() {
	for _, p := range m.pauses {
		if !p.ended && !m.waits(p) {
			p.ended = true
		}
	}
}

func (m *model) waits(p *pause) bool {
	switch {
	case p.drains != nil:
		return p.drains.phase != done
	case p.shutdown:
		for _, s := range m.subjects {
			if s.phase != done {
				return true
			}
		}
	default:
		for _, e := range p.flushes {
			if !e.settled {
				return true
			}
		}
	}
	return false
}
