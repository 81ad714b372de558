//! `shardmill run`.

mod check;
mod probe;

use anyhow::Context;
use indicatif::HumanBytes;
use shardmill_aws::AwsClients;
use shardmill_config::Config;
use shardmill_core::ports::Clock;
use shardmill_core::stream::Utc;
use shardmill_serve::{BootClock, Host, Measurements, MemorySum, Signals};
use tokio::task::JoinSet;

use self::check::check;
use self::probe::probe;
use crate::cli::RunArgs;
use crate::console::{self, ConsoleHost, Surroundings};

pub(crate) async fn execute(args: RunArgs) -> anyhow::Result<()> {
    if args.check {
        return Box::pin(check(&args)).await;
    }
    // First: a host that has logged something and is asked to stop then stops as planned.
    let mut signals = Signals::listen_as_service()?;
    let mut config = Config::load(&args.config)?;
    log_advice(&config);
    config.host.cache = shardmill_serve::own_cache(&config, &args.config);
    config.aws = crate::aws::merge(&config.aws, &args.aws)?;
    let clients = crate::aws::connect(&config.aws).await?;
    let mut probing = JoinSet::new();
    probing.spawn(log_what_is_missing(config.clone(), clients.clone()));
    let mut host = Host::build(config.clone(), clients.clone(), Measurements::start())
        .await
        .context("cannot start")?;
    let pages = console::pages(ConsoleHost {
        config: &config,
        surroundings: Surroundings::of_run(&args.config, &args.aws),
        clients,
        status: host.status(),
        tap: host.tap(),
        stop: signals.stop().clone(),
    });
    if let Some(pages) = pages.context("cannot serve the console")? {
        host.serve_too(pages);
    }
    host.reload_from(args.config.clone());
    signals.reload_on_hang_up(host.bell());
    log_start(&config, &host);
    Box::pin(host.run(signals.stop().clone())).await?;
    tracing::info!("host stopped");
    Ok(())
}

/// What the operator should know about the configuration and the machine.
fn log_advice(config: &Config) {
    for warning in config.check_around(Utc(BootClock.wall_ms())).warnings {
        tracing::warn!(
            warning,
            code = "setting-suspicious",
            "the configuration may not mean what you intend"
        );
    }
    if !config.environment.is_empty() {
        let variables = config.environment.join(" ");
        tracing::info!(variables, "settings from the environment");
    }
    shardmill_serve::open_files::provide();
    shardmill_serve::hardening::report_wall();
    let memory_bytes = config.host.instances_memory_bytes;
    if let Some(advice) = shardmill_config::machine::too_few_maps(memory_bytes) {
        tracing::info!(
            advice,
            "many shards may need more memory maps than the system allows"
        );
    }
}

fn log_start(config: &Config, host: &Host) {
    let stream = config.stream.as_ref().map(ToString::to_string);
    let admin = host
        .admin_address()
        .map(|address| format!("http://{address}/status"));
    tracing::info!(
        stream,
        worker = %config.worker_id,
        plugins = %config.plugins.display(),
        admin,
        "host started"
    );
    log_memory(config);
}

/// Logs the most memory that this host may take, so that an operator can compare it with the limit.
fn log_memory(config: &Config) {
    let plugins = config.plugins_to_serve().len();
    let most = MemorySum::of(config, plugins);
    let bytes = |bytes: usize| HumanBytes(bytes as u64).to_string();
    tracing::info!(
        total = bytes(most.total()),
        instances = bytes(most.instances),
        code = bytes(most.code),
        buffer = bytes(most.buffer),
        http = bytes(most.http),
        letters = bytes(most.letters),
        recordings = bytes(most.recordings),
        calls = bytes(most.calls),
        process = bytes(most.process),
        compiler = bytes(most.compiler),
        plugins,
        "the most memory that this host may take"
    );
    if let Some(advice) = most.advice(shardmill_config::machine::memory_bytes()) {
        tracing::warn!(
            advice,
            code = "memory-exceeds",
            "the settings allow more memory than there is"
        );
    }
}

/// Looks once while the host starts. What is missing may still be created, and the host waits for
/// it.
async fn log_what_is_missing(config: Config, clients: AwsClients) {
    for problem in Box::pin(probe(&config, &clients)).await {
        tracing::warn!(
            problem,
            code = "start-waits",
            "something is missing, waiting for it"
        );
    }
}
