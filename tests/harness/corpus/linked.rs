//! Every function that the host links, WASI's among them, with arguments at their ends and without
//! end, as `tests/linked` makes them out of the WIT files that the linker is made of.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Entry, Expected};

/// The package that the host links WASI from. Its folder `wit` has all of WASI 0.2.
const LINKED: &str = "/wasmtime-wasi-http-";
/// Fewer than that would say that something was not read: WASI alone has 170.
const FUNCTIONS_MIN: usize = 170;
/// Nothing is downloaded for other platforms.
const PLATFORM: &str = if cfg!(target_arch = "aarch64") {
    "aarch64-unknown-linux-gnu"
} else {
    "x86_64-unknown-linux-gnu"
};

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
    let places = Places::ask_cargo();
    let mut run = cargo("run");
    run.args(["--quiet", "--manifest-path"])
        .arg(places.repository.join("tests/linked/Cargo.toml"))
        .args(["--", how])
        .arg(places.wasi.with_file_name("wit"))
        .arg(places.repository.join("wit"));
    let files = parted(&output(run));
    assert!(files.len() > FUNCTIONS_MIN, "{} files", files.len());
    files
}

/// Where things are that are not below this package.
struct Places {
    repository: PathBuf,
    /// The manifest of the package that WASI is linked from.
    wasi: PathBuf,
}

impl Places {
    fn ask_cargo() -> Self {
        let mut metadata = cargo("metadata");
        metadata.args(["--format-version", "1", "--filter-platform", PLATFORM]);
        let told = String::from_utf8(output(metadata)).expect("JSON");
        let mut manifests = values(&told, "\"manifest_path\":\"");
        let mut roots = values(&told, "\"workspace_root\":\"");
        let wasi = manifests.find(|manifest| manifest.contains(LINKED));
        Self {
            repository: Path::new(roots.next().expect("a workspace")).into(),
            wasi: Path::new(wasi.expect("the host links WASI")).into(),
        }
    }
}

/// The texts that begin so.
fn values<'a>(told: &'a str, begin: &'a str) -> impl Iterator<Item = &'a str> {
    let rests = told.split(begin).skip(1);
    rests.filter_map(|rest| rest.split('"').next())
}

fn cargo(command: &str) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args([command, "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo
}

fn output(mut command: Command) -> Vec<u8> {
    let ended = command.output().expect("cargo runs");
    let told = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{command:?}: {told}");
    ended.stdout
}

/// Each file comes after its length, four bytes.
fn parted(mut all: &[u8]) -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    while let Some((length, rest)) = all.split_first_chunk::<4>() {
        let (file, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        files.push(file.to_vec());
        all = rest;
    }
    files
}
