//! `shardmill leases`.

use std::time::Duration;

use anyhow::bail;
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use serde::Serialize;
use shardmill_aws::{AwsClients, CoordinatorTable, LeaseTable, applications_of_streams};
use shardmill_core::fleet::FleetRows;
use shardmill_core::lease::{Checkpoint, Lease, LeaseObserver, Pulse};
use shardmill_core::ports::{Clock, Coordinator, LeaseListing, LeaseStore, StoreError};
use shardmill_core::time::Moment;
use shardmill_serve::BootClock;
use shardmill_serve::Signals;

use super::reading::age;
use crate::cli::LeasesArgs;
use crate::output::{Interrupted, print, print_json, terminal_width};

/// Signs of a trouble's reason that a table shows; `explain` has all of it.
const STUCK_SHOWN: usize = 160;

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Row {
    shard: String,
    owner: Option<String>,
    /// What watching the owner's heartbeat showed; `None` if it is not registered.
    owner_life: Option<&'static str>,
    /// Whether it has an owner that may live.
    #[serde(skip)]
    is_served: bool,
    held_since_ms: Option<u64>,
    counter: u64,
    checkpoint: String,
    millis_behind_latest: Option<u64>,
    settled_arrival_ms: Option<u64>,
    bytes_per_second: Option<u64>,
    plugin_digest: Option<String>,
    claimed_by: Option<String>,
    stuck: Option<String>,
    parents: Vec<String>,
    children: Vec<String>,
}

pub(crate) async fn execute(args: &LeasesArgs) -> anyhow::Result<()> {
    let signals = Signals::listen()?;
    let clients = crate::aws::connect_to(&args.place).await?;
    let table = LeaseTable::new(clients.dynamodb.clone(), args.application.as_str());
    let coordinator = CoordinatorTable::new(clients.dynamodb.clone(), &args.application);
    // Who is alive shows from look to look.
    let mut observer = LeaseObserver::default();
    let watch_for = args.watching.watch_for.unwrap_or_default();
    if !watch_for.is_zero() {
        look(&coordinator, &mut observer).await;
        if signals
            .stop()
            .run_until_cancelled(tokio::time::sleep(watch_for))
            .await
            .is_none()
        {
            return Err(Interrupted(": the leases were not shown".to_owned()).into());
        }
    }
    loop {
        let listing = list(&table, &clients, args).await?;
        let fleet = look(&coordinator, &mut observer).await;
        show_leases(&listing, &observer, args)?;
        if !args.output.json {
            if let Some(fleet) = fleet {
                show_workers(&fleet, &observer);
            }
            show_other_streams(
                &applications_of_streams(&clients.dynamodb, &args.application).await,
            );
        }
        let Some(interval) = args.watch else {
            return Ok(());
        };
        if signals
            .stop()
            .run_until_cancelled(tokio::time::sleep(interval))
            .await
            .is_none()
        {
            return Ok(());
        }
    }
}

/// Names the applications of its streams where one has no leases of its own.
async fn list(
    table: &LeaseTable,
    clients: &AwsClients,
    args: &LeasesArgs,
) -> anyhow::Result<LeaseListing> {
    let error = match table.list().await {
        Ok(listing) => return Ok(listing),
        Err(error) => error,
    };
    let application = &args.application;
    if !matches!(error, StoreError::Refused { .. }) || table.exists().await? {
        return Err(error.into());
    }
    let others = applications_of_streams(&clients.dynamodb, application).await;
    if others.is_empty() {
        bail!(
            "there is no lease table {application}: no host has served this application here; \
                `shardmill plugins` lists those that have been served"
        );
    }
    bail!(
        "there is no lease table {application}, but its streams have their own leases: {}",
        others.join(", ")
    )
}

/// A KCL's application has no coordinator table, and whoever may read the one table need not be
/// allowed the other.
async fn look(coordinator: &CoordinatorTable, observer: &mut LeaseObserver) -> Option<FleetRows> {
    match coordinator.fleet().await {
        Ok(fleet) => {
            observer.observe_workers(&fleet.workers, BootClock.now());
            Some(fleet)
        }
        Err(error) => {
            tracing::debug!(%error, "the coordinator table cannot be read, workers are not shown");
            None
        }
    }
}

fn show_leases(
    listing: &LeaseListing,
    observer: &LeaseObserver,
    args: &LeasesArgs,
) -> anyhow::Result<()> {
    let now = BootClock.now();
    let mut rows: Vec<Row> = listing
        .leases
        .iter()
        .map(|lease| row(lease, observer, now))
        .collect();
    rows.sort_by(|a, b| a.shard.cmp(&b.shard));
    if args.output.json {
        return print_json(&rows);
    }
    let width = terminal_width().filter(|_| !args.wide);
    print(&fitted(&rows, BootClock.wall_ms(), width));
    for bad in &listing.bad_rows {
        print(&format!("row {} cannot be read: {}", bad.key, bad.problem));
    }
    Ok(())
}

fn show_workers(fleet: &FleetRows, observer: &LeaseObserver) {
    if let Some(start) = &fleet.start {
        print(&format!("\nthe application starts at {start}"));
    }
    if fleet.workers.is_empty() {
        print("\nno worker is registered");
    } else {
        print(&format!(
            "\n{}",
            worker_table(fleet, observer, BootClock.now())
        ));
    }
}

fn show_other_streams(applications: &[String]) {
    if !applications.is_empty() {
        print(&format!(
            "\nfurther streams have their own leases: {}",
            applications.join(", ")
        ));
    }
}

fn row(lease: &Lease, observer: &LeaseObserver, now: Moment) -> Row {
    let owner_pulse = lease
        .owner
        .as_ref()
        .and_then(|owner| observer.worker_pulse(owner, now));
    Row {
        shard: lease.key.to_string(),
        owner: lease.owner.as_ref().map(ToString::to_string),
        owner_life: owner_pulse.map(Pulse::word),
        is_served: lease.owner.is_some() && owner_pulse.is_none_or(Pulse::may_live),
        held_since_ms: lease.held_since_ms,
        counter: lease.counter.0,
        checkpoint: lease.checkpoint.to_string(),
        millis_behind_latest: lease.millis_behind_latest,
        settled_arrival_ms: lease.settled_arrival_ms,
        bytes_per_second: lease.bytes_per_second,
        plugin_digest: lease
            .plugin_digest
            .as_ref()
            .map(|digest| digest.as_str().to_owned()),
        claimed_by: lease.claimant.as_ref().map(ToString::to_string),
        stuck: lease.stuck.clone(),
        parents: lease.parents.iter().map(ToString::to_string).collect(),
        children: lease.children.iter().map(ToString::to_string).collect(),
    }
}

/// How far the owner was behind when it last wrote the row. Of a shard that nobody serves it would
/// tell what has long been untrue.
fn lag(row: &Row) -> String {
    if row.checkpoint == Checkpoint::ShardEnd.text() {
        return "-".to_owned();
    }
    match row.millis_behind_latest.filter(|_| row.is_served) {
        Some(ms) => humantime::format_duration(Duration::from_millis(ms)).to_string(),
        None => "?".to_owned(),
    }
}

/// The table, with long numbers cut at their front if a terminal of that `width` would break lines.
fn fitted(rows: &[Row], wall_ms: u64, width: Option<usize>) -> String {
    let whole = lease_table(rows, wall_ms, Detail::Whole).trim_fmt();
    let widest = whole.lines().map(|line| line.chars().count()).max();
    if width.is_none_or(|width| widest.unwrap_or(0) <= width) {
        return whole;
    }
    format!(
        "{}\n(numbers are cut to fit; --wide shows all of them)",
        lease_table(rows, wall_ms, Detail::Cut).trim_fmt()
    )
}

/// How much of a number is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detail {
    Whole,
    Cut,
}

impl Detail {
    /// A checkpoint; the end of it is what changes.
    fn checkpoint(self, text: &str) -> String {
        const END_SHOWN: usize = 10;
        let is_number = text.starts_with(|c: char| c.is_ascii_digit());
        let cut = text.len().saturating_sub(END_SHOWN);
        match text.get(cut..) {
            Some(end) if self == Self::Cut && is_number && cut > 0 => format!("…{end}"),
            _ => text.to_owned(),
        }
    }

    /// A shard by its number, which commands take as well as its id.
    fn shard(self, id: &str) -> String {
        let number = id.rsplit('-').next().unwrap_or(id).trim_start_matches('0');
        match self {
            Self::Whole => id.to_owned(),
            Self::Cut if number.is_empty() => "0".to_owned(),
            Self::Cut => number.to_owned(),
        }
    }
}

/// Claims and troubles are rare: their columns are there only if there are any, so that a row fits
/// in a line.
fn lease_table(rows: &[Row], wall_ms: u64, detail: Detail) -> Table {
    let has_claim = rows.iter().any(|row| row.claimed_by.is_some());
    let has_stuck = rows.iter().any(|row| row.stuck.is_some());
    let mut header = vec![
        "shard",
        "owner",
        "since",
        "counter",
        "checkpoint",
        "lag",
        "settled",
        "plugin",
    ];
    header.extend(has_claim.then_some("claimed by"));
    header.extend(has_stuck.then_some("stuck"));
    let mut table = Table::new();
    table
        .load_preset(NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    for row in rows {
        let is_ended = row.checkpoint == Checkpoint::ShardEnd.text();
        let arrived = row.settled_arrival_ms.filter(|_| !is_ended);
        let settled = arrived.map(|ms| {
            format!(
                "{} old",
                age(Duration::from_millis(wall_ms.saturating_sub(ms)))
            )
        });
        // The row remembers the last take after it was given up, too.
        let held_since = row.held_since_ms.filter(|_| row.owner.is_some());
        let since = held_since.map(|ms| age(Duration::from_millis(wall_ms.saturating_sub(ms))));
        let digest = row
            .plugin_digest
            .as_deref()
            .map_or("-", |digest| digest.get(..12).unwrap_or(digest));
        let mut cells = vec![
            detail.shard(&row.shard),
            or_dash(&row.owner),
            or_dash(&since),
            row.counter.to_string(),
            detail.checkpoint(&row.checkpoint),
            lag(row),
            or_dash(&settled),
            digest.to_owned(),
        ];
        cells.extend(has_claim.then(|| or_dash(&row.claimed_by)));
        cells.extend(has_stuck.then(|| {
            row.stuck
                .as_deref()
                .map_or_else(|| "-".to_owned(), shortened)
        }));
        table.add_row(cells);
    }
    table
}

/// In one line, and not too long a one.
fn shortened(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= STUCK_SHOWN {
        return line.to_owned();
    }
    line.chars().take(STUCK_SHOWN).chain(['…']).collect()
}

/// One look cannot tell who is alive; a beat that rises from look to look can.
fn worker_table(fleet: &FleetRows, observer: &LeaseObserver, now: Moment) -> Table {
    let leader = fleet.leader.as_ref().and_then(|row| row.holder.as_ref());
    let mut table = Table::new();
    table
        .load_preset(NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["worker", "run", "beat", "lease", "most", "state"]);
    for row in &fleet.workers {
        let leads =
            leader.is_some_and(|(worker, run)| *worker == row.worker && *run == row.incarnation);
        let office = match (leads, row.is_draining) {
            (_, true) => Some("shutting down".to_owned()),
            (true, false) => Some("leader".to_owned()),
            (false, false) => None,
        };
        let pulse = observer.worker_pulse(&row.worker, now);
        let life = pulse
            .filter(|pulse| !matches!(pulse, Pulse::Unwatched { .. }))
            .map(|pulse| pulse.to_string());
        let trouble = row.cannot_write.as_deref();
        let trouble = trouble.map(|text| format!("cannot write lease rows: {}", shortened(text)));
        let blind = row.cannot_look.as_deref();
        let blind = blind.map(|text| format!("cannot read its leases: {}", shortened(text)));
        let state: Vec<String> = office
            .into_iter()
            .chain(life)
            .chain(trouble)
            .chain(blind)
            .collect();
        let state = if state.is_empty() {
            "-".to_owned()
        } else {
            state.join(", ")
        };
        let most = if row.max_leases == usize::MAX {
            "-".to_owned()
        } else {
            row.max_leases.to_string()
        };
        let lease = humantime::format_duration(row.lease_duration).to_string();
        let (worker, run) = (row.worker.to_string(), row.incarnation.to_string());
        table.add_row([&worker, &run, &row.beat.to_string(), &lease, &most, &state]);
    }
    table
}

#[cfg(test)]
mod tests {
    use shardmill_core::lease::WorkerId;
    use shardmill_core::stream::{HashKeyRange, Position, SequenceNumber, Shard, ShardId};

    use super::*;

    #[test]
    fn the_lag_that_a_row_remembers_is_shown_only_while_its_shard_is_served() {
        let shard = Shard {
            id: ShardId::new("shardId-000000000000").unwrap(),
            parents: Vec::new(),
            hash_range: HashKeyRange::FULL,
            ending_sequence: None,
        };
        let mut lease = Lease::fresh(&shard, Checkpoint::TrimHorizon);
        lease.millis_behind_latest = Some(0);
        let shown = |lease: &Lease| lag(&row(lease, &LeaseObserver::default(), Moment::default()));
        assert_eq!(shown(&lease), "?", "nobody reads it");
        lease.owner = WorkerId::new("host-1");
        assert_eq!(shown(&lease), "0s");
        lease.checkpoint = Checkpoint::ShardEnd;
        assert_eq!(shown(&lease), "-");
    }

    #[test]
    fn a_table_fits_a_terminal_and_nothing_is_cut_for_anybody_else() {
        let shard = Shard {
            id: ShardId::new("shardId-000000000012").unwrap(),
            parents: Vec::new(),
            hash_range: HashKeyRange::FULL,
            ending_sequence: None,
        };
        let number = "49590338271490256608559692538361571095921575989136588898";
        let position = Position::plain(SequenceNumber::parse(number).unwrap());
        let mut lease = Lease::fresh(&shard, Checkpoint::At(position));
        lease.owner = WorkerId::new("host-1");
        let rows = [row(&lease, &LeaseObserver::default(), Moment::default())];
        for width in [None, Some(200)] {
            let whole = fitted(&rows, 0, width);
            assert!(
                whole.contains(number) && whole.contains("shardId-000000000012"),
                "{whole}"
            );
        }
        let narrow = fitted(&rows, 0, Some(80));
        assert!(narrow.contains("…9136588898"), "{narrow}");
        assert!(
            narrow.lines().all(|line| line.chars().count() <= 80),
            "{narrow}"
        );
        assert!(narrow.contains("--wide"), "{narrow}");
        let ends = Detail::Cut;
        assert_eq!(ends.checkpoint("TRIM_HORIZON"), "TRIM_HORIZON");
        assert_eq!(ends.shard("shardId-000000000000"), "0");
    }
}
