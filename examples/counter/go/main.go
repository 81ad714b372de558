package main

import (
	"fmt"
	"strconv"
	"strings"

	shardmill "shardmill.example/wit/go"
)

// An instance serves one shard. The count is its state.
type counter struct {
	count, failed int
}

func (c *counter) Init(shardmill.Context) error { return nil }

func (c *counter) Process(batch shardmill.Batch) (outcome shardmill.Outcome, err error) {
	for _, record := range batch.Records {
		output, err := c.handle(string(record.Data))
		if err != nil {
			return outcome, err
		}
		if err := shardmill.Emit("stdout", record.PartitionKey, []byte(output)); err != nil {
			return outcome, err
		}
	}
	return outcome, nil
}

func (c *counter) Close(shardmill.CloseReason) error { return nil }

func (c *counter) Save() ([]byte, error) { return strconv.AppendInt(nil, int64(c.count), 10), nil }

func (c *counter) Load(state []byte) (err error) {
	c.count, err = strconv.Atoi(string(state))
	return err
}

func (c *counter) handle(text string) (string, error) {
	switch text {
	case "fail":
		c.failed++
		panic(fmt.Sprintf("on purpose, %d times", c.failed))
	case "die":
		// The package catches a panic in the call; nothing can catch one in another goroutine.
		done := make(chan struct{})
		go func() { panic("on purpose") }()
		<-done
	}
	if url, is := strings.CutPrefix(text, "ask "); is {
		status, answer, err := shardmill.Send("GET", url, nil, nil)
		return fmt.Sprintf("%d %s", status, answer), err
	}
	c.count++
	return fmt.Sprint(text, " ", c.count), nil
}

func init() { shardmill.Register(&counter{}) }

// Never called: the host calls the processor instead.
func main() {}
