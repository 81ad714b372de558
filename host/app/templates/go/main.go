package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	shardmill "shardmill.example/wit/go"
)

// An instance serves one shard: keep here what must last from call to call.
type processor struct {
	destination string
}

func (p *processor) Init(shardmill.Context) error {
	p.destination = "stdout"
	if value, found := shardmill.Config("destination"); found {
		p.destination = value
	}
	return refuseUnknown(p.destination)
}

// refuseUnknown refuses what names no sink of the host before the first record needs it. Only the host knows them.
func refuseUnknown(destination string) error {
	known, found := shardmill.Config("shardmill.destinations")
	if !found || slices.Contains(strings.Split(known, ","), destination) {
		return nil
	}
	return shardmill.Misconfigured(fmt.Sprintf(
		"`destination` is %q, which names no sink of the host; there are: %s", destination, known))
}

func (p *processor) Process(batch shardmill.Batch) (outcome shardmill.Outcome, err error) {
	for index, record := range batch.Records {
		output, err := handle(record.Data)
		if err != nil {
			outcome.Failures = append(outcome.Failures,
				shardmill.Failure{Index: index, Kind: shardmill.Reject, Message: err.Error()})
			continue
		}
		if err := shardmill.Emit(p.destination, record.PartitionKey, output); err != nil {
			return outcome, err
		}
	}
	return outcome, nil
}

func (p *processor) Close(shardmill.CloseReason) error { return nil }

// handle turns one record's data into output. An error rejects the record.
func handle(data []byte) ([]byte, error) {
	if len(data) == 0 {
		return nil, errors.New("the record is empty")
	}
	// Your logic goes here.
	return data, nil
}

func init() { shardmill.Register(&processor{}) }

// Never called: the host calls the processor instead.
func main() {}
