//! `shardmill doctor`: facts from AWS, the verdict from core, a page for people or programs.

mod report;

use std::fmt::Write;
use std::time::Duration;

use anyhow::bail;
use shardmill_aws::{
    AwsClients, KinesisReader, StreamAdmin, TableInspector, applications_of_streams,
};
use shardmill_core::doctor::{Diagnosis, Facts, StreamFacts, TableFacts, diagnose};
use shardmill_core::ports::StreamReader;
use shardmill_core::stream::StreamRef;
use shardmill_worker::LeaseOptions;

use self::report::{Report, lease_table, open_shards};
use super::reading::{age, watch_past};
use crate::cli::DoctorArgs;
use crate::output::{print, print_json};

pub(crate) async fn execute(args: &DoctorArgs) -> anyhow::Result<()> {
    let stream = args.stream.as_deref().map(StreamRef::parse).transpose()?;
    let clients = crate::aws::connect(&crate::aws::of_place(&args.place)?).await?;
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
    Ok(Facts {
        application: args.application.clone(),
        table,
        companions,
        stream,
        failover_time: args.failover_time,
    })
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
