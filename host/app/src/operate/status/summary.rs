//! What the rows of an application say together. Decides nothing: hosts do that.

use serde::Serialize;
use shardmill_core::control::Pause;
use shardmill_core::fleet::{FleetRows, WorkerRow};
use shardmill_core::lease::{Lease, LeaseObserver, Pulse, WorkerId};
use shardmill_core::plugin::StateFill;
use shardmill_core::ports::LeaseListing;
use shardmill_core::text::one_line;
use shardmill_core::time::Moment;

use crate::operate::view::FleetUnread;
use crate::operate::wanted::{paused, wanted};

/// One look at an application.
pub(super) struct Look<'a> {
    pub(super) application: &'a str,
    pub(super) listing: &'a LeaseListing,
    /// `None` if there is no coordinator table, as if another library serves the application.
    pub(super) fleet: Result<Option<&'a FleetRows>, &'a FleetUnread>,
    pub(super) observer: &'a LeaseObserver,
    pub(super) now: Moment,
    pub(super) wall_ms: u64,
}

/// An application, as `--json` prints it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Summary {
    pub(crate) application: String,
    pub(crate) stream: Option<String>,
    pub(crate) counts: Counts,
    /// Why all shards are paused, if they are.
    pub(crate) paused: Option<String>,
    /// Those that are not finished: with troubles first, then by lag.
    pub(crate) shards: Vec<ShardStatus>,
    pub(crate) hosts: Vec<HostStatus>,
    /// Why nothing is known of hosts that there should be; `None` if `hosts` are all of them.
    pub(crate) hosts_unknown: Option<String>,
    /// Rows that cannot be read.
    pub(crate) bad_rows: Vec<String>,
    /// Whether there are open shards and no host is registered: owners in rows are of hosts that
    /// are gone.
    #[serde(skip)]
    is_served_by_nobody: bool,
}

/// How many shards there are of a kind. A shard may be of several.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Counts {
    pub(super) open: usize,
    /// Read to their end.
    pub(super) finished: usize,
    /// Open, with an owner that may live.
    pub(super) held: usize,
    /// Paused, each on its own or with all others.
    pub(super) paused: usize,
    /// Of which the holder says that they make no progress; paused ones do not count.
    pub(super) stuck: usize,
}

/// A shard that is not finished.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct ShardStatus {
    pub(crate) shard: String,
    /// The owner, if it may live.
    pub(crate) owner: Option<String>,
    /// How far it was behind when its owner last wrote the row; `None` if nobody holds it.
    pub(crate) millis_behind_latest: Option<u64>,
    pub(crate) bytes_per_second: Option<u64>,
    /// Why it makes no progress, as its holder says.
    pub(crate) stuck: Option<String>,
    /// How much of its limit the plugin's state took when it was last saved, in percent.
    pub(crate) state_percent: Option<u8>,
    /// What operators want of it.
    pub(crate) wanted: Vec<String>,
    #[serde(skip)]
    pub(crate) is_paused: bool,
    #[serde(skip)]
    pub(super) is_nearly_full: bool,
}

/// A registered host.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct HostStatus {
    pub(super) worker: String,
    /// Shards that it holds.
    pub(super) leases: usize,
    /// Of `leader`, `drained`, `shutting-down` and `dead` what it is. Only several looks can show
    /// that a host is dead.
    pub(super) states: Vec<&'static str>,
    pub(super) troubles: Vec<String>,
}

impl Summary {
    pub(super) fn of(look: &Look<'_>) -> Self {
        let shards = look.open_shards();
        let rows = look.fleet().map_or(&[][..], |fleet| &fleet.workers);
        let stream = look.fleet().and_then(|fleet| fleet.stream.as_ref());
        Self {
            application: look.application.to_owned(),
            stream: stream.map(|row| row.name.to_string()),
            counts: Counts::of(&shards, look.listing.leases.len()),
            paused: look.fleet_pause().map(paused),
            is_served_by_nobody: look.fleet().is_some() && rows.is_empty() && !shards.is_empty(),
            hosts: rows.iter().map(|row| look.host(row, &shards)).collect(),
            hosts_unknown: look.hosts_unknown(),
            shards,
            bad_rows: look.bad_rows(),
        }
    }

    /// Whether something is not as it should be. A pause and a drain are: somebody wants them.
    pub(super) fn needs_attention(&self) -> bool {
        self.counts.held < self.counts.open
            || self.is_served_by_nobody
            || self.hosts_unknown.is_some()
            || self.counts.stuck > 0
            || !self.bad_rows.is_empty()
            || self.hosts.iter().any(|host| !host.troubles.is_empty())
    }
}

impl Counts {
    /// `open` are those of `all` shards that are not finished.
    fn of(open: &[ShardStatus], all: usize) -> Self {
        Self {
            open: open.len(),
            finished: all - open.len(),
            held: count(open, |shard| shard.owner.is_some()),
            paused: count(open, |shard| shard.is_paused),
            stuck: count(open, ShardStatus::is_stuck),
        }
    }
}

fn count(shards: &[ShardStatus], is_counted: impl Fn(&ShardStatus) -> bool) -> usize {
    shards.iter().filter(|shard| is_counted(shard)).count()
}

impl<'a> Look<'a> {
    fn fleet(&self) -> Option<&'a FleetRows> {
        self.fleet.ok().flatten()
    }

    fn hosts_unknown(&self) -> Option<String> {
        match self.fleet {
            Err(why) => Some(one_line(&why.to_string()).into_owned()),
            Ok(None) if self.has_rows_of_hosts() => Some(
                "there is no coordinator table, though hosts of shardmill wrote the rows: it was \
                    deleted"
                    .to_owned(),
            ),
            Ok(_) => None,
        }
    }

    /// Whether a host of shardmill owns shards. Only such a host names its plugin's version.
    fn has_rows_of_hosts(&self) -> bool {
        let mut leases = self.listing.leases.iter();
        leases.any(|lease| {
            !lease.is_finished() && lease.owner.is_some() && lease.plugin_digest.is_some()
        })
    }

    fn fleet_pause(&self) -> Option<&'a Pause> {
        let pause = self.fleet()?.control.pause.as_ref()?;
        pause.is_in_effect(self.wall_ms).then_some(pause)
    }

    /// The most urgent one first.
    fn open_shards(&self) -> Vec<ShardStatus> {
        let leases = self.listing.leases.iter();
        let open = leases.filter(|lease| !lease.is_finished());
        let mut shards: Vec<ShardStatus> = open.map(|lease| self.shard(lease)).collect();
        shards.sort_by(|a, b| b.urgency().cmp(&a.urgency()).then(a.shard.cmp(&b.shard)));
        shards
    }

    fn shard(&self, lease: &Lease) -> ShardStatus {
        let owner = lease.owner.as_ref().filter(|owner| self.may_live(owner));
        let own = lease.directives.pause.as_ref();
        let is_paused_alone = own.is_some_and(|pause| pause.is_in_effect(self.wall_ms));
        // What an owner wrote that no longer lives is out of date.
        let (millis_behind_latest, bytes_per_second) = match owner {
            Some(_) => (lease.millis_behind_latest, lease.bytes_per_second),
            None => (None, None),
        };
        ShardStatus {
            shard: lease.key.to_string(),
            owner: owner.map(ToString::to_string),
            millis_behind_latest,
            bytes_per_second,
            stuck: lease.stuck.as_deref().map(|why| one_line(why).into_owned()),
            state_percent: lease.state_fill.map(|fill| fill.0),
            is_nearly_full: lease.state_fill.is_some_and(StateFill::is_nearly_full),
            wanted: wanted(&lease.directives, self.wall_ms),
            is_paused: is_paused_alone || self.fleet_pause().is_some(),
        }
    }

    fn bad_rows(&self) -> Vec<String> {
        let rows = self.listing.bad_rows.iter();
        rows.map(|bad| format!("{}: {}", bad.key, bad.problem))
            .collect()
    }

    fn may_live(&self, worker: &WorkerId) -> bool {
        let pulse = self.observer.worker_pulse(worker, self.now);
        pulse.is_none_or(Pulse::may_live)
    }

    fn host(&self, row: &WorkerRow, shards: &[ShardStatus]) -> HostStatus {
        let name = row.worker.to_string();
        HostStatus {
            leases: count(shards, |shard| shard.owner.as_ref() == Some(&name)),
            states: self.states(row),
            troubles: troubles(row),
            worker: name,
        }
    }

    fn states(&self, row: &WorkerRow) -> Vec<&'static str> {
        let fleet = self.fleet();
        let leader = fleet
            .and_then(|fleet| fleet.leader.as_ref())
            .and_then(|leader| leader.holder.as_ref());
        let is_drained = fleet.is_some_and(|fleet| fleet.control.drains.contains_key(&row.worker));
        let is_leader =
            leader.is_some_and(|(worker, run)| *worker == row.worker && *run == row.incarnation);
        let states = [
            (is_leader, "leader"),
            (is_drained, "drained"),
            // The row of a drained host says so too.
            (row.is_draining && !is_drained, "shutting-down"),
            (!self.may_live(&row.worker), "dead"),
        ];
        states
            .into_iter()
            .filter_map(|(is_so, word)| is_so.then_some(word))
            .collect()
    }
}

fn troubles(row: &WorkerRow) -> Vec<String> {
    let troubles = [
        ("cannot write lease rows", &row.cannot_write),
        ("cannot read its leases", &row.cannot_look),
    ];
    troubles
        .into_iter()
        .filter_map(|(what, why)| Some(format!("{what}: {}", one_line(why.as_ref()?))))
        .collect()
}

impl ShardStatus {
    /// Whether it makes no progress although nobody paused it.
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck.is_some() && !self.is_paused
    }

    /// The most urgent one is shown first.
    fn urgency(&self) -> (bool, bool, u64) {
        let lag = self.millis_behind_latest.unwrap_or(0);
        (self.is_stuck(), self.owner.is_none(), lag)
    }
}
