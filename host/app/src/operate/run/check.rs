//! `shardmill run --check`: everything that would stop a host, all at once.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::Path;

use anyhow::bail;
use serde::Serialize;
use shardmill_config::{Checked, Config, ConfigError};
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::Clock;
use shardmill_core::stream::Utc;
use shardmill_serve::BootClock;
use shardmill_serve::component::Found;
use shardmill_wasm::BytesKind;
use shardmill_wasm::folder::{components, writers};
use shardmill_worker::ByteBudget;

use super::probe::{probe, probe_registries};
use crate::cli::RunArgs;
use crate::output::{print, print_json};

/// What `--json` prints.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Report {
    /// Whether a host would start, and reach everything.
    good: bool,
    /// Why a host, or a plugin, would not start.
    problems: Vec<String>,
    /// With `--connect`: what cannot be reached.
    missing: Vec<String>,
    /// Settings that are probably not what the operator intended.
    warnings: Vec<String>,
    /// The variables of the environment that set a value.
    environment: Vec<String>,
}

/// Shows everything that is wrong. Ends with an error if there is a problem.
pub(super) async fn check(args: &RunArgs) -> anyhow::Result<()> {
    let mut config = match Config::load(&args.config) {
        Ok(config) => config,
        Err(error) => return refused(args, error),
    };
    let mut report = Report::of(&config);
    if !args.json {
        report.print_notes();
    }
    if args.connect {
        match crate::aws::merge(&config.aws, &args.aws) {
            Ok(aws) => {
                config.aws = aws;
                report.missing = Box::pin(missing(&config)).await;
            }
            Err(error) => report.missing.push(format!("{error:#}")),
        }
    }
    report.good = report.problems.is_empty() && report.missing.is_empty();
    if args.json {
        print_json(&report)?;
    } else if report.good {
        let reached = if args.connect {
            ", and everything that it names can be reached"
        } else {
            ""
        };
        print(&format!("{} is good{reached}", args.config.display()));
    }
    end(&report)
}

/// What cannot be reached; without a region nothing can.
async fn missing(config: &Config) -> Vec<String> {
    match crate::aws::connect(&config.aws).await {
        Ok(clients) => {
            let missing = probe(config, &clients).await;
            let of_registries = probe_registries(config, &clients).await;
            [missing, of_registries].concat()
        }
        Err(error) => vec![format!("{error:#}")],
    }
}

impl Report {
    fn of(config: &Config) -> Self {
        let Checked {
            mut problems,
            mut warnings,
        } = config.check_around(Utc(BootClock.wall_ms()));
        problems.extend(problems_of_components(config));
        problems.extend(problems_of_count(config));
        match config.host.admin.map(TcpListener::bind) {
            // Most likely the host itself, which runs already.
            Some(Err(error)) if error.kind() == ErrorKind::AddrInUse => warnings.push(format!(
                "host.admin: {error}; a running host or another program has it"
            )),
            Some(Err(error)) => {
                problems.push(format!("host.admin: {error}; choose another address"));
            }
            Some(Ok(_)) | None => {}
        }
        // A running host checks this itself, again and again.
        warnings.extend(writers(&config.plugins));
        Self {
            good: problems.is_empty(),
            problems,
            missing: Vec::new(),
            warnings,
            environment: config.environment.clone(),
        }
    }

    /// The report on a file that cannot be used, as far as the rest of it can be checked.
    fn of_refused(error: &ConfigError) -> Self {
        let now = Utc(BootClock.wall_ms());
        let rest = error.rest();
        let around = rest.map(|rest| rest.check_around(now)).unwrap_or_default();
        Self {
            good: false,
            problems: around.problems,
            missing: Vec::new(),
            warnings: around.warnings,
            environment: rest
                .map(|rest| rest.environment().to_vec())
                .unwrap_or_default(),
        }
    }

    fn print_notes(&self) {
        self.print_warnings();
        for variable in &self.environment {
            print(&format!(
                "the environment variable {variable} sets its value"
            ));
        }
    }

    fn print_warnings(&self) {
        for warning in &self.warnings {
            print(&format!("warning: {warning}"));
        }
    }
}

/// Why the host would not run components of the folder, as far as their size, their kind and their
/// signature show. Nothing is compiled.
fn problems_of_components(config: &Config) -> Vec<String> {
    if !config.plugins.exists() {
        // That is a problem itself, or the host makes the folder.
        return Vec::new();
    }
    let components = match components(&config.plugins, config.host.plugin_bytes_max) {
        Ok(components) => components,
        Err(error) => {
            let folder = config.plugins.display();
            return vec![format!("cannot read the plugins folder {folder}: {error}")];
        }
    };
    let mut problems = Vec::new();
    for (path, name) in components {
        match name {
            Ok(name) => problems.extend(problem_of_component(config, &name, &path)),
            Err(why) => problems.push(format!("the host would refuse {}: {why}", path.display())),
        }
    }
    problems
}

fn problem_of_component(config: &Config, name: &PluginName, path: &Path) -> Option<String> {
    let bytes_max = config.host.plugin_bytes_max;
    match Found::read_trusted(path, bytes_max, &config.integrity(), name) {
        Err(error) => Some(format!("{error:#}")),
        Ok(found) => {
            let kind = BytesKind::of(&found.bytes);
            let is_fit = kind == BytesKind::Component;
            (!is_fit).then(|| format!("{} is {kind}: {}", path.display(), kind.mend()))
        }
    }
}

/// Whether there are more plugins than a host takes, or than `host.buffer` has room for.
fn problems_of_count(config: &Config) -> Vec<String> {
    let (count, limit) = (config.plugins_meant().len(), config.host.plugins_max);
    let mut problems = Vec::new();
    if count > limit {
        problems.push(format!(
            "{count} plugins are meant to run, but host.plugins-max is {limit}: remove some, or \
                raise it"
        ));
    }
    // The configuration refuses a buffer that is too small for any plugin.
    if let Some(budget) = ByteBudget::new(config.host.buffer_bytes) {
        let shares: Result<Vec<_>, _> = (0..count).map(|_| budget.share()).collect();
        problems.extend(shares.err().map(|error| error.to_string()));
    }
    problems
}

/// The file itself cannot be used. Nothing outside is asked.
fn refused(args: &RunArgs, error: ConfigError) -> anyhow::Result<()> {
    let around = Report::of_refused(&error);
    if args.json {
        print_json(&Report {
            problems: [error.problems(), around.problems.clone()].concat(),
            ..around.clone()
        })?;
    } else {
        around.print_warnings();
    }
    if around.problems.is_empty() {
        return Err(error.into());
    }
    let message = one_after_the_other([error.to_string()].iter().chain(&around.problems));
    Err(ConfigError::Plugin { message }.into())
}

/// Several errors; the first gets its `error: ` where it is shown.
fn one_after_the_other<'a>(errors: impl Iterator<Item = &'a String>) -> String {
    errors
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join("\nerror: ")
}

fn end(report: &Report) -> anyhow::Result<()> {
    let message = one_after_the_other(report.problems.iter().chain(&report.missing));
    if !report.problems.is_empty() {
        return Err(ConfigError::Plugin { message }.into());
    }
    if !report.missing.is_empty() {
        bail!("{message}");
    }
    Ok(())
}
