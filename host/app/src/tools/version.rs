//! `shardmill version`: what was built, what it reads and where it runs, as a bug report needs it.

use serde::Serialize;
use shardmill_core::plugin::CONTRACT;

use crate::cli::VersionArgs;
use crate::output::{Page, print, print_json};
use crate::own_version::{VARIANT, in_short};

/// Shown for what cannot be found out.
const UNKNOWN: &str = "unknown";

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Report {
    version: &'static str,
    commit: &'static str,
    variant: &'static str,
    #[serde(flatten)]
    details: Option<Details>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Details {
    rustc: &'static str,
    target: &'static str,
    profile: &'static str,
    features: Vec<&'static str>,
    wasmtime: &'static str,
    /// Of the WIT package `shardmill:processor`.
    contract: &'static str,
    reads: Vec<String>,
    os: String,
    cpu: String,
    /// That this process may use.
    cpus: usize,
}

pub(crate) fn execute(args: &VersionArgs) -> anyhow::Result<()> {
    let report = Report::new(args.verbose.then(Details::find));
    if args.output.json {
        return print_json(&report);
    }
    print(as_text(&report).trim_end());
    Ok(())
}

impl Report {
    fn new(details: Option<Details>) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            commit: shardmill_serve::COMMIT,
            variant: VARIANT,
            details,
        }
    }
}

impl Details {
    fn find() -> Self {
        Self {
            rustc: env!("SHARDMILL_BUILD_RUSTC"),
            target: env!("SHARDMILL_BUILD_TARGET"),
            profile: env!("SHARDMILL_BUILD_PROFILE"),
            features: if cfg!(feature = "local") {
                vec!["local"]
            } else {
                Vec::new()
            },
            wasmtime: env!("SHARDMILL_BUILD_WASMTIME"),
            contract: CONTRACT,
            reads: vec![
                "lease tables of KCL 2.x and 3.x".to_owned(),
                format!(
                    "dead letters of version {}",
                    shardmill_sinks::letters::LETTER_VERSION
                ),
                format!(
                    "captured records of version {}",
                    shardmill_sinks::CAPTURED_VERSION
                ),
                format!(
                    "recordings of version {}",
                    shardmill_sinks::recordings::RECORDING_VERSION
                ),
                format!("backups of version {}", crate::operate::BACKUP_VERSION),
            ],
            os: os(),
            cpu: cpu(),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
        }
    }

    fn write(&self, page: &mut Page) {
        page.line("rustc", self.rustc);
        page.line("target", self.target);
        page.line("profile", self.profile);
        if self.features.is_empty() {
            page.line("features", "none");
        } else {
            page.line("features", self.features.join(", "));
        }
        page.line("wasmtime", self.wasmtime);
        page.line(
            "contract",
            format_args!("shardmill:processor@{}", self.contract),
        );
        page.line("reads", self.reads.join(", "));
        page.line("os", &self.os);
        page.line(
            "cpu",
            format_args!("{}, {} for this process", self.cpu, self.cpus),
        );
    }
}

fn as_text(report: &Report) -> String {
    let mut page = Page::new(9);
    page.plain(format_args!("shardmill {}", in_short()));
    if let Some(details) = &report.details {
        details.write(&mut page);
    }
    page.into_text()
}

/// The kernel and the distribution, where Linux says so.
fn os() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let kernel = read("/proc/sys/kernel/osrelease");
    let release = read("/etc/os-release");
    let distribution = value_of(&release, "PRETTY_NAME", '=').unwrap_or(UNKNOWN);
    match kernel.trim() {
        "" => std::env::consts::OS.to_owned(),
        kernel => format!(
            "{} {kernel}, {}",
            std::env::consts::OS,
            distribution.trim_matches('"')
        ),
    }
}

fn cpu() -> String {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = value_of(&cpus, "model name", ':').unwrap_or(UNKNOWN);
    format!("{} {model}", std::env::consts::ARCH)
}

/// The first value under a name, of lines of names and values.
fn value_of<'a>(text: &'a str, name: &str, separator: char) -> Option<&'a str> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(separator));
    pairs
        .find(|(found, _)| found.trim() == name)
        .map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_knows_its_compiler_and_its_engine() {
        let details = Details::find();
        assert!(details.rustc.starts_with("rustc 1."), "{}", details.rustc);
        assert!(
            details.target.contains(std::env::consts::ARCH),
            "{}",
            details.target
        );
        let lock = include_str!("../../../../Cargo.lock");
        let engine = format!("name = \"wasmtime\"\nversion = \"{}\"", details.wasmtime);
        assert!(lock.contains(&engine), "{}", details.wasmtime);
    }

    #[test]
    fn the_short_form_is_one_line_and_the_long_one_has_a_line_for_each_fact() {
        let short = as_text(&Report::new(None));
        let version = env!("CARGO_PKG_VERSION");
        let start = format!("shardmill {version} ({VARIANT}, commit ");
        assert!(short.starts_with(&start), "{short}");
        assert!(
            short.ends_with(&format!("{})\n", shardmill_serve::COMMIT)),
            "{short}"
        );
        assert_eq!(short.lines().count(), 1, "{short}");
        let long = as_text(&Report::new(Some(Details::find())));
        for label in [
            "features", "rustc", "wasmtime", "contract", "reads", "os", "cpu",
        ] {
            assert!(
                long.lines()
                    .any(|line| line.split(' ').next() == Some(label)),
                "{label} is not in {long}"
            );
        }
        assert!(long.contains("dead letters of version 1"), "{long}");
    }
}
