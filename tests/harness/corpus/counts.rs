//! Counts times counts: what is allowed once, as often as it may be instantiated. The engine keeps
//! it outside of linear memory.

use super::contract::{self, place};
use super::{Call, Entry, Expected, fails, refused};

/// Instances of one module: below the limit on their number, with the contract's own.
const TIMES: usize = 60;

pub(super) fn entries() -> Vec<Entry> {
    let too_big = |name, files| {
        Entry::new(
            name,
            "D26",
            files,
            refused("outside of its memories", "build it smaller"),
        )
    };
    vec![
        too_big("counts-globals", || {
            outside(&(globals(30_000) + &instances("$heavy", TIMES)))
        }),
        too_big("counts-globals-without-end", || {
            outside(&(globals(300_000) + &instances("$heavy", TIMES)))
        }),
        too_big("counts-globals-of-vectors", || {
            let global = "(global v128 (v128.const i64x2 0 0))".repeat(30_000);
            outside(&(module(&global) + &instances("$heavy", TIMES)))
        }),
        too_big("counts-globals-in-components", || {
            let inner = format!(
                "(component $c {} (core instance (instantiate $heavy)))",
                globals(30_000)
            );
            outside(&(inner + &"(instance (instantiate $c))".repeat(TIMES)))
        }),
        too_big("counts-globals-of-an-outer-module", || {
            let inner = "(component $c (alias outer 1 $heavy (core module $m)) (core instance \
                (instantiate $m)))";
            outside(&(globals(30_000) + inner + &"(instance (instantiate $c))".repeat(TIMES)))
        }),
        too_big("counts-globals-of-a-given-module", || {
            let inner =
                r#"(component $c (import "m" (core module $m)) (core instance (instantiate $m)))"#;
            let instance = r#"(instance (instantiate $c (with "m" (core module $heavy))))"#;
            outside(&(inner.to_owned() + &globals(30_000) + &instance.repeat(TIMES)))
        }),
        too_big("counts-globals-of-an-exported-module", || {
            let inner = format!(
                r#"(component $c {} (export "m" (core module $heavy)))"#,
                globals(30_000)
            );
            let alias = r#"(instance $exporting (instantiate $c)) (alias export $exporting "m" (core module $given))"#;
            outside(&(inner + alias + &instances("$given", TIMES)))
        }),
        too_big("counts-functions", || {
            outside(&(functions(20_000) + &instances("$heavy", TIMES)))
        }),
        too_big("counts-elements", || {
            let elements = format!("(func $f) (elem func {})", "$f ".repeat(60_000));
            outside(&(module(&elements) + &instances("$heavy", TIMES)))
        }),
        too_big("counts-component-instances", || {
            outside(&doubled_components(24))
        }),
        Entry::new(
            "counts-given-components",
            "D26",
            || outside(r#"(component $c (import "x" (component $x)) (instance (instantiate $x)))"#),
            refused(
                "components that are passed to components",
                "build it without it",
            ),
        ),
        Entry::new(
            "counts-core-instances",
            "D26",
            || outside(&(globals(1) + &instances("$heavy", 65))),
            fails(Call::Init, "limit", "core instances"),
        ),
        Entry::new(
            "counts-some-globals",
            "D26",
            || outside(&(globals(5_000) + &instances("$heavy", 20))),
            Expected::Harmless,
        ),
    ]
}

/// A component whose instances take some mebibytes outside of their memories, which is allowed, and
/// charged.
pub fn of_7_mib() -> Vec<u8> {
    contract::with(&[(
        place::OUTSIDE,
        &(globals(10_000) + &instances("$heavy", 46)),
    )])
}

fn outside(items: &str) -> Vec<Vec<u8>> {
    vec![contract::with(&[(place::OUTSIDE, items)])]
}

fn module(fields: &str) -> String {
    format!("(core module $heavy {fields})")
}

fn globals(count: usize) -> String {
    module(&"(global i32 (i32.const 0))".repeat(count))
}

/// Each of them may be referred to.
fn functions(count: usize) -> String {
    let indexes: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    let indexes = indexes.join(" ");
    module(&format!(
        "{} (elem declare func {indexes})",
        "(func)".repeat(count)
    ))
}

fn instances(module: &str, count: usize) -> String {
    format!("(core instance (instantiate {module}))").repeat(count)
}

/// Each component has two instances of the one before.
fn doubled_components(times: usize) -> String {
    let component = |number: usize| {
        let (before, instance) = (number - 1, "(instance (instantiate $c))");
        format!(
            "(component $c{number} (alias outer 1 $c{before} (component $c)) {instance} {instance})"
        )
    };
    let components: Vec<String> = (1..=times).map(component).collect();
    format!(
        "(component $c0) {} (instance (instantiate $c{times}))",
        components.join(" ")
    )
}
