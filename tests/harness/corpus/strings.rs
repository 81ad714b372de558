//! Strings in all encodings, to the host and between the parts of one component, where code that
//! wasmtime generates transcodes them (GHSA-394w, GHSA-hx6p, GHSA-jxhv).

use super::contract::{self, place};
use super::{Call, Entry, Expected, fails};

const UTF16: &str = "string-encoding=utf16";
const LATIN1: &str = "string-encoding=latin1+utf16";
const UTF8: &str = "string-encoding=utf8";

pub(super) fn entries() -> Vec<Entry> {
    let mut entries = to_the_host();
    entries.extend(between_components());
    entries
}

#[expect(clippy::too_many_lines, reason = "a list of files")]
fn to_the_host() -> Vec<Entry> {
    let trap = |says| fails(Call::Process, "trapped", says);
    let reported = |says| fails(Call::Process, "reported", says);
    vec![
        Entry::new(
            "utf8-good",
            "D13",
            || error(UTF8, "", "16", "7"),
            reported("hostile"),
        ),
        Entry::new(
            "utf8-invalid",
            "D13",
            || {
                error(
                    UTF8,
                    "(i32.store (i32.const 2048) (i32.const 0xfeff))",
                    "2048",
                    "2",
                )
            },
            trap("utf-8"),
        ),
        Entry::new(
            "utf8-surrogate",
            "D13",
            || {
                error(
                    UTF8,
                    "(i32.store (i32.const 2048) (i32.const 0x80a0ed))",
                    "2048",
                    "3",
                )
            },
            trap("utf-8"),
        ),
        Entry::new(
            "utf8-outside-memory",
            "D13",
            || error(UTF8, "", "65530", "7"),
            trap("out of bounds"),
        ),
        Entry::new(
            "utf8-of-4-gib",
            "D13",
            || error(UTF8, "", "0", "-1"),
            trap("out of bounds"),
        ),
        Entry::new(
            "utf8-steers-terminals",
            "D13",
            || {
                error(
                    UTF8,
                    "(i32.store (i32.const 2048) (i32.const 0x6d31_5b1b))",
                    "2048",
                    "4",
                )
            },
            reported(" [1m"),
        ),
        Entry::new(
            "utf8-null-characters",
            "D13",
            || error(UTF8, "", "16384", "40000"),
            reported("reported an error"),
        ),
        Entry::new(
            "utf16-plugin",
            "GHSA-jxhv",
            || with_encoding(UTF16),
            Expected::Harmless,
        ),
        Entry::new(
            "utf16-lone-surrogate",
            "GHSA-jxhv",
            || {
                error(
                    UTF16,
                    "(i32.store16 (i32.const 2048) (i32.const 0xd800))",
                    "2048",
                    "1",
                )
            },
            trap("unpaired surrogate"),
        ),
        Entry::new(
            "utf16-odd-place",
            "GHSA-394w",
            || error(UTF16, "", "2049", "2"),
            trap("align"),
        ),
        Entry::new(
            "utf16-of-4-gib",
            "GHSA-hx6p",
            || error(UTF16, "", "0", "0x7fffffff"),
            trap("out of bounds"),
        ),
        Entry::new(
            "utf16-length-wraps",
            "GHSA-hx6p",
            || error(UTF16, "", "0", "0x80000001"),
            trap("out of bounds"),
        ),
        Entry::new(
            "latin1-plugin",
            "GHSA-jxhv",
            || with_encoding(LATIN1),
            Expected::Harmless,
        ),
        Entry::new(
            "latin1-all-bytes",
            "GHSA-jxhv",
            || {
                error(
                    LATIN1,
                    "(memory.fill (i32.const 2048) (i32.const 0xe9) (i32.const 8))",
                    "2048",
                    "8",
                )
            },
            reported("éé"),
        ),
        Entry::new(
            "latin1-tagged-of-4-gib",
            "GHSA-394w",
            || error(LATIN1, "", "0", "-1"),
            trap("out of bounds"),
        ),
        Entry::new(
            "latin1-tagged-odd-place",
            "GHSA-394w",
            || error(LATIN1, "", "2049", "0x80000001"),
            trap("align"),
        ),
    ]
}

fn between_components() -> Vec<Entry> {
    let trap = |says| fails(Call::Process, "trapped", says);
    vec![
        Entry::new(
            "composed-utf8-to-utf16",
            "GHSA-394w",
            || passed(UTF8, UTF16, "16", "7", ""),
            Expected::Harmless,
        ),
        Entry::new(
            "composed-utf16-to-latin1",
            "GHSA-394w",
            || passed(UTF16, LATIN1, "16", "3", ""),
            Expected::Harmless,
        ),
        Entry::new(
            "composed-latin1-to-utf8",
            "GHSA-jxhv",
            || passed(LATIN1, UTF8, "16", "7", ""),
            Expected::Harmless,
        ),
        Entry::new(
            "composed-utf8-invalid",
            "GHSA-jxhv",
            || passed(UTF8, UTF16, "8192", "4", ""),
            trap("utf"),
        ),
        Entry::new(
            "composed-utf16-surrogates",
            "GHSA-jxhv",
            || passed(UTF16, UTF8, "8194", "1", ""),
            Expected::Contained,
        ),
        Entry::new(
            "composed-odd-place",
            "GHSA-394w",
            || passed(UTF16, UTF8, "17", "3", ""),
            trap("align"),
        ),
        Entry::new(
            "composed-outside-memory",
            "GHSA-hx6p",
            || passed(UTF8, LATIN1, "65530", "7", ""),
            trap("out-of-bounds"),
        ),
        Entry::new(
            "composed-of-4-gib",
            "GHSA-hx6p",
            || passed(LATIN1, UTF16, "0", "0x7fffffff", ""),
            trap("out-of-bounds"),
        ),
        Entry::new(
            "composed-length-wraps",
            "GHSA-hx6p",
            || passed(UTF16, UTF16, "0", "0x80000004", ""),
            trap(""),
        ),
        Entry::new(
            "composed-realloc-outside",
            "GHSA-394w",
            || passed(UTF8, UTF16, "16", "7", "(return (i32.const -2))"),
            trap("out-of-bounds"),
        ),
        Entry::new(
            "composed-realloc-at-the-end",
            "GHSA-394w",
            || passed(LATIN1, UTF8, "16", "7", "(return (i32.const 65535))"),
            trap("out-of-bounds"),
        ),
        Entry::new(
            "composed-realloc-odd",
            "GHSA-394w",
            || passed(UTF8, UTF16, "16", "7", "(return (i32.const 2049))"),
            trap("align"),
        ),
        Entry::new(
            "composed-realloc-loops",
            "D2",
            || passed(UTF8, UTF16, "16", "7", "(loop br 0)"),
            fails(Call::Process, "deadline", "process"),
        ),
    ]
}

fn with_encoding(encoding: &str) -> Vec<Vec<u8>> {
    vec![contract::with(&[(place::OPTIONS, encoding)])]
}

/// A plugin that reports the text at this place as its error, after `prepare`.
fn error(encoding: &str, prepare: &str, at: &str, length: &str) -> Vec<Vec<u8>> {
    let process = format!(
        "{prepare} (i32.store8 (i32.const 1024) (i32.const 1)) (i32.store8 (i32.const 1032) \
            (i32.const 2))
         (i32.store (i32.const 1036) (i32.const {at})) (i32.store (i32.const 1040) (i32.const {length}))"
    );
    vec![contract::with(&[
        (place::OPTIONS, encoding),
        (place::PROCESS, &process),
    ])]
}

/// A plugin that passes the text at this place to another component. From 8192 on there are half
/// surrogates, which are no UTF-8 either.
fn passed(from: &str, to: &str, at: &str, length: &str, realloc: &str) -> Vec<Vec<u8>> {
    let callee = format!(
        r#"(core module $m
          (memory (export "memory") 1)
          (func (export "realloc") (param i32 i32 i32 i32) (result i32) {realloc} (i32.const 1024))
          (func (export "take") (param i32 i32)))
        (core instance $i (instantiate $m))
        (func (export "take") (param "text" string) (canon lift (core func $i "take")
          (memory (core memory $i "memory")) (realloc (core func $i "realloc")) {to}))"#
    );
    let lowered = format!(
        r#"(import "take" (func $take (param "text" string)))
        (core func $take (canon lower (func $take) (memory $memory) (realloc (core func $realloc)) {from}))
        (core instance $host (export "take" (func $take)))"#
    );
    let process = format!(
        "(memory.fill (i32.const 8192) (i32.const 0xd8) (i32.const 64)) (call $take (i32.const \
            {at}) (i32.const {length}))"
    );
    vec![contract::composed(
        &callee,
        &[
            (place::LOWERED, &lowered),
            (
                place::IMPORTS,
                r#"(import "host" "take" (func $take (param i32 i32)))"#,
            ),
            (place::WITH, r#"(with "host" (instance $host))"#),
            (place::PROCESS, &process),
        ],
    )]
}
