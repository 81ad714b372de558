//! A processor by hand, with places where a hostile one differs. As it stands it accepts every
//! batch.

/// Where text is put: comments of the text format, which mean nothing if they stay.
pub mod place {
    /// In the outer component, before its modules.
    pub const OUTSIDE: &str = "(;outside;)";
    /// At the start of the module with the memory; imports.
    pub const LIBRARY: &str = "(;library;)";
    /// At the start of `realloc`.
    pub const REALLOC: &str = "(;realloc;)";
    /// Between the two modules, for lowered imports.
    pub const LOWERED: &str = "(;lowered;)";
    /// Imports of the main module.
    pub const IMPORTS: &str = "(;imports;)";
    /// Arguments of the main module's instantiation.
    pub const WITH: &str = "(;with;)";
    /// At the start of `init`.
    pub const INIT: &str = "(;init;)";
    /// At the start of `process`; its locals `$n` and `$m` are i32.
    pub const PROCESS: &str = "(;process;)";
    /// At the start of `close`.
    pub const CLOSE: &str = "(;close;)";
    /// At the start of what is called after each result was read.
    pub const POST: &str = "(;post;)";
    /// Fields of the main module.
    pub const FIELDS: &str = "(;fields;)";
    /// Options of the lifted exports.
    pub const OPTIONS: &str = "(;options;)";
    /// At the end of the outer component; more exports.
    pub const EXPORTS: &str = "(;exports;)";
}

/// The contract's text with these changes, assembled.
///
/// # Panics
///
/// If a place is not there, or the text makes no binary.
pub fn with(changes: &[(&str, &str)]) -> Vec<u8> {
    assembled(&changed(COMPONENT, changes))
}

/// The binary of a text.
///
/// # Panics
///
/// If the text makes none.
pub fn assembled(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap_or_else(|error| panic!("{error}"))
}

/// The contract's text, with these changes. A place may be any part of the text.
///
/// # Panics
///
/// If a place is not there.
pub fn text(changes: &[(&str, &str)]) -> String {
    changed(COMPONENT, changes)
}

/// A component that hands its plugin, nested in it, a function `take` of another nested component.
/// Strings between the two are transcoded by code that wasmtime generates.
pub fn composed(callee: &str, changes: &[(&str, &str)]) -> Vec<u8> {
    let inner = changed(COMPONENT, changes).replacen("(component", "(component $plugin", 1);
    let text = format!(
        r#"(component {TYPES}
          (component $callee {callee})
          (instance $callee (instantiate $callee))
          {inner}
          (instance $p (instantiate $plugin (with "shardmill:processor/types@0.1.0" (instance $t))
            (with "take" (func $callee "take"))))
          (alias export $p "shardmill:processor/processor@0.1.0" (instance $processor))
          (export "shardmill:processor/processor@0.1.0" (instance $processor)))"#
    );
    assembled(&text)
}

fn changed(text: &str, changes: &[(&str, &str)]) -> String {
    let mut text = text.replace("(;types;)", TYPES);
    for (place, change) in changes {
        assert!(text.contains(place), "there is no place {place}");
        text = text.replace(place, change);
    }
    text
}

/// Addresses in the contract's memory that its results lie at.
///
/// `init` and `close`: 1024 error or not, 1032 which, 1036 text, 1040 its length. `process`, if it
/// went well: 1032 failures, 1036 their number, 1040 commit, 1044 through, 1048 retry-after or not,
/// 1056 milliseconds; one failure of 16 bytes: index, kind, text, its length. If it did not: as
/// `init`. Bytes from 16 to 23 are the word "hostile".
const COMPONENT: &str = r#"
(component
  (;outside;)
  (;types;)
  (core module $library
    (;library;)
    (memory (export "memory") 1)
    (data (i32.const 16) "hostile")
    (global $next (mut i32) (i32.const 4096))
    (func (export "realloc") (param $old i32) (param $old-size i32) (param $align i32) (param $size i32) (result i32)
      (local $at i32)
      (;realloc;)
      (local.set $at (i32.and (i32.add (global.get $next) (i32.sub (local.get $align) (i32.const 1)))
        (i32.sub (i32.const 0) (local.get $align))))
      (global.set $next (i32.add (local.get $at) (local.get $size)))
      (loop $grow
        (if (i32.gt_u (global.get $next) (i32.mul (memory.size) (i32.const 65536))) (then
          (if (i32.eq (memory.grow (i32.const 1)) (i32.const -1)) (then unreachable))
          (br $grow))))
      (local.get $at))
    (func (export "reset") (global.set $next (i32.const 4096)))
  )
  (core instance $library (instantiate $library))
  (alias core export $library "memory" (core memory $memory))
  (alias core export $library "realloc" (core func $realloc))
  (;lowered;)
  (core module $m
    (import "library" "memory" (memory 1))
    (import "library" "reset" (func $reset))
    (;imports;)
    (func (export "init") (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i64) (result i32)
      (;init;)
      (i32.const 1024))
    (func (export "process") (param $records i32) (param $count i32) (param $attempt i32) (param $behind i64) (result i32)
      (local $n i32) (local $m i32)
      (;process;)
      (i32.const 1024))
    (func (export "close") (param i32 i32 i32) (result i32)
      (;close;)
      (i32.const 1024))
    (func (export "post") (param i32)
      (;post;)
      (call $reset))
    (;fields;)
  )
  (core instance $i (instantiate $m (with "library" (instance $library)) (;with;)))
  (alias export $t "context" (type $context))
  (alias export $t "batch" (type $batch))
  (alias export $t "outcome" (type $outcome))
  (alias export $t "error" (type $error))
  (alias export $t "close-reason" (type $close-reason))
  (func $init (param "context" $context) (result (result (error $error)))
    (canon lift (core func $i "init") (memory $memory) (realloc (core func $realloc))
      (post-return (core func $i "post")) (;options;)))
  (func $process (param "batch" $batch) (result (result $outcome (error $error)))
    (canon lift (core func $i "process") (memory $memory) (realloc (core func $realloc))
      (post-return (core func $i "post")) (;options;)))
  (func $close (param "reason" $close-reason) (result (result (error $error)))
    (canon lift (core func $i "close") (memory $memory) (realloc (core func $realloc))
      (post-return (core func $i "post")) (;options;)))
  (instance $p (export "init" (func $init)) (export "process" (func $process)) (export "close" (func $close)))
  (export "shardmill:processor/processor@0.1.0" (instance $p))
  (;exports;)
)
"#;

/// The contract's types, as the host offers them.
const TYPES: &str = r#"
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
"#;
