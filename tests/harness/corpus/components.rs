//! Components that do not fit the contract, or are too much to read, check or compile.

use super::bombs;
use super::contract::{self, place};
use super::files::push_length;
use super::{Entry, Expected, refused};

const AGAINST_THE_WORLD: &str = "build it against the world";
const AGAINST_THE_WIT: &str = "build it against the WIT of this host";
const BUILD_AGAIN: &str = "build it again";
const SMALLER: &str = "build it smaller";

pub(super) fn entries() -> Vec<Entry> {
    let mut entries = misfits();
    entries.extend(bombs());
    entries.extend(names());
    entries
}

fn misfits() -> Vec<Entry> {
    let mismatch = |says| refused(says, AGAINST_THE_WIT);
    vec![
        Entry::new(
            "world-none",
            "D7",
            || one("(component)"),
            refused("exports: nothing", AGAINST_THE_WORLD),
        ),
        Entry::new(
            "world-other",
            "D7",
            other_world,
            refused("wasi:http/incoming-handler@0.2.0", AGAINST_THE_WORLD),
        ),
        Entry::new(
            "world-later",
            "D7",
            || with(&[("processor/processor@0.1.0", "processor/processor@0.2.0")]),
            refused(
                "shardmill:processor/processor@0.2.0",
                "build it against that version",
            ),
        ),
        Entry::new(
            "world-without-version",
            "D7",
            || with(&[("processor/processor@0.1.0", "processor/processor")]),
            refused(
                "it exports shardmill:processor/processor",
                "build it against that version",
            ),
        ),
        Entry::new(
            "world-no-close",
            "D7",
            || with(&[(r#"(export "close" (func $close))"#, "")]),
            mismatch("close is missing"),
        ),
        Entry::new(
            "world-no-interface",
            "D7",
            || with(&[("(instance $p))", "(func $close))")]),
            mismatch("not an interface"),
        ),
        Entry::new(
            "world-other-result",
            "D7",
            || with(&[(r#"(case "through" u32)"#, r#"(case "through" s32)"#)]),
            mismatch("type"),
        ),
        Entry::new(
            "world-swapped-functions",
            "D7",
            swapped_functions,
            mismatch("function"),
        ),
        Entry::new(
            "world-extra-imports",
            "D7",
            || imports(r#"(import "acme:db/rows@1.0.0" (instance))"#),
            refused("acme:db/rows@1.0.0", "build it without them"),
        ),
        Entry::new(
            "world-key-values",
            "D7",
            || imports(r#"(import "wasi:keyvalue/store@0.2.0-draft" (instance))"#),
            refused("wasi:keyvalue/store@0.2.0-draft", "build it without them"),
        ),
        Entry::new(
            "world-later-wasi",
            "D7",
            || imports(r#"(import "wasi:clocks/monotonic-clock@0.3.0" (instance))"#),
            refused("wasi:clocks/monotonic-clock@0.3.0", "build it without them"),
        ),
        Entry::new(
            "world-wrong-import-type",
            "D7",
            wrong_import_type,
            mismatch("wasi:clocks/monotonic-clock"),
        ),
        Entry::new(
            "world-unknown-wasi",
            "D7",
            || imports(r#"(import "wasi:cli/root-shell@0.2.0" (instance (export "open" (func))))"#),
            mismatch("wasi:cli/root-shell"),
        ),
        Entry::new("world-wrong-save", "D7", wrong_state, mismatch("save")),
    ]
}

fn bombs() -> Vec<Entry> {
    let malformed = |says| refused(says, BUILD_AGAIN);
    vec![
        Entry::new(
            "bomb-functions",
            "D12",
            || fields(&"(func)".repeat(200_001)),
            refused("functions", SMALLER),
        ),
        Entry::new(
            "bomb-one-function",
            "D12",
            || function(&"nop ".repeat(2_100_000)),
            refused("bytes in one function", SMALLER),
        ),
        Entry::new(
            "bomb-blocks",
            "D12",
            || function(&("block ".repeat(10_000) + &"end ".repeat(10_000))),
            Expected::Harmless,
        ),
        Entry::new(
            "bomb-locals",
            "D12",
            || function(&"(local i64)".repeat(50_001)),
            refused("too many locals", BUILD_AGAIN),
        ),
        Entry::new("bomb-branch-table", "D12", branch_table, Expected::Harmless),
        Entry::new(
            "bomb-calls",
            "D12",
            || function(&"call $reset ".repeat(20_000)),
            Expected::Harmless,
        ),
        Entry::new(
            "bomb-imports",
            "D12",
            many_imports,
            refused("2000 more", "build it without them"),
        ),
        Entry::new(
            "bomb-compile",
            "D12",
            || vec![bombs::compile_bomb(20_000)],
            Expected::RefusedByHost("compile.memory"),
        ),
        Entry::new("bomb-exports", "D12", many_exports, Expected::Harmless),
        Entry::new(
            "bomb-types",
            "D12",
            || outside(&"(type (list u8))".repeat(1_000_001)),
            malformed("types"),
        ),
        Entry::new(
            "bomb-deep-type",
            "D12",
            deep_type,
            malformed("type nesting"),
        ),
        Entry::new("bomb-wide-type", "D12", wide_type, malformed("type size")),
        Entry::new(
            "bomb-data",
            "D12",
            || fields(&r#"(data "")"#.repeat(100_001)),
            malformed("data"),
        ),
        Entry::new(
            "bomb-elements",
            "D12",
            || fields(&"(elem func)".repeat(100_001)),
            malformed("element"),
        ),
        Entry::new(
            "bomb-globals",
            "D12",
            || fields(&"(global i32 (i32.const 0))".repeat(1_000_001)),
            malformed("globals"),
        ),
        Entry::new(
            "bomb-nested",
            "D12",
            || vec![nested(2_000)],
            Expected::Harmless,
        ),
        Entry::new(
            "bomb-modules",
            "D12",
            || outside(&"(core module)".repeat(1_001)),
            malformed("modules"),
        ),
        Entry::new(
            "bomb-params",
            "D12",
            || fields(&format!("(func (param {}))", "i64 ".repeat(1_001))),
            malformed("params"),
        ),
    ]
}

fn names() -> Vec<Entry> {
    let malformed = |says| refused(says, BUILD_AGAIN);
    vec![
        Entry::new(
            "name-long",
            "D12",
            || {
                with(&[(
                    r#"(import "shardmill"#,
                    &format!(
                        r#"(import "a{}:b/c" (instance)) (import "shardmill"#,
                        "a".repeat(100_000)
                    ),
                )])
            },
            malformed("string size"),
        ),
        Entry::new(
            "name-twice",
            "D5",
            || {
                with(&[(
                    r#"(export "close" (func $close))"#,
                    r#"(export "close" (func $close)) (export "close" (func $close))"#,
                )])
            },
            malformed("close"),
        ),
        Entry::new(
            "name-not-utf8",
            "D5",
            || replaced(b"processor@0.1.0", b"process\xff\xfe@0.1.0"),
            malformed("UTF-8"),
        ),
        Entry::new(
            "name-not-kebab",
            "D5",
            || with(&[(r#""grant-epoch""#, r#""Grant_Epoch""#)]),
            malformed("kebab"),
        ),
        Entry::new(
            "name-steers-terminals",
            "D13",
            || imports(r#"(import "a:b/c@1.0.0-\u{1b}[31m" (instance))"#),
            Expected::Contained,
        ),
        Entry::new(
            "name-of-an-export-steers-terminals",
            "D13",
            || one(r#"(component (instance $i) (export "a:b/c@1.0.0-\u{1b}[31m" (instance $i)))"#),
            refused("a:b/c@1.0.0- [31m", AGAINST_THE_WORLD),
        ),
        Entry::new(
            "names-of-too-many-imports",
            "D12",
            imports_beyond_all,
            refused("imports, more than", SMALLER),
        ),
        Entry::new(
            "names-of-too-many-exports",
            "D12",
            exports_beyond_all,
            refused("exports, more than", SMALLER),
        ),
        Entry::new(
            "name-no-such-index",
            "D5",
            || with(&[(r#"(core func $i "close")"#, r#"(core func $i "clone")"#)]),
            malformed("clone"),
        ),
    ]
}

fn one(text: &str) -> Vec<Vec<u8>> {
    vec![contract::assembled(text)]
}

fn with(changes: &[(&str, &str)]) -> Vec<Vec<u8>> {
    vec![contract::with(changes)]
}

fn fields(fields: &str) -> Vec<Vec<u8>> {
    with(&[(place::FIELDS, fields)])
}

fn function(body: &str) -> Vec<Vec<u8>> {
    fields(&format!("(func {body})"))
}

fn outside(items: &str) -> Vec<Vec<u8>> {
    with(&[(place::OUTSIDE, items)])
}

fn imports(imports: &str) -> Vec<Vec<u8>> {
    with(&[(place::OUTSIDE, imports)])
}

fn other_world() -> Vec<Vec<u8>> {
    one(r#"(component (instance $i) (export "wasi:http/incoming-handler@0.2.0" (instance $i)))"#)
}

fn swapped_functions() -> Vec<Vec<u8>> {
    with(&[(
        r#"(export "init" (func $init)) (export "process" (func $process))"#,
        r#"(export "init" (func $process)) (export "process" (func $init))"#,
    )])
}

fn wrong_import_type() -> Vec<Vec<u8>> {
    imports(
        r#"(import "wasi:clocks/monotonic-clock@0.2.0" (instance (export "now" (func (result string)))))"#,
    )
}

/// `save` and `load` of other types than the contract's.
fn wrong_state() -> Vec<Vec<u8>> {
    let state = r#"(export "shardmill:processor/processor@0.1.0" (instance $p))
      (instance $state (export "save" (func $close)) (export "load" (func $close)))
      (export "shardmill:processor/state@0.1.0" (instance $state))"#;
    with(&[(
        r#"(export "shardmill:processor/processor@0.1.0" (instance $p))"#,
        state,
    )])
}

/// A table of branches as long as the code around it allows.
fn branch_table() -> Vec<Vec<u8>> {
    function(&format!(
        "(block (br_table {} (i32.const 7)))",
        "0 ".repeat(60_000)
    ))
}

fn many_imports() -> Vec<Vec<u8>> {
    let import = |number| format!(r#"(import "import-{number}" (func))"#);
    outside(&(0..2_020).map(import).collect::<String>())
}

/// One more than the host reads.
const NAMES: usize = 10_001;

fn imports_beyond_all() -> Vec<Vec<u8>> {
    let import = |number: usize| format!(r#"(import "import-{number}" (func))"#);
    imports(&(0..NAMES).map(import).collect::<String>())
}

fn exports_beyond_all() -> Vec<Vec<u8>> {
    let export = |number: usize| format!(r#"(export "export-{number}" (instance $i))"#);
    let exports: String = (0..NAMES).map(export).collect();
    one(&format!("(component (instance $i) {exports})"))
}

fn many_exports() -> Vec<Vec<u8>> {
    let export = |number| format!(r#"(export "close{number}" (func $close))"#);
    let exports: String = (0..10_000).map(export).collect();
    with(&[(
        r#"(export "close" (func $close))"#,
        &(r#"(export "close" (func $close))"#.to_owned() + &exports),
    )])
}

/// Lists of lists of lists.
fn deep_type() -> Vec<Vec<u8>> {
    let list = |depth| format!("(type $t{} (list $t{depth}))", depth + 1);
    outside(&("(type $t0 (list u8))".to_owned() + &(0..200).map(list).collect::<String>()))
}

/// Each type names the one before a hundred times: the last would have more parts than there are
/// atoms.
fn wide_type() -> Vec<Vec<u8>> {
    let wide = |depth| {
        format!(
            "(type $t{} (tuple {}))",
            depth + 1,
            format!("$t{depth} ").repeat(100)
        )
    };
    outside(&("(type $t0 (tuple u8))".to_owned() + &(0..50).map(wide).collect::<String>()))
}

/// Components in components, behind a good plugin.
fn nested(depth: usize) -> Vec<u8> {
    const HEADER: &[u8] = b"\0asm\x0d\0\x01\0";
    const COMPONENT_SECTION: u8 = 4;
    let mut inner = HEADER.to_vec();
    for _ in 0..depth {
        let mut outer = HEADER.to_vec();
        outer.push(COMPONENT_SECTION);
        push_length(&mut outer, inner.len());
        outer.extend(inner);
        inner = outer;
    }
    let mut bytes = contract::with(&[]);
    bytes.extend(&inner[HEADER.len()..]);
    bytes
}

fn replaced(from: &[u8], to: &[u8]) -> Vec<Vec<u8>> {
    let mut bytes = contract::with(&[]);
    let place = bytes
        .windows(from.len())
        .position(|window| window == from)
        .unwrap_or_default();
    bytes[place..place + to.len()].copy_from_slice(to);
    vec![bytes]
}
