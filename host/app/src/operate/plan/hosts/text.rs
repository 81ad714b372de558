//! What `plan --hosts` shows people.

use std::time::Duration;

use super::report::{HostLine, LoadLine, Report};
use crate::output::{Page, age, table};

pub(super) fn as_text(report: &Report) -> String {
    let mut page = Page::new(9);
    write_figure(&mut page, report);
    write_load(&mut page, report);
    write_rules(&mut page, report);
    for note in &report.notes {
        page.line("note", note);
    }
    if !report.by_host.is_empty() {
        page.plain(format_args!("\n{}", hosts(&report.by_host)));
    }
    page.into_text()
}

fn write_figure(page: &mut Page, report: &Report) {
    let leader = report.leader.as_deref().unwrap_or("no host");
    match &report.published {
        Some(published) => {
            let there = report.hosts;
            let wanted = published.wanted;
            page.line(
                "wanted",
                format_args!("{wanted}, with {there} there; {leader} leads"),
            );
            page.line("because", &published.why);
        }
        None => page.line("wanted", format_args!("not published; {leader} leads")),
    }
    match report.undamped {
        Some(undamped) => page.line("now", format_args!("{undamped}, before damping")),
        None => page.line("now", "not known"),
    }
    for reason in &report.reasons {
        page.line("", reason);
    }
}

fn write_load(page: &mut Page, report: &Report) {
    let sums = &report.sums;
    page.line(
        "shards",
        format_args!(
            "{} to read, {} measured",
            report.shards, report.measured_shards
        ),
    );
    page.line(
        "records",
        format_args!(
            "{:.0} a second handled, {:.0} arrive, {} wait ({} behind)",
            sums.records_per_second,
            sums.arriving_per_second,
            sums.backlog_records,
            age(Duration::from_millis(sums.lag_ms)),
        ),
    );
    page.line(
        "cores",
        format_args!(
            "{:.2} used, {:.2} to keep up, {:.2} to catch up within {}; a host has {:.2}",
            sums.cores_used,
            sums.cores_to_keep_up,
            sums.cores_to_catch_up,
            age(Duration::from_millis(report.policy.catch_up_ms)),
            sums.cores_of_a_host,
        ),
    );
    let target = report.policy.target;
    page.line(
        "hosts",
        format_args!(
            "{:.2} / {:.2} = {:.2} used completely, / {target} = {:.2} used to {:.0} %",
            sums.cores_to_catch_up,
            sums.cores_of_a_host,
            report.load_hosts,
            report.load_hosts / target,
            target * 100.0,
        ),
    );
}

fn write_rules(page: &mut Page, report: &Report) {
    let policy = &report.policy;
    page.line(
        "damping",
        format_args!(
            "a plan holds until the load would fill its hosts to {:.0} %, or was enough for fewer \
             hosts for {}",
            policy.full * 100.0,
            age(Duration::from_millis(policy.settle_ms)),
        ),
    );
    let most = match policy.hosts_max {
        Some(max) => format!(" and scaling.hosts-max, {max}"),
        None => String::new(),
    };
    page.line(
        "limits",
        format_args!(
            "from {} to {}: by {} shard(s), scaling.hosts-min, {}{most} ({})",
            report.least, report.most, report.shards, policy.hosts_min, report.policy_of,
        ),
    );
}

fn hosts(hosts: &[HostLine]) -> String {
    let mut table = table([
        "host",
        "leases",
        "measured",
        "cores",
        "used",
        "busy",
        "records/s",
        "arriving/s",
        "backlog",
        "behind",
        "keep up",
        "catch up",
    ]);
    for host in hosts {
        let mut row = vec![named(host), host.leases.to_string()];
        match &host.load {
            Some(load) => row.extend(cells(load)),
            None => row.push("nothing reported".to_owned()),
        }
        table.add_row(row);
    }
    table.to_string()
}

fn named(host: &HostLine) -> String {
    if host.takes_leases {
        host.worker.clone()
    } else {
        format!("{} (leaves)", host.worker)
    }
}

fn cells(load: &LoadLine) -> [String; 10] {
    [
        load.measured_shards.to_string(),
        format!("{:.2}", load.cores),
        format!("{:.2}", load.cores_used),
        format!("{:.2}", load.consumers_busy),
        format!("{:.0}", load.records_per_second),
        format!("{:.0}", load.arriving_per_second),
        load.backlog_records.to_string(),
        age(Duration::from_millis(load.lag_ms)),
        format!("{:.2}", load.cores_to_keep_up),
        format!("{:.2}", load.cores_to_catch_up),
    ]
}
