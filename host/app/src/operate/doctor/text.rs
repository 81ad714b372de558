//! What `doctor` shows people.

use shardmill_core::doctor::{
    Census, Companions, Diagnosis, Facts, Finding, LeaseTableFacts, StreamFacts, TableFacts,
};

use super::progress::{write_found, write_leases};
use super::report::{lease_table, open_shards};
use crate::output::{Page, age};

pub(super) fn as_text(application: &str, facts: &Facts, diagnosis: &Diagnosis) -> String {
    let mut page = Page::new(9);
    page.line(
        "table",
        format_args!("{application}, {}", status(&facts.table)),
    );
    if !diagnosis.writer.is_empty() {
        page.line("rows", format_args!("of {}", diagnosis.writer));
    }
    if let Some(predecessor) = &facts.predecessor {
        write_found(&mut page, predecessor);
    }
    if let Some(table) = lease_table(facts) {
        write_census(&mut page, &diagnosis.census);
        write_table(&mut page, table);
    }
    page.list("beside", &companions(application, facts.companions));
    if let Some(stream) = &facts.stream {
        write_stream(&mut page, stream);
    }
    for finding in &diagnosis.findings {
        write_finding(&mut page, finding);
    }
    write_verdict(&mut page, diagnosis);
    page.into_text()
}

fn status(table: &TableFacts) -> &str {
    match table {
        TableFacts::Leases(table) => &table.status,
        TableFacts::Missing => "not there",
        TableFacts::OtherKey { .. } => "not a lease table",
    }
}

fn write_census(page: &mut Page, census: &Census) {
    let (rows, finished, unowned) = (census.leases, census.finished, census.unowned);
    page.line(
        "leases",
        format_args!("{rows}: {finished} finished, {unowned} unfinished without an owner"),
    );
    for owner in &census.owners {
        let whose = if owner.is_shardmill {
            ", of shardmill"
        } else {
            ""
        };
        let (worker, leases, pulse) = (&owner.worker, owner.leases, owner.pulse);
        page.line(
            "owner",
            format_args!("{worker}: {leases} leases, {pulse}{whose}"),
        );
    }
    if let Some(leader) = &census.kcl2_leader {
        page.line("leader", format_args!("{leader}, by the rule of KCL 2.x"));
    }
}

fn write_table(page: &mut Page, table: &LeaseTableFacts) {
    match &table.second_look {
        Some(look) => page.line("watched", age(look.after)),
        None => page.line("watched", "one look"),
    }
    let other_rows: Vec<String> = table
        .other_rows
        .iter()
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    page.list("others", &other_rows);
    write_leases(page, table);
}

/// The application's other tables.
fn companions(application: &str, found: Companions) -> Vec<String> {
    let mut names = Vec::new();
    for (exists, ending) in [
        (found.worker_metrics, "WorkerMetricStats"),
        (found.coordinator_state, "CoordinatorState"),
        (found.own_coordinator, "coordinator"),
    ] {
        if exists {
            names.push(format!("{application}-{ending}"));
        }
    }
    names
}

fn write_stream(page: &mut Page, stream: &StreamFacts) {
    let status = stream.status.as_deref().unwrap_or("not there");
    let (name, all, open) = (&stream.name, stream.shards.len(), open_shards(stream));
    page.line(
        "stream",
        format_args!("{name}, {status}, {all} shards, {open} open"),
    );
}

fn write_finding(page: &mut Page, finding: &Finding) {
    let Finding {
        severity,
        topic,
        what,
        fix,
    } = finding;
    page.plain(format_args!("\n{severity}: {}: {what}", topic.code()));
    if !fix.is_empty() {
        page.plain(format_args!("  fix: {fix}"));
    }
}

fn write_verdict(page: &mut Page, diagnosis: &Diagnosis) {
    let verdict = if diagnosis.is_usable() {
        "usable"
    } else {
        "fix first"
    };
    page.plain("");
    page.line("mode", diagnosis.mode);
    page.line("verdict", verdict);
    page.line("next", &diagnosis.next);
}
