package shardmill

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unsafe"
)

// The names that wasi:http gives its methods and errors, in the order of their numbers.
var (
	methods    = strings.Fields("GET HEAD POST PUT DELETE CONNECT OPTIONS TRACE PATCH")
	errorCodes = strings.Fields(`DNS-timeout DNS-error destination-not-found destination-unavailable destination-IP-prohibited
		destination-IP-unroutable connection-refused connection-terminated connection-timeout connection-read-timeout
		connection-write-timeout connection-limit-reached TLS-protocol-error TLS-certificate-error TLS-alert-received
		HTTP-request-denied HTTP-request-length-required HTTP-request-body-size HTTP-request-method-invalid
		HTTP-request-URI-invalid HTTP-request-URI-too-long HTTP-request-header-section-size HTTP-request-header-size
		HTTP-request-trailer-section-size HTTP-request-trailer-size HTTP-response-incomplete
		HTTP-response-header-section-size HTTP-response-header-size HTTP-response-body-size
		HTTP-response-trailer-section-size HTTP-response-trailer-size HTTP-response-transfer-coding
		HTTP-response-content-coding HTTP-response-timeout HTTP-upgrade-failed HTTP-protocol-error loop-detected
		configuration-error internal-error`)
)

const (
	// The most that a stream takes, or returns, at once.
	writeBytes = 4 << 10
	readBytes  = 64 << 10
)

// Where imports put what they return; 64-bit words, so that it is aligned. Not on a stack, which may move.
var landing [16]uint64

func landingPlace() unsafe.Pointer { return unsafe.Pointer(&landing) }
func landedByte(at int) byte       { return (*[128]byte)(landingPlace())[at] }
func landedWord(at int) uint32     { return (*[32]uint32)(landingPlace())[at/4] }
func errorCode(at int) error       { return code(int(landedByte(at))) }
func must(done bool, what string) error {
	if done {
		return nil
	}
	return errors.New("wasi:http refused the " + what)
}

func code(number int) error {
	release()
	if number < len(errorCodes) {
		return errors.New(errorCodes[number])
	}
	return fmt.Errorf("error %d of wasi:http", number)
}

func send(method, address string, headers [][2]string, body []byte) (int, []byte, error) {
	request, err := newRequest(method, address, headers)
	if err != nil {
		return 0, nil, err
	}
	httpBody(request, landingPlace())
	outgoing := landedWord(4)
	httpHandle(request, 0, 0, landingPlace())
	if landedByte(0) != 0 {
		dropOutgoingBody(outgoing)
		return 0, nil, errorCode(8)
	}
	future := landedWord(8)
	defer dropFuture(future)
	write(outgoing, body)
	ready := httpSubscribe(future)
	pollBlock(ready)
	dropPollable(ready)
	httpGet(future, landingPlace())
	// An option of a result, which only shows that it was not taken before, of a result.
	if landedByte(0) != 1 || landedByte(8) != 0 {
		return 0, nil, errors.New("there is no response")
	}
	if landedByte(16) != 0 {
		return 0, nil, errorCode(24)
	}
	response := landedWord(24)
	defer dropResponse(response)
	answer, err := read(response)
	return int(httpStatus(response)), answer, err
}

func newRequest(method, address string, headers [][2]string) (uint32, error) {
	parts, err := url.Parse(address)
	if err != nil {
		return 0, err
	}
	fields := httpFields()
	for _, header := range headers {
		httpAppend(fields, header[0], header[1], landingPlace())
		if landedByte(0) != 0 {
			dropFields(fields)
			return 0, must(false, "header "+header[0])
		}
	}
	request := httpRequest(fields)
	number := uint32(len(methods))
	for index, known := range methods {
		if known == method {
			number, method = uint32(index), ""
		}
	}
	scheme := uint32(1)
	if parts.Scheme == "http" {
		scheme = 0
	}
	err = errors.Join(
		must(httpSetMethod(request, number, method) == 0, "method"),
		must(httpSetScheme(request, 1, scheme, "") == 0, "scheme"),
		must(httpSetAuthority(request, 1, parts.Host) == 0, "host"),
		must(httpSetPath(request, 1, parts.RequestURI()) == 0, "path"),
	)
	if err != nil {
		dropRequest(request)
	}
	return request, err
}

// If it fails, the response, or its absence, shows why.
func write(outgoing uint32, body []byte) {
	httpWrite(outgoing, landingPlace())
	stream := landedWord(4)
	for len(body) > 0 {
		piece := body[:min(len(body), writeBytes)]
		streamWrite(stream, unsafe.String(unsafe.SliceData(piece), len(piece)), landingPlace())
		if landedByte(0) != 0 {
			dropStreamError()
			break
		}
		body = body[len(piece):]
	}
	dropOutputStream(stream)
	httpFinish(outgoing, 0, 0, landingPlace())
	release()
}

func read(response uint32) ([]byte, error) {
	httpConsume(response, landingPlace())
	if landedByte(0) != 0 {
		return nil, errors.New("there is no body")
	}
	incoming := landedWord(4)
	defer dropIncomingBody(incoming)
	httpStream(incoming, landingPlace())
	stream := landedWord(4)
	defer dropInputStream(stream)
	var data bytes.Buffer
	for {
		streamRead(stream, readBytes, landingPlace())
		if landedByte(0) != 0 {
			if dropStreamError() {
				return nil, errors.New("the response broke off")
			}
			return data.Bytes(), nil
		}
		data.Write(bytesAt(landedWord(4), landedWord(8)))
		release()
	}
}

// dropStreamError returns whether it is more than the end of the stream.
func dropStreamError() bool {
	if landedByte(4) != 0 {
		return false
	}
	dropError(landedWord(8))
	return true
}

//go:wasmimport wasi:http/types@0.2.12 [constructor]fields
func httpFields() uint32

//go:wasmimport wasi:http/types@0.2.12 [method]fields.append
func httpAppend(fields uint32, name, value string, result unsafe.Pointer)

//go:wasmimport wasi:http/types@0.2.12 [resource-drop]fields
func dropFields(uint32)

//go:wasmimport wasi:http/types@0.2.12 [constructor]outgoing-request
func httpRequest(fields uint32) uint32

//go:wasmimport wasi:http/types@0.2.12 [method]outgoing-request.set-method
func httpSetMethod(request, number uint32, other string) uint32

//go:wasmimport wasi:http/types@0.2.12 [method]outgoing-request.set-scheme
func httpSetScheme(request, isSome, scheme uint32, other string) uint32

//go:wasmimport wasi:http/types@0.2.12 [method]outgoing-request.set-authority
func httpSetAuthority(request, isSome uint32, authority string) uint32

//go:wasmimport wasi:http/types@0.2.12 [method]outgoing-request.set-path-with-query
func httpSetPath(request, isSome uint32, path string) uint32

//go:wasmimport wasi:http/types@0.2.12 [method]outgoing-request.body
func httpBody(request uint32, result unsafe.Pointer)

//go:wasmimport wasi:http/types@0.2.12 [resource-drop]outgoing-request
func dropRequest(uint32)

//go:wasmimport wasi:http/outgoing-handler@0.2.12 handle
func httpHandle(request, hasOptions, options uint32, result unsafe.Pointer)

//go:wasmimport wasi:http/types@0.2.12 [method]outgoing-body.write
func httpWrite(body uint32, result unsafe.Pointer)

//go:wasmimport wasi:http/types@0.2.12 [static]outgoing-body.finish
func httpFinish(body, hasTrailers, trailers uint32, result unsafe.Pointer)

//go:wasmimport wasi:http/types@0.2.12 [resource-drop]outgoing-body
func dropOutgoingBody(uint32)

//go:wasmimport wasi:http/types@0.2.12 [method]future-incoming-response.subscribe
func httpSubscribe(future uint32) uint32

//go:wasmimport wasi:http/types@0.2.12 [method]future-incoming-response.get
func httpGet(future uint32, result unsafe.Pointer)

//go:wasmimport wasi:http/types@0.2.12 [resource-drop]future-incoming-response
func dropFuture(uint32)

//go:wasmimport wasi:http/types@0.2.12 [method]incoming-response.status
func httpStatus(response uint32) uint32

//go:wasmimport wasi:http/types@0.2.12 [method]incoming-response.consume
func httpConsume(response uint32, result unsafe.Pointer)

//go:wasmimport wasi:http/types@0.2.12 [resource-drop]incoming-response
func dropResponse(uint32)

//go:wasmimport wasi:http/types@0.2.12 [method]incoming-body.stream
func httpStream(body uint32, result unsafe.Pointer)

//go:wasmimport wasi:http/types@0.2.12 [resource-drop]incoming-body
func dropIncomingBody(uint32)

//go:wasmimport wasi:io/poll@0.2.12 [method]pollable.block
func pollBlock(pollable uint32)

//go:wasmimport wasi:io/poll@0.2.12 [resource-drop]pollable
func dropPollable(uint32)

//go:wasmimport wasi:io/streams@0.2.12 [method]output-stream.blocking-write-and-flush
func streamWrite(stream uint32, piece string, result unsafe.Pointer)

//go:wasmimport wasi:io/streams@0.2.12 [resource-drop]output-stream
func dropOutputStream(uint32)

//go:wasmimport wasi:io/streams@0.2.12 [method]input-stream.blocking-read
func streamRead(stream uint32, most uint64, result unsafe.Pointer)

//go:wasmimport wasi:io/streams@0.2.12 [resource-drop]input-stream
func dropInputStream(uint32)

//go:wasmimport wasi:io/error@0.2.12 [resource-drop]error
func dropError(uint32)
