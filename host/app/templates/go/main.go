package main

import (
	"errors"

	"shardmill"
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
	return nil
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
