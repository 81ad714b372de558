//! What only the build knows, for `shardmill version --verbose`. None of it can make a build fail.

use std::path::Path;
use std::process::Command;

const UNKNOWN: &str = "unknown";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!(
        "cargo:rustc-env=SHARDMILL_BUILD_TARGET={}",
        variable("TARGET")
    );
    println!(
        "cargo:rustc-env=SHARDMILL_BUILD_PROFILE={}",
        variable("PROFILE")
    );
    println!(
        "cargo:rustc-env=SHARDMILL_BUILD_RUSTC={}",
        compiler().unwrap_or_else(|| UNKNOWN.to_owned())
    );
    println!(
        "cargo:rustc-env=SHARDMILL_BUILD_WASMTIME={}",
        engine().unwrap_or_else(|| UNKNOWN.to_owned())
    );
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| UNKNOWN.to_owned())
}

fn compiler() -> Option<String> {
    let output = Command::new(std::env::var_os("RUSTC")?)
        .arg("--version")
        .output()
        .ok()?;
    let version = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!version.is_empty()).then_some(version)
}

/// wasmtime does not say its version to programs, but the lock file of the workspace does.
fn engine() -> Option<String> {
    let lock = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    let text = std::fs::read_to_string(&lock).ok()?;
    // Only a file that is there: cargo runs this each time if it is to watch one that is not.
    println!("cargo:rerun-if-changed={}", lock.display());
    let (_, package) = text.split_once("name = \"wasmtime\"\nversion = \"")?;
    package.split('"').next().map(str::to_owned)
}
