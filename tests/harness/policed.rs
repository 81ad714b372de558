//! Hosts before the policy that `shardmill iam` prints for their configuration.
//!
//! `SHARDMILL_POLICY=FILE` puts every host of the scenarios that works on the embedded stack behind
//! such a gate. What a host is refused is added to the file, a line each: none should be. The
//! policy is that of the configuration and the folder, now and earlier: scenarios change both while
//! hosts run.

#![allow(
    clippy::print_stderr,
    reason = "whoever asks for the gates reads what they say"
)]

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use shardmill_local::{LOCAL_ACCOUNT, LOCAL_REGION};
use tokio::runtime::Runtime;

use crate::gate::Gate;
use crate::process::binary;

const VARIABLE: &str = "SHARDMILL_POLICY";
/// Credentials: the embedded stack checks none, but the SDK signs with some.
const CREDENTIALS: [(&str, &str); 3] = [
    ("AWS_ACCESS_KEY_ID", "test"),
    ("AWS_SECRET_ACCESS_KEY", "test"),
    ("AWS_EC2_METADATA_DISABLED", "true"),
];

/// The gate of one host, and where to write what it refused.
pub(crate) struct Policed {
    gate: Gate,
    servers: Option<Runtime>,
    of: String,
    to: PathBuf,
}

/// What prints the policy of a host.
struct Printer {
    config: OsString,
    folder: PathBuf,
    variables: Vec<(OsString, Option<OsString>)>,
}

impl Printer {
    /// The policy now; `None` if none can be printed, as for a folder without plugins.
    fn print(&self) -> Option<Value> {
        let mut command = Command::new(binary());
        command.arg("iam").arg("--config").arg(&self.config);
        command.args(["--region", LOCAL_REGION, "--account", LOCAL_ACCOUNT]);
        command.current_dir(&self.folder);
        set(&mut command, &self.variables);
        let printed = command.output().ok()?;
        let policy = serde_json::from_slice(&printed.stdout).ok();
        if policy.is_none() {
            eprintln!("no policy: {}", String::from_utf8_lossy(&printed.stderr));
        }
        policy
    }
}

/// The same command behind a gate, if that is asked for and the command is a host's on the embedded
/// stack of this folder.
pub(crate) fn policed(name: &str, command: Command, folder: &Path) -> (Command, Option<Policed>) {
    let Some(to) = std::env::var_os(VARIABLE) else {
        return (command, None);
    };
    let Some((config, endpoints)) = host_on_stack(&command, folder) else {
        return (command, None);
    };
    let variables: Vec<(OsString, Option<OsString>)> = command
        .get_envs()
        .map(|(name, value)| (name.to_owned(), value.map(OsStr::to_owned)))
        .collect();
    let printer = Printer {
        config,
        folder: folder.to_owned(),
        variables: variables.clone(),
    };
    let (gate, servers, fronts) = opened(printer, endpoints);
    let mut behind = Command::new(command.get_program());
    for arg in command.get_args() {
        if arg == "--local" {
            behind.args(["--region", LOCAL_REGION]);
            behind.args(["--kinesis-endpoint", &fronts[0]]);
            behind.args(["--dynamodb-endpoint", &fronts[1]]);
        } else {
            behind.arg(arg);
        }
    }
    // The gate reads JSON only.
    behind.env("SHARDMILL_AWS__WIRE", "json").envs(CREDENTIALS);
    set(&mut behind, &variables);
    let thread = std::thread::current();
    let policed = Policed {
        gate,
        servers: Some(servers),
        of: format!("{} {name}", thread.name().unwrap_or("?")),
        to: to.into(),
    };
    (behind, Some(policed))
}

fn set(command: &mut Command, variables: &[(OsString, Option<OsString>)]) {
    for (name, value) in variables {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
}

/// The configuration of a host, and the endpoints of its stack: Kinesis, DynamoDB.
fn host_on_stack(command: &Command, folder: &Path) -> Option<(OsString, [String; 2])> {
    let args: Vec<&OsStr> = command.get_args().collect();
    if !args.contains(&OsStr::new("run")) || !args.contains(&OsStr::new("--local")) {
        return None;
    }
    let flag = args.iter().position(|arg| *arg == "--config")?;
    let config = (*args.get(flag + 1)?).to_owned();
    let text = std::fs::read_to_string(folder.join(&config)).ok()?;
    if text.contains("endpoint") || text.contains("wire") {
        return None;
    }
    let endpoints = std::fs::read(folder.join("data/endpoints.json")).ok()?;
    let endpoints: Value = serde_json::from_slice(&endpoints).ok()?;
    let at = |service: &str| endpoints[service].as_str().map(str::to_owned);
    Some((config, [at("kinesis")?, at("dynamodb")?]))
}

/// A gate before both, on a thread that is not the test's.
fn opened(printer: Printer, endpoints: [String; 2]) -> (Gate, Runtime, Vec<String>) {
    let opening = std::thread::spawn(move || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let servers = builder.worker_threads(1).enable_all().build();
        let servers = servers.expect("a runtime");
        let mut gate = Gate::printed(move || printer.print());
        let fronts = servers.block_on(async {
            let mut fronts = Vec::new();
            for endpoint in endpoints {
                fronts.push(gate.before(&endpoint).await);
            }
            fronts
        });
        (gate, servers, fronts)
    });
    opening.join().expect("the gate opens")
}

impl Drop for Policed {
    fn drop(&mut self) {
        if let Some(servers) = self.servers.take() {
            servers.shutdown_background();
        }
        let refused = self.gate.refused();
        let lines: Vec<String> = refused
            .iter()
            .map(|what| format!("{}: {what}\n", self.of))
            .collect();
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.to);
        let count = format!("{}: {} refused\n", self.of, lines.len());
        let written =
            file.and_then(|mut file| file.write_all((lines.concat() + &count).as_bytes()));
        if let Err(error) = written {
            eprintln!("{}: {error}", self.to.display());
        }
    }
}
