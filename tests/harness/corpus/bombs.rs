//! Components that cost more to compile than their size tells.

use std::fmt::Write;

use super::contract::{self, place};

/// A component that fits the contract and is within every limit on sizes and counts, whose one
/// large function keeps 1,000 values alive through `blocks` blocks: what the compiler has to keep
/// grows with the product. With 20,000 blocks it has half a mebibyte, and asks for gibibytes.
///
/// # Panics
///
/// Never: what is written is WebAssembly text.
pub fn compile_bomb(blocks: usize) -> Vec<u8> {
    const VALUES: usize = 1_000;
    let mut function = format!("(func (local {})", "i64 ".repeat(VALUES));
    for block in 0..blocks {
        let [a, b, c, d] = [1, 7, 3, 11].map(|step| (block * step + step / 7) % VALUES);
        let text = write!(
            function,
            "(local.set {a} (i64.add (local.get {a}) (local.get {b})))
             (block (br_if 0 (i32.wrap_i64 (local.get {c}))) (local.set {d} (i64.const 5)))"
        );
        text.expect("text has room");
    }
    function.push(')');
    contract::with(&[(place::FIELDS, &function)])
}

/// A component that fits the contract, with so many empty functions.
pub fn many_functions(count: usize) -> Vec<u8> {
    contract::with(&[(place::FIELDS, &"(func nop)".repeat(count))])
}
