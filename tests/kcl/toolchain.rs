//! The KCL application under `consumer/`, built with Maven.
//!
//! It needs a second toolchain and takes minutes, so it runs where it is asked for, as `.ci/run`
//! does; anywhere else the tests say that they skip it.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use harness::process::{Host, repository};
use harness::setting::{STREAM, Setting};

/// The application's name, and so its table's: that of the plugin, so that hosts use the same one.
pub(crate) const APPLICATION: &str = "flights";
/// How long an owner may be silent; the same for both sides, as in any shared fleet.
pub(crate) const FAILOVER_MS: u64 = 3_000;
/// Small replies, so that a worker can be stopped in the middle of some thousand records.
pub(crate) const RECORDS_PER_CALL: u64 = 50;

/// A version of the KCL, ready to run.
pub(crate) struct Kcl {
    classes: PathBuf,
}

impl Kcl {
    /// Builds the application with this version. `None` where it is not asked for.
    ///
    /// # Panics
    ///
    /// If it is asked for and there is no Java or Maven, or it does not build.
    pub(crate) fn build(version: &str) -> Option<Self> {
        if std::env::var_os("SHARDMILL_KCL").is_none() {
            let message = "skipped: beside the real KCL; needs Java 11 or newer and Maven, \
                SHARDMILL_KCL=1 runs it";
            // Not through `eprintln!`, which the test runner keeps to itself.
            let _ = writeln!(std::io::stderr(), "{message}");
            return None;
        }
        for (program, argument) in [("java", "-version"), ("mvn", "-version")] {
            let found = Command::new(program)
                .arg(argument)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            let found = found.is_ok_and(|status| status.success());
            assert!(
                found,
                "`{program} {argument}` does not run: install Java 11 or newer and Maven 3.8 or newer"
            );
        }
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kcl-{version}"));
        build(version, &target);
        Some(Self {
            classes: target.join("lib"),
        })
    }

    /// Starts a worker whose records go to `ID.ndjson`, with other settings than usual, as
    /// `NAME=VALUE`.
    pub(crate) fn worker(&self, setting: &Setting, id: &str, others: &[String]) -> Host {
        let mut command = Command::new("java");
        // Started often and soon over: cheap code and a cheap collector.
        command.args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
        command.args([
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
        ]);
        command
            .arg("-cp")
            .arg(self.classes.join("*"))
            .arg("Consumer");
        command.args([
            format!("application={APPLICATION}"),
            format!("stream={STREAM}"),
            format!("worker={id}"),
            format!("output={}", setting.output_of(id).display()),
            format!("kinesis={}", setting.stack().kinesis_endpoint()),
            format!("dynamodb={}", setting.stack().dynamodb_endpoint()),
            format!("failover-ms={FAILOVER_MS}"),
            format!("records-per-call={RECORDS_PER_CALL}"),
            "stop-ms=5000".to_owned(),
        ]);
        command.args(others);
        Host::run(id, command, setting.path())
    }
}

/// Ends a worker of the KCL as an operator would: each processor checkpoints, no lease is released.
/// False if it did not end by itself after that, as happens while it holds the lease of a finished
/// shard.
pub(crate) async fn stop(worker: Host) -> bool {
    let log = worker.log_path().to_owned();
    // By a signal, so its code says nothing.
    let _status = worker.terminate().await;
    std::fs::read_to_string(log)
        .expect("a log")
        .contains("stopped cleanly")
}

/// Maven itself knows what is up to date. Once everything is downloaded it needs no network.
fn build(version: &str, target: &Path) {
    // Two of them would write into one local repository, and one a version is enough for all tests.
    static BUILT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if built.contains(version) {
        return;
    }
    let mut maven = Command::new("mvn");
    maven.args([
        "--batch-mode",
        "--quiet",
        "--no-transfer-progress",
        "package",
        "--file",
    ]);
    maven.arg(repository().join("tests/kcl/consumer/pom.xml"));
    maven
        .arg(format!("-Dkcl.version={version}"))
        .arg(format!("-Dbuild.to={}", target.display()));
    let output = maven.output().expect("Maven runs");
    assert!(
        output.status.success(),
        "Maven failed:\n{}",
        String::from_utf8_lossy(&output.stdout)
    );
    built.insert(version.to_owned());
}
