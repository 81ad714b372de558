//! Components that use what toolchains do not need and plugins do not get: less code that untrusted
//! bytes can reach.

use super::contract::{self, place};
use super::{Entry, Expected, refused};

#[expect(clippy::too_many_lines, reason = "a list of files")]
pub(super) fn entries() -> Vec<Entry> {
    let off = |says| refused(says, "build it without");
    let asynchronous = refused("async", "build it with synchronous exports");
    vec![
        Entry::new(
            "proposal-memory64",
            "GHSA-p8xm",
            || fields("(memory i64 1)"),
            off("memory64"),
        ),
        Entry::new(
            "proposal-threads",
            "CVE-2025-64345",
            || fields("(memory 1 1 shared)"),
            off("threads"),
        ),
        Entry::new(
            "proposal-atomics",
            "CVE-2025-64345",
            || function("(drop (i32.atomic.load (i32.const 0)))"),
            off("threads"),
        ),
        Entry::new(
            "proposal-gc",
            "§4.3 GC",
            || fields("(type (struct (field i32)))"),
            off("gc"),
        ),
        Entry::new(
            "proposal-i31",
            "§4.3 GC",
            || function("(drop (ref.i31 (i32.const 1)))"),
            off("gc"),
        ),
        Entry::new(
            "proposal-exceptions",
            "§4.3 exceptions",
            || fields("(tag (param i32))"),
            off("exceptions"),
        ),
        Entry::new(
            "proposal-function-references",
            "§4.3 GC",
            || fields("(type $f (func)) (func (param (ref $f)))"),
            off("function references"),
        ),
        Entry::new(
            "proposal-page-sizes",
            "§4.3",
            || fields("(memory 1 (pagesize 1))"),
            off("custom page sizes"),
        ),
        Entry::new(
            "proposal-stack-switching",
            "§4.3",
            || fields("(type $f (func)) (type (cont $f))"),
            off(""),
        ),
        Entry::new(
            "proposal-relaxed-simd",
            "§4.3",
            relaxed_simd,
            off("relaxed"),
        ),
        Entry::new(
            "proposal-wide-arithmetic",
            "§4.3",
            wide_arithmetic,
            off("wide arithmetic"),
        ),
        Entry::new(
            "proposal-async-export",
            "CVE-2026-115384",
            async_export,
            asynchronous,
        ),
        Entry::new(
            "proposal-async-type",
            "GHSA-x84v",
            || outside("(type (stream u8))"),
            asynchronous,
        ),
        Entry::new(
            "proposal-future",
            "GHSA-x84v",
            || outside("(type (future u8))"),
            asynchronous,
        ),
        Entry::new(
            "proposal-task-return",
            "CVE-2026-115384",
            || outside("(core func (canon task.return))"),
            asynchronous,
        ),
        Entry::new(
            "proposal-error-context",
            "GHSA-x84v",
            || outside("(type error-context)"),
            off("error-context"),
        ),
        Entry::new(
            "proposal-component-value",
            "§4.3",
            || outside(r#"(import "v" (value string))"#),
            Expected::Contained,
        ),
        // Needed by some toolchains, so they must work.
        Entry::new(
            "proposal-tail-calls",
            "CVE-2024-47763",
            tail_calls,
            Expected::Harmless,
        ),
        Entry::new(
            "proposal-multi-memory",
            "§4.3 linear memory",
            || fields("(memory 1) (memory 1)"),
            Expected::Harmless,
        ),
        Entry::new("proposal-simd", "GHSA-vc8c", simd, Expected::Harmless),
    ]
}

fn fields(fields: &str) -> Vec<Vec<u8>> {
    vec![contract::with(&[(place::FIELDS, fields)])]
}

fn function(body: &str) -> Vec<Vec<u8>> {
    fields(&format!("(func {body})"))
}

fn outside(items: &str) -> Vec<Vec<u8>> {
    vec![contract::with(&[(place::OUTSIDE, items)])]
}

fn relaxed_simd() -> Vec<Vec<u8>> {
    function("(drop (i32x4.relaxed_trunc_f32x4_s (v128.const i32x4 0 0 0 0)))")
}

fn wide_arithmetic() -> Vec<Vec<u8>> {
    function("(i64.add128 (i64.const 1) (i64.const 1) (i64.const 1) (i64.const 1)) drop drop")
}

fn async_export() -> Vec<Vec<u8>> {
    let (sync, asynchronous) = ("(func $close (param", "(func $close async (param");
    vec![contract::with(&[(sync, asynchronous)])]
}

/// A million calls that leave no frame.
fn tail_calls() -> Vec<Vec<u8>> {
    let fields = "(func $down (param i32)
      (if (local.get 0) (then (return_call $down (i32.sub (local.get 0) (i32.const 1))))))";
    vec![contract::with(&[
        (place::FIELDS, fields),
        (place::PROCESS, "(call $down (i32.const 1000000))"),
    ])]
}

/// Loads of floating point at the very end of memory, whose parts past the end must never be read.
fn simd() -> Vec<Vec<u8>> {
    let process = "(i32.store (i32.const 2048) (i32.trunc_sat_f64_s (f64.copysign
        (f64.load (i32.const 65528)) (f64.load (i32.const 65520)))))
      (v128.store (i32.const 2064) (f64x2.splat (f64.load (i32.const 65528))))
      (v128.store (i32.const 2064) (f64x2.replace_lane 1 (v128.load (i32.const 65520)) (f64.load \
      (i32.const 65528))))
      (f64.store (i32.const 2064) (f64.nearest (f64.floor (f64.ceil (f64.trunc (f64.load \
      (i32.const 65528)))))))";
    vec![contract::with(&[(place::PROCESS, process)])]
}
