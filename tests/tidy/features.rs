//! What the tests ask of dependencies beyond what the binary asks.

use std::collections::BTreeSet;
use std::process::Command;

/// Each dependency of the workspace with the features that it is built with, a line each.
fn dependencies(kinds: &str) -> BTreeSet<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["tree", "--offline", "--locked", "--workspace"])
        .args(["--edges", kinds, "--format", "{p} {f}", "--prefix", "none"])
        .current_dir(super::root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| line.trim_end_matches(" (*)").to_owned())
        .collect()
}

/// A feature that only a test's dependency asks for makes `cargo test` build wasmtime and the AWS
/// SDK again, right after the first command of the README built them.
#[test]
fn the_tests_use_the_dependencies_that_the_binary_was_built_with() {
    let of_the_binary = dependencies("no-dev");
    let of_the_tests = dependencies("normal,build,dev");
    let again: Vec<_> = of_the_binary.difference(&of_the_tests).collect();
    assert!(
        again.is_empty(),
        "the tests build these again, with more features: ask for the same features in \
            [workspace.dependencies]\n{again:#?}"
    );
}
