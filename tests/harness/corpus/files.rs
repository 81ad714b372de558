//! Files that are no components at all, or were once.

use super::super::guests::guest;
use super::contract;
use super::{Entry, Expected, refused};

const COPY_AGAIN: &str = "copy it again";
const GIVE_A_COMPONENT: &str = "give a WebAssembly component";
const BUILD_AGAIN: &str = "build it again, or copy it again";

/// The eight bytes that a component begins with.
const HEADER: &[u8] = b"\0asm\x0d\0\x01\0";

pub(super) fn entries() -> Vec<Entry> {
    let mut entries = foreign();
    entries.extend(broken());
    entries
}

#[expect(clippy::too_many_lines, reason = "a list of files")]
fn foreign() -> Vec<Entry> {
    let not_wasm = refused("not WebAssembly", GIVE_A_COMPONENT);
    let component = |says| refused(says, "build it as a component");
    vec![
        Entry::new(
            "file-empty",
            "D5",
            || vec![Vec::new()],
            refused("it is empty", COPY_AGAIN),
        ),
        Entry::new("file-random", "D5", random, Expected::Contained),
        Entry::new("file-zeros", "D5", || vec![vec![0; 1 << 20]], not_wasm),
        Entry::new("file-text", "D5", || one(b"hello, world\n"), not_wasm),
        Entry::new(
            "file-html",
            "D5",
            || one(b"<!DOCTYPE html><title>404 Not Found</title>"),
            not_wasm,
        ),
        Entry::new(
            "file-json",
            "D5",
            || one(br#"{"message":"Not Found"}"#),
            not_wasm,
        ),
        Entry::new(
            "file-script",
            "D5",
            || one(b"#!/bin/sh\nrm -rf /\n"),
            not_wasm,
        ),
        Entry::new(
            "file-wat",
            "D6",
            || vec![contract::text(&[]).into_bytes()],
            refused("text", "wasm-tools parse"),
        ),
        Entry::new(
            "file-elf",
            "D6",
            || one(b"\x7fELF\x02\x01\x01\0\0\0\0\0"),
            refused("native", "wasm32-wasip2"),
        ),
        // Real native code of the same engine is refused in
        // `native_code_compiled_by_the_same_engine_is_never_run`.
        Entry::new(
            "file-native-code",
            "D6",
            || one(b"\x7fELF\x02\x01\x01\0..wasmtime.engine\0"),
            refused(
                "native code precompiled by wasmtime",
                "give the component it was compiled from",
            ),
        ),
        Entry::new(
            "file-macho",
            "D6",
            || one(b"\xcf\xfa\xed\xfe\x07\0\0\x01\x03\0\0\0"),
            not_wasm,
        ),
        Entry::new(
            "file-pe",
            "D6",
            || one(b"MZ\x90\0\x03\0\0\0\x04\0\0\0\xff\xff\0\0"),
            not_wasm,
        ),
        Entry::new(
            "file-gzip",
            "D6",
            || one(b"\x1f\x8b\x08\0\0\0\0\0\0\x03"),
            refused("gzip", "unpack it first"),
        ),
        Entry::new(
            "file-zip",
            "D6",
            || one(b"PK\x03\x04\x14\0\0\0\x08\0"),
            not_wasm,
        ),
        Entry::new(
            "file-lfs",
            "D6",
            || one(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
            refused("Git LFS pointer", "git lfs pull"),
        ),
        Entry::new(
            "file-core-module",
            "D6",
            || one(b"\0asm\x01\0\0\0"),
            component("core WebAssembly module"),
        ),
        Entry::new(
            "file-contract-as-module",
            "D6",
            contract_as_module,
            component("core WebAssembly module"),
        ),
        Entry::new(
            "file-wasip1",
            "D6",
            wasip1,
            refused("WASI preview 1", "wasm32-wasip2"),
        ),
        Entry::new(
            "file-other-layer",
            "D6",
            || one(b"\0asm\x77\0\x07\0"),
            refused("unknown version", GIVE_A_COMPONENT),
        ),
        Entry::new(
            "file-later-version",
            "D6",
            later_version,
            refused("unknown version", GIVE_A_COMPONENT),
        ),
    ]
}

fn broken() -> Vec<Entry> {
    let incomplete = refused("the beginning of a WebAssembly file", COPY_AGAIN);
    let cut = refused("in the middle of a section", COPY_AGAIN);
    vec![
        Entry::new("file-magic-only", "D5", || one(b"\0asm"), incomplete),
        Entry::new("file-half-a-header", "D5", || one(&HEADER[..6]), incomplete),
        Entry::new(
            "file-header-only",
            "D5",
            || one(HEADER),
            refused("does not export", "build it against the world"),
        ),
        Entry::new("file-cut-short", "D5", cut_short, Expected::Contained),
        Entry::new(
            "file-cut-in-code",
            "D5",
            || vec![guest("noop")[..30_000].to_vec()],
            cut,
        ),
        Entry::new(
            "file-cut-by-a-byte",
            "D5",
            || vec![without_last(contract::with(&[]))],
            cut,
        ),
        Entry::new(
            "file-section-of-4-gib",
            "D5",
            section_of_4_gib,
            refused("too large", BUILD_AGAIN),
        ),
        Entry::new(
            "file-endless-length",
            "D5",
            endless_length,
            refused("not a valid component", BUILD_AGAIN),
        ),
        Entry::new(
            "file-section-unknown",
            "D5",
            section_unknown,
            refused("not a valid component", BUILD_AGAIN),
        ),
        Entry::new(
            "file-shifted",
            "D5",
            || vec![[&[0], &contract::with(&[])[..]].concat()],
            refused("not WebAssembly", GIVE_A_COMPONENT),
        ),
        Entry::new(
            "file-twice",
            "D5",
            || vec![contract::with(&[]).repeat(2)],
            refused("not a valid", BUILD_AGAIN),
        ),
        Entry::new(
            "file-garbage-behind",
            "D5",
            garbage_behind,
            refused("not a valid component", BUILD_AGAIN),
        ),
        Entry::new("file-zeros-behind", "D5", zeros_behind, cut),
        Entry::new("file-bits-flipped", "D5", bits_flipped, Expected::Contained),
        Entry::new(
            "file-bits-flipped-in-rust",
            "D5",
            bits_flipped_in_rust,
            Expected::Contained,
        ),
        Entry::new("file-bytes-lost", "D5", bytes_lost, Expected::Contained),
        Entry::new(
            "file-oversize",
            "D12",
            oversize,
            Expected::RefusedByHost("bytes, more than the 33554432 allowed"),
        ),
    ]
}

fn one(bytes: &[u8]) -> Vec<Vec<u8>> {
    vec![bytes.to_vec()]
}

fn random() -> Vec<Vec<u8>> {
    let mut random = Random(1);
    (1..=64)
        .map(|length| (0..length).map(|_| random.byte()).collect())
        .collect()
}

/// A core module with exports of the right names.
fn contract_as_module() -> Vec<Vec<u8>> {
    let export = r#"(func (export "shardmill:processor/processor@0.1.0#process") (param i32 i32 i32 i64) (result i32) unreachable)"#;
    vec![contract::assembled(&format!("(module {export})"))]
}

fn wasip1() -> Vec<Vec<u8>> {
    vec![contract::assembled(
        r#"(module (import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32))))"#,
    )]
}

fn later_version() -> Vec<Vec<u8>> {
    let mut bytes = contract::with(&[]);
    bytes[4] = 0x0e;
    vec![bytes]
}

/// Real components, cut off at places all over them.
fn cut_short() -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    for component in [contract::with(&[]), guest("noop"), guest("echo")] {
        let step = component.len() / 20;
        files.extend((1..20).map(|place| component[..place * step].to_vec()));
    }
    files
}

fn without_last(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.pop();
    bytes
}

fn section_of_4_gib() -> Vec<Vec<u8>> {
    vec![
        [
            HEADER,
            &[1, 0xff, 0xff, 0xff, 0xff, 0x0f],
            b"\0asm\x01\0\0\0",
        ]
        .concat(),
    ]
}

/// A length in more bytes than any number has.
fn endless_length() -> Vec<Vec<u8>> {
    vec![[HEADER, &[1], &[0x80; 64]].concat()]
}

fn section_unknown() -> Vec<Vec<u8>> {
    vec![[&contract::with(&[])[..], &[0x3f, 1, 0]].concat()]
}

fn garbage_behind() -> Vec<Vec<u8>> {
    let mut random = Random(2);
    let garbage: Vec<u8> = (0..4_096).map(|_| random.byte() | 0x80).collect();
    vec![[contract::with(&[]), garbage].concat()]
}

fn zeros_behind() -> Vec<Vec<u8>> {
    vec![[&contract::with(&[])[..], &[0; 4_096]].concat()]
}

/// One bit of a small component is another, again and again: in so small a one, most bits matter.
fn bits_flipped() -> Vec<Vec<u8>> {
    flips(&contract::with(&[]), 3, 300)
}

fn bits_flipped_in_rust() -> Vec<Vec<u8>> {
    flips(&guest("echo"), 4, 60)
}

fn flips(component: &[u8], seed: u64, count: usize) -> Vec<Vec<u8>> {
    let mut random = Random(seed);
    let flip = |_| {
        let mut bytes = component.to_vec();
        let place = random.below(bytes.len());
        bytes[place] ^= 1 << random.below(8);
        bytes
    };
    (0..count).map(flip).collect()
}

/// A stretch of bytes is missing in the middle, as after a torn copy.
fn bytes_lost() -> Vec<Vec<u8>> {
    let (component, mut random) = (contract::with(&[]), Random(5));
    let lose = |_| {
        let from = random.below(component.len() - 64);
        let bytes = 1 + random.below(64);
        [&component[..from], &component[from + bytes..]].concat()
    };
    (0..100).map(lose).collect()
}

/// A good plugin with a section of 33 MiB that nobody reads.
fn oversize() -> Vec<Vec<u8>> {
    let content = 33 << 20;
    let mut bytes = contract::with(&[]);
    bytes.push(0);
    push_length(&mut bytes, content + 1);
    bytes.extend(std::iter::repeat_n(0, content + 1));
    vec![bytes]
}

/// Appends a length as WebAssembly writes it.
pub(super) fn push_length(bytes: &mut Vec<u8>, mut length: usize) {
    loop {
        let low = u8::try_from(length & 0x7f).unwrap_or_default();
        length >>= 7;
        if length == 0 {
            return bytes.push(low);
        }
        bytes.push(low | 0x80);
    }
}

/// The same numbers in every run (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(0x1234_5678_9abc_def1);
        self.0 ^= self.0 >> 29;
        self.0
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[3]
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() >> 16).unwrap_or_default() % limit
    }
}
