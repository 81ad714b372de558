//go:build !wasip1

package shardmill

import (
	"errors"
	"slices"
)

// Emitted is one piece of output.
type Emitted struct {
	Destination, Key string
	Data             []byte
}

var (
	configured = map[string]string{}
	emitted    []Emitted
	answer     func(method, url string, headers [][2]string, body []byte) (int, []byte, error)
)

// Configure sets a configuration value, for tests.
func Configure(key, value string) { configured[key] = value }

// Answer sets what answers Send, for tests.
func Answer(with func(method, url string, headers [][2]string, body []byte) (int, []byte, error)) {
	answer = with
}

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

func send(method, url string, headers [][2]string, body []byte) (int, []byte, error) {
	if answer == nil {
		return 0, nil, errors.New("nothing answers requests: see shardmill.Answer")
	}
	return answer(method, url, headers, body)
}

func counter(string, uint64)    {}
func gauge(string, float64)     {}
func histogram(string, float64) {}
