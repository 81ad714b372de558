//! `shardmill run --check`: everything that a host would stumble over, all at once.

use anyhow::bail;
use serde::Serialize;
use shardmill_config::{Checked, Config, ConfigError};
use shardmill_core::ports::Clock;
use shardmill_core::stream::Utc;
use shardmill_serve::BootClock;

use super::probe::probe;
use crate::cli::RunArgs;
use crate::output::{print, print_json};

/// What `--json` prints.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Report {
    /// Whether a host would start, and find what was asked for.
    good: bool,
    /// A host, or a plugin, would not start.
    problems: Vec<String>,
    /// With `--connect`: what cannot be reached.
    missing: Vec<String>,
    /// Probably not what was meant.
    warnings: Vec<String>,
    /// Variables of the environment that set something.
    environment: Vec<String>,
}

/// Ends with an error if there is a problem, told in any case.
pub(super) async fn check(args: &RunArgs) -> anyhow::Result<()> {
    let mut config = match Config::load(&args.config) {
        Ok(config) => config,
        Err(error) => return refused(args, error),
    };
    let Checked {
        problems,
        mut warnings,
    } = config.check_around(Utc(BootClock.wall_ms()));
    // A host that runs finds this out by itself, again and again.
    warnings.extend(shardmill_wasm::folder::writers(&config.plugins));
    let environment = config.environment.clone();
    if !args.json {
        for warning in &warnings {
            print(&format!("warning: {warning}"));
        }
        for variable in &environment {
            print(&format!("{variable} of the environment sets its value"));
        }
    }
    let mut missing = Vec::new();
    if args.connect {
        config.aws = crate::aws::merge(&config.aws, &args.aws)?;
        let clients = crate::aws::connect(&config.aws).await?;
        missing = Box::pin(probe(&config, &clients)).await;
    }
    let report = Report {
        good: problems.is_empty() && missing.is_empty(),
        problems,
        missing,
        warnings,
        environment,
    };
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

/// The file itself cannot be used. What is wrong around it is told as far as the rest of the file
/// shows it, and nobody is asked.
fn refused(args: &RunArgs, error: ConfigError) -> anyhow::Result<()> {
    let now = Utc(BootClock.wall_ms());
    let around = error.rest().map(|rest| rest.check_around(now));
    let Checked { problems, warnings } = around.unwrap_or_default();
    if args.json {
        print_json(&Report {
            good: false,
            problems: [error.problems(), problems.clone()].concat(),
            missing: Vec::new(),
            warnings,
            environment: error
                .rest()
                .map(|rest| rest.environment().to_vec())
                .unwrap_or_default(),
        })?;
    } else {
        for warning in &warnings {
            print(&format!("warning: {warning}"));
        }
    }
    if problems.is_empty() {
        return Err(error.into());
    }
    let message = one_after_the_other([error.to_string()].iter().chain(&problems));
    Err(ConfigError::Plugin { message }.into())
}

/// Several errors, the first of which gets its `error: ` from whoever tells it.
fn one_after_the_other<'a>(errors: impl Iterator<Item = &'a String>) -> String {
    errors
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join("\nerror: ")
}

fn end(report: &Report) -> anyhow::Result<()> {
    let told = one_after_the_other(report.problems.iter().chain(&report.missing));
    if !report.problems.is_empty() {
        return Err(ConfigError::Plugin { message: told }.into());
    }
    if !report.missing.is_empty() {
        bail!("{told}");
    }
    Ok(())
}
