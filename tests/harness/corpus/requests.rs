//! Requests that are made and never sent: what a plugin without any grant can make the host keep.

use super::contract::{self, place};
use super::{Call, Entry, Expected, fails};

pub(super) fn entries() -> Vec<Entry> {
    let kept = fails(Call::Process, "limit", "bytes kept behind handles");
    vec![
        Entry::new(
            "methods-of-900-kb",
            "D17",
            || requests(40, 900_000),
            Expected::Harmless,
        ),
        Entry::new("requests-kept", "D17", || requests(1_020, 64), kept),
    ]
}

/// Makes so many requests, keeps them, and gives each a method of so many bytes.
fn requests(count: usize, method_bytes: usize) -> Vec<Vec<u8>> {
    let process = format!(
        "(if (i32.lt_u (memory.size) (i32.const 20)) (then
           (drop (memory.grow (i32.const 20)))
           (memory.fill (i32.const 131072) (i32.const 77) (i32.const {method_bytes}))))
         (loop $next
           (drop (call $method (call $request (call $fields))
             (i32.const 9) (i32.const 131072) (i32.const {method_bytes})))
           (br_if $next (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) \
           (i32.const {count}))))"
    );
    vec![contract::with(&[
        (place::LOWERED, LOWERED),
        (place::IMPORTS, IMPORTS),
        (place::WITH, r#"(with "host" (instance $host))"#),
        (place::PROCESS, &process),
    ])]
}

const LOWERED: &str = r#"
  (import "wasi:http/types@0.2.0" (instance $http
    (export "fields" (type $fields (sub resource)))
    (export "outgoing-request" (type $request (sub resource)))
    (type $method' (variant (case "get") (case "head") (case "post") (case "put") (case "delete") (case "connect")
      (case "options") (case "trace") (case "patch") (case "other" string)))
    (export "method" (type $method (eq $method')))
    (export "[constructor]fields" (func (result (own $fields))))
    (export "[constructor]outgoing-request" (func (param "headers" (own $fields)) (result (own $request))))
    (export "[method]outgoing-request.set-method" (func (param "self" (borrow $request)) (param "method" $method)
      (result (result))))))
  (core func $fields (canon lower (func $http "[constructor]fields")))
  (core func $request (canon lower (func $http "[constructor]outgoing-request")))
  (core func $method (canon lower (func $http "[method]outgoing-request.set-method") (memory $memory)))
  (core instance $host (export "fields" (func $fields)) (export "request" (func $request))
    (export "method" (func $method)))
"#;

const IMPORTS: &str = r#"
  (import "host" "fields" (func $fields (result i32)))
  (import "host" "request" (func $request (param i32) (result i32)))
  (import "host" "method" (func $method (param i32 i32 i32 i32) (result i32)))
"#;
