//! Names in a plugin's own name section, which whoever explains a trap reads: names that a compiler
//! packed, and that unpack to more than there are atoms; long ones, ones that steer terminals, and
//! ones that say what the engine says.

use super::contract::{self, place};
use super::{Call, Entry, Expected, fails};

/// How often the packed name doubles: 2^40 words, were it unpacked.
const DOUBLINGS: usize = 40;

pub(super) fn entries() -> Vec<Entry> {
    let trapped =
        |name, files, says| Entry::new(name, "D25", files, fails(Call::Process, "trapped", says));
    let mut entries = vec![
        trapped(
            "name-doubles",
            || trapping(place::PROCESS, &doubling(DOUBLINGS)),
            "_Z1f1AIiiES_IS0_S0_E",
        ),
        trapped(
            "name-widens",
            || trapping(place::PROCESS, &widening()),
            "_Z1f",
        ),
        trapped(
            "name-of-rust",
            || trapping(place::PROCESS, "_RNvC6_123foo3bar"),
            "_RNvC6_123foo3bar",
        ),
        trapped(
            "name-of-100-kb",
            || trapping(place::PROCESS, &"n".repeat(90_000)),
            "nnn",
        ),
        trapped(
            "name-begins-lines",
            || trapping(place::PROCESS, FORGED),
            "]0;owned",
        ),
        trapped(
            "name-says-limit",
            || trapping(place::PROCESS, "instance count too high"),
            "unreachable",
        ),
        trapped(
            "name-says-frames",
            || trapping(place::PROCESS, FRAMES),
            "unreachable",
        ),
        trapped("names-in-all-frames", all_frames, "unreachable"),
    ];
    for (name, call, at) in [
        ("name-doubles-in-init", Call::Init, place::INIT),
        ("name-doubles-in-close", Call::Close, place::CLOSE),
        ("name-doubles-in-realloc", Call::Init, place::REALLOC),
        ("name-doubles-after-a-result", Call::Init, place::POST),
    ] {
        let files: fn() -> Vec<Vec<u8>> = match at {
            place::INIT => || trapping(place::INIT, &doubling(DOUBLINGS)),
            place::CLOSE => || trapping(place::CLOSE, &doubling(DOUBLINGS)),
            place::REALLOC => || trapping_library(place::REALLOC),
            _ => || trapping(place::POST, &doubling(DOUBLINGS)),
        };
        entries.push(Entry::new(
            name,
            "D25",
            files,
            fails(call, "trapped", "_Z1f"),
        ));
    }
    entries.push(Entry::new(
        "name-section-broken",
        "D25",
        broken_sections,
        Expected::Harmless,
    ));
    entries
}

const FORGED: &str =
    "\\1b]0;owned\\07\\1b[2J\\n2026-11-22T00:00:00Z  INFO all is well plugin=victim";
const FRAMES: &str = "error while executing at wasm backtrace";

/// A function of that name, which traps, called at a place of the main module.
fn trapping(at: &str, name: &str) -> Vec<Vec<u8>> {
    let function = format!(r#"(func $"{name}" unreachable)"#);
    vec![contract::with(&[
        (place::FIELDS, &function),
        (at, &format!(r#"(call $"{name}")"#)),
    ])]
}

/// The same in the other module.
fn trapping_library(at: &str) -> Vec<Vec<u8>> {
    let name = doubling(DOUBLINGS);
    let export = r#"(func (export "reset")"#;
    let function = format!(r#"(func $"{name}" unreachable) {export}"#);
    vec![contract::with(&[
        (export, &function),
        (at, &format!(r#"(call $"{name}")"#)),
    ])]
}

/// As C++ compilers pack names: `f` of `A<int, int>`, of `A` of two of these, of `A` of two of
/// those, and so on.
fn doubling(times: usize) -> String {
    let level = |number: usize| {
        let one = format!("S{}_", in_base_36(number));
        format!("S_I{one}{one}E")
    };
    let levels: Vec<String> = (0..times).map(level).collect();
    format!("_Z1f1AIiiE{}", levels.concat())
}

/// One long word, and a tower in which each level names the one before ten times.
fn widening() -> String {
    let level = |number: usize| format!("S_I{}E", format!("S{}_", in_base_36(number)).repeat(10));
    let levels: Vec<String> = (1..=10).map(level).collect();
    format!(
        "_Z1f1AI{}{}E{}",
        60_000,
        "w".repeat(60_000),
        levels.concat()
    )
}

fn in_base_36(number: usize) -> String {
    const DIGITS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let last = char::from(DIGITS[number % 36]);
    match number / 36 {
        0 => last.to_string(),
        rest => format!("{}{last}", in_base_36(rest)),
    }
}

/// As many functions as there are frames, each of a long name, each called by the next.
fn all_frames() -> Vec<Vec<u8>> {
    let name = |number: usize| format!("n{number}-{}", "m".repeat(90_000));
    let frame = |number: usize| {
        format!(
            r#"(func $"{}" (call $"{}"))"#,
            name(number),
            name(number - 1)
        )
    };
    let frames: Vec<String> = (1..20).map(frame).collect();
    let functions = format!(r#"(func $"{}" unreachable) {}"#, name(0), frames.concat());
    vec![contract::with(&[
        (place::FIELDS, &functions),
        (place::PROCESS, &format!(r#"(call $"{}")"#, name(19))),
    ])]
}

/// Name sections that end early, count more than they have, or are of no kind: nobody needs them,
/// so nobody minds.
fn broken_sections() -> Vec<Vec<u8>> {
    let broken = [
        r"\01\ff\ff\ff\ff\0f",
        r"\01\05\ff\ff\ff\ff\0f",
        r"\01\03\01\00\7f",
        r"\63\01\00",
        r"\00\80\80\80\80\80\80",
    ];
    let section =
        |bytes: &str| contract::with(&[(place::FIELDS, &format!(r#"(@custom "name" "{bytes}")"#))]);
    broken.into_iter().map(section).collect()
}
