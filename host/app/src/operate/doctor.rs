//! `shardmill doctor`: facts from AWS, the verdict from core, a page for people or programs.

mod progress;
mod report;

use std::fmt::Write;
use std::time::Duration;

use anyhow::bail;
use shardmill_aws::{
    AwsClients, KinesisReader, LibraryTables, StreamAdmin, TableInspector, applications_of_streams,
};
use shardmill_core::doctor::{
    Diagnosis, Facts, PredecessorFacts, StreamFacts, TableFacts, diagnose,
};
use shardmill_core::migration::{FleetWatch, Library};
use shardmill_core::plugin::check_ending;
use shardmill_core::ports::{Clock, StreamReader};
use shardmill_core::stream::StreamRef;
use shardmill_serve::BootClock;
use shardmill_worker::LeaseOptions;

use self::report::{Report, lease_table, open_shards};
use super::reading::{WATCH_MAX, age, watch_past};
use crate::cli::DoctorArgs;
use crate::output::{print, print_json};

pub(crate) async fn execute(args: &DoctorArgs) -> anyhow::Result<()> {
    let stream = args.stream.as_deref().map(StreamRef::parse).transpose()?;
    let clients = crate::aws::connect_to(&args.place).await?;
    refuse_companion(args, &clients).await?;
    let facts = read(args, &clients, stream).await?;
    let diagnosis = diagnose(&facts);
    if args.output.json {
        print_json(&Report::of(args, &facts, &diagnosis))?;
    } else {
        print(as_text(args, &facts, &diagnosis).trim_end());
        let others = applications_of_streams(&clients.dynamodb, &args.application).await;
        if !others.is_empty() {
            print(&format!(
                "\nfurther streams have their own tables; ask about them by: {}",
                others.join(", ")
            ));
        }
    }
    if diagnosis.is_usable() {
        return Ok(());
    }
    bail!(
        "table {} must be fixed before a host uses it",
        args.application
    )
}

/// A table beside a lease table is none itself; but the default name of lifion-kinesis' table ends
/// like one.
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
    bail!("{name} is no application: {taken}")
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

/// What another library keeps under this name, and who of it lives, by two looks.
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
    let mut places = tables.places().await?;
    let mut watches: Vec<FleetWatch> = vec![FleetWatch::default(); places.len()];
    let mut observe = |places: &[_]| {
        for (watch, place) in watches.iter_mut().zip(places) {
            watch.observe(place, BootClock.now());
        }
    };
    observe(&places);
    let has_workers = places.iter().any(|place| place.workers().next().is_some());
    let watch_for = predecessor_watch(args, library, failover_time);
    if has_workers && !watch_for.is_zero() {
        tokio::time::sleep(watch_for).await;
        let later = tables.places().await?;
        // A place that came or went between the looks: the second look alone tells.
        if later.len() == places.len() {
            observe(&later);
        }
        places = later;
    }
    let now = BootClock.now();
    let workers = watches
        .iter()
        .map(|watch| watch.lives(now, failover_time))
        .collect();
    Ok(Some(PredecessorFacts {
        library,
        places,
        workers,
    }))
}

/// Long enough to know who is dead, but for libraries whose workers may be silent for minutes:
/// there, long enough to see a live one write.
fn predecessor_watch(args: &DoctorArgs, library: Library, failover_time: Duration) -> Duration {
    let long_enough = watch_past(failover_time);
    let bound = watch_past(library.writes_at_least_every()).max(WATCH_MAX);
    args.watch
        .watch_for
        .unwrap_or_else(|| long_enough.min(bound))
}

/// The failover time of a KCL is what the lease duration is to hosts of shardmill.
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

fn as_text(args: &DoctorArgs, facts: &Facts, diagnosis: &Diagnosis) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let status = lease_table(facts).map_or("not a lease table", |table| table.status.as_str());
    let status = if matches!(facts.table, TableFacts::Missing) {
        "not there"
    } else {
        status
    };
    let _ = writeln!(text, "table     {}, {status}", args.application);
    if !diagnosis.writer.is_empty() {
        let _ = writeln!(text, "rows      of {}", diagnosis.writer);
    }
    if let Some(predecessor) = &facts.predecessor {
        progress::write_places(&mut text, predecessor);
    }
    if let Some(table) = lease_table(facts) {
        write_census(&mut text, diagnosis);
        let watched = table
            .second_look
            .as_ref()
            .map_or_else(|| "one look".to_owned(), |look| age(look.after));
        let _ = writeln!(text, "watched   {watched}");
        let other_rows = table
            .other_rows
            .iter()
            .map(|(kind, count)| format!("{count} {kind}"));
        write_list(&mut text, "others", other_rows);
        progress::write_leases(&mut text, table);
    }
    write_list(&mut text, "beside", companions(args, facts));
    if let Some(stream) = &facts.stream {
        let status = stream.status.as_deref().unwrap_or("not there");
        let (all, open) = (stream.shards.len(), open_shards(stream));
        let _ = writeln!(
            text,
            "stream    {}, {status}, {all} shards, {open} open",
            stream.name
        );
    }
    for finding in &diagnosis.findings {
        let _ = writeln!(
            text,
            "\n{}: {}: {}",
            finding.severity,
            finding.topic.code(),
            finding.what
        );
        if !finding.fix.is_empty() {
            let _ = writeln!(text, "  fix: {}", finding.fix);
        }
    }
    let _ = writeln!(text, "\nmode      {}", diagnosis.mode);
    let verdict = if diagnosis.is_usable() {
        "usable"
    } else {
        "fix first"
    };
    let _ = writeln!(text, "verdict   {verdict}");
    let _ = writeln!(text, "next      {}", diagnosis.next);
    text
}

fn write_census(text: &mut String, diagnosis: &Diagnosis) {
    let census = &diagnosis.census;
    let (rows, finished, unowned) = (census.leases, census.finished, census.unowned);
    let _ = writeln!(
        text,
        "leases    {rows}: {finished} finished, {unowned} unfinished without an owner"
    );
    for owner in &census.owners {
        let whose = if owner.is_shardmill {
            ", of shardmill"
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "owner     {}: {} leases, {}{whose}",
            owner.worker, owner.leases, owner.pulse
        );
    }
    if let Some(leader) = &census.kcl2_leader {
        let _ = writeln!(text, "leader    {leader}, by the rule of KCL 2.x");
    }
}

fn companions(args: &DoctorArgs, facts: &Facts) -> impl Iterator<Item = String> {
    let found = facts.companions;
    let all = [
        (found.worker_metrics, "WorkerMetricStats"),
        (found.coordinator_state, "CoordinatorState"),
        (found.own_coordinator, "coordinator"),
    ];
    let application = args.application.clone();
    all.into_iter()
        .filter(|(is_there, _)| *is_there)
        .map(move |(_, name)| format!("{application}-{name}"))
}

fn write_list(text: &mut String, label: &str, all: impl Iterator<Item = String>) {
    let all: Vec<String> = all.collect();
    if !all.is_empty() {
        let _ = writeln!(text, "{label:<10}{}", all.join(", "));
    }
}
