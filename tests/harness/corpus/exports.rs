//! Every export, answering with the extremes of each value it may answer with; and slowly. Each
//! file is a separate attack.

use super::contract::{self, place};
use super::{Call, Entry, Expected, fails};

/// The addresses of a result's cases in `process`, if it went well, and the first number that is no
/// case.
const CASES: [(&str, u8); 4] = [("1024", 2), ("1040", 3), ("1048", 2), ("2052", 2)];
/// Texts that lie nowhere.
const OUTSIDE: [(&str, &str); 6] = [
    ("65536", "1"),
    ("65535", "2"),
    ("0", "65537"),
    ("-1", "1"),
    ("0", "-1"),
    ("0x7fffffff", "0x7fffffff"),
];

pub(super) fn entries() -> Vec<Entry> {
    let trapped = |call, says| fails(call, "trapped", says);
    let outside =
        |name, call, files| Entry::new(name, "D13", files, trapped(call, "out of bounds"));
    let mut entries = vec![
        Entry::new(
            "export-cases-next",
            "D13",
            || cases(0),
            trapped(Call::Process, "discriminant"),
        ),
        Entry::new(
            "export-cases-half",
            "D13",
            || cases(125),
            trapped(Call::Process, "discriminant"),
        ),
        Entry::new(
            "export-cases-last",
            "D13",
            || cases(252),
            trapped(Call::Process, "discriminant"),
        ),
        outside("export-init-says-outside", Call::Init, || {
            says_outside(place::INIT)
        }),
        outside("export-process-says-outside", Call::Process, || {
            says_outside(place::PROCESS)
        }),
        outside("export-close-says-outside", Call::Close, || {
            says_outside(place::CLOSE)
        }),
        outside("export-message-outside", Call::Process, messages_outside),
        Entry::new(
            "export-answers-outside",
            "D13",
            || answers(place::INIT),
            trapped(Call::Init, "out of bounds"),
        ),
        Entry::new(
            "export-close-outside",
            "D13",
            || answers(place::CLOSE),
            trapped(Call::Close, "out of bounds"),
        ),
        Entry::new(
            "export-lists-outside",
            "D13",
            lists_outside,
            trapped(Call::Process, "out of bounds"),
        ),
        Entry::new(
            "export-indexes",
            "D15",
            indexes,
            fails(Call::Process, "invalid_outcome", ""),
        ),
        Entry::new(
            "export-commits",
            "D16",
            commits,
            fails(Call::Process, "invalid_outcome", "commit index"),
        ),
        Entry::new("export-waits-between", "D13", waits, Expected::Harmless),
    ];
    entries.extend(in_time());
    entries
}

fn process(text: &str) -> Vec<u8> {
    contract::with(&[(place::PROCESS, text)])
}

/// One failure, so that there is a kind to be wrong.
const ONE_FAILURE: &str =
    "(i32.store (i32.const 1032) (i32.const 2048)) (i32.store (i32.const 1036) (i32.const 1))";

fn cases(above: u8) -> Vec<Vec<u8>> {
    let wrong = |(at, first): (&str, u8)| {
        process(&format!(
            "{ONE_FAILURE} (i32.store8 (i32.const {at}) (i32.const {}))",
            first + above
        ))
    };
    CASES.into_iter().map(wrong).collect()
}

/// An error of the second kind, whose text lies nowhere.
fn says_outside(at: &str) -> Vec<Vec<u8>> {
    // Where nothing of the result is 64 bits wide, its error begins four bytes earlier.
    let error = if at == place::PROCESS { 1_032 } else { 1_028 };
    let (text_at, length_at) = (error + 4, error + 8);
    let says = |(text, length): (&str, &str)| {
        format!(
            "(i32.store8 (i32.const 1024) (i32.const 1)) (i32.store8 (i32.const {error}) \
                (i32.const 1))
             (i32.store (i32.const {text_at}) (i32.const {text})) (i32.store (i32.const \
             {length_at}) (i32.const {length}))"
        )
    };
    OUTSIDE
        .into_iter()
        .map(|text| contract::with(&[(at, &says(text))]))
        .collect()
}

fn messages_outside() -> Vec<Vec<u8>> {
    let message = |(text, length): (&str, &str)| {
        process(&format!(
            "{ONE_FAILURE} (i32.store (i32.const 2056) (i32.const {text})) (i32.store (i32.const \
                2060) (i32.const {length}))"
        ))
    };
    OUTSIDE.into_iter().map(message).collect()
}

fn answers(at: &str) -> Vec<Vec<u8>> {
    let answer =
        |address: &str| contract::with(&[(at, &format!("(return (i32.const {address}))"))]);
    ["65536", "-4", "65528", "0x7ffffff8"]
        .into_iter()
        .map(answer)
        .collect()
}

fn lists_outside() -> Vec<Vec<u8>> {
    let list = |(at, count): (&str, &str)| {
        process(&format!(
            "(i32.store (i32.const 1032) (i32.const {at})) (i32.store (i32.const 1036) (i32.const {count}))"
        ))
    };
    [
        ("65536", "1"),
        ("65524", "1"),
        ("0", "4097"),
        ("-4", "1"),
        ("4", "0x0fffffff"),
        ("0x7ffffff0", "1"),
    ]
    .into_iter()
    .map(list)
    .collect()
}

/// Beyond the largest batch.
fn indexes() -> Vec<Vec<u8>> {
    let index = |index: &str| {
        process(&format!(
            "{ONE_FAILURE} (i32.store (i32.const 2048) (i32.const {index}))"
        ))
    };
    ["10000", "65536", "0x7fffffff", "0x80000000", "-2", "-1"]
        .into_iter()
        .map(index)
        .collect()
}

fn commits() -> Vec<Vec<u8>> {
    let commit = |through: &str| {
        process(&format!(
            "(i32.store8 (i32.const 1040) (i32.const 2)) (i32.store (i32.const 1044) (i32.const {through}))"
        ))
    };
    ["10000", "65536", "0x7fffffff", "0x80000000", "-2", "-1"]
        .into_iter()
        .map(commit)
        .collect()
}

fn waits() -> Vec<Vec<u8>> {
    let wait = |milliseconds: &str| {
        process(&format!(
            "(i32.store8 (i32.const 1048) (i32.const 1)) (i64.store (i32.const 1056) (i64.const \
                {milliseconds}))"
        ))
    };
    [
        "0",
        "1",
        "0x7fffffff",
        "0xffffffff",
        "0x100000000",
        "0x7fffffffffffffff",
        "-1",
    ]
    .into_iter()
    .map(wait)
    .collect()
}

/// Work without end, in each form that a compiler makes code of.
fn in_time() -> Vec<Entry> {
    let stopped = |name, call, files| Entry::new(name, "D2", files, fails(call, "deadline", ""));
    vec![
        stopped("export-busy-in-process", Call::Process, || {
            busy(place::PROCESS)
        }),
        stopped("export-busy-in-post-return", Call::Init, || {
            busy(place::POST)
        }),
        stopped("export-busy-in-realloc", Call::Init, busy_realloc),
    ]
}

const BUSY: [&str; 7] = [
    "(loop (br 0))",
    "(loop (br_if 0 (i32.const 1)))",
    "(loop (br_table 0 0 0 (i32.const 7)))",
    "(loop (drop (memory.grow (i32.const 0))) (br 0))",
    "(loop (drop (memory.grow (i32.const -1))) (br 0))",
    "(loop (memory.fill (i32.const 8192) (i32.const 1) (i32.const 50000)) (br 0))",
    "(loop (drop (f64.sqrt (f64.const -1))) (drop (i64.rem_u (i64.const 7) (i64.const 3))) (br 0))",
];

fn busy(at: &str) -> Vec<Vec<u8>> {
    let functions = "(func $turn (loop (call $nothing) (br 0))) (func $nothing) (func $turns \
        (return_call $turns))";
    let attack = |text: &str| contract::with(&[(at, text), (place::FIELDS, functions)]);
    BUSY.into_iter()
        .chain(["(call $turn)", "(call $turns)"])
        .map(attack)
        .collect()
}

fn busy_realloc() -> Vec<Vec<u8>> {
    BUSY.into_iter()
        .map(|text| contract::with(&[(place::REALLOC, text)]))
        .collect()
}
