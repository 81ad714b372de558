//! Components that misbehave before any of their functions is called: sizes, segments, start
//! functions.

use super::contract::{self, place};
use super::{Call, Entry, Expected, fails};

#[expect(clippy::too_many_lines, reason = "a list of files")]
pub(super) fn entries() -> Vec<Entry> {
    let limit = |says| fails(Call::Init, "limit", says);
    let trap = |says| fails(Call::Init, "trapped", says);
    let deadline = fails(Call::Init, "deadline", "init");
    vec![
        Entry::new("start-loops", "D2", || start("(loop br 0)"), deadline),
        Entry::new(
            "start-traps",
            "D1",
            || start("unreachable"),
            trap("unreachable"),
        ),
        Entry::new(
            "start-recurses",
            "D3",
            || start("(call $start)"),
            limit("stack bytes"),
        ),
        Entry::new(
            "start-grows-memory",
            "D3",
            || start("(loop (drop (memory.grow (i32.const 16))) (br 0))"),
            deadline,
        ),
        Entry::new(
            "start-needs-memory",
            "D3",
            start_needs_memory,
            limit("memory bytes"),
        ),
        Entry::new(
            "start-grows-table",
            "D3",
            start_needs_table,
            limit("table elements"),
        ),
        Entry::new(
            "start-fills-memory",
            "GHSA-2hw9",
            start_fills_memory,
            deadline,
        ),
        Entry::new(
            "start-calls-the-host",
            "D17",
            start_calls_the_host,
            Expected::Contained,
        ),
        Entry::new(
            "size-memory",
            "D3",
            || fields("(memory 1025)"),
            limit("memory bytes"),
        ),
        Entry::new(
            "size-memories",
            "D3",
            || fields("(memory 600) (memory 600)"),
            limit("memory bytes"),
        ),
        Entry::new(
            "size-memory-of-4-gib",
            "GHSA-p8xm",
            || fields("(memory 65536)"),
            limit("memory bytes"),
        ),
        Entry::new(
            "size-many-memories",
            "D3",
            || fields(&"(memory 0)".repeat(8)),
            limit("on memories"),
        ),
        Entry::new(
            "size-table",
            "GHSA-p8xm",
            || fields("(table 10000000 funcref)"),
            limit("table elements"),
        ),
        Entry::new(
            "size-table-of-4-gi",
            "GHSA-p8xm",
            || fields("(table 0xffffffff funcref)"),
            Expected::Contained,
        ),
        Entry::new(
            "size-tables",
            "D3",
            || fields("(table 60000 funcref) (table 60000 funcref)"),
            limit("table elements"),
        ),
        Entry::new(
            "size-many-tables",
            "D3",
            || fields(&"(table 0 funcref)".repeat(33)),
            limit("on tables"),
        ),
        Entry::new(
            "size-many-instances",
            "D3",
            many_instances,
            limit("core instances"),
        ),
        Entry::new(
            "segment-outside-memory",
            "D1",
            || fields(r#"(data (i32.const 65530) "too far")"#),
            trap("memory"),
        ),
        Entry::new(
            "segment-outside-table",
            "D1",
            || fields("(table 1 funcref) (elem (i32.const 1) 0)"),
            trap("table"),
        ),
        Entry::new(
            "segment-at-4-gib",
            "D1",
            || fields(r#"(data (i32.const -1) "x")"#),
            trap("memory"),
        ),
    ]
}

fn fields(fields: &str) -> Vec<Vec<u8>> {
    vec![contract::with(&[(place::FIELDS, fields)])]
}

fn start(body: &str) -> Vec<Vec<u8>> {
    fields(&format!("(func $start {body}) (start $start)"))
}

fn start_needs_memory() -> Vec<Vec<u8>> {
    start("(if (i32.eq (memory.grow (i32.const 2000)) (i32.const -1)) (then unreachable))")
}

fn start_needs_table() -> Vec<Vec<u8>> {
    let grow = "(if (i32.eq (table.grow $t (ref.null func) (i32.const 200000)) (i32.const -1)) \
        (then unreachable))";
    fields(&format!(
        "(table $t 0 funcref) (func $start {grow}) (start $start)"
    ))
}

/// One instruction that takes long, again and again: the epoch is looked at between them only.
fn start_fills_memory() -> Vec<Vec<u8>> {
    start(
        "(drop (memory.grow (i32.const 900)))
         (loop (memory.fill (i32.const 0) (i32.const 7) (i32.const 58000000)) (br 0))",
    )
}

/// A host function is called while the component is not whole yet.
fn start_calls_the_host() -> Vec<Vec<u8>> {
    let lowered = r#"(import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock (export "now" (func (result u64)))))
      (core func $now (canon lower (func $clock "now")))
      (core instance $host (export "now" (func $now)))"#;
    vec![contract::with(&[
        (place::LOWERED, lowered),
        (
            place::IMPORTS,
            r#"(import "host" "now" (func $now (result i64)))"#,
        ),
        (place::WITH, r#"(with "host" (instance $host))"#),
        (
            place::FIELDS,
            "(func $start (drop (call $now))) (start $start)",
        ),
    ])]
}

fn many_instances() -> Vec<Vec<u8>> {
    let instance = "(core instance (instantiate $empty))";
    vec![contract::with(&[(
        place::OUTSIDE,
        &format!("(core module $empty) {}", instance.repeat(64)),
    )])]
}
