//! Calls into the host with more than the host offered to take: the work that one call makes is
//! bounded, since no deadline holds inside of it.

use super::contract::{self, place};
use super::{Call, Entry, Expected, fails};

pub(super) fn entries() -> Vec<Entry> {
    let refused = fails(Call::Process, "trapped", "65536 are allowed");
    vec![
        Entry::new(
            "write-as-offered",
            "D27",
            || writes("\\n", 65_536),
            Expected::Harmless,
        ),
        Entry::new(
            "write-more-than-offered",
            "D27",
            || writes("\\n", 65_537),
            refused,
        ),
        Entry::new(
            "write-a-million-lines",
            "D27",
            || writes("\\n", 1_000_000),
            refused,
        ),
    ]
}

/// Writes so many bytes to standard output at once: a text, again and again.
fn writes(text: &str, bytes: usize) -> Vec<Vec<u8>> {
    let length = text.replace("\\n", "n").len();
    // Copying forward from just behind the text repeats it.
    let process = format!(
        "(drop (memory.grow (i32.const 40)))
         (memory.init $text (i32.const 65536) (i32.const 0) (i32.const {length}))
         (local.set $n (i32.const {length}))
         (loop $double
           (memory.copy (i32.add (i32.const 65536) (local.get $n)) (i32.const 65536) (local.get $n))
           (local.set $n (i32.mul (local.get $n) (i32.const 2)))
           (br_if $double (i32.lt_u (i32.mul (local.get $n) (i32.const 2)) (i32.const {bytes}))))
         (memory.copy (i32.add (i32.const 65536) (local.get $n)) (i32.const 65536)
           (i32.sub (i32.const {bytes}) (local.get $n)))
         (call $write (call $stdout) (i32.const 65536) (i32.const {bytes}) (i32.const 2048))"
    );
    vec![contract::with(&[
        (place::OUTSIDE, STREAMS),
        (place::LOWERED, LOWERED),
        (place::IMPORTS, IMPORTS),
        (place::WITH, r#"(with "host" (instance $host))"#),
        (place::FIELDS, &format!(r#"(data $text "{text}")"#)),
        (place::PROCESS, &process),
    ])]
}

const STREAMS: &str = r#"
  (import "wasi:io/error@0.2.0" (instance $io-error (export "error" (type (sub resource)))))
  (alias export $io-error "error" (type $io-error))
  (import "wasi:io/streams@0.2.0" (instance $streams
    (alias outer 1 $io-error (type $io-error'))
    (export "error" (type $own-error (eq $io-error')))
    (type $stream-error' (variant (case "last-operation-failed" (own $own-error)) (case "closed")))
    (export "stream-error" (type $stream-error (eq $stream-error')))
    (export "output-stream" (type $output-stream (sub resource)))
    (export "[method]output-stream.write" (func (param "self" (borrow $output-stream)) (param "contents" (list u8))
      (result (result (error $stream-error)))))))
  (alias export $streams "output-stream" (type $output-stream))
  (import "wasi:cli/stdout@0.2.0" (instance $stdout
    (alias outer 1 $output-stream (type $output-stream'))
    (export "output-stream" (type $stream (eq $output-stream')))
    (export "get-stdout" (func (result (own $stream))))))
"#;

const LOWERED: &str = r#"
  (alias export $streams "[method]output-stream.write" (func $write))
  (alias export $stdout "get-stdout" (func $get-stdout))
  (core func $write (canon lower (func $write) (memory $memory)))
  (core func $get-stdout (canon lower (func $get-stdout)))
  (core instance $host (export "write" (func $write)) (export "stdout" (func $get-stdout)))
"#;

const IMPORTS: &str = r#"
  (import "host" "write" (func $write (param i32 i32 i32 i32)))
  (import "host" "stdout" (func $stdout (result i32)))
"#;
