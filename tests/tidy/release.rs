//! What is released fits together: one version everywhere, and packages with the whole contract.

use std::collections::BTreeSet;
use std::fs;

use super::root;

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// What stands between `before` and `after`, where both come first.
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let (_, rest) = text.split_once(before).unwrap();
    rest.split_once(after).unwrap().0
}

fn version() -> String {
    let manifest = read("Cargo.toml");
    between(&manifest, "\n[workspace.package]\nversion = \"", "\"").to_owned()
}

#[test]
fn everything_that_is_released_has_the_version_of_the_workspace() {
    let version = version();
    let places = [
        ("Cargo.toml", "path = \"wit\", version = \"", "\""),
        ("Cargo.toml", "path = \"wit/layout\", version = \"", "\""),
        ("wit/pyproject.toml", "\nversion = \"", "\""),
        ("wit/package.json", "\"version\": \"", "\""),
        ("deploy/helm/shardmill/Chart.yaml", "\nversion: ", "\n"),
        ("deploy/helm/shardmill/Chart.yaml", "\nappVersion: ", "\n"),
        (
            "host/app/templates/rust/Cargo.toml",
            "= { version = \"",
            "\"",
        ),
        (
            "host/app/templates/rust/wit/Cargo.toml",
            "\nversion = \"",
            "\"",
        ),
        (
            "host/app/templates/rust/wit/layout/Cargo.toml",
            "\nversion = \"",
            "\"",
        ),
        (
            "host/app/templates/go/go.mod",
            "shardmill.example/wit v",
            "\n",
        ),
        (
            "host/app/templates/python/README.md",
            "`shardmill-processor==",
            "`",
        ),
        (
            "host/app/templates/javascript/README.md",
            "`file:wit` by `",
            "`",
        ),
    ];
    for (path, before, after) in places {
        let text = read(path);
        assert_eq!(between(&text, before, after), version, "{path}: {before:?}");
    }
}

#[test]
fn the_wheel_has_every_file_of_the_contract() {
    let manifest = read("wit/pyproject.toml");
    let files: BTreeSet<String> = fs::read_dir(root().join("wit"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "wit"))
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert!(files.len() > 5, "{files:?}");
    for name in files.iter().map(String::as_str).chain(["deps"]) {
        let line = format!("\n\"{name}\" = \"shardmill_processor/wit/{name}\"\n");
        assert!(
            manifest.contains(&line),
            "wit/pyproject.toml does not pack {name}"
        );
    }
}

/// The names under `[dependencies]` and what follows each, without versions and places.
fn needs(manifest: &str) -> BTreeSet<String> {
    let section = between(manifest, "\n[dependencies]\n", "\n\n");
    section
        .lines()
        .map(|line| {
            let name = line.split(['.', ' ']).next().unwrap_or_default();
            let is_optional = line.contains("optional = true");
            format!("{name} optional {is_optional}")
        })
        .collect()
}

#[test]
fn the_copy_of_the_crate_in_a_new_project_needs_what_the_crate_needs() {
    let features = |text: &str| between(text, "\n[features]\n", "\n[dependencies]").to_owned();
    let crate_itself = read("wit/Cargo.toml");
    let copy = read("host/app/templates/rust/wit/Cargo.toml") + "\n";
    assert_eq!(needs(&copy), needs(&crate_itself));
    assert_eq!(features(&copy), features(&crate_itself));
}

#[test]
fn images_of_releases_are_made_of_the_last_stage_of_the_containerfile() {
    let text = read("deploy/Containerfile");
    let (_, stage) = text.split_once("FROM scratch AS production\n").unwrap();
    assert!(
        stage.contains("COPY --from=build /image/ /\n"),
        "release/images.py replaces this line"
    );
    assert_eq!(stage.matches("--from").count(), 1, "{stage}");
    assert!(
        stage.contains("\nUSER 65532:65532\n"),
        "not as root: {stage}"
    );
}
