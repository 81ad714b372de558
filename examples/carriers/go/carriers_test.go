package main

import (
	"testing"

	shardmill "shardmill.example/wit/go"
)

var flights = []string{
	`{"carrier":"UA","dep_delay":2}`,
	`{"carrier":"UA","dep_delay":null}`,
	`{"carrier":"AA","dep_delay":-5}`,
}

func process(t *testing.T, lines ...string) (shardmill.Outcome, []shardmill.Emitted) {
	t.Helper()
	p := &processor{}
	if err := p.Init(shardmill.Context{}); err != nil {
		t.Fatal(err)
	}
	batch := shardmill.Batch{Attempt: 1}
	for _, line := range lines {
		batch.Records = append(batch.Records, shardmill.Record{Data: []byte(line)})
	}
	outcome, err := p.Process(batch)
	if err != nil {
		t.Fatal(err)
	}
	return outcome, shardmill.TakeEmitted()
}

func TestEachCarrierIsOneLine(t *testing.T) {
	outcome, emitted := process(t, flights...)
	if len(outcome.Failures) != 0 {
		t.Errorf("failures: %v", outcome.Failures)
	}
	want := []string{
		`{"carrier":"AA","flights":1,"with_delay":1,"delay_minutes":-5}`,
		`{"carrier":"UA","flights":2,"with_delay":1,"delay_minutes":2}`,
	}
	if len(emitted) != len(want) {
		t.Fatalf("emitted: %v", emitted)
	}
	for index, line := range want {
		if string(emitted[index].Data) != line || emitted[index].Key != line[12:14] {
			t.Errorf("got %s: %s, want %s", emitted[index].Key, emitted[index].Data, line)
		}
	}
}

func TestWhatIsNotAFlightIsRejectedAndTheRestCounts(t *testing.T) {
	bad := []string{"", "[]", "null", "{", "{}", `{"carrier":7}`, `{"carrier":"UA","dep_delay":"late"}`}
	outcome, emitted := process(t, append(bad, flights...)...)
	if len(outcome.Failures) != len(bad) || len(emitted) != 2 {
		t.Errorf("failures: %v, emitted: %v", outcome.Failures, emitted)
	}
	for index, failure := range outcome.Failures {
		if failure.Index != index || failure.Kind != shardmill.Reject {
			t.Errorf("failure %d: %v", index, failure)
		}
	}
}
