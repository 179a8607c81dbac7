// Package oracles holds tests of package pubsub against what others have written:
// see the README. They use the exported surface only. It is a module of its own, so
// that those who import pubsub do not see what it requires.
package oracles
