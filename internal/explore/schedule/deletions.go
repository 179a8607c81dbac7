package schedule

// Left is the number of the statement that is left out, or of the condition that is
// not looked at, to see whether that is found; 0 is none.
var Left int

// Without reports whether a statement is the one left out.
func Without(number int) bool { return number == Left }

// Never is a condition that is false when it is the one.
func Never(number int, condition bool) bool { return condition && number != Left }

// Always is a condition that is true when it is the one.
func Always(number int, condition bool) bool { return condition || number == Left }
