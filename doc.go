// Package pubsub is an in-process publish/subscribe broker.
package pubsub
