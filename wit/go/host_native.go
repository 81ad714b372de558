//go:build !wasip1

package shardmill

import (
	"bytes"
	"io"
	"net/http"
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

func send(method, url string, headers [][2]string, body []byte) (int, []byte, error) {
	request, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	for _, header := range headers {
		request.Header.Add(header[0], header[1])
	}
	// As the host does it: redirects are not followed.
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

func counter(string, uint64)    {}
func gauge(string, float64)     {}
func histogram(string, float64) {}
