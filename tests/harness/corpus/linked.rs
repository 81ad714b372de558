//! Every function that the host links, WASI's among them, with arguments at their ends and without
//! end, as `tests/linked` makes them out of the WIT files that the linker is made of.

use std::path::PathBuf;
use std::process::{Command, Output};

use super::{Entry, Expected};

/// The package that the host links WASI from. Its folder `wit` has all of WASI 0.2.
const LINKED: &str = "/wasmtime-wasi-http-";

pub(super) fn entries() -> Vec<Entry> {
    vec![
        Entry::new(
            "linked-extremes",
            "D13",
            || made("extremes"),
            Expected::Runs,
        ),
        Entry::new(
            "linked-without-end",
            "D27",
            || made("without-end"),
            Expected::Runs,
        ),
    ]
}

fn made(how: &str) -> Vec<Vec<u8>> {
    let told = cargo(&[
        "metadata",
        "--format-version",
        "1",
        "--filter-platform",
        PLATFORM,
    ]);
    let told = String::from_utf8(told.stdout).unwrap();
    let values_of = |key: &str| -> Vec<PathBuf> {
        let begin = format!("\"{key}\":\"");
        let values = told.split(&begin).skip(1);
        let values = values.filter_map(|rest| rest.split('"').next());
        values.map(PathBuf::from).collect()
    };
    let manifests = values_of("manifest_path").into_iter();
    let is_linked = |path: &PathBuf| path.to_str().unwrap().contains(LINKED);
    let wasi = manifests.clone().find(is_linked).unwrap();
    let workspace = values_of("workspace_root").remove(0);
    let made = cargo(&[
        "run",
        "--quiet",
        "--manifest-path",
        workspace.join("tests/linked/Cargo.toml").to_str().unwrap(),
        "--",
        how,
        wasi.with_file_name("wit").to_str().unwrap(),
        workspace.join("wit").to_str().unwrap(),
    ]);
    let files = parted(&made.stdout);
    assert!(files.len() > FUNCTIONS_MIN, "{} files", files.len());
    files
}

/// Fewer than that would say that something was not read: WASI alone has 170.
const FUNCTIONS_MIN: usize = 170;

/// Nothing is downloaded for other platforms.
const PLATFORM: &str = if cfg!(target_arch = "aarch64") {
    "aarch64-unknown-linux-gnu"
} else {
    "x86_64-unknown-linux-gnu"
};

fn cargo(args: &[&str]) -> Output {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let (command, rest) = args.split_first().unwrap();
    let mut cargo = Command::new(cargo);
    cargo.args([*command, "--locked"]).args(rest);
    let output = cargo
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {told}");
    output
}

/// Each file comes after its length, four bytes.
fn parted(mut all: &[u8]) -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    while let Some((length, rest)) = all.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        files.push(rest[..length].to_vec());
        all = &rest[length..];
    }
    files
}
