package schedule

// The types in place of those of sync/atomic. One goroutine runs at a time, so
// that a yield before each operation is all there is to them.
type (
	// Int32 is in place of atomic.Int32.
	Int32 = word[int32]
	// Int64 is in place of atomic.Int64.
	Int64 = word[int64]
	// Uint32 is in place of atomic.Uint32.
	Uint32 = word[uint32]
	// Uint64 is in place of atomic.Uint64.
	Uint64 = word[uint64]
	// Uintptr is in place of atomic.Uintptr.
	Uintptr = word[uintptr]
	// Bool is in place of atomic.Bool.
	Bool = cell[bool]
)

type word[T int32 | int64 | uint32 | uint64 | uintptr] struct{ cell[T] }

func (w *word[T]) Add(delta T) T {
	current.yield("Add")
	w.value += delta
	return w.value
}

func (w *word[T]) And(mask T) (old T) {
	current.yield("And")
	old = w.value
	w.value &= mask
	return old
}

func (w *word[T]) Or(mask T) (old T) {
	current.yield("Or")
	old = w.value
	w.value |= mask
	return old
}

type cell[T comparable] struct{ value T }

func (c *cell[T]) Load() T {
	current.yield("Load")
	return c.value
}

func (c *cell[T]) Store(value T) {
	current.yield("Store")
	c.value = value
}

func (c *cell[T]) Swap(value T) (old T) {
	current.yield("Swap")
	old, c.value = c.value, value
	return old
}

func (c *cell[T]) CompareAndSwap(old, value T) bool {
	current.yield("CompareAndSwap")
	if c.value != old {
		return false
	}
	c.value = value
	return true
}

// Pointer is in place of atomic.Pointer.
type Pointer[T any] struct{ cell[*T] }
