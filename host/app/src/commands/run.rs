//! `shardmill run`.

use anyhow::Context;

use super::print;
use crate::assembly::Host;
use crate::cli::RunArgs;
use crate::config::{Checked, Config, ConfigError};
use crate::measurements::Measurements;
use crate::shutdown::Signals;

pub(super) async fn execute(args: RunArgs) -> anyhow::Result<()> {
    let mut config = Config::load(&args.config)?;
    if args.check {
        return check(&args, &config);
    }
    for warning in config.check_around().warnings {
        tracing::warn!(warning, "the configuration may not be what is meant");
    }
    crate::hardening::tell_wall();
    let signals = Signals::listen()?;
    config.aws = crate::aws::merge(&config.aws, &args.aws)?;
    let clients = crate::aws::connect(&config.aws).await?;
    let worker_id = config.worker_id.clone();
    let stream = config.stream.as_ref().map(ToString::to_string);
    let plugins = config.plugins.clone();
    let host = Host::build(config, clients, Measurements::start()).await.context("cannot start")?;
    let admin = host.admin_address().map(|address| format!("http://{address}/status"));
    tracing::info!(stream, worker = %worker_id, plugins = %plugins.display(), admin, "host started");
    Box::pin(host.run(signals.stop().clone())).await?;
    tracing::info!("host stopped");
    Ok(())
}

/// Tells everything that a host would stumble over.
fn check(args: &RunArgs, config: &Config) -> anyhow::Result<()> {
    let Checked { problems, warnings } = config.check_around();
    for warning in &warnings {
        print(&format!("warning: {warning}"));
    }
    if problems.is_empty() {
        print(&format!("{} is good", args.config.display()));
        return Ok(());
    }
    Err(ConfigError::Plugin { message: problems.join("\n       ") }.into())
}
