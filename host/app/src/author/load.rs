//! `shardmill load`: a steady load on a stream, to find out what a fleet keeps up with.

mod lanes;
mod plan;

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, bail};
use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;
use shardmill_aws::{AwsClients, LeaseTable, PutReport, PutTarget, StreamAdmin, StreamWriter};
use shardmill_core::load_test::LoadTest;
use shardmill_core::ports::LeaseStore;
use shardmill_core::stream::StreamRef;
use shardmill_serve::Signals;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::plan::Plan;
use crate::author::settled::is_checkpointed;
use crate::cli::LoadArgs;
use crate::output::{Interrupted, age, no_stream, print, print_json};
use crate::prices::Prices;

/// How often the checkpoints of the application are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What came of a load test.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Outcome {
    stream: String,
    records: u64,
    bytes: u64,
    /// Records that were sent again, since Kinesis did not take them at first.
    retries: u64,
    seconds: f64,
    records_per_second: f64,
    /// What was asked for.
    wanted_per_second: f64,
    /// From the last record until the application had handled all; `None` without an application,
    /// or if it had not.
    handled_after_seconds: Option<f64>,
    is_deleted: bool,
}

pub(crate) async fn execute(args: &LoadArgs) -> anyhow::Result<()> {
    let signals = Signals::listen()?;
    let prices = Prices::read(args.prices.as_deref())?;
    let clients = crate::aws::connect_to(&args.connection).await?;
    let test = Test {
        load: test_of(args),
        admin: StreamAdmin::new(clients.kinesis.clone()),
        stream: stream_of(args)?,
        args,
        clients,
        stop: signals.stop(),
    };
    let shards = test.shards().await?;
    let plan = Plan::new(args, &test.load, shards, &prices);
    if !args.apply {
        return plan.show(args);
    }
    if plan.shards_needed > plan.shards {
        tracing::warn!(
            shards = plan.shards,
            needed = plan.shards_needed,
            code = "load-throttled",
            "the stream takes less than this load"
        );
    }
    test.refuse_unserved().await?;
    let outcome = test.run_and_clean_up().await?;
    if args.output.json {
        print_json(&outcome)?;
    } else {
        print(&outcome.as_text(args));
    }
    test.conclude(&outcome)
}

fn test_of(args: &LoadArgs) -> LoadTest {
    LoadTest {
        records_per_second: args.records_per_second,
        record_bytes: args.bytes,
        lasts: args.lasts,
    }
}

fn stream_of(args: &LoadArgs) -> anyhow::Result<StreamRef> {
    let stream = StreamRef::parse(&args.stream)?;
    if stream.arn().is_some() && args.create_with.is_some() {
        bail!("--create-with makes a stream of this account and region: give its name");
    }
    Ok(stream)
}

/// A load test that is under way.
struct Test<'a> {
    args: &'a LoadArgs,
    load: LoadTest,
    clients: AwsClients,
    admin: StreamAdmin,
    stream: StreamRef,
    stop: &'a CancellationToken,
}

impl Test<'_> {
    /// Of the stream, or of the one that is to be made.
    async fn shards(&self) -> anyhow::Result<u32> {
        let found = self.admin.describe(&self.stream).await?;
        match (found, self.args.create_with) {
            (None, Some(shards)) => Ok(shards),
            (Some(_), Some(_)) => Err(self.exists()),
            (Some(found), None) => Ok(found.open_shards),
            (None, None) => bail!(
                "{}; --create-with SHARDS makes one for the test and deletes it again",
                no_stream(&self.args.stream)
            ),
        }
    }

    fn exists(&self) -> anyhow::Error {
        anyhow::anyhow!(
            "stream {} exists already, and --create-with would delete it at the end: choose a name \
                that no stream has, or leave --create-with out to use this stream",
            self.args.stream
        )
    }

    /// Before anything costs money. Hosts of a stream that is yet to be made have no table.
    async fn refuse_unserved(&self) -> anyhow::Result<()> {
        match &self.args.application {
            Some(application) if self.args.create_with.is_none() => {
                if self.table(application).exists().await? {
                    return Ok(());
                }
                bail!(
                    "there is no lease table {application}: no host has served this application \
                        here; start its hosts first, or leave --application out"
                )
            }
            _ => Ok(()),
        }
    }

    fn table(&self, application: &str) -> LeaseTable {
        LeaseTable::new(self.clients.dynamodb.clone(), application)
    }

    /// A stream that was made for the test goes, however the test ends.
    async fn run_and_clean_up(&self) -> anyhow::Result<Outcome> {
        let Some(shards) = self.args.create_with else {
            return self.run().await;
        };
        if !self.admin.create_new(&self.stream, shards).await? {
            return Err(self.exists());
        }
        let ready = self.admin.ensure_stream(&self.stream, shards);
        let ran = match self.stop.run_until_cancelled(ready).await {
            Some(Ok(_)) => self.run().await,
            Some(Err(error)) => Err(error.into()),
            None => Err(Interrupted(": nothing was put".to_owned()).into()),
        };
        if self.args.keep {
            return ran;
        }
        let deleted = self.admin.delete(&self.stream).await.with_context(|| {
            format!(
                "stream {0} was not deleted and costs money: `aws kinesis delete-stream \
                    --stream-name {0}`",
                self.args.stream
            )
        });
        match (ran, deleted) {
            (Ok(outcome), Ok(())) => Ok(Outcome {
                is_deleted: true,
                ..outcome
            }),
            (Err(error), Ok(())) | (_, Err(error)) => Err(error),
        }
    }

    async fn run(&self) -> anyhow::Result<Outcome> {
        let target = PutTarget::parse(&self.args.stream)?;
        let writer = StreamWriter::to(self.clients.kinesis.clone(), target);
        let writer = writer.speaking(self.clients.wire.clone());
        tracing::info!(stream = %self.stream, lasts = ?self.load.lasts, "putting records");
        let started = Instant::now();
        let report = lanes::put_all(&writer, self.load, self.stop).await?;
        let took = started.elapsed();
        let handled = match &self.args.application {
            Some(application) => self.until_handled(application, &report).await?,
            None => None,
        };
        Ok(Outcome {
            stream: self.args.stream.clone(),
            records: report.records,
            bytes: report.bytes,
            retries: report.retries,
            seconds: took.as_secs_f64(),
            records_per_second: report.records as f64 / took.as_secs_f64().max(1e-3),
            wanted_per_second: self.load.records_per_second,
            handled_after_seconds: handled.map(|handled| handled.as_secs_f64()),
            is_deleted: false,
        })
    }

    /// How long it takes the application to handle what was put; `None` if it takes too long.
    async fn until_handled(
        &self,
        application: &str,
        report: &PutReport,
    ) -> anyhow::Result<Option<Duration>> {
        let table = self.table(application);
        let since = Instant::now();
        tracing::info!(application, "waiting for the application");
        while !self.stop.is_cancelled() {
            // Hosts that were started late have made none yet.
            let is_handled = table.exists().await?
                && is_checkpointed(&table.list().await?.leases, &report.last_sequence);
            let took = since.elapsed();
            if is_handled {
                return Ok(Some(took));
            }
            if took >= self.args.wait {
                break;
            }
            let sleep = tokio::time::sleep(LOOK_EVERY);
            self.stop.run_until_cancelled(sleep).await;
        }
        Ok(None)
    }

    fn conclude(&self, outcome: &Outcome) -> anyhow::Result<()> {
        if self.stop.is_cancelled() {
            let records = HumanCount(outcome.records);
            let text = format!(": {records} records were put, the others were not");
            return Err(Interrupted(text).into());
        }
        let all = self.load.records();
        if outcome.records < all {
            bail!(
                "only {} of {} records were put in time: the stream or the way to it takes no more",
                HumanCount(outcome.records),
                HumanCount(all)
            );
        }
        match &self.args.application {
            Some(application) if outcome.handled_after_seconds.is_none() => bail!(
                "application {application} had not handled all records {} after the last one: it \
                    does not keep up; `shardmill status {application}` shows which shards are \
                    behind",
                age(self.args.wait)
            ),
            _ => Ok(()),
        }
    }
}

impl Outcome {
    fn as_text(&self, args: &LoadArgs) -> String {
        let (records, bytes) = (HumanCount(self.records), HumanBytes(self.bytes));
        let (stream, seconds, rate) = (&self.stream, self.seconds, self.records_per_second);
        let mut text =
            format!("{records} records ({bytes}) put into {stream} in {seconds:.1} s, {rate:.0}/s");
        if rate < self.wanted_per_second * 0.95 {
            // Writing to a string cannot fail.
            let _ = write!(text, " of {:.0}/s", self.wanted_per_second);
        }
        if self.retries > 0 {
            let again = HumanCount(self.retries);
            let _ = write!(text, ", {again} sent again since Kinesis throttled them");
        }
        if let (Some(application), Some(after)) = (&args.application, self.handled_after_seconds) {
            let _ = write!(
                text,
                "\n{application} had handled all of them {after:.1} s after the last one"
            );
        }
        if self.is_deleted {
            let _ = write!(text, "\nstream {stream} is deleted");
        } else if args.create_with.is_some() {
            let _ = write!(text, "\nstream {stream} is kept, and costs money");
        }
        text
    }
}
