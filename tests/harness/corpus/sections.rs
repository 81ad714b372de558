//! What lies in a file beside its code, and what there may be many of: sections that nobody needs,
//! and counts at their limits in each of many instances. Each file is a separate attack.

use super::contract::{self, place};
use super::{Entry, Expected};

/// Sections that some tool reads, and one that none does.
const KNOWN: [&str; 8] = [
    "name",
    "component-name",
    "producers",
    "target_features",
    "linking",
    ".debug_info",
    "sourceMappingURL",
    "\\1b]0;owned\\07\\0a",
];

pub(super) fn entries() -> Vec<Entry> {
    let contained = |name, files| Entry::new(name, "D12", files, Expected::Contained);
    vec![
        contained("section-empty", || in_module("")),
        contained("section-of-one-byte", || in_module("\\ff")),
        contained("section-counts-4-gi", || {
            in_module("\\01\\ff\\ff\\ff\\ff\\0f\\00\\01\\61")
        }),
        contained("section-says-more-than-it-has", || {
            in_module("\\01\\7f\\01\\00\\7f\\61\\61")
        }),
        contained("section-not-utf8", || {
            in_module("\\01\\05\\01\\00\\02\\ff\\fe\\02\\05\\01\\00\\02\\ff\\fe")
        }),
        contained("section-steers-terminals", || {
            in_module("\\00\\0a\\09\\1b]0;own\\07\\0a")
        }),
        contained("section-of-1-mib", || in_module(&"\\01".repeat(1 << 20))),
        contained("section-behind-the-component", behind),
        contained("many-of-each", many),
        contained("many-in-each-instance", many_instances),
        contained("deep", deep),
    ]
}

fn in_module(bytes: &str) -> Vec<Vec<u8>> {
    let section = |name: &str| {
        contract::with(&[(place::FIELDS, &format!(r#"(@custom "{name}" "{bytes}")"#))])
    };
    KNOWN.into_iter().map(section).collect()
}

/// Custom sections at the end of the component itself, some of them not what they say.
fn behind() -> Vec<Vec<u8>> {
    let whole = contract::with(&[]);
    let name = b"component-name".as_slice();
    let with = |tail: &[u8]| [&whole, tail].concat();
    let section = |length: &[u8], body: &[u8]| [&[0], length, &[14], name, body].concat();
    vec![
        with(&section(&[15], &[])),
        with(&section(&[17], &[0, 0xff])),
        with(&section(&[20], &[1, 0xff, 0xff, 0xff, 0xff])),
        with(&section(&[0xff, 0xff, 0xff, 0xff, 0x0f], &[])),
        with(&section(&[15], &[]).repeat(20_000)),
        with(&[0, 1, 0]),
        with(&[0, 0]),
        with(&[0, 2, 1, 0xff]),
    ]
}

/// As many as a limit of the format allows, or some more.
fn many() -> Vec<Vec<u8>> {
    let field =
        |field: &str, count: usize| contract::with(&[(place::FIELDS, &field.repeat(count))]);
    vec![
        field("(type (func))", 100_000),
        field("(func)", 20_000),
        field("(table 1 funcref)", 30),
        field("(data \"\")", 90_000),
        field("(elem func)", 90_000),
        contract::with(&[(
            place::FIELDS,
            &format!("(func {})", "(local i64)".repeat(49_000)),
        )]),
        contract::with(&[(
            place::FIELDS,
            &format!("(func (param {}))", "i64 ".repeat(1_000)),
        )]),
        contract::with(&[(place::FIELDS, &exports(50_000))]),
    ]
}

/// The same, somewhat fewer, in each of many core instances.
fn many_instances() -> Vec<Vec<u8>> {
    let heavy = |fields: &str, times: usize| {
        let module = format!("(core module $heavy {fields})");
        let instances = "(core instance (instantiate $heavy))".repeat(times);
        contract::with(&[(place::OUTSIDE, &(module + &instances))])
    };
    vec![
        heavy("(memory 0)", 40),
        heavy("(memory 0 65536)", 40),
        heavy("(table 1500 funcref)", 60),
        heavy("(table 0 0xffffffff funcref)", 60),
        heavy(&"(data \"x\")".repeat(2_000), 60),
        heavy(
            &format!("(func $f) {}", "(elem func $f $f $f)".repeat(1_000)),
            60,
        ),
        heavy(&exports(1_000), 60),
        heavy("(func $f (local i64) (call $g)) (func $g) (start $f)", 60),
    ]
}

fn exports(count: usize) -> String {
    let export = |number: usize| format!(r#"(export "{number}" (func $many))"#);
    let exports: Vec<String> = (0..count).map(export).collect();
    format!("(func $many) {}", exports.concat())
}

/// Things in things.
fn deep() -> Vec<Vec<u8>> {
    let nested = |open: &str, close: &str, times: usize| {
        contract::with(&[(
            place::FIELDS,
            &format!("(func {}{})", open.repeat(times), close.repeat(times)),
        )])
    };
    let outside = |text: &str| contract::with(&[(place::OUTSIDE, text)]);
    vec![
        nested("block ", "end ", 10_000),
        nested("loop ", "end ", 10_000),
        nested("i32.const 1 if ", "end ", 10_000),
        nested("i32.const 1 i32.eqz drop ", "", 100_000),
        outside(&format!("{}{}", "(component ".repeat(20), ")".repeat(20))),
        outside(&format!("{}{}", "(component ".repeat(40), ")".repeat(40))),
        outside(&types(90)),
        outside(&types(500)),
    ]
}

/// A type of lists of lists.
fn types(times: usize) -> String {
    let level = |number: usize| format!("(type $l{number} (list $l{}))", number - 1);
    let levels: Vec<String> = (1..=times).map(level).collect();
    format!("(type $l0 (list u8)) {}", levels.concat())
}
