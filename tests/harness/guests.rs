//! Compiled guests: builds them once with the cargo that runs the tests, and reads what came out.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const TARGET: &str = "wasm32-wasip2";
const PACKAGES: [&str; 5] = [
    "shardmill-guests",
    "earthquakes",
    "flights",
    "totals",
    "hours",
];
const EXAMPLES: [&str; 12] = [
    "asking",
    "brittle",
    "conduct",
    "noop",
    "noop_lists",
    "echo",
    "echo_lists",
    "evil",
    "evil_state",
    "poison",
    "ticking",
    "versioned",
];

/// The bytes of a guest: one of the test guests, or of the examples that are Rust.
///
/// # Panics
///
/// When the guests do not build: there is nothing to test then.
pub fn guest(name: &str) -> Vec<u8> {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let mut path = FOLDER.get_or_init(build).clone();
    if EXAMPLES.contains(&name) {
        path.push("examples");
    }
    path.push(format!("{name}.wasm"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The guest `versioned` with its version set: the same code under another digest.
///
/// # Panics
///
/// If the compiled file does not hold the constant that is overwritten.
pub fn versioned(version: usize) -> Vec<u8> {
    overwritten(
        guest("versioned"),
        "VERSION-000000",
        &format!("VERSION-{version:06}"),
    )
}

/// The guest `conduct` with its version set, and how it behaves: `good`, `trap`, `slow`, `leak`,
/// `rare` or `hold`.
///
/// # Panics
///
/// If the compiled file does not hold the constants that are overwritten.
pub fn conduct(version: usize, how: &str) -> Vec<u8> {
    let bytes = overwritten(
        guest("conduct"),
        "VERSION-000000",
        &format!("VERSION-{version:06}"),
    );
    overwritten(bytes, "CONDUCT-good", &format!("CONDUCT-{how}"))
}

/// The guest `brittle` without its mistake.
///
/// # Panics
///
/// If the compiled file does not hold the constant that is overwritten.
pub fn mended_brittle() -> Vec<u8> {
    overwritten(guest("brittle"), "CONDUCT-brittle", "CONDUCT-mended!")
}

fn overwritten(mut bytes: Vec<u8>, mark: &str, with: &str) -> Vec<u8> {
    let mark = mark.as_bytes();
    let places: Vec<_> = bytes
        .windows(mark.len())
        .enumerate()
        .filter(|(_, at)| *at == mark)
        .map(|(at, _)| at)
        .collect();
    assert!(
        !places.is_empty() && with.len() == mark.len(),
        "the guest holds no {mark:?} to be {with}"
    );
    for at in places {
        bytes[at..at + mark.len()].copy_from_slice(with.as_bytes());
    }
    bytes
}

/// A component under another digest: with a custom section at its end that nothing reads.
///
/// # Panics
///
/// Never: the section is shorter than 128 bytes.
pub fn marked(component: &[u8], mark: usize) -> Vec<u8> {
    let name = "shardmill-test";
    let mark = mark.to_string();
    let length = u8::try_from(1 + name.len() + mark.len()).expect("short");
    let name_length = u8::try_from(name.len()).expect("short");
    [
        component,
        &[0, length, name_length],
        name.as_bytes(),
        mark.as_bytes(),
    ]
    .concat()
}

fn build() -> PathBuf {
    let first = cargo_build();
    let is_built = first.is_ok() || (add_target() && cargo_build().is_ok());
    assert!(
        is_built,
        "the guests do not build: {}",
        first.err().unwrap_or_default()
    );
    target_folder().join(TARGET).join("guest")
}

fn cargo_build() -> Result<(), String> {
    let mut cargo = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    cargo.current_dir(workspace()).args([
        "build",
        "--target",
        TARGET,
        "--profile",
        "guest",
        "--lib",
        "--examples",
    ]);
    // The tests' own flags (coverage, sanitizers) are for this machine.
    cargo
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env("CARGO_TARGET_DIR", target_folder());
    for package in PACKAGES {
        cargo.args(["-p", package]);
    }
    let output = cargo.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn add_target() -> bool {
    Command::new("rustup")
        .args(["target", "add", TARGET])
        .status()
        .is_ok_and(|status| status.success())
}

fn workspace() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_workspace = |folder: &&Path| folder.join("Cargo.lock").exists();
    package
        .ancestors()
        .find(is_workspace)
        .unwrap_or(package)
        .to_owned()
}

/// The folder that the running test was built in: beside it, the guests share what is already
/// compiled.
fn target_folder() -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a file");
    let target = test
        .ancestors()
        .find(|folder| folder.join("CACHEDIR.TAG").exists());
    target.map_or_else(|| workspace().join("target"), Path::to_owned)
}
