package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/seed-b8032e04/pubsub/benchmarks/report"
)

func thisMachine() report.Machine {
	return report.Machine{
		CPU:    cpuModel(),
		Cores:  runtime.GOMAXPROCS(0),
		System: runtime.GOOS + "/" + runtime.GOARCH,
		Go:     runtime.Version(),
	}
}

// cpuModel is what Linux calls the processor; elsewhere, its architecture.
func cpuModel() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// moduleVersions are those that were built into this program.
func moduleVersions() map[string]string {
	versions := make(map[string]string)
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return versions
	}
	for _, m := range info.Deps {
		versions[m.Path] = m.Version
		if m.Replace != nil {
			versions[m.Path] = "this repository"
		}
	}
	return versions
}
