//! `shardmill doctor`: facts from AWS, the verdict from core, a report for people or programs.

mod progress;
mod report;
mod text;

use std::time::Duration;

use anyhow::bail;
use shardmill_aws::{
    AwsClients, KinesisReader, LibraryTables, StreamAdmin, TableInspector, applications_of_streams,
};
use shardmill_core::doctor::{Facts, PredecessorFacts, StreamFacts, TableFacts, diagnose};
use shardmill_core::migration::{FleetWatch, Found, Library, WorkerLife};
use shardmill_core::plugin::check_ending;
use shardmill_core::ports::{Clock, StreamReader};
use shardmill_core::stream::StreamRef;
use shardmill_serve::BootClock;
use shardmill_worker::LeaseOptions;

use self::report::Report;
use self::text::as_text;
use super::reading::{WATCH_MAX, watch_past};
use crate::cli::DoctorArgs;
use crate::output::{print, print_json};

pub(crate) async fn execute(args: &DoctorArgs) -> anyhow::Result<()> {
    let stream = args.stream.as_deref().map(StreamRef::parse).transpose()?;
    let clients = crate::aws::connect_to(&args.connection).await?;
    refuse_companion(args, &clients).await?;
    let facts = read(args, &clients, stream).await?;
    let diagnosis = diagnose(&facts);
    if args.output.json {
        print_json(&Report::of(args, &facts, &diagnosis))?;
    } else {
        print(as_text(&args.application, &facts, &diagnosis).trim_end());
        show_other_streams(&args.application, &clients).await;
    }
    if diagnosis.is_usable() {
        return Ok(());
    }
    bail!(
        "table {} must be fixed before a host uses it",
        args.application
    )
}

async fn show_other_streams(application: &str, clients: &AwsClients) {
    let others = applications_of_streams(&clients.dynamodb, application).await;
    if !others.is_empty() {
        print(&format!(
            "\nfurther streams have their own tables; name one of these to see them: {}",
            others.join(", ")
        ));
    }
}

/// A table that belongs to a lease table is not a lease table itself. But the default name of
/// lifion-kinesis' table ends like one.
async fn refuse_companion(args: &DoctorArgs, clients: &AwsClients) -> anyhow::Result<()> {
    let name = &args.application;
    let Err(taken) = check_ending(name) else {
        return Ok(());
    };
    let is_of_stream = name.contains('.');
    if is_of_stream
        || LibraryTables::find(&clients.dynamodb, name)
            .await?
            .is_some()
    {
        return Ok(());
    }
    bail!("{name} is not an application: {taken}")
}

async fn read(
    args: &DoctorArgs,
    clients: &AwsClients,
    stream: Option<StreamRef>,
) -> anyhow::Result<Facts> {
    let inspector = TableInspector::new(clients.dynamodb.clone(), args.application.as_str());
    let companions = inspector.companions().await?;
    let stream = match stream {
        Some(stream) => Some(read_stream(clients, &stream).await?),
        None => None,
    };
    let table = inspector.table(companions, watch_for(args)).await?;
    let predecessor = match &table {
        TableFacts::Leases(_) => None,
        TableFacts::Missing | TableFacts::OtherKey { .. } => predecessor(args, clients).await?,
    };
    Ok(Facts {
        application: args.application.clone(),
        table,
        companions,
        stream,
        predecessor,
        failover_time: args.failover_time,
    })
}

/// What another library keeps under this name, and which of its workers live, by two looks.
async fn predecessor(
    args: &DoctorArgs,
    clients: &AwsClients,
) -> anyhow::Result<Option<PredecessorFacts>> {
    let Some(tables) = LibraryTables::find(&clients.dynamodb, &args.application).await? else {
        return Ok(None);
    };
    let library = tables.library();
    let failover_time = args
        .failover_time
        .unwrap_or_else(|| library.failover_time());
    let mut watch = FoundWatch::begin(tables.places().await?);
    let watch_for = predecessor_watch(args, library, failover_time);
    if watch.has_workers() && !watch_for.is_zero() {
        tokio::time::sleep(watch_for).await;
        watch.look_again(tables.places().await?);
    }
    Ok(Some(PredecessorFacts {
        library,
        workers: watch.workers(failover_time),
        places: watch.places,
    }))
}

/// The positions of another library, and what watching them showed.
struct FoundWatch {
    places: Vec<Found>,
    /// One for each place.
    watches: Vec<FleetWatch>,
}

impl FoundWatch {
    fn begin(places: Vec<Found>) -> Self {
        let mut watch = Self {
            watches: vec![FleetWatch::default(); places.len()],
            places,
        };
        watch.observe();
        watch
    }

    fn look_again(&mut self, places: Vec<Found>) {
        let is_comparable = places.len() == self.places.len();
        self.places = places;
        // If a place came or went between the looks, the first look says nothing.
        if is_comparable {
            self.observe();
        }
    }

    fn observe(&mut self) {
        for (watch, place) in self.watches.iter_mut().zip(&self.places) {
            watch.observe(place, BootClock.now());
        }
    }

    fn has_workers(&self) -> bool {
        let mut places = self.places.iter();
        places.any(|place| place.workers().next().is_some())
    }

    fn workers(&self, failover_time: Duration) -> Vec<Vec<WorkerLife>> {
        let now = BootClock.now();
        let watches = self.watches.iter();
        watches
            .map(|watch| watch.lives(now, failover_time))
            .collect()
    }
}

/// Long enough to know which workers are dead; for a library whose workers may be silent for
/// minutes, long enough to see a live one write.
fn predecessor_watch(args: &DoctorArgs, library: Library, failover_time: Duration) -> Duration {
    let long_enough = watch_past(failover_time);
    let bound = watch_past(library.writes_at_least_every()).max(WATCH_MAX);
    args.watch
        .watch_for
        .unwrap_or_else(|| long_enough.min(bound))
}

/// The failover time of a KCL corresponds to the lease duration of shardmill's hosts.
fn watch_for(args: &DoctorArgs) -> Duration {
    let lease_duration = args
        .failover_time
        .unwrap_or_else(|| LeaseOptions::default().duration);
    args.watch
        .watch_for
        .unwrap_or_else(|| watch_past(lease_duration))
}

async fn read_stream(clients: &AwsClients, stream: &StreamRef) -> anyhow::Result<StreamFacts> {
    let found = StreamAdmin::new(clients.kinesis.clone())
        .describe(stream)
        .await?;
    let name = stream.name().clone();
    let Some(found) = found else {
        return Ok(StreamFacts {
            name,
            status: None,
            identity: None,
            shards: Vec::new(),
        });
    };
    let reader = KinesisReader::new(clients.kinesis.clone(), stream);
    let (identity, shards) = (reader.identity().await?, reader.list_shards().await?);
    Ok(StreamFacts {
        name,
        status: Some(found.status),
        identity,
        shards,
    })
}
