//! Every call into the host, with arguments at their ends, and without end. Each file is an attack
//! of its own.

use super::contract::{self, place};
use super::{Call, Entry, Expected, fails};

/// A text or bytes as an argument, which each attack puts another one for.
const TEXT: &str = "(;text;)";
/// Where an answer is put.
const ANSWER: &str = "(;answer;)";

/// The calls that take a text or bytes, once for each that they take.
const EMIT_TO: &str = "(call $put (;text;) (i32.const 16) (i32.const 7) (i32.const 16) (i32.const \
    7) (i32.const 2048))";
const EMIT_KEY: &str = "(call $put (i32.const 16) (i32.const 7) (;text;) (i32.const 16) \
    (i32.const 7) (i32.const 2048))";
const EMIT_DATA: &str = "(call $put (i32.const 16) (i32.const 7) (i32.const 16) (i32.const 7) \
    (;text;) (i32.const 2048))";
const EMIT_ALL: &str = "(call $put-all (;text;) (i32.const 2048))";
const COUNTER: &str = "(call $counter (;text;) (i64.const 1))";
const GAUGE: &str = "(call $gauge (;text;) (f64.const 1))";
const HISTOGRAM: &str = "(call $histogram (;text;) (f64.const 1))";
const GET: &str = "(call $get (;text;) (i32.const 2048))";
const LOG_CONTEXT: &str = "(call $log (i32.const 2) (;text;) (i32.const 16) (i32.const 7))";
const LOG_MESSAGE: &str = "(call $log (i32.const 2) (i32.const 16) (i32.const 7) (;text;))";

pub(super) fn entries() -> Vec<Entry> {
    let mut entries = texts();
    entries.extend(answers());
    entries.extend(without_end());
    entries.push(Entry::new(
        "import-odd-numbers",
        "D13",
        odd_numbers,
        Expected::Harmless,
    ));
    entries
}

fn texts() -> Vec<Entry> {
    let outside = |name, files| {
        Entry::new(
            name,
            "D13",
            files,
            fails(Call::Process, "trapped", "out of bounds"),
        )
    };
    let not_utf8 =
        |name, files| Entry::new(name, "D13", files, fails(Call::Process, "trapped", "utf-8"));
    vec![
        outside("import-emit-to-outside", || with_texts(EMIT_TO, OUTSIDE)),
        outside("import-emit-key-outside", || with_texts(EMIT_KEY, OUTSIDE)),
        outside("import-emit-data-outside", || {
            with_texts(EMIT_DATA, OUTSIDE)
        }),
        outside("import-emit-all-outside", || with_texts(EMIT_ALL, OUTSIDE)),
        outside("import-counter-outside", || with_texts(COUNTER, OUTSIDE)),
        outside("import-gauge-outside", || with_texts(GAUGE, OUTSIDE)),
        outside("import-histogram-outside", || {
            with_texts(HISTOGRAM, OUTSIDE)
        }),
        outside("import-config-outside", || with_texts(GET, OUTSIDE)),
        outside("import-log-context-outside", || {
            with_texts(LOG_CONTEXT, OUTSIDE)
        }),
        outside("import-log-message-outside", || {
            with_texts(LOG_MESSAGE, OUTSIDE)
        }),
        not_utf8("import-emit-to-not-utf8", || with_bytes(EMIT_TO)),
        not_utf8("import-emit-key-not-utf8", || with_bytes(EMIT_KEY)),
        not_utf8("import-counter-not-utf8", || with_bytes(COUNTER)),
        not_utf8("import-gauge-not-utf8", || with_bytes(GAUGE)),
        not_utf8("import-histogram-not-utf8", || with_bytes(HISTOGRAM)),
        not_utf8("import-config-not-utf8", || with_bytes(GET)),
        not_utf8("import-log-context-not-utf8", || with_bytes(LOG_CONTEXT)),
        not_utf8("import-log-message-not-utf8", || with_bytes(LOG_MESSAGE)),
    ]
}

/// Where texts lie that lie nowhere: beyond the memory's end, across it, around it.
const OUTSIDE: [(&str, &str); 6] = [
    ("65536", "1"),
    ("65535", "2"),
    ("0", "65537"),
    ("-1", "1"),
    ("0", "-1"),
    ("0x7fffffff", "0x7fffffff"),
];

/// What is no UTF-8, as the text format writes bytes: alone, too long a form, half of a pair, too
/// large, cut off.
const NOT_UTF8: [(&str, u32); 6] = [
    (r"\80", 1),
    (r"\c0\80", 2),
    (r"\ed\a0\80", 3),
    (r"\f4\90\80\80", 4),
    (r"ab\e2\82", 4),
    (r"\ff\fe", 2),
];

fn with_texts(call: &str, places: [(&str, &str); 6]) -> Vec<Vec<u8>> {
    let text = |(at, length): (&str, &str)| format!("(i32.const {at}) (i32.const {length})");
    places
        .into_iter()
        .map(|place| calling(&call.replace(TEXT, &text(place))))
        .collect()
}

fn with_bytes(call: &str) -> Vec<Vec<u8>> {
    let attack = |(bytes, length): (&str, u32)| {
        let call = call.replace(TEXT, &format!("(i32.const 8192) (i32.const {length})"));
        let copy =
            format!("(memory.init $bytes (i32.const 8192) (i32.const 0) (i32.const {length}))");
        calling_with(
            &format!("{copy} {call}"),
            &format!(r#"(data $bytes "{bytes}")"#),
        )
    };
    NOT_UTF8.into_iter().map(attack).collect()
}

/// Answers that the host is to put where there is no memory, or no place for them.
fn answers() -> Vec<Entry> {
    let outside = |name, files| {
        Entry::new(
            name,
            "D13",
            files,
            fails(Call::Process, "trapped", "out of bounds"),
        )
    };
    let unaligned =
        |name, files| Entry::new(name, "D13", files, fails(Call::Process, "trapped", "align"));
    vec![
        outside("import-answers-outside", || {
            answered(&["65536", "-16", "65528", "0x7ffffff8"])
        }),
        unaligned("import-answers-unaligned", || answered(&["2049", "2050"])),
    ]
}

fn answered(places: &[&str]) -> Vec<Vec<u8>> {
    let calls = [
        "(call $get (i32.const 16) (i32.const 7) (;answer;))",
        "(call $who (;answer;))",
    ];
    let at =
        |call: &str, place: &str| calling(&call.replace(ANSWER, &format!("(i32.const {place})")));
    places
        .iter()
        .flat_map(|place| calls.map(|call| at(call, place)))
        .collect()
}

/// Calls again and again, until somebody stops it: each that may be made, with little and with all
/// that fits.
fn without_end() -> Vec<Entry> {
    let contained = |name, files| Entry::new(name, "D27", files, Expected::Contained);
    vec![
        contained("import-loops-emit", || {
            loops(&[EMIT_TO, EMIT_KEY, EMIT_DATA, EMIT_ALL])
        }),
        contained("import-loops-measure", || {
            loops(&[COUNTER, GAUGE, HISTOGRAM])
        }),
        contained("import-loops-log", || loops(&[LOG_CONTEXT, LOG_MESSAGE])),
        contained("import-loops-ask", || {
            let asks = [
                "(call $who (i32.const 2048))",
                "(call $terms (i32.const 2048))",
                "(call $random (i64.const 0) (i32.const 2048))",
                "(call $random (i64.const 65536) (i32.const 2048))",
                "(drop (call $now))",
                "(call $drop (call $subscribe (i64.const 0)))",
                "(call $block (call $subscribe (i64.const 0)))",
                "(drop (call $subscribe (i64.const -1)))",
            ];
            asks.into_iter().map(|ask| calling(&endless(ask))).collect()
        }),
        contained("import-loops-config", || loops(&[GET])),
    ]
}

/// Each call with a short text and with one that fills the memory.
fn loops(calls: &[&str]) -> Vec<Vec<u8>> {
    let texts = [
        "(i32.const 16) (i32.const 7)",
        "(i32.const 0) (i32.const 0)",
        "(i32.const 24) (i32.const 65000)",
    ];
    let attacks = calls
        .iter()
        .flat_map(|call| texts.map(|text| call.replace(TEXT, text)));
    attacks.map(|call| calling(&endless(&call))).collect()
}

fn endless(call: &str) -> String {
    // What the host answers goes into the same place each time.
    format!("(loop $again {call} (call $reset) (br $again))")
}

fn odd_numbers() -> Vec<Vec<u8>> {
    let name = "(i32.const 16) (i32.const 7)";
    let odd = [
        "nan",
        "-nan",
        "inf",
        "-inf",
        "-0",
        "0x1p-1074",
        "0x1.fffffffffffffp1023",
    ];
    let measured = odd.map(|value| {
        format!(
            "(call $gauge {name} (f64.const {value})) (call $histogram {name} (f64.const {value}))"
        )
    });
    let counted =
        format!("(call $counter {name} (i64.const -1)) (call $counter {name} (i64.const -1))");
    measured
        .iter()
        .chain([&counted])
        .map(|calls| calling(calls))
        .collect()
}

/// A plugin that does this with a batch.
fn calling(process: &str) -> Vec<u8> {
    calling_with(process, "")
}

fn calling_with(process: &str, fields: &str) -> Vec<u8> {
    contract::with(&[
        (place::LOWERED, LOWERED),
        (place::IMPORTS, IMPORTS),
        (place::WITH, r#"(with "host" (instance $host))"#),
        (place::PROCESS, process),
        (place::FIELDS, fields),
    ])
}

/// Everything that the host offers and that has no stream, lowered.
pub const LOWERED: &str = r#"
  (type $emit (instance
    (type $error' (variant (case "unknown-destination" string) (case "too-much" string) (case "other" string)))
    (export "emit-error" (type $error (eq $error')))
    (export "put" (func (param "destination" string) (param "key" string) (param "data" (list u8))
      (result (result (error $error)))))))
  (import "shardmill:processor/emit@0.1.0" (instance $emit (type $emit)))
  (type $bulk-emit (instance
    (type $error' (variant (case "unknown-destination" string) (case "too-much" string) (case "other" string)))
    (export "emit-error" (type $error (eq $error')))
    (type $terms' (record (field "destinations" (list string)) (field "bytes" u64) (field "pieces" u32)
      (field "key-bytes" u32)))
    (export "terms" (type $terms (eq $terms')))
    (export "get-terms" (func (result $terms)))
    (export "put-all" (func (param "pieces" (list u8)) (result (result (error $error)))))))
  (import "shardmill:processor/bulk-emit@0.1.0" (instance $bulk-emit (type $bulk-emit)))
  (import "shardmill:processor/metrics@0.1.0" (instance $metrics
    (export "counter" (func (param "name" string) (param "add" u64)))
    (export "gauge" (func (param "name" string) (param "value" f64)))
    (export "histogram" (func (param "name" string) (param "value" f64)))))
  (alias export $t "context" (type $who-context))
  (import "shardmill:processor/context@0.1.0" (instance $who
    (alias outer 1 $who-context (type $context'))
    (export "context" (type $context (eq $context')))
    (export "get" (func (result $context)))))
  (type $store (instance
    (type $error' (variant (case "upstream" string) (case "io" string)))
    (export "error" (type $error (eq $error')))
    (export "get" (func (param "key" string) (result (result (option string) (error $error)))))))
  (import "wasi:config/store@0.2.0-rc.1" (instance $store (type $store)))
  (type $logging (instance
    (type $level' (enum "trace" "debug" "info" "warn" "error" "critical"))
    (export "level" (type $level (eq $level')))
    (export "log" (func (param "level" $level) (param "context" string) (param "message" string)))))
  (import "wasi:logging/logging@0.1.0-draft" (instance $logging (type $logging)))
  (import "wasi:random/random@0.2.0" (instance $random
    (export "get-random-bytes" (func (param "len" u64) (result (list u8))))))
  (import "wasi:io/poll@0.2.0" (instance $poll
    (export "pollable" (type $pollable (sub resource)))
    (export "[method]pollable.block" (func (param "self" (borrow $pollable))))))
  (alias export $poll "pollable" (type $pollable))
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
    (alias outer 1 $pollable (type $pollable))
    (export "now" (func (result u64)))
    (export "subscribe-duration" (func (param "when" u64) (result (own $pollable))))))
  (core func $put (canon lower (func $emit "put") (memory $memory) (realloc (core func $realloc))))
  (core func $put-all (canon lower (func $bulk-emit "put-all") (memory $memory) (realloc (core func $realloc))))
  (core func $terms (canon lower (func $bulk-emit "get-terms") (memory $memory) (realloc (core func $realloc))))
  (core func $counter (canon lower (func $metrics "counter") (memory $memory)))
  (core func $gauge (canon lower (func $metrics "gauge") (memory $memory)))
  (core func $histogram (canon lower (func $metrics "histogram") (memory $memory)))
  (core func $who (canon lower (func $who "get") (memory $memory) (realloc (core func $realloc))))
  (core func $get (canon lower (func $store "get") (memory $memory) (realloc (core func $realloc))))
  (core func $log (canon lower (func $logging "log") (memory $memory)))
  (core func $random (canon lower (func $random "get-random-bytes") (memory $memory) (realloc (core func $realloc))))
  (core func $now (canon lower (func $clock "now")))
  (core func $subscribe (canon lower (func $clock "subscribe-duration")))
  (core func $block (canon lower (func $poll "[method]pollable.block")))
  (core func $drop (canon resource.drop $pollable))
  (core instance $host (export "put" (func $put)) (export "put-all" (func $put-all)) (export "terms" (func $terms))
    (export "counter" (func $counter)) (export "gauge" (func $gauge))
    (export "histogram" (func $histogram)) (export "who" (func $who)) (export "get" (func $get))
    (export "log" (func $log)) (export "random" (func $random)) (export "now" (func $now))
    (export "subscribe" (func $subscribe)) (export "block" (func $block)) (export "drop" (func $drop)))"#;

/// The same, as the main module imports it.
pub const IMPORTS: &str = r#"
  (import "host" "put" (func $put (param i32 i32 i32 i32 i32 i32 i32)))
  (import "host" "put-all" (func $put-all (param i32 i32 i32)))
  (import "host" "terms" (func $terms (param i32)))
  (import "host" "counter" (func $counter (param i32 i32 i64)))
  (import "host" "gauge" (func $gauge (param i32 i32 f64)))
  (import "host" "histogram" (func $histogram (param i32 i32 f64)))
  (import "host" "who" (func $who (param i32)))
  (import "host" "get" (func $get (param i32 i32 i32)))
  (import "host" "log" (func $log (param i32 i32 i32 i32 i32)))
  (import "host" "random" (func $random (param i64 i32)))
  (import "host" "now" (func $now (result i64)))
  (import "host" "subscribe" (func $subscribe (param i64) (result i32)))
  (import "host" "block" (func $block (param i32)))
  (import "host" "drop" (func $drop (param i32)))"#;
