//! Plugins whose memory, `realloc`, results and calls make no sense: what crosses the border is
//! checked.

use super::contract::{self, place};
use super::{Call, Entry, Expected, fails};

pub(super) fn entries() -> Vec<Entry> {
    let mut entries = results();
    entries.extend(lists());
    entries.extend(reallocs());
    entries.extend(instructions());
    entries
}

fn results() -> Vec<Entry> {
    let trap = |says| fails(Call::Process, "trapped", says);
    vec![
        Entry::new(
            "contract-as-it-is",
            "none",
            || vec![contract::with(&[])],
            Expected::Harmless,
        ),
        Entry::new(
            "result-outside-memory",
            "D13",
            || process("(return (i32.const -8))"),
            trap("out of bounds"),
        ),
        Entry::new(
            "result-across-the-end",
            "D13",
            || process("(return (i32.const 65528))"),
            trap("out of bounds"),
        ),
        Entry::new(
            "result-unaligned",
            "D13",
            || process("(return (i32.const 1028))"),
            trap("align"),
        ),
        Entry::new(
            "result-case-unknown",
            "D13",
            || process("(i32.store8 (i32.const 1024) (i32.const 2))"),
            trap("discriminant"),
        ),
        Entry::new(
            "kind-unknown",
            "D13",
            || failure("(i32.store8 (i32.const 2052) (i32.const 9))"),
            trap("discriminant"),
        ),
        Entry::new(
            "commit-unknown",
            "D13",
            || process("(i32.store8 (i32.const 1040) (i32.const 3))"),
            trap("discriminant"),
        ),
        Entry::new(
            "commit-garbage",
            "D16",
            commit_garbage,
            fails(Call::Process, "invalid_outcome", "commit index"),
        ),
        Entry::new(
            "option-unknown",
            "D13",
            || process("(i32.store8 (i32.const 1048) (i32.const 2))"),
            trap("discriminant"),
        ),
        Entry::new(
            "retry-after-for-ever",
            "D13",
            retry_after_for_ever,
            Expected::Harmless,
        ),
        Entry::new(
            "index-of-4-gi",
            "D15",
            || failure("(i32.store (i32.const 2048) (i32.const -1))"),
            fails(Call::Process, "invalid_outcome", "beyond the batch"),
        ),
        Entry::new(
            "post-return-loops",
            "D2",
            || post("(loop br 0)"),
            fails(Call::Init, "deadline", "init"),
        ),
        Entry::new(
            "post-return-traps",
            "D1",
            || post("unreachable"),
            fails(Call::Init, "trapped", "unreachable"),
        ),
        Entry::new(
            "post-return-loops-later",
            "D2",
            post_return_loops_later,
            fails(Call::Process, "deadline", "process"),
        ),
    ]
}

fn lists() -> Vec<Entry> {
    let trap = |says| fails(Call::Process, "trapped", says);
    vec![
        Entry::new(
            "list-of-4-gi",
            "D13",
            || list("0", "-1"),
            trap("out of bounds"),
        ),
        // Its length in bytes is 16 once the upper bits are lost.
        Entry::new(
            "list-length-wraps",
            "D13",
            || list("0", "0x10000001"),
            trap("out of bounds"),
        ),
        Entry::new(
            "list-outside-memory",
            "D13",
            || list("65528", "1"),
            trap("out of bounds"),
        ),
        Entry::new("list-unaligned", "D13", || list("2", "1"), trap("align")),
        Entry::new(
            "list-is-the-result",
            "D13",
            || list("1024", "2"),
            fails(
                Call::Process,
                "invalid_outcome",
                "is not above the one before",
            ),
        ),
        Entry::new(
            "list-amplifies",
            "D13",
            list_amplifies,
            fails(Call::Process, "limit", "passed to the host in one call"),
        ),
        Entry::new(
            "list-of-two-million",
            "D13",
            list_of_two_million,
            fails(Call::Process, "limit", "passed to the host in one call"),
        ),
    ]
}

fn reallocs() -> Vec<Entry> {
    let trap = |says| fails(Call::Init, "trapped", says);
    vec![
        Entry::new(
            "realloc-loops",
            "D2",
            || realloc("(loop br 0)"),
            fails(Call::Init, "deadline", "init"),
        ),
        Entry::new(
            "realloc-traps",
            "D1",
            || realloc("unreachable"),
            trap("unreachable"),
        ),
        Entry::new(
            "realloc-outside-memory",
            "GHSA-394w",
            || realloc("(return (i32.const -16))"),
            trap("beyond end of memory"),
        ),
        Entry::new(
            "realloc-across-the-end",
            "GHSA-394w",
            || realloc("(return (i32.const 65535))"),
            trap(""),
        ),
        // A large batch reaches from 0 over the results at 1024, a small one does not.
        Entry::new(
            "realloc-null",
            "D13",
            || realloc("(return (i32.const 0))"),
            Expected::Contained,
        ),
        Entry::new(
            "realloc-one-place",
            "D13",
            || realloc("(return (i32.const 4096))"),
            Expected::Harmless,
        ),
        Entry::new(
            "realloc-over-results",
            "D13",
            || realloc("(return (i32.const 1024))"),
            Expected::Contained,
        ),
        Entry::new(
            "realloc-unaligned",
            "D13",
            realloc_unaligned,
            fails(Call::Process, "trapped", "align"),
        ),
        Entry::new(
            "realloc-grows",
            "D3",
            realloc_grows,
            fails(Call::Init, "limit", "memory bytes"),
        ),
        Entry::new(
            "realloc-recurses",
            "D3",
            realloc_recurses,
            fails(Call::Init, "limit", "stack bytes"),
        ),
        Entry::new(
            "realloc-calls-the-host",
            "D17",
            realloc_calls_the_host,
            trap("leave"),
        ),
    ]
}

#[expect(clippy::too_many_lines, reason = "a list of instructions")]
fn instructions() -> Vec<Entry> {
    let trap = |says| fails(Call::Process, "trapped", says);
    let deadline = fails(Call::Process, "deadline", "process");
    vec![
        Entry::new(
            "divides-by-zero",
            "D1",
            || process("(drop (i32.div_u (i32.const 1) (local.get $n)))"),
            trap("divide by zero"),
        ),
        Entry::new(
            "division-overflows",
            "D1",
            || {
                process(
                    "(drop (i32.div_s (i32.const 0x80000000) (i32.sub (local.get $n) (i32.const 1))))",
                )
            },
            trap("overflow"),
        ),
        Entry::new(
            "converts-nan",
            "GHSA-qqfj",
            || {
                process(
                    "(drop (i64.trunc_f64_u (f64.div (f64.convert_i32_u (local.get $n)) \
                        (f64.const 0))))",
                )
            },
            trap("integer"),
        ),
        Entry::new(
            "calls-null",
            "D1",
            calls_null,
            trap("uninitialized element"),
        ),
        Entry::new(
            "calls-another-type",
            "D1",
            calls_another_type,
            trap("indirect call type mismatch"),
        ),
        Entry::new(
            "reads-past-the-end",
            "D1",
            || process("(drop (f64.load (i32.const 65529)))"),
            trap("out of bounds"),
        ),
        Entry::new(
            "reads-4-gib-past",
            "D1",
            || process("(drop (i64.load offset=0xffffffff (i32.const -1)))"),
            trap("out of bounds"),
        ),
        Entry::new(
            "copies-past-the-end",
            "GHSA-2hw9",
            || process("(memory.copy (i32.const 0) (i32.const 8) (i32.const 65536))"),
            trap("out of bounds"),
        ),
        Entry::new(
            "fills-without-end",
            "GHSA-2hw9",
            fills_without_end,
            deadline,
        ),
        Entry::new(
            "copies-without-end",
            "GHSA-2hw9",
            copies_without_end,
            deadline,
        ),
        Entry::new(
            "table-fills-without-end",
            "GHSA-2hw9",
            table_fills_without_end,
            deadline,
        ),
        Entry::new(
            "grows-without-end",
            "D3",
            || process("(loop (drop (memory.grow (i32.const 1))) (br 0))"),
            deadline,
        ),
        Entry::new(
            "grows-by-4-gib",
            "D3",
            || process("(drop (memory.grow (i32.const 0xffff)))"),
            Expected::Harmless,
        ),
        Entry::new(
            "recurses",
            "D3",
            recurses,
            fails(Call::Process, "limit", "stack bytes"),
        ),
        Entry::new(
            "recurses-with-big-frames",
            "D3",
            recurses_with_big_frames,
            fails(Call::Process, "limit", "stack bytes"),
        ),
    ]
}

fn with(changes: &[(&str, &str)]) -> Vec<Vec<u8>> {
    vec![contract::with(changes)]
}

fn process(body: &str) -> Vec<Vec<u8>> {
    with(&[(place::PROCESS, body)])
}

fn realloc(body: &str) -> Vec<Vec<u8>> {
    with(&[(place::REALLOC, body)])
}

fn post(body: &str) -> Vec<Vec<u8>> {
    with(&[(place::POST, body)])
}

/// An outcome whose failures lie at this place, and are so many.
fn list(at: &str, length: &str) -> Vec<Vec<u8>> {
    process(&format!(
        "(i32.store (i32.const 1032) (i32.const {at})) (i32.store (i32.const 1036) (i32.const {length}))"
    ))
}

/// An outcome with one failure, at 2048, changed like this.
fn failure(change: &str) -> Vec<Vec<u8>> {
    process(&format!(
        "(i32.store (i32.const 1032) (i32.const 2048)) (i32.store (i32.const 1036) (i32.const 1)) {change}"
    ))
}

/// 3,840 failures with one message of 60,000 bytes between them: 230 MB for the host, 60 KB for the
/// guest. The number is one whose bytes are UTF-8, since it lies in that message.
fn list_amplifies() -> Vec<Vec<u8>> {
    process(
        "(drop (memory.grow (i32.const 2)))
         (local.set $m (i32.const 65536))
         (loop $next
           (i32.store (local.get $m) (local.get $n))
           (i32.store offset=12 (local.get $m) (i32.const 60000))
           (local.set $m (i32.add (local.get $m) (i32.const 16)))
           (local.set $n (i32.add (local.get $n) (i32.const 1)))
           (br_if $next (i32.lt_u (local.get $n) (i32.const 3840))))
         (memory.fill (i32.const 0) (i32.const 32) (i32.const 1024))
         (memory.fill (i32.const 2048) (i32.const 32) (i32.const 60000))
         (i32.store (i32.const 1032) (i32.const 65536)) (i32.store (i32.const 1036) (i32.const 3840))",
    )
}

/// Two million failures, all zero.
fn list_of_two_million() -> Vec<Vec<u8>> {
    process(
        "(drop (memory.grow (i32.const 500)))
         (i32.store (i32.const 1032) (i32.const 65536)) (i32.store (i32.const 1036) (i32.const 2000000))",
    )
}

fn commit_garbage() -> Vec<Vec<u8>> {
    process(
        "(i32.store8 (i32.const 1040) (i32.const 2)) (i32.store (i32.const 1044) (i32.const -1))",
    )
}

fn retry_after_for_ever() -> Vec<Vec<u8>> {
    process(
        "(i32.store8 (i32.const 1048) (i32.const 1)) (i64.store (i32.const 1056) (i64.const -1))",
    )
}

fn post_return_loops_later() -> Vec<Vec<u8>> {
    with(&[
        (place::FIELDS, "(global $late (mut i32) (i32.const 0))"),
        (place::PROCESS, "(global.set $late (i32.const 1))"),
        (place::POST, "(if (global.get $late) (then (loop br 0)))"),
    ])
}

/// For what needs an alignment, that is, the list of records.
fn realloc_unaligned() -> Vec<Vec<u8>> {
    realloc("(if (i32.gt_u (local.get $align) (i32.const 1)) (then (return (i32.const 4097))))")
}

fn realloc_grows() -> Vec<Vec<u8>> {
    realloc("(loop (br_if 0 (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable")
}

fn realloc_recurses() -> Vec<Vec<u8>> {
    let call = "(drop (call $again (local.get $old) (local.get $old-size) (local.get $align) \
        (local.get $size)))";
    with(&[
        (
            r#"(func (export "realloc")"#,
            r#"(func $again (export "realloc")"#,
        ),
        (place::REALLOC, call),
    ])
}

/// The component may not be left while its arguments are being written.
fn realloc_calls_the_host() -> Vec<Vec<u8>> {
    let clock = r#"(import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock (export "now" (func (result u64)))))
      (core func $now (canon lower (func $clock "now")))
      (core instance $host (export "now" (func $now)))"#;
    with(&[
        (place::OUTSIDE, clock),
        (
            place::LIBRARY,
            r#"(import "host" "now" (func $now (result i64)))"#,
        ),
        (
            "(core instance $library (instantiate $library))",
            r#"(core instance $library (instantiate $library (with "host" (instance $host))))"#,
        ),
        (place::REALLOC, "(drop (call $now))"),
    ])
}

fn calls_null() -> Vec<Vec<u8>> {
    with(&[
        (place::FIELDS, "(table 4 funcref)"),
        (place::PROCESS, "(call_indirect (i32.const 2))"),
    ])
}

fn calls_another_type() -> Vec<Vec<u8>> {
    let fields = "(table 4 funcref) (elem (i32.const 0) $reset)";
    with(&[
        (place::FIELDS, fields),
        (
            place::PROCESS,
            "(drop (call_indirect (result i64) (i32.const 0)))",
        ),
    ])
}

fn fills_without_end() -> Vec<Vec<u8>> {
    process(
        "(drop (memory.grow (i32.const 900)))
         (loop (memory.fill (i32.const 0) (i32.const 7) (i32.const 58000000)) (br 0))",
    )
}

fn copies_without_end() -> Vec<Vec<u8>> {
    process(
        "(drop (memory.grow (i32.const 900)))
         (loop (memory.copy (i32.const 1) (i32.const 0) (i32.const 58000000)) (br 0))",
    )
}

fn table_fills_without_end() -> Vec<Vec<u8>> {
    let fill = "(loop (table.fill $t (i32.const 0) (ref.null func) (i32.const 99000)) (br 0))";
    with(&[
        (place::FIELDS, "(table $t 99000 funcref)"),
        (place::PROCESS, fill),
    ])
}

fn recurses() -> Vec<Vec<u8>> {
    with(&[
        (place::FIELDS, "(func $down (call $down))"),
        (place::PROCESS, "(call $down)"),
    ])
}

/// A frame of some KiB, so that the stack's end is jumped at from afar.
fn recurses_with_big_frames() -> Vec<Vec<u8>> {
    let values: Vec<String> = (0..2_000)
        .map(|n| format!("(i64.load offset={} (local.get 0))", n * 8))
        .collect();
    let values = values.join(" ");
    let sum = "i64.add ".repeat(1_999);
    let down = format!(
        "(func $down (param i32) (result i64) {values} (call $down (local.get 0)) drop {sum})"
    );
    with(&[
        (place::FIELDS, &down),
        (place::PROCESS, "(drop (call $down (local.get $n)))"),
    ])
}
