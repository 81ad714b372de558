//! No test, and no example in documentation, stands where a manifest says that there is none.

use std::fs;
use std::path::{Path, PathBuf};

use super::{files_with, own_path};

/// What a fence may say of code that is not run.
const NOT_RUN: [&str; 3] = ["text", "toml", "json"];

/// The section `[lib]` of a manifest.
fn lib_of(manifest: &str) -> &str {
    let (_, rest) = manifest.split_once("\n[lib]\n").unwrap_or_default();
    rest.split("\n[").next().unwrap_or_default()
}

/// The sources of a package: all that is below it, but for packages below it and its other targets.
fn sources(folder: &Path, packages: &[PathBuf]) -> Vec<PathBuf> {
    let is_elsewhere = |source: &Path| {
        let inner = packages
            .iter()
            .any(|other| other != folder && other.starts_with(folder) && source.starts_with(other));
        inner || source.starts_with(folder.join("tests"))
    };
    let mut sources = files_with("rs");
    sources.retain(|source| source.starts_with(folder) && !is_elsewhere(source));
    sources
}

/// The first example in a comment of documentation that cargo would run.
fn example_in(text: &str) -> Option<&str> {
    let mut is_open = false;
    for line in text.lines().map(str::trim_start) {
        let comment = line.strip_prefix("///").or(line.strip_prefix("//!"));
        let Some(language) = comment.and_then(|comment| comment.trim_start().strip_prefix("```"))
        else {
            continue;
        };
        if !is_open && !NOT_RUN.contains(&language.trim_end()) {
            return Some(line);
        }
        is_open = !is_open;
    }
    None
}

#[test]
fn a_library_that_is_not_tested_has_no_test_and_no_example_that_would_run() {
    let manifests = files_with("toml");
    let manifests: Vec<&PathBuf> = manifests
        .iter()
        .filter(|path| path.ends_with("Cargo.toml"))
        .collect();
    let packages: Vec<PathBuf> = manifests
        .iter()
        .filter_map(|path| path.parent().map(Path::to_owned))
        .collect();
    let (mut wrong, mut without_examples) = (Vec::new(), 0);
    for (manifest, folder) in manifests.iter().zip(&packages) {
        let text = fs::read_to_string(manifest).unwrap();
        let lib: Vec<&str> = lib_of(&text).lines().collect();
        for file in sources(folder, &packages) {
            let text = fs::read_to_string(&file).unwrap();
            if lib.contains(&"test = false") && text.contains("#[cfg(test)]") {
                wrong.push(format!("{}: has tests", own_path(&file)));
            }
            if lib.contains(&"doctest = false") {
                let example = example_in(&text);
                wrong.extend(example.map(|line| format!("{}: {line}", own_path(&file))));
            }
        }
        without_examples += usize::from(lib.contains(&"doctest = false"));
    }
    assert!(without_examples > 10, "they are not found any more");
    assert!(wrong.is_empty(), "cargo does not run these:\n{wrong:#?}");
}

#[test]
fn an_example_is_no_picture() {
    assert_eq!(example_in("/// ```text\n/// a → b\n/// ```\n"), None);
    assert_eq!(
        example_in("//! ```\n//! let a = 1;\n//! ```\n"),
        Some("//! ```")
    );
    assert_eq!(
        example_in("/// ```text\n/// ```\n/// ```rust\n"),
        Some("/// ```rust")
    );
}
