package shardmill

import (
	"bytes"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"unsafe"
)

// Handwritten bindings to the component model's canonical ABI. Generated ones let the host's allocations reach Go's heap;
// the heap then reads the clock, to collect or to return memory, and a component that calls an import while the host
// allocates traps. So what the host allocates is outside Go's heap, and is copied into it in a call of ours, where imports
// may be called.
//
// It needs the linker's flag -checklinkname=0.

// sbrk is how Go's heap gets memory from the system. Growing the memory behind the runtime's back would break it.
//
//go:linkname sbrk runtime.sbrk
func sbrk(size uintptr) unsafe.Pointer

// What the host allocates, until `release`: blocks, each larger than all before together, so there are
// never many.
var (
	blocks  [32]struct{ start, size uintptr }
	count   int
	current int
	used    uintptr
)

const firstBlock = 256 << 10

// Before the runtime is up, the WASI adapter asks for its working memory, which it keeps.
var ready bool

func init() { ready = true }

//go:wasmexport cabi_realloc
func realloc(old, oldSize, align, size uintptr) uintptr {
	if old != 0 {
		panic("shardmill: the host does not resize")
	}
	if !ready {
		return aligned(uintptr(sbrk(size+align)), align)
	}
	for ; current < count; current, used = current+1, 0 {
		block := blocks[current]
		place := aligned(block.start+used, align)
		if place+size <= block.start+block.size {
			used = place + size - block.start
			return place
		}
	}
	block := max(firstBlock, size+align)
	for _, earlier := range blocks[:count] {
		block += earlier.size
	}
	blocks[count].start, blocks[count].size = uintptr(sbrk(block)), block
	if blocks[count].start == 0 {
		panic("shardmill: out of memory")
	}
	count++
	return realloc(0, 0, align, size)
}

func aligned(address, align uintptr) uintptr { return (address + align - 1) &^ (align - 1) }

// release lets the host's allocations be reused. Their contents must have been copied.
func release() { current, used = 0, 0 }

// guard turns a panic into an error.
func guard(call func() error) (err error) {
	kept = nil
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panic: %v\n%s", reason, debug.Stack())
		}
	}()
	if registered == nil {
		return Misconfigured("the component registers no processor")
	}
	return call()
}

// The calls of the host. Offsets are those of the canonical ABI; pointers are 32 bits wide there, 64 in Go.

//go:wasmexport shardmill:processor/processor@0.1.0#init
func exportInit(
	plugin, pluginLen, application, applicationLen, stream, streamLen, shard, shardLen, worker, workerLen uint32,
	grantEpoch uint64,
) unsafe.Pointer {
	context := Context{
		Plugin:      textAt(plugin, pluginLen),
		Application: textAt(application, applicationLen),
		Stream:      textAt(stream, streamLen),
		Shard:       textAt(shard, shardLen),
		Worker:      textAt(worker, workerLen),
		GrantEpoch:  grantEpoch,
	}
	release()
	return returnResult(guard(func() error { return registered.Init(context) }), 1)
}

//go:wasmexport shardmill:processor/processor@0.1.0#process
func exportProcess(records unsafe.Pointer, length uint32, attempt uint32, millisBehindLatest uint64) unsafe.Pointer {
	batch := Batch{Records: make([]Record, length), Attempt: attempt, MillisBehindLatest: millisBehindLatest}
	for index, lowered := range unsafe.Slice((*loweredRecord)(records), length) {
		record := &batch.Records[index]
		*record = Record{
			Data:              bytes.Clone(bytesAt(lowered.data, lowered.dataLen)),
			PartitionKey:      textAt(lowered.partitionKey, lowered.partitionKeyLen),
			SequenceNumber:    textAt(lowered.sequenceNumber, lowered.sequenceNumberLen),
			SubSequenceNumber: lowered.subSequenceNumber,
			ArrivalMs:         lowered.arrivalMs,
		}
		if lowered.hasHashKey == 1 {
			record.ExplicitHashKey = textAt(lowered.hashKey, lowered.hashKeyLen)
		}
	}
	release()
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
func exportClose(tag, _, _ uint32) unsafe.Pointer {
	release()
	reason := CloseReason(min(tag, uint32(OtherReason)))
	return returnResult(guard(func() error { return registered.Close(reason) }), 1)
}

// These two are part of the component only if its world exports `state`.

//go:wasmexport shardmill:processor/state@0.1.0#save
func exportSave() unsafe.Pointer {
	var state []byte
	err := guard(func() (err error) {
		stateful, err := asStateful()
		if err == nil {
			state, err = stateful.Save()
		}
		return err
	})
	words := (*[10]uint32)(unsafe.Pointer(&returned))
	if err == nil {
		keep(state)
		words[1], words[2] = uint32(uintptr(unsafe.Pointer(unsafe.SliceData(state)))), uint32(len(state))
	}
	return returnResult(err, 1)
}

//go:wasmexport shardmill:processor/state@0.1.0#load
func exportLoad(state, length uint32) unsafe.Pointer {
	saved := bytes.Clone(bytesAt(state, length))
	release()
	return returnResult(guard(func() error {
		stateful, err := asStateful()
		if err != nil {
			return err
		}
		return stateful.Load(saved)
	}), 1)
}

func asStateful() (Stateful, error) {
	if stateful, is := registered.(Stateful); is {
		return stateful, nil
	}
	return nil, Misconfigured("the component exports state, but its processor has no Save and Load")
}

// A record as the ABI lays it out.
type loweredRecord struct {
	data, dataLen                     uint32
	partitionKey, partitionKeyLen     uint32
	hasHashKey                        uint8
	hashKey, hashKeyLen               uint32
	sequenceNumber, sequenceNumberLen uint32
	subSequenceNumber, arrivalMs      uint64
}

// What a call returns, in 32-bit words, stored as 64-bit ones so that it is aligned. What it points to is kept beside it
// until the next call.
var (
	returned [5]uint64
	kept     []any
)

func keep[T any](value T) T {
	kept = append(kept, value)
	return value
}

func returnOutcome(outcome Outcome) {
	words := (*[10]uint32)(unsafe.Pointer(&returned))
	*words = [10]uint32{}
	failures := keep(make([]uint32, 0, 4*len(outcome.Failures)))
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
	// Go's strings are UTF-8 by convention; a component's must be.
	text = keep(strings.ToValidUTF8(text, "\uFFFD"))
	return uint32(uintptr(unsafe.Pointer(unsafe.StringData(text)))), uint32(len(text))
}

// bytesAt is what the host allocated; textAt a copy of it.
func bytesAt(pointer, length uint32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(uintptr(pointer))), length)
}

func textAt(pointer, length uint32) string { return string(bytesAt(pointer, length)) }

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

// What an import returned: a result's tag, the tag within it, and a text. Not on a stack, which may move while the host
// allocates.
var answer [4]uint32

func answerText() string {
	text := textAt(answer[2], answer[3])
	release()
	return text
}

func emit(destination, key string, data []byte) error {
	importPut(destination, key, unsafe.String(unsafe.SliceData(data), len(data)), unsafe.Pointer(&answer))
	if answer[0]&0xff == 0 {
		return nil
	}
	text := answerText()
	if answer[1]&0xff == 0 {
		return fmt.Errorf("no sink is named %q; there are: %s", destination, text)
	}
	return errors.New(text)
}

func config(key string) (string, bool) {
	importGet(key, unsafe.Pointer(&answer))
	if answer[0]&0xff != 0 || answer[1]&0xff == 0 {
		release()
		return "", false
	}
	return answerText(), true
}

func counter(name string, add uint64)      { importCounter(name, add) }
func gauge(name string, value float64)     { importGauge(name, value) }
func histogram(name string, value float64) { importHistogram(name, value) }
