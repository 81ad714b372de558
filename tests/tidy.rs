//! House rules that a program can check: what may depend on what, how large things are, which words
//! are used.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "tidy/attacks.rs"]
mod attacks;
#[path = "tidy/deploy.rs"]
mod deploy;
#[path = "tidy/features.rs"]
mod features;
#[path = "tidy/findings.rs"]
mod findings;
#[path = "tidy/kcl_metrics.rs"]
mod kcl_metrics;
#[path = "tidy/log_codes.rs"]
mod log_codes;
#[path = "tidy/modules.rs"]
mod modules;
#[path = "tidy/predecessors.rs"]
mod predecessors;
#[path = "tidy/public_docs.rs"]
mod public_docs;
#[path = "tidy/release.rs"]
mod release;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/unrun.rs"]
mod unrun;
#[path = "tidy/words.rs"]
mod words;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use md5::{Digest, Md5};

/// Lines of a file before its tests: more does not fit in a head.
const FILE_LINES_MAX: usize = 500;
/// The same of a file of tests, which nobody reads from end to end.
const TEST_FILE_LINES_MAX: usize = 700;
/// What each package of the host may use of the others. A wrong import does not compile; this keeps
/// the manifests right.
const MAY_USE: [(&str, &[&str]); 12] = [
    ("core", &[]),
    ("wire", &["shardmill-core"]),
    ("filter", &[]),
    ("worker", &["shardmill-core", "shardmill-filter"]),
    ("aws", &["shardmill-core", "shardmill-wire"]),
    ("wasm", &["shardmill-core", "shardmill-layout"]),
    ("local", &[]),
    ("sinks", &["shardmill-core", "shardmill-aws"]),
    ("sources", &["shardmill-core", "shardmill-aws"]),
    (
        "config",
        &[
            "shardmill-core",
            "shardmill-filter",
            "shardmill-worker",
            "shardmill-aws",
            "shardmill-wasm",
            "shardmill-sinks",
            "shardmill-sources",
        ],
    ),
    (
        "serve",
        &[
            "shardmill-core",
            "shardmill-worker",
            "shardmill-aws",
            "shardmill-wasm",
            "shardmill-sinks",
            "shardmill-sources",
            "shardmill-config",
        ],
    ),
    (
        "app",
        &[
            "shardmill-core",
            "shardmill-worker",
            "shardmill-aws",
            "shardmill-wasm",
            "shardmill-local",
            "shardmill-sinks",
            "shardmill-sources",
            "shardmill-config",
            "shardmill-serve",
        ],
    ),
];
/// What a package must never see, by the start of the name.
const NEVER: [(&str, &[&str]); 11] = [
    (
        "core",
        &[
            "tokio", "aws-", "wasmtime", "tracing", "rand", "fastrand", "serde", "futures",
        ],
    ),
    ("wire", &["tokio", "aws-", "wasmtime", "tracing", "futures"]),
    (
        "filter",
        &["tokio", "aws-", "wasmtime", "tracing", "futures"],
    ),
    ("worker", &["aws-", "wasmtime", "notify", "axum", "clap"]),
    ("aws", &["wasmtime", "notify", "axum", "clap"]),
    ("wasm", &["aws-", "axum", "clap"]),
    ("local", &["wasmtime", "clap"]),
    ("sinks", &["wasmtime", "notify", "axum", "clap"]),
    ("sources", &["aws-", "wasmtime", "notify", "axum", "clap"]),
    ("config", &["aws-", "wasmtime", "notify", "axum", "clap"]),
    ("serve", &["aws-", "wasmtime", "notify", "clap"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

fn files_with(extension: &str) -> Vec<PathBuf> {
    fn visit(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.starts_with('.') || name == "target" || name == "data" {
                continue;
            }
            if path.is_dir() {
                visit(&path, extension, found);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    visit(&root(), extension, &mut found);
    assert!(!found.is_empty(), "no .{extension} files found");
    found
}

fn own_path(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

/// Names under `[dependencies]` of a package of the host.
fn dependencies(package: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("host").join(package).join("Cargo.toml")).unwrap();
    let section = text
        .split("\n[")
        .find(|section| section.starts_with("dependencies]"))
        .unwrap();
    let name = |line: &str| {
        line.split(['.', ' ', '='])
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    section
        .lines()
        .skip(1)
        .map(name)
        .filter(|name| !name.is_empty() && !name.starts_with('#'))
        .collect()
}

#[test]
fn packages_know_each_other_in_one_direction_only() {
    for (package, allowed) in MAY_USE {
        let ours = dependencies(package)
            .into_iter()
            .filter(|name| name.starts_with("shardmill"));
        let wrong: Vec<_> = ours
            .filter(|name| !allowed.contains(&name.as_str()))
            .collect();
        assert!(wrong.is_empty(), "host/{package} must not use {wrong:?}");
    }
    for (package, never) in NEVER {
        let found = dependencies(package);
        let wrong: Vec<_> = found
            .iter()
            .filter(|name| never.iter().any(|start| name.starts_with(start)))
            .collect();
        assert!(wrong.is_empty(), "host/{package} must never see {wrong:?}");
    }
}

#[test]
fn files_fit_in_a_head() {
    let mut long = Vec::new();
    for path in files_with("rs") {
        let text = fs::read_to_string(&path).unwrap();
        let lines = text
            .lines()
            .take_while(|line| line.trim() != "#[cfg(test)]")
            .count();
        let max = if is_of_tests(&path) {
            TEST_FILE_LINES_MAX
        } else {
            FILE_LINES_MAX
        };
        if lines > max {
            long.push(format!("{} has {lines} lines", own_path(&path)));
        }
    }
    assert!(long.is_empty(), "cut these: {long:#?}");
}

/// Whether a file is below a folder `tests`, or is a module of tests.
fn is_of_tests(path: &Path) -> bool {
    let own = own_path(path);
    own.split('/').any(|folder| folder == "tests") || own.ends_with("tests.rs")
}

/// Functions that are called with a tuple by a library: wasmtime passes arguments so.
const CALLED_WITH_TUPLES: &str = "host/wasm/src/imports/request_line.rs";

#[test]
fn no_filter_stands_for_an_if_and_no_parameter_is_a_tuple() {
    let product = files_with("rs").into_iter().filter(|path| {
        let own = own_path(path);
        own.starts_with("host/") && !is_of_tests(path) && own != CALLED_WITH_TUPLES
    });
    let found: Vec<_> = product
        .flat_map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            let own = own_path(&path);
            let habits = source::habits(&text).into_iter();
            habits
                .map(move |habit| format!("{own}: {habit}"))
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn functions_are_bounded_by_the_lint() {
    let clippy = fs::read_to_string(root().join(".clippy.toml")).unwrap();
    assert!(clippy.contains("too-many-lines-threshold = 100"));
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    for lint in [
        "too_many_lines = \"warn\"",
        "unwrap_used = \"warn\"",
        "missing_docs = \"warn\"",
    ] {
        assert!(
            manifest.contains(lint),
            "{lint} is gone from the lint table"
        );
    }
}

#[test]
fn a_packages_own_lints_add_to_those_of_all() {
    let all = fs::read_to_string(root().join(".clippy.toml")).unwrap();
    for package in ["host/core", "host/worker"] {
        let own = fs::read_to_string(root().join(package).join(".clippy.toml")).unwrap();
        let missing: Vec<_> = all.lines().filter(|line| !own.contains(line)).collect();
        assert!(
            missing.is_empty(),
            "{package}/.clippy.toml lacks {missing:#?}"
        );
        for clock in ["std::time::Instant::now", "tokio::time::Instant::now"] {
            assert!(own.contains(clock), "{package}/.clippy.toml allows {clock}");
        }
    }
}

#[test]
fn nothing_is_left_unfinished() {
    let markers = [
        concat!("to", "do!("),
        concat!("unimpl", "emented!("),
        concat!("FIX", "ME"),
        concat!("#[ign", "ore"),
    ];
    let mut found = Vec::new();
    for path in files_with("rs") {
        let text = fs::read_to_string(&path).unwrap();
        found.extend(
            markers
                .iter()
                .filter(|marker| text.contains(*marker))
                .map(|marker| (own_path(&path), *marker)),
        );
    }
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn every_metric_is_in_the_operators_table() {
    let table = fs::read_to_string(root().join("docs/operations.md")).unwrap();
    let mut metrics = Vec::new();
    for path in files_with("rs")
        .into_iter()
        .filter(|path| path.ends_with("metrics.rs"))
    {
        let text = fs::read_to_string(path).unwrap();
        let quoted = text
            .split('"')
            .filter(|piece| piece.starts_with("shardmill_") && !piece.contains(' '));
        // A name that a guest chooses the end of is documented with `*`.
        metrics.extend(quoted.map(|name| name.split('{').next().unwrap_or_default().to_owned()));
    }
    assert!(metrics.len() > 10);
    let missing: Vec<_> = metrics
        .iter()
        .filter(|metric| !table.contains(metric.as_str()))
        .collect();
    assert!(missing.is_empty(), "not in docs/operations.md: {missing:?}");
}

#[test]
fn no_measurement_of_the_hosts_has_a_name_that_a_plugin_may_write() {
    let prefix = concat!("\"shardmill_", "guest_");
    let mut named = Vec::new();
    for path in files_with("rs")
        .into_iter()
        .filter(|path| path.starts_with(root().join("host")))
    {
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        named.extend(code.matches(prefix).map(|_| own_path(&path)));
    }
    assert_eq!(
        named,
        ["host/wasm/src/output/measurement_names.rs"],
        "where the prefix itself is"
    );
}

#[test]
fn every_configuration_key_is_documented() {
    let docs = fs::read_to_string(root().join("docs/configuration.md")).unwrap();
    let config = root().join("host/config/src");
    let files: Vec<_> = files_with("rs")
        .into_iter()
        .filter(|path| path.starts_with(&config))
        .collect();
    let files: Vec<_> = files
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let is_field = |line: &&str| {
        line.starts_with("    ") && line.trim_end().ends_with(',') && line.contains(": ")
    };
    // What is read from a file is declared in types that are named so.
    let is_read = |item: &&str| {
        let declares = |line: &str| line.contains("struct ") || line.contains("enum ");
        item.lines()
            .any(|line| declares(line) && line.trim_end().ends_with("File {"))
    };
    let declared = files
        .iter()
        .flat_map(|file| file.split("\n}").filter(is_read))
        .flat_map(str::lines)
        .filter(is_field);
    let visible = ["pub(super) ", "pub(crate) ", "pub "];
    let bare = |line: &str| {
        visible
            .iter()
            .find_map(|word| line.strip_prefix(word))
            .unwrap_or(line)
            .to_owned()
    };
    let key = |line: &str| {
        bare(line.trim())
            .split(':')
            .next()
            .unwrap()
            .replace('_', "-")
    };
    // Limits are rows of a table, which name their keys.
    let of_row = |line: &str| {
        Some(
            line.trim()
                .strip_prefix("key: \"")?
                .split('"')
                .next()?
                .to_owned(),
        )
    };
    let rows = files
        .iter()
        .flat_map(|file| file.lines())
        .filter_map(of_row);
    let fields: Vec<_> = declared.map(key).chain(rows).collect();
    assert!(fields.len() > 40, "{fields:?}");
    let fields = fields.into_iter();
    // A key that opens a section is documented by its heading.
    let is_documented =
        |key: &String| docs.contains(&format!("`{key}`")) || docs.contains(&format!("`[{key}"));
    let missing: Vec<_> = fields.filter(|key| !is_documented(key)).collect();
    assert!(
        missing.is_empty(),
        "not in docs/configuration.md: {missing:?}"
    );
}

/// All of the contract but comments and white space, the files in order of their paths.
fn contract() -> String {
    let wit = root().join("wit");
    let mut files = files_with("wit");
    files.retain(|path| path.starts_with(&wit));
    // As text, each from `./` on, as `find` names them.
    files.sort_by_key(|path| path.strip_prefix(&wit).unwrap().display().to_string());
    let code = |line: &str| line.split("//").next().unwrap_or_default().replace(' ', "");
    files
        .iter()
        .flat_map(|path| {
            fs::read_to_string(path)
                .unwrap()
                .lines()
                .map(code)
                .collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn the_bindings_for_c_were_made_of_this_contract() {
    let digest = hex::encode(Md5::digest(contract()));
    let made_of = fs::read_to_string(root().join("wit/c/contract.md5")).unwrap();
    assert_eq!(
        made_of.trim(),
        digest,
        "the contract changed: run wit/c/generate.sh"
    );
}

#[test]
fn every_decision_has_context_decision_and_consequences() {
    for path in files_with("md")
        .into_iter()
        .filter(|path| own_path(path).starts_with("docs/decisions/"))
    {
        let text = fs::read_to_string(&path).unwrap();
        for heading in ["## Context", "## Decision", "## Consequences"] {
            assert!(
                text.contains(heading),
                "{} has no {heading}",
                own_path(&path)
            );
        }
    }
}

/// Rows of `docs/faults.md`: its tables by letter, and how many rows each has.
const FAULT_TABLES: [(char, u32); 5] = [('A', 33), ('D', 39), ('E', 13), ('F', 9), ('R', 9)];

/// Whatever is between backticks and looks like the name of a function.
fn names_in(cell: &str) -> impl Iterator<Item = &str> {
    let is_name = |text: &&str| {
        text.contains('_') && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    cell.split('`').skip(1).step_by(2).filter(is_name)
}

/// Cells of the rows of a page's tables, but for the headings, which begin with this word.
fn rows_of<'a>(page: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let cells = |line: &'a str| -> Vec<&'a str> {
        line.trim_matches('|').split(" | ").map(str::trim).collect()
    };
    page.lines()
        .filter(|line| line.starts_with("| "))
        .map(cells)
        .filter(|cells| cells[0] != heading)
        .collect()
}

#[test]
fn every_fault_has_a_row_with_its_tests_and_every_test_named_there_exists() {
    let text = fs::read_to_string(root().join("docs/faults.md")).unwrap();
    let rows = rows_of(&text, "Row");
    let ids: Vec<_> = rows.iter().map(|cells| cells[0].to_owned()).collect();
    let expected = FAULT_TABLES
        .iter()
        .flat_map(|(table, rows)| (1..=*rows).map(move |row| format!("{table}{row}")));
    assert_eq!(ids, expected.collect::<Vec<_>>());
    let code: String = files_with("rs")
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let mut wrong = Vec::new();
    for cells in &rows {
        let [row, fault, outcome, tests] = &cells[..] else {
            panic!("{cells:?} has not four cells")
        };
        assert!(
            !fault.is_empty() && !outcome.is_empty(),
            "{row} does not say what it is"
        );
        let names: Vec<_> = names_in(tests).collect();
        if names.is_empty() && !tests.starts_with("does not apply: ") {
            wrong.push(format!(
                "{row} has no test, nor the reason why it does not apply"
            ));
        }
        let is_missing = |name: &&&str| !code.contains(&format!("fn {name}("));
        wrong.extend(
            names
                .iter()
                .filter(is_missing)
                .map(|name| format!("{row} names {name}, which is not there")),
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_attribute_that_is_written_to_a_table_is_in_the_documentation_of_tables() {
    let page = fs::read_to_string(root().join("docs/tables.md")).unwrap();
    let written = [
        "lease_item.rs",
        "coordinator_item.rs",
        "mail_item.rs",
        "version_item.rs",
        "row.rs",
    ];
    let mut missing = Vec::new();
    for file in written {
        let path = root().join("host/aws/src/dynamodb").join(file);
        let text = fs::read_to_string(path).unwrap();
        let values = text.lines().filter_map(text_constant);
        let names = values.filter(|value| value.bytes().all(|b| b.is_ascii_alphabetic()));
        let mut count = 0;
        for name in names {
            count += 1;
            let name = format!("`{name}`");
            if !page.contains(&name) {
                missing.push((file, name));
            }
        }
        assert!(count > 0, "{file} has no attributes");
    }
    assert!(missing.is_empty(), "docs/tables.md lacks {missing:?}");
}

/// The value of a line such as `const LEASE_KEY: &str = "leaseKey";`.
fn text_constant(line: &str) -> Option<&str> {
    let (_, value) = line.split_once(": &str = \"")?;
    line.contains("const ").then_some(())?;
    value.strip_suffix("\";")
}

/// One that is missing would be optimized like a dependency, without debug assertions.
#[test]
fn every_package_of_ours_has_its_own_profile() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = manifest.split_once("members = [").unwrap().1;
    let members = members.split_once(']').unwrap().0;
    let mut missing = Vec::new();
    for member in members.split('"').skip(1).step_by(2) {
        let path = root().join(member).join("Cargo.toml");
        let of_member = fs::read_to_string(&path).unwrap();
        let name = of_member
            .lines()
            .find_map(|line| line.strip_prefix("name = "));
        let name = name.unwrap().trim_matches('"').to_owned();
        let is_listed = |line: &str| {
            line.starts_with(&format!("{name} = {{ opt-level = "))
                && line.contains("debug-assertions = true")
        };
        if !manifest.lines().any(is_listed) {
            missing.push(name);
        }
    }
    assert!(
        missing.is_empty(),
        "[profile.dev.package] lacks {missing:?}"
    );
}
