//! The leases as rows of a table.

use std::time::Duration;

use comfy_table::Table;
use serde::Serialize;
use shardmill_core::lease::{Checkpoint, Lease, LeaseObserver, Pulse};
use shardmill_core::plugin::PluginDigest;
use shardmill_core::time::Moment;

use super::workers::TROUBLE_SHOWN;
use crate::operate::wanted::wanted;
use crate::output::{age_since, or_dash, short_digest, short_reason, short_shard, table};

/// A lease, as `--json` prints it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct ShardRow {
    pub(super) shard: String,
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
    /// What operators want of it.
    wanted: Vec<String>,
    parents: Vec<String>,
    children: Vec<String>,
}

/// The table, with long numbers cut at their front if a terminal of that `width` would break lines.
pub(super) fn as_text(rows: &[ShardRow], wall_ms: u64, width: Option<usize>) -> String {
    let whole = Columns::of(rows, wall_ms, Detail::Whole).table(rows);
    let widest = whole.lines().map(|line| line.chars().count()).max();
    if width.is_none_or(|width| widest.unwrap_or(0) <= width) {
        return whole;
    }
    format!(
        "{}\n(numbers are cut to fit; --wide shows all of them)",
        Columns::of(rows, wall_ms, Detail::Cut).table(rows)
    )
}

impl ShardRow {
    /// The row of a lease, as observed at `now`.
    pub(super) fn of(lease: &Lease, observer: &LeaseObserver, now: Moment, wall_ms: u64) -> Self {
        let owner = lease.owner.as_ref();
        let pulse = owner.and_then(|owner| observer.worker_pulse(owner, now));
        let digest = lease.plugin_digest.as_ref().map(PluginDigest::as_str);
        Self {
            shard: lease.key.to_string(),
            owner: owner.map(ToString::to_string),
            owner_life: pulse.map(Pulse::code),
            is_served: owner.is_some() && pulse.is_none_or(Pulse::may_live),
            held_since_ms: lease.held_since_ms,
            counter: lease.counter.0,
            checkpoint: lease.checkpoint.to_string(),
            millis_behind_latest: lease.millis_behind_latest,
            settled_arrival_ms: lease.settled_arrival_ms,
            bytes_per_second: lease.bytes_per_second,
            plugin_digest: digest.map(str::to_owned),
            claimed_by: lease.claimant.as_ref().map(ToString::to_string),
            stuck: lease.stuck.clone(),
            wanted: wanted(&lease.directives, wall_ms),
            parents: lease.parents.iter().map(ToString::to_string).collect(),
            children: lease.children.iter().map(ToString::to_string).collect(),
        }
    }

    fn is_ended(&self) -> bool {
        self.checkpoint == Checkpoint::ShardEnd.text()
    }

    /// How far the owner was behind when it last wrote the row. If no host serves the shard, that
    /// is out of date, and not shown.
    fn lag(&self) -> String {
        match self.millis_behind_latest {
            _ if self.is_ended() => "-".to_owned(),
            Some(ms) if self.is_served => {
                humantime::format_duration(Duration::from_millis(ms)).to_string()
            }
            _ => "?".to_owned(),
        }
    }

    /// How long the owner holds it. The row keeps the time of the last take after its release, too.
    fn held_for(&self, wall_ms: u64) -> Option<String> {
        self.owner.as_ref()?;
        Some(age_since(self.held_since_ms?, wall_ms))
    }

    /// The age of the newest settled record.
    fn settled(&self, wall_ms: u64) -> Option<String> {
        if self.is_ended() {
            return None;
        }
        Some(format!(
            "{} old",
            age_since(self.settled_arrival_ms?, wall_ms)
        ))
    }
}

/// How much of long numbers is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detail {
    Whole,
    Cut,
}

impl Detail {
    /// A checkpoint: if it is cut, its end, which changes most.
    fn checkpoint(self, text: &str) -> String {
        const END_SHOWN: usize = 10;
        let is_number = text.starts_with(|c: char| c.is_ascii_digit());
        let cut = text.len().saturating_sub(END_SHOWN);
        match text.get(cut..) {
            Some(end) if self == Self::Cut && is_number && cut > 0 => format!("…{end}"),
            _ => text.to_owned(),
        }
    }

    /// A shard: if it is cut, its number, which commands accept instead of the id.
    fn shard(self, id: &str) -> String {
        match self {
            Self::Whole => id.to_owned(),
            Self::Cut => short_shard(id),
        }
    }
}

/// What the table shows. Claims, troubles and commands are rare, so their columns are left out if
/// they would be empty, and a row fits in a line.
struct Columns {
    wall_ms: u64,
    detail: Detail,
    has_claim: bool,
    has_stuck: bool,
    has_wanted: bool,
}

impl Columns {
    fn of(rows: &[ShardRow], wall_ms: u64, detail: Detail) -> Self {
        Self {
            wall_ms,
            detail,
            has_claim: rows.iter().any(|row| row.claimed_by.is_some()),
            has_stuck: rows.iter().any(|row| row.stuck.is_some()),
            has_wanted: rows.iter().any(|row| !row.wanted.is_empty()),
        }
    }

    fn table(&self, rows: &[ShardRow]) -> String {
        let mut table: Table = table(self.header());
        for row in rows {
            table.add_row(self.cells(row));
        }
        table.trim_fmt()
    }

    fn header(&self) -> Vec<&'static str> {
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
        header.extend(self.has_claim.then_some("claimed by"));
        header.extend(self.has_stuck.then_some("stuck"));
        header.extend(self.has_wanted.then_some("wanted"));
        header
    }

    fn cells(&self, row: &ShardRow) -> Vec<String> {
        let digest = row.plugin_digest.as_deref();
        let mut cells = vec![
            self.detail.shard(&row.shard),
            or_dash(row.owner.as_deref()),
            or_dash(row.held_for(self.wall_ms).as_deref()),
            row.counter.to_string(),
            self.detail.checkpoint(&row.checkpoint),
            row.lag(),
            or_dash(row.settled(self.wall_ms).as_deref()),
            or_dash(digest.map(short_digest)),
        ];
        if self.has_claim {
            cells.push(or_dash(row.claimed_by.as_deref()));
        }
        if self.has_stuck {
            let stuck = row.stuck.as_deref();
            let stuck = stuck.map(|reason| short_reason(reason, TROUBLE_SHOWN));
            cells.push(or_dash(stuck.as_deref()));
        }
        if self.has_wanted {
            let wanted = (!row.wanted.is_empty()).then(|| row.wanted.join("; "));
            cells.push(or_dash(wanted.as_deref()));
        }
        cells
    }
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
        let shown = |lease: &Lease| {
            ShardRow::of(lease, &LeaseObserver::default(), Moment::default(), 0).lag()
        };
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
        let rows = [ShardRow::of(
            &lease,
            &LeaseObserver::default(),
            Moment::default(),
            0,
        )];
        for width in [None, Some(200)] {
            let whole = as_text(&rows, 0, width);
            assert!(
                whole.contains(number) && whole.contains("shardId-000000000012"),
                "{whole}"
            );
        }
        let narrow = as_text(&rows, 0, Some(80));
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
