//! A host and a feed, until a signal comes or everything is processed.

use anyhow::Context;
use shardmill_aws::{AwsClients, StreamWriter};
use shardmill_config::Config;
use shardmill_core::stream::StreamName;
use shardmill_serve::{Host, HostStatus, Measurements};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::idle::Idling;
use crate::author::feed::KeySource;
use crate::author::pump::{PumpSummary, pump};
use crate::author::summary::Summary;
use crate::cli::DevArgs;
use crate::console::{self, ConsoleHost, Surroundings};
use crate::output::{Interrupted, print, print_json};

/// What runs next to the host.
struct Session<'a> {
    args: &'a DevArgs,
    config: Config,
    clients: AwsClients,
    stream: StreamName,
    status: HostStatus,
    started: Instant,
    /// The signal.
    stop: &'a CancellationToken,
}

/// Runs the host and the feed. With `--until-idle`, prints a summary at the end.
pub(super) async fn serve(
    args: &DevArgs,
    config: Config,
    clients: AwsClients,
    stream: StreamName,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let mut host = Host::build(config.clone(), clients.clone(), Measurements::start()).await?;
    let session = Session {
        args,
        config,
        clients,
        stream,
        status: host.status(),
        started: Instant::now(),
        stop,
    };
    session.serve_console(&mut host)?;
    if let Some(file) = &args.config {
        host.reload_from(file.clone());
    }
    session.log_start(&host);
    match Box::pin(session.run(host)).await? {
        Some(summary) => conclude(args, &summary),
        None => Ok(()),
    }
}

impl Session<'_> {
    fn serve_console(&self, host: &mut Host) -> anyhow::Result<()> {
        let pages = console::pages(ConsoleHost {
            config: &self.config,
            surroundings: Surroundings::of_dev(self.args.config.as_deref(), &self.args.data),
            clients: self.clients.clone(),
            status: host.status(),
            tap: host.tap(),
            stop: self.stop.clone(),
        })?;
        if let Some(pages) = pages {
            host.serve_too(pages);
        }
        Ok(())
    }

    /// Both, until the feed is at its end or the host fails.
    async fn run(&self, host: Host) -> anyhow::Result<Option<Summary>> {
        let host_stop = CancellationToken::new();
        let work = async {
            let summary = self.feed_and_wait().await;
            host_stop.cancel();
            summary
        };
        let serving = async {
            let served = Box::pin(host.run(host_stop.clone())).await;
            if served.is_err() {
                self.stop.cancel();
            }
            served
        };
        let (served, summary) = tokio::join!(serving, work);
        served?;
        summary
    }

    fn log_start(&self, host: &Host) {
        let admin = host
            .admin_address()
            .map(|address| format!("http://{address}/"));
        tracing::info!(
            stream = %self.stream,
            plugins = %self.args.plugins.display(),
            kinesis = self.config.aws.kinesis_endpoint,
            dynamodb = self.config.aws.dynamodb_endpoint,
            admin,
            "embedded stack and host started; drop a component in the plugins folder"
        );
    }

    /// Feeds the stream, and waits for the end of the run. `None` without `--until-idle`.
    async fn feed_and_wait(&self) -> anyhow::Result<Option<Summary>> {
        let fed = self.feed().await?;
        if !self.args.until_idle {
            self.stop.cancelled().await;
            return Ok(None);
        }
        let idling = Idling {
            config: &self.config,
            clients: &self.clients,
            stream: &self.stream,
            fed: fed.as_ref(),
        };
        let waited = self
            .stop
            .run_until_cancelled(idling.wait(&self.status))
            .await;
        let summary = Summary::new(
            &self.status.snapshot(),
            fed.as_ref(),
            self.started.elapsed(),
            waited.is_some(),
        );
        waited.transpose()?;
        Ok(Some(summary))
    }

    async fn feed(&self) -> anyhow::Result<Option<PumpSummary>> {
        let Some(path) = &self.args.feed else {
            return Ok(None);
        };
        let key = KeySource::field_or_number(self.args.key_field.as_deref());
        let writer = StreamWriter::new(self.clients.kinesis.clone(), self.stream.clone())
            .speaking(self.clients.wire.clone());
        let summary = pump(&writer, path, key.into(), self.stop)
            .await
            .context("cannot feed the stream")?;
        tracing::info!(
            records = summary.records,
            seconds = summary.seconds,
            "feed done"
        );
        Ok(Some(summary))
    }
}

fn conclude(args: &DevArgs, summary: &Summary) -> anyhow::Result<()> {
    if args.json {
        print_json(summary)?;
    } else {
        print(&summary.to_string());
    }
    if summary.was_interrupted {
        let why = ": not everything that was fed has been processed";
        return Err(Interrupted(why.to_owned()).into());
    }
    Ok(summary.all_handled()?)
}
