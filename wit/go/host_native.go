//go:build !wasip1

package shardmill

import "slices"

// Emitted is one piece of output.
type Emitted struct {
	Destination, Key string
	Data             []byte
}

var (
	configured = map[string]string{}
	emitted    []Emitted
)

// Configure sets a configuration value, for tests.
func Configure(key, value string) { configured[key] = value }

// TakeEmitted returns what was emitted since the last time, for tests.
func TakeEmitted() []Emitted {
	taken := emitted
	emitted = nil
	return taken
}

func emit(destination, key string, data []byte) error {
	emitted = append(emitted, Emitted{destination, key, slices.Clone(data)})
	return nil
}

func config(key string) (string, bool) {
	value, found := configured[key]
	return value, found
}

func counter(string, uint64)    {}
func gauge(string, float64)     {}
func histogram(string, float64) {}
