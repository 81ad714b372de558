//! `shardmill run`.

mod check;
mod probe;

use anyhow::Context;
use shardmill_aws::AwsClients;
use shardmill_config::Config;
use shardmill_core::ports::Clock;
use shardmill_core::stream::Utc;
use shardmill_serve::BootClock;
use shardmill_serve::Host;
use shardmill_serve::Measurements;
use shardmill_serve::Signals;
use tokio::task::JoinSet;

use self::check::check;
use self::probe::probe;
use crate::cli::RunArgs;

pub(crate) async fn execute(args: RunArgs) -> anyhow::Result<()> {
    if args.check {
        return Box::pin(check(&args)).await;
    }
    let mut config = Config::load(&args.config)?;
    for warning in config.check_around(Utc(BootClock.wall_ms())).warnings {
        tracing::warn!(warning, "the configuration may not mean what you intend");
    }
    if !config.environment.is_empty() {
        let variables = config.environment.join(" ");
        tracing::info!(variables, "settings from the environment");
    }
    shardmill_serve::hardening::tell_wall();
    config.host.cache = shardmill_serve::own_cache(&config, &args.config);
    if let Some(advice) =
        shardmill_config::machine::too_few_maps(config.host.instances_memory_bytes)
    {
        tracing::info!(
            advice,
            "many shards may need more memory maps than the system allows"
        );
    }
    let signals = Signals::listen()?;
    config.aws = crate::aws::merge(&config.aws, &args.aws)?;
    let clients = crate::aws::connect(&config.aws).await?;
    let mut probing = JoinSet::new();
    probing.spawn(tell_what_is_missing(config.clone(), clients.clone()));
    let worker_id = config.worker_id.clone();
    let stream = config.stream.as_ref().map(ToString::to_string);
    let plugins = config.plugins.clone();
    let host = Host::build(config, clients, Measurements::start())
        .await
        .context("cannot start")?;
    let admin = host
        .admin_address()
        .map(|address| format!("http://{address}/status"));
    tracing::info!(stream, worker = %worker_id, plugins = %plugins.display(), admin, "host started");
    Box::pin(host.run(signals.stop().clone())).await?;
    tracing::info!("host stopped");
    Ok(())
}

/// Once, beside the start: what is missing may come, and the host waits for it.
async fn tell_what_is_missing(config: Config, clients: AwsClients) {
    for problem in Box::pin(probe(&config, &clients)).await {
        tracing::warn!(problem, "something is missing, waiting for it");
    }
}
