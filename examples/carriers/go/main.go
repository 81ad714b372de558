// The component: what the host calls. carriers.go does the work.
//
// Configuration: `destination` (default `stdout`).
package main

import (
	"encoding/json"
	"maps"
	"slices"

	shardmill "shardmill.example/wit/go"
)

type processor struct {
	destination string
}

func (p *processor) Init(shardmill.Context) error {
	p.destination = "stdout"
	if value, found := shardmill.Config("destination"); found {
		p.destination = value
	}
	return nil
}

func (p *processor) Process(batch shardmill.Batch) (shardmill.Outcome, error) {
	lines := make([][]byte, len(batch.Records))
	for index, record := range batch.Records {
		lines[index] = record.Data
	}
	sums, rejects := summarize(lines)
	for _, carrier := range slices.Sorted(maps.Keys(sums)) {
		line, err := json.Marshal(sums[carrier])
		if err != nil {
			return shardmill.Outcome{}, err
		}
		if err := shardmill.Emit(p.destination, carrier, line); err != nil {
			return shardmill.Outcome{}, err
		}
	}
	var outcome shardmill.Outcome
	for _, reject := range rejects {
		outcome.Failures = append(outcome.Failures,
			shardmill.Failure{Index: reject.index, Kind: shardmill.Reject, Message: reject.reason.Error()})
	}
	return outcome, nil
}

func (p *processor) Close(shardmill.CloseReason) error { return nil }

func init() { shardmill.Register(&processor{}) }

// Never called: the host calls the processor instead.
func main() {}
