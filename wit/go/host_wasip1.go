package shardmill

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"unsafe"
)

// Bindings to the component model's canonical ABI, by hand: the generated ones let the garbage collector run while the
// host lowers arguments, and a component that calls an import then (the collector reads the clock) is trapped.
//
// So nothing that the host allocates may start a collection:
//   - it is off between calls, which is when the host lowers the arguments of the next one;
//   - what imports return during a call lands in memory set aside for it.

// Before the runtime is up, the WASI adapter asks for the memory that it works with: two pages of 64 KiB at most.
var (
	boot  [4 << 16]byte
	taken uintptr
	ready bool
)

// What one import may return, in bytes; a longer result is allocated, at the risk above.
var (
	results [1 << 16]byte
	used    uintptr
	inCall  bool
)

// The arguments of a call, in chunks: one allocation for many strings. Records point into them, which keeps them.
var chunk []byte

const chunkBytes = 256 << 10

//go:wasmexport cabi_realloc
func realloc(old unsafe.Pointer, oldSize, align, size uintptr) unsafe.Pointer {
	if old != nil {
		panic("shardmill: the host does not resize")
	}
	if !ready {
		return carve(boot[:], &taken, align, size)
	}
	if inCall {
		if place := carve(results[:], &used, align, size); place != nil {
			return place
		}
	}
	var begin uintptr
	place := carve(chunk, &begin, align, size)
	if place == nil {
		chunk = make([]byte, max(chunkBytes, size+align))
		place = carve(chunk, &begin, align, size)
	}
	chunk = chunk[begin:]
	return place
}

// carve takes aligned bytes after the first `*used`; nil if they are not there.
func carve(from []byte, used *uintptr, align, size uintptr) unsafe.Pointer {
	if len(from) == 0 {
		return nil
	}
	start := uintptr(unsafe.Pointer(unsafe.SliceData(from)))
	begin := (start+*used+align-1)&^(align-1) - start
	if begin+size > uintptr(len(from)) {
		return nil
	}
	*used = begin + size
	return unsafe.Add(unsafe.Pointer(unsafe.SliceData(from)), begin)
}

func init() {
	debug.SetGCPercent(-1)
	ready = true
}

// guard runs a call of the processor with the collector on, and makes an error of a panic.
func guard(call func() error) (err error) {
	inCall = true
	debug.SetGCPercent(100)
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panic: %v\n%s", reason, debug.Stack())
		}
		// Also waits until no collection is under way.
		debug.SetGCPercent(-1)
		inCall = false
	}()
	if registered == nil {
		return Misconfigured("the component registers no processor")
	}
	return call()
}

// The calls of the host. Offsets are those of the canonical ABI; pointers are 32 bits wide there, 64 in Go.

//go:wasmexport shardmill:processor/processor@0.1.0#init
func exportInit(
	plugin unsafe.Pointer, pluginLen uint32, application unsafe.Pointer, applicationLen uint32,
	stream unsafe.Pointer, streamLen uint32, shard unsafe.Pointer, shardLen uint32,
	worker unsafe.Pointer, workerLen uint32, grantEpoch uint64,
) unsafe.Pointer {
	context := Context{
		Plugin:      unsafe.String((*byte)(plugin), pluginLen),
		Application: unsafe.String((*byte)(application), applicationLen),
		Stream:      unsafe.String((*byte)(stream), streamLen),
		Shard:       unsafe.String((*byte)(shard), shardLen),
		Worker:      unsafe.String((*byte)(worker), workerLen),
		GrantEpoch:  grantEpoch,
	}
	return returnResult(guard(func() error { return registered.Init(context) }), 1)
}

//go:wasmexport shardmill:processor/processor@0.1.0#process
func exportProcess(records unsafe.Pointer, length uint32, attempt uint32, millisBehindLatest uint64) unsafe.Pointer {
	batch := Batch{Records: make([]Record, length), Attempt: attempt, MillisBehindLatest: millisBehindLatest}
	for index := range batch.Records {
		lowered := unsafe.Add(records, index*56)
		batch.Records[index] = Record{
			Data:              unsafe.Slice(bytesAt(lowered, 0)),
			PartitionKey:      unsafe.String(bytesAt(lowered, 8)),
			SequenceNumber:    unsafe.String(bytesAt(lowered, 28)),
			SubSequenceNumber: *(*uint64)(unsafe.Add(lowered, 40)),
			ArrivalMs:         *(*uint64)(unsafe.Add(lowered, 48)),
		}
		if wordAt(lowered, 16)&0xff == 1 {
			batch.Records[index].ExplicitHashKey = unsafe.String(bytesAt(lowered, 20))
		}
	}
	var outcome Outcome
	err := guard(func() (err error) {
		outcome, err = registered.Process(batch)
		return err
	})
	if err == nil {
		returnOutcome(outcome)
	}
	return returnResult(err, 2)
}

//go:wasmexport shardmill:processor/processor@0.1.0#close
func exportClose(tag uint32, _ unsafe.Pointer, _ uint32) unsafe.Pointer {
	reason := CloseReason(min(tag, uint32(OtherReason)))
	return returnResult(guard(func() error { return registered.Close(reason) }), 1)
}

// What a call returns, in 32-bit words; 64-bit ones, so that it is aligned. What it points to lives until the next
// call, because the collector is off.
var returned [5]uint64

func returnOutcome(outcome Outcome) {
	words := (*[10]uint32)(unsafe.Pointer(&returned))
	*words = [10]uint32{}
	failures := make([]uint32, 0, 4*len(outcome.Failures))
	for _, failure := range outcome.Failures {
		message, length := addressOf(failure.Message)
		failures = append(failures, uint32(failure.Index), uint32(failure.Kind), message, length)
	}
	words[2] = uint32(uintptr(unsafe.Pointer(unsafe.SliceData(failures))))
	words[3] = uint32(len(outcome.Failures))
	words[4], words[5] = uint32(outcome.Commit.tag), outcome.Commit.through
	if outcome.RetryAfterMs != 0 {
		words[6] = 1
		returned[4] = outcome.RetryAfterMs
	}
}

// returnResult writes a result's error, whose payload begins at the given word, or nothing.
func returnResult(err error, payload int) unsafe.Pointer {
	words := (*[10]uint32)(unsafe.Pointer(&returned))
	words[0] = 0
	if err != nil {
		words[0] = 1
		words[payload] = 2
		var told *Error
		if errors.As(err, &told) {
			words[payload] = uint32(told.tag)
		}
		words[payload+1], words[payload+2] = addressOf(err.Error())
	}
	return unsafe.Pointer(&returned)
}

func addressOf(text string) (pointer, length uint32) {
	// Go's strings are UTF-8 by habit; a component's must be.
	text = strings.ToValidUTF8(text, "\uFFFD")
	return uint32(uintptr(unsafe.Pointer(unsafe.StringData(text)))), uint32(len(text))
}

func wordAt(base unsafe.Pointer, offset uintptr) uint32 { return *(*uint32)(unsafe.Add(base, offset)) }

func bytesAt(base unsafe.Pointer, offset uintptr) (*byte, uint32) {
	return (*byte)(unsafe.Pointer(uintptr(wordAt(base, offset)))), wordAt(base, offset+4)
}

// The host's functions.

//go:wasmimport shardmill:processor/emit@0.1.0 put
func importPut(destination, key, data string, result unsafe.Pointer)

//go:wasmimport wasi:config/store@0.2.0-rc.1 get
func importGet(key string, result unsafe.Pointer)

//go:wasmimport shardmill:processor/metrics@0.1.0 counter
func importCounter(name string, add uint64)

//go:wasmimport shardmill:processor/metrics@0.1.0 gauge
func importGauge(name string, value float64)

//go:wasmimport shardmill:processor/metrics@0.1.0 histogram
func importHistogram(name string, value float64)

// What an import returned. Not on a stack, which may move while the host allocates.
var answer [4]uint32

func emit(destination, key string, data []byte) error {
	used = 0
	importPut(destination, key, unsafe.String(unsafe.SliceData(data), len(data)), unsafe.Pointer(&answer))
	if answer[0]&0xff == 0 {
		return nil
	}
	text := strings.Clone(unsafe.String(bytesAt(unsafe.Pointer(&answer), 8)))
	if answer[1]&0xff == 0 {
		return fmt.Errorf("no sink is named %q; there are: %s", destination, text)
	}
	return errors.New(text)
}

func config(key string) (string, bool) {
	used = 0
	importGet(key, unsafe.Pointer(&answer))
	if answer[0]&0xff != 0 || answer[1]&0xff == 0 {
		return "", false
	}
	return strings.Clone(unsafe.String(bytesAt(unsafe.Pointer(&answer), 8))), true
}

func counter(name string, add uint64)      { importCounter(name, add) }
func gauge(name string, value float64)     { importGauge(name, value) }
func histogram(name string, value float64) { importHistogram(name, value) }
