//! Components written by hand, for what no compiler makes: bombs, and types that are nearly right.

use std::fmt::Write;

/// A component that fits the contract, with these fields in its module.
///
/// # Panics
///
/// If the fields are no WebAssembly text.
pub fn starting_with(fields: &str) -> Vec<u8> {
    wat::parse_str(CONTRACT_IN_TEXT.replace("(;start;)", fields)).expect("WebAssembly text")
}

/// A component that fits the contract and is within every limit on sizes and counts, whose one large function keeps 1,000
/// values alive through `blocks` blocks: what the compiler has to keep grows with the product. With 20,000 blocks it has
/// half a mebibyte, and asks for gibibytes.
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
    starting_with(&function)
}

/// A component that fits the contract, with so many empty functions.
pub fn many_functions(count: usize) -> Vec<u8> {
    starting_with(&"(func nop)".repeat(count))
}

/// The contract's export, by hand: what the host compares types with. Its functions are never reached.
pub const CONTRACT_IN_TEXT: &str = r#"
(component
  (core module $m
    (memory (export "memory") 1)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) unreachable)
    (func (export "init") (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i64) (result i32) unreachable)
    (func (export "process") (param i32 i32 i32 i64) (result i32) unreachable)
    (func (export "close") (param i32 i32 i32) (result i32) unreachable)
    (;start;)
  )
  (core instance $i (instantiate $m))
  (type $types (instance
    (type $context' (record (field "plugin" string) (field "application" string) (field "stream" string)
      (field "shard" string) (field "worker" string) (field "grant-epoch" u64)))
    (export "context" (type $context (eq $context')))
    (type $record' (record (field "data" (list u8)) (field "partition-key" string)
      (field "explicit-hash-key" (option string)) (field "sequence-number" string)
      (field "sub-sequence-number" u64) (field "arrival-ms" u64)))
    (export "record" (type $record (eq $record')))
    (type $batch' (record (field "records" (list $record)) (field "attempt" u32) (field "millis-behind-latest" u64)))
    (export "batch" (type $batch (eq $batch')))
    (type $failure-kind' (enum "retry" "reject"))
    (export "failure-kind" (type $failure-kind (eq $failure-kind')))
    (type $failure' (record (field "index" u32) (field "kind" $failure-kind) (field "message" string)))
    (export "failure" (type $failure (eq $failure')))
    (type $commit' (variant (case "all") (case "nothing") (case "through" u32)))
    (export "commit" (type $commit (eq $commit')))
    (type $outcome' (record (field "failures" (list $failure)) (field "commit" $commit)
      (field "retry-after-ms" (option u64))))
    (export "outcome" (type $outcome (eq $outcome')))
    (type $error' (variant (case "misconfigured" string) (case "unavailable" string) (case "other" string)))
    (export "error" (type $error (eq $error')))
    (type $close-reason' (variant (case "lease-lost") (case "shard-ended") (case "shutdown") (case "reload")
      (case "other" string)))
    (export "close-reason" (type $close-reason (eq $close-reason')))
  ))
  (import "shardmill:processor/types@0.1.0" (instance $t (type $types)))
  (alias export $t "context" (type $context))
  (alias export $t "batch" (type $batch))
  (alias export $t "outcome" (type $outcome))
  (alias export $t "error" (type $error))
  (alias export $t "close-reason" (type $close-reason))
  (func $init (param "context" $context) (result (result (error $error)))
    (canon lift (core func $i "init") (memory (core memory $i "memory")) (realloc (core func $i "realloc"))))
  (func $process (param "batch" $batch) (result (result $outcome (error $error)))
    (canon lift (core func $i "process") (memory (core memory $i "memory")) (realloc (core func $i "realloc"))))
  (func $close (param "reason" $close-reason) (result (result (error $error)))
    (canon lift (core func $i "close") (memory (core memory $i "memory")) (realloc (core func $i "realloc"))))
  (instance $p (export "init" (func $init)) (export "process" (func $process)) (export "close" (func $close)))
  (export "shardmill:processor/processor@0.1.0" (instance $p))
)
"#;
