// Package shardmill is the contract with the shardmill host, ../*.wit, for processors written in Go.
//
// Register a Processor in an init function; main is never called. On platforms other than wasip1 the package stands in for
// the host, so that `go test` runs a processor anywhere: see Configure, Answer and TakeEmitted.
package shardmill

// A Processor processes the records of one shard. A returned error or a panic is reported to the host, which delivers the
// batch again, to the same instance.
type Processor interface {
	// Init is called once, before any batch. Check the configuration here: a new version whose Init fails never
	// replaces one that works.
	Init(Context) error
	// Process processes one batch. An error means that none of it was processed.
	Process(Batch) (Outcome, error)
	// Close is called once, last, unless the instance died.
	Close(CloseReason) error
}

// A Stateful is a Processor that keeps state of its shard. The world of the component needs `export state;` too, which is
// in WORLD in a project's Makefile, and the manifest `state = true` under `[grants]`.
type Stateful interface {
	Processor
	// Save returns the state after everything processed so far. It is called before each checkpoint: keep it quick and small.
	Save() ([]byte, error)
	// Load restores what an earlier instance saved, perhaps of another version. Called right after Init. An error
	// refuses the state: a new version that does so never replaces the one whose state it refused.
	Load(state []byte) error
}

// Register sets the processor that the host calls. Call it in an init function.
func Register(p Processor) { registered = p }

var registered Processor

// Context is who this instance is.
type Context struct {
	Plugin, Application, Stream, Shard, Worker string
	// GrantEpoch rises each time the shard's lease changes hands.
	GrantEpoch uint64
}

// Record is one user record. It may be kept after the call.
type Record struct {
	Data         []byte
	PartitionKey string
	// ExplicitHashKey is empty if unknown.
	ExplicitHashKey   string
	SequenceNumber    string
	SubSequenceNumber uint64
	// ArrivalMs is in milliseconds since the Unix epoch; 0 if unknown.
	ArrivalMs uint64
}

// Batch is what one call delivers: records in shard order, at least one.
type Batch struct {
	Records []Record
	// Attempt is 1 on the first delivery, one more on each delivery after a failure.
	Attempt            uint32
	MillisBehindLatest uint64
}

// FailureKind says whether a failed record is worth another try.
type FailureKind uint8

const (
	// Retry: transient, deliver it again.
	Retry FailureKind = iota
	// Reject: it will never work.
	Reject
)

// Failure is one record that failed.
type Failure struct {
	// Index of the record in the batch, from 0.
	Index   int
	Kind    FailureKind
	Message string
}

// Outcome is the result of processing a batch. The zero value means that all of it is processed.
type Outcome struct {
	// Failures by strictly rising index.
	Failures []Failure
	// Commit is how far the batch may be checkpointed; the zero value is all of it.
	Commit Commit
	// RetryAfterMs is how long to wait before failed records are delivered again; 0 leaves it to the host.
	RetryAfterMs uint64
}

// Commit is how far a batch may be checkpointed.
type Commit struct {
	tag     uint8
	through uint32
}

// CommitNothing holds the whole batch back.
func CommitNothing() Commit { return Commit{tag: 1} }

// CommitThrough holds back the records after this index.
func CommitThrough(index int) Commit { return Commit{tag: 2, through: uint32(index)} }

// CloseReason is why an instance is closed.
type CloseReason uint8

const (
	// LeaseLost: nothing emitted now is kept.
	LeaseLost CloseReason = iota
	// ShardEnded: the last chance to emit what is held back.
	ShardEnded
	Shutdown
	Reload
	// OtherReason is one that this version of the contract does not know; treat it as LeaseLost.
	OtherReason
)

// Error is an error with a kind, for the host.
type Error struct {
	tag     uint8
	Message string
}

func (e *Error) Error() string { return e.Message }

// Misconfigured is the error for a configuration that is missing or wrong.
func Misconfigured(message string) error { return &Error{0, message} }

// Unavailable is the error for something that is unavailable at the moment.
func Unavailable(message string) error { return &Error{1, message} }

// Emit emits one piece of output to a sink by its name, such as "stdout". It is stored before the checkpoint that covers
// the batch, and dropped if the call fails.
func Emit(destination, key string, data []byte) error { return emit(destination, key, data) }

// Config returns the value of a key under `[plugin.NAME.config]`.
func Config(key string) (value string, found bool) { return config(key) }

// Send sends an HTTP request to a host that the plugin may reach, and waits for the response. An error means that there is
// none. The world of the component needs `import wasi:http/outgoing-handler@0.2.12;`, which is in WORLD in a project's
// Makefile.
func Send(method, url string, headers [][2]string, body []byte) (status int, answer []byte, err error) {
	return send(method, url, headers, body)
}

// Counter adds to the counter `shardmill_guest_NAME`.
func Counter(name string, add uint64) { counter(name, add) }

// Gauge sets the gauge `shardmill_guest_NAME`.
func Gauge(name string, value float64) { gauge(name, value) }

// Histogram records a value in the histogram `shardmill_guest_NAME`.
func Histogram(name string, value float64) { histogram(name, value) }
