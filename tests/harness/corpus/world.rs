//! Plugins that call what the host offers with what no toolchain would pass, or more often than
//! anyone would.

use super::contract::{self, place};
use super::{Call, Entry, Expected, fails};

#[expect(clippy::too_many_lines, reason = "a list of files")]
pub(super) fn entries() -> Vec<Entry> {
    let trap = |says| fails(Call::Process, "trapped", says);
    let limit = |says| fails(Call::Process, "limit", says);
    let deadline = fails(Call::Process, "deadline", "process");
    vec![
        Entry::new(
            "random-of-1-gib",
            "GHSA-852m",
            || random("(i64.const 0x40000000)"),
            limit("random bytes in one call"),
        ),
        Entry::new(
            "random-of-16-eib",
            "GHSA-852m",
            || random("(i64.const -1)"),
            limit("random bytes in one call"),
        ),
        Entry::new(
            "handles-leaked",
            "GHSA-852m",
            handles_leaked,
            limit("handles"),
        ),
        Entry::new(
            "handle-never-given",
            "D17",
            || clock("(call $block (i32.const 4711))"),
            trap("handle"),
        ),
        Entry::new(
            "handle-used-after-drop",
            "D17",
            handle_used_after_drop,
            trap("handle"),
        ),
        Entry::new(
            "handle-dropped-twice",
            "D17",
            handle_dropped_twice,
            trap("handle"),
        ),
        Entry::new(
            "waits-for-an-hour",
            "D14",
            || clock("(call $block (call $subscribe (i64.const 3600000000000)))"),
            deadline,
        ),
        Entry::new(
            "waits-for-centuries",
            "D14",
            || clock("(call $block (call $subscribe (i64.const -1)))"),
            deadline,
        ),
        Entry::new(
            "emit-outside-memory",
            "D13",
            || {
                emit(
                    "(i32.const 65530) (i32.const 7) (i32.const 0) (i32.const 0) (i32.const 0) \
                        (i32.const 0)",
                )
            },
            trap("out of bounds"),
        ),
        Entry::new(
            "emit-of-4-gib",
            "D13",
            || {
                emit(
                    "(i32.const 16) (i32.const 7) (i32.const 0) (i32.const 0) (i32.const 0) \
                        (i32.const -1)",
                )
            },
            trap("out of bounds"),
        ),
        Entry::new(
            "emit-not-utf8",
            "D13",
            || {
                emit(
                    "(i32.const 16) (i32.const 7) (i32.const 8192) (i32.const 4) (i32.const 0) \
                        (i32.const 0)",
                )
            },
            trap("utf-8"),
        ),
        Entry::new(
            "emit-too-much-at-once",
            "D13",
            emit_too_much_at_once,
            limit("passed to the host in one call"),
        ),
        // Its destination is none: that comes before whatever the guest made of it.
        Entry::new(
            "emit-answer-outside-memory",
            "D13",
            emit_answer_outside_memory,
            fails(Call::Process, "misconfigured", "out of bounds"),
        ),
        Entry::new(
            "log-level-unknown",
            "D13",
            || log("77", "16", ""),
            trap("discriminant"),
        ),
        Entry::new(
            "log-not-utf8",
            "D13",
            || log("2", "8192", ""),
            trap("utf-8"),
        ),
        Entry::new(
            "log-without-end",
            "D13",
            || log("2", "16", "(br $again)"),
            deadline,
        ),
        Entry::new(
            "log-of-15-mb",
            "D13",
            log_of_15_mb,
            limit("passed to the host in one call"),
        ),
        Entry::new(
            "init-leaves-the-host-waiting",
            "D2",
            init_waits,
            fails(Call::Init, "deadline", "init"),
        ),
        Entry::new(
            "close-waits",
            "D2",
            close_waits,
            fails(Call::Close, "deadline", "close"),
        ),
        Entry::new(
            "host-call-in-post-return",
            "D17",
            host_call_in_post_return,
            fails(Call::Init, "trapped", "leave"),
        ),
        Entry::new(
            "clock-read-without-end",
            "D2",
            || clock("(loop (drop (call $now)) (br 0))"),
            deadline,
        ),
        Entry::new(
            "handles-made-and-dropped",
            "D17",
            handles_made_and_dropped,
            Expected::Harmless,
        ),
        Entry::new(
            "polls-300000-at-once",
            "D17",
            || polls(300_000),
            limit("passed to the host in one call"),
        ),
    ]
}

const RANDOM: &str = r#"
  (import "wasi:random/random@0.2.0" (instance $random
    (export "get-random-bytes" (func (param "len" u64) (result (list u8))))))
  (core func $random (canon lower (func $random "get-random-bytes") (memory $memory) (realloc (core func $realloc))))
  (core instance $host (export "random" (func $random)))"#;

const CLOCK: &str = r#"
  (import "wasi:io/poll@0.2.0" (instance $poll
    (export "pollable" (type $pollable (sub resource)))
    (export "[method]pollable.block" (func (param "self" (borrow $pollable))))))
  (alias export $poll "pollable" (type $pollable))
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
    (alias outer 1 $pollable (type $pollable))
    (export "now" (func (result u64)))
    (export "subscribe-duration" (func (param "when" u64) (result (own $pollable))))))
  (core func $now (canon lower (func $clock "now")))
  (core func $subscribe (canon lower (func $clock "subscribe-duration")))
  (core func $block (canon lower (func $poll "[method]pollable.block")))
  (core func $drop (canon resource.drop $pollable))
  (core instance $host (export "now" (func $now)) (export "subscribe" (func $subscribe))
    (export "block" (func $block)) (export "drop" (func $drop)))"#;

const CLOCK_IMPORTS: &str = r#"(import "host" "now" (func $now (result i64)))
  (import "host" "subscribe" (func $subscribe (param i64) (result i32)))
  (import "host" "block" (func $block (param i32)))
  (import "host" "drop" (func $drop (param i32)))"#;

const POLL: &str = r#"
  (import "wasi:io/poll@0.2.0" (instance $poll
    (export "pollable" (type $pollable (sub resource)))
    (export "poll" (func (param "in" (list (borrow $pollable))) (result (list u32))))))
  (core func $poll (canon lower (func $poll "poll") (memory $memory) (realloc (core func $realloc))))
  (core instance $host (export "poll" (func $poll)))"#;

const EMIT: &str = r#"
  (type $emit (instance
    (type $error' (variant (case "unknown-destination" string) (case "too-much" string) (case "other" string)))
    (export "emit-error" (type $error (eq $error')))
    (export "put" (func (param "destination" string) (param "key" string) (param "data" (list u8))
      (result (result (error $error)))))))
  (import "shardmill:processor/emit@0.1.0" (instance $emit (type $emit)))
  (core func $put (canon lower (func $emit "put") (memory $memory) (realloc (core func $realloc))))
  (core instance $host (export "put" (func $put)))"#;

const LOG: &str = r#"
  (type $logging (instance
    (type $level' (enum "trace" "debug" "info" "warn" "error" "critical"))
    (export "level" (type $level (eq $level')))
    (export "log" (func (param "level" $level) (param "context" string) (param "message" string)))))
  (import "wasi:logging/logging@0.1.0-draft" (instance $logging (type $logging)))
  (core func $log (canon lower (func $logging "log") (memory $memory)))
  (core instance $host (export "log" (func $log)))"#;

/// Writes bytes that are no UTF-8 to 8192.
const NOT_UTF8: &str = "(memory.fill (i32.const 8192) (i32.const 0xff) (i32.const 64))";

fn calling(lowered: &str, imports: &str, changes: &[(&str, &str)]) -> Vec<Vec<u8>> {
    let with = [
        (place::LOWERED, lowered),
        (place::IMPORTS, imports),
        (place::WITH, r#"(with "host" (instance $host))"#),
    ];
    vec![contract::with(&[&with[..], changes].concat())]
}

fn random(length: &str) -> Vec<Vec<u8>> {
    let imports = r#"(import "host" "random" (func $random (param i64 i32)))"#;
    calling(
        RANDOM,
        imports,
        &[(
            place::PROCESS,
            &format!("(call $random {length} (i32.const 2048))"),
        )],
    )
}

fn clock(process: &str) -> Vec<Vec<u8>> {
    calling(CLOCK, CLOCK_IMPORTS, &[(place::PROCESS, process)])
}

/// Waits for so many handles. None is looked at before their number is judged.
fn polls(count: u32) -> Vec<Vec<u8>> {
    let imports = r#"(import "host" "poll" (func $poll (param i32 i32 i32)))"#;
    let process = format!(
        "(drop (memory.grow (i32.const 40)))
         (call $poll (i32.const 65536) (i32.const {count}) (i32.const 2048))"
    );
    calling(POLL, imports, &[(place::PROCESS, &process)])
}

fn handles_leaked() -> Vec<Vec<u8>> {
    clock(
        "(loop $next
           (drop (call $subscribe (i64.const 1)))
           (br_if $next (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) \
           (i32.const 100000))))",
    )
}

fn handles_made_and_dropped() -> Vec<Vec<u8>> {
    clock(
        "(loop $next
           (call $drop (call $subscribe (i64.const 1)))
           (br_if $next (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) \
           (i32.const 10000))))",
    )
}

fn handle_used_after_drop() -> Vec<Vec<u8>> {
    clock(
        "(local.set $n (call $subscribe (i64.const 1))) (call $drop (local.get $n)) (call $block \
            (local.get $n))",
    )
}

fn handle_dropped_twice() -> Vec<Vec<u8>> {
    clock(
        "(local.set $n (call $subscribe (i64.const 1))) (call $drop (local.get $n)) (call $drop \
            (local.get $n))",
    )
}

fn emitting(process: &str) -> Vec<Vec<u8>> {
    let imports = r#"(import "host" "put" (func $put (param i32 i32 i32 i32 i32 i32 i32)))"#;
    calling(
        EMIT,
        imports,
        &[(place::PROCESS, &format!("{NOT_UTF8} {process}"))],
    )
}

fn emit(arguments: &str) -> Vec<Vec<u8>> {
    emitting(&format!("(call $put {arguments} (i32.const 2048))"))
}

fn emit_too_much_at_once() -> Vec<Vec<u8>> {
    emitting(
        "(drop (memory.grow (i32.const 500)))
         (call $put (i32.const 16) (i32.const 7) (i32.const 0) (i32.const 0) (i32.const 0) \
         (i32.const 32000000) (i32.const 2048))",
    )
}

fn emit_answer_outside_memory() -> Vec<Vec<u8>> {
    emitting(
        "(call $put (i32.const 16) (i32.const 7) (i32.const 0) (i32.const 0) (i32.const 0) \
            (i32.const 0) (i32.const 65532))",
    )
}

/// Logs the seven bytes at this place at this level, and then does something.
fn log(level: &str, at: &str, then: &str) -> Vec<Vec<u8>> {
    let imports = r#"(import "host" "log" (func $log (param i32 i32 i32 i32 i32)))"#;
    let call = format!(
        "(call $log (i32.const {level}) (i32.const 16) (i32.const 7) (i32.const {at}) (i32.const 7))"
    );
    calling(
        LOG,
        imports,
        &[(
            place::PROCESS,
            &format!("{NOT_UTF8} (loop $again {call} {then})"),
        )],
    )
}

/// The host copies an argument before it looks at it.
fn log_of_15_mb() -> Vec<Vec<u8>> {
    let imports = r#"(import "host" "log" (func $log (param i32 i32 i32 i32 i32)))"#;
    let process = "(drop (memory.grow (i32.const 240)))
         (call $log (i32.const 2) (i32.const 16) (i32.const 7) (i32.const 0) (i32.const 15000000))";
    calling(LOG, imports, &[(place::PROCESS, process)])
}

fn init_waits() -> Vec<Vec<u8>> {
    calling(
        CLOCK,
        CLOCK_IMPORTS,
        &[(
            place::INIT,
            "(call $block (call $subscribe (i64.const 3600000000000)))",
        )],
    )
}

fn close_waits() -> Vec<Vec<u8>> {
    calling(
        CLOCK,
        CLOCK_IMPORTS,
        &[(
            place::CLOSE,
            "(call $block (call $subscribe (i64.const 3600000000000)))",
        )],
    )
}

fn host_call_in_post_return() -> Vec<Vec<u8>> {
    calling(CLOCK, CLOCK_IMPORTS, &[(place::POST, "(drop (call $now))")])
}
