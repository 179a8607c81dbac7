module github.com/seed-b8032e04/pubsub/oracles

go 1.26.0

replace github.com/seed-b8032e04/pubsub => ../

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/nats-io/nats-server/v2 v2.15.3
	github.com/seed-b8032e04/pubsub v0.0.0
	github.com/stretchr/testify v1.12.1
	go.uber.org/goleak v1.3.0
	pgregory.net/rapid v1.3.0
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
