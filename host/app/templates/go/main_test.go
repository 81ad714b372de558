package main

import (
	"testing"

	shardmill "shardmill.example/wit/go"
)

func TestRecordsComeOutAsTheyCameAndEmptyOnesAreRejected(t *testing.T) {
	p := &processor{}
	if err := p.Init(shardmill.Context{}); err != nil {
		t.Fatal(err)
	}
	records := []shardmill.Record{{Data: []byte("hello"), PartitionKey: "a"}, {}}
	outcome, err := p.Process(shardmill.Batch{Records: records, Attempt: 1})
	if err != nil {
		t.Fatal(err)
	}
	if len(outcome.Failures) != 1 || outcome.Failures[0].Index != 1 {
		t.Errorf("failures: %v", outcome.Failures)
	}
	emitted := shardmill.TakeEmitted()
	if len(emitted) != 1 || emitted[0].Key != "a" || string(emitted[0].Data) != "hello" {
		t.Errorf("emitted: %v", emitted)
	}
}

func TestADestinationMustBeASinkOfTheHost(t *testing.T) {
	shardmill.Configure("shardmill.destinations", "alerts,stdout")
	if err := refuseUnknown("alerts"); err != nil {
		t.Error(err)
	}
	if refuseUnknown("alert") == nil {
		t.Error("a name that is no sink is taken")
	}
}
