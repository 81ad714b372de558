//! The tables of one application, as a command changes them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::bail;
use shardmill_aws::{AwsClients, CoordinatorTable, LeaseTable};
use shardmill_core::control::{Asked, Control, Deed, Directives, HistoryEntry};
use shardmill_core::explain::shard_named;
use shardmill_core::fleet::FleetRows;
use shardmill_core::lease::{Lease, WorkerId};
use shardmill_core::ports::{Clock, Coordinator, Directing, LeaseStore, Raced};
use shardmill_core::stream::{LeaseKey, ShardId};
use shardmill_serve::BootClock;
use tokio::task::JoinSet;

use crate::cli::ChangeArgs;
use crate::operate::parts::{no_lease_table, refuse_several_parts, refuse_unknown_host};
use crate::output::millis;

/// How often a change is tried that others make at the same time.
const TRIES_MAX: u32 = 5;
/// Hosts that are told at once.
const NUDGES_AT_ONCE: usize = 16;

/// How far the clocks of a host and of this machine may differ.
const CLOCKS_DIFFER_MAX: Duration = Duration::from_mins(1);

/// See the module's description.
pub(super) struct Application {
    pub(super) name: String,
    pub(super) leases: LeaseTable,
    coordinator: CoordinatorTable,
}

/// What is done, for the history.
pub(super) struct Done {
    pub(super) deed: Deed,
    pub(super) shard: Option<ShardId>,
    pub(super) details: String,
}

/// What a host says it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    /// By the host's clock, in milliseconds since the Unix epoch.
    pub(super) at_ms: u64,
    pub(super) text: String,
    /// Whether it did all that was wanted.
    pub(super) is_done: bool,
}

impl Application {
    pub(super) async fn open(name: &str, clients: &AwsClients) -> anyhow::Result<Self> {
        let leases = LeaseTable::new(clients.dynamodb.clone(), name);
        let coordinator = CoordinatorTable::new(clients.dynamodb.clone(), name);
        if !leases.exists().await? {
            bail!(no_lease_table(name, clients).await);
        }
        if !coordinator.exists().await? {
            bail!(
                "there is no table {}: only another library has served application {name}, and \
                    its hosts obey no command of this one",
                coordinator.name()
            );
        }
        refuse_several_parts(name, &coordinator.board().await?)?;
        refuse_unknown_host(name, clients).await?;
        Ok(Self {
            name: name.to_owned(),
            leases,
            coordinator,
        })
    }

    pub(super) fn coordinator(&self) -> &CoordinatorTable {
        &self.coordinator
    }

    /// All rows, as they are now, in the order of their shards.
    pub(super) async fn rows(&self) -> anyhow::Result<Vec<Lease>> {
        let mut rows = self.leases.list_consistently().await?.leases;
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(rows)
    }

    pub(super) async fn fleet(&self) -> anyhow::Result<FleetRows> {
        Ok(self.coordinator.fleet().await?)
    }

    pub(super) async fn row(&self, shard: &ShardId) -> anyhow::Result<Lease> {
        let row = self.leases.get(&LeaseKey::of_shard(shard)).await?;
        row.ok_or_else(|| self.unknown(shard))
    }

    /// The rows of these shards; of all that are not finished if none is named.
    pub(super) async fn rows_of(&self, shards: &[String]) -> anyhow::Result<Vec<Lease>> {
        if shards.is_empty() {
            let mut rows = self.rows().await?;
            rows.retain(|row| !row.is_finished());
            return Ok(rows);
        }
        let mut rows = Vec::new();
        for shard in named(shards)? {
            rows.push(self.row(&shard).await?);
        }
        Ok(rows)
    }

    fn unknown(&self, shard: &ShardId) -> anyhow::Error {
        let name = &self.name;
        anyhow::anyhow!(
            "lease table {name} has no shard {shard}; `shardmill leases {name}` lists its shards"
        )
    }

    /// Changes the directives of a row, however often others change them meanwhile. Returns the row
    /// as it is then.
    pub(super) async fn direct(
        &self,
        row: &Lease,
        change: impl Fn(&mut Directives),
    ) -> anyhow::Result<Lease> {
        let mut seen = row.clone();
        for _ in 0..TRIES_MAX {
            let next = seen.directives.changed(&change);
            match self.leases.direct(&seen, &next).await? {
                Directing::Applied(row) => return Ok(*row),
                Directing::Changed(Some(now)) => seen = *now,
                Directing::Changed(None) => bail!("the row of {} is gone", row.key),
            }
        }
        bail!("{}: others change what is wanted all the time", row.key)
    }

    /// Changes what is wanted of all hosts, however often others change it meanwhile.
    pub(super) async fn change_control(
        &self,
        change: impl Fn(&mut Control) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        for _ in 0..TRIES_MAX {
            let seen = self.fleet().await?.control;
            let mut next = seen.changed(|_| {});
            change(&mut next)?;
            if self.coordinator.write_control(&seen, &next).await? == Raced::Applied {
                return Ok(());
            }
        }
        bail!("{}: others change what is wanted all the time", self.name)
    }

    /// Nudges these workers, and those that watch the fleet, to read what has changed. They would
    /// find out without it, only later; so a worker that cannot be nudged is no error.
    pub(super) async fn nudge_all(&self, workers: BTreeSet<WorkerId>) {
        let mut nudges = JoinSet::new();
        for worker in workers {
            if nudges.len() >= NUDGES_AT_ONCE {
                nudges.join_next().await;
            }
            let coordinator = self.coordinator.clone();
            nudges.spawn(async move {
                if let Err(error) = coordinator.nudge(&worker, fastrand::u64(1..)).await {
                    tracing::debug!(%worker, %error, "the worker was not nudged");
                }
            });
        }
        if let Err(error) = self.coordinator.announce().await {
            tracing::debug!(%error, "the hosts that watch were not nudged");
        }
        nudges.join_all().await;
    }

    /// All workers that are registered.
    pub(super) async fn workers(&self) -> anyhow::Result<BTreeSet<WorkerId>> {
        let fleet = self.fleet().await?;
        Ok(fleet.workers.into_iter().map(|row| row.worker).collect())
    }

    /// What to say of shards that were to go elsewhere, as was asked, and stayed where they are.
    pub(super) async fn stayed(
        &self,
        asked: &Asked,
        shards: &BTreeSet<ShardId>,
    ) -> anyhow::Result<Vec<String>> {
        // The hosts write it by their own clocks.
        let since_ms = asked.at_ms.saturating_sub(millis(CLOCKS_DIFFER_MAX));
        let is_this = |entry: &HistoryEntry| {
            let shard = entry.shard.as_ref();
            let is_meant = shard.is_some_and(|shard| shards.contains(shard));
            is_meant && entry.deed == Deed::Stayed && entry.why == asked.why
        };
        let found = self.coordinator.history(since_ms, usize::MAX, is_this);
        let stayed = found.await?.entries.into_iter().filter_map(|entry| {
            let shard = entry.shard?;
            Some(format!("{shard} stays where it is: {}", entry.details))
        });
        Ok(stayed.collect())
    }

    /// What hosts say about what was asked for, for this reason, by their names: the last answer of
    /// each, which may be to an earlier command. `deeds` are what they may have done, and not done.
    pub(super) async fn answers(
        &self,
        asked: &Asked,
        deeds: [Deed; 2],
    ) -> anyhow::Result<BTreeMap<String, Answer>> {
        let since_ms = asked.at_ms.saturating_sub(millis(CLOCKS_DIFFER_MAX));
        let is_this = |entry: &HistoryEntry| deeds.contains(&entry.deed) && entry.why == asked.why;
        let found = self.coordinator.history(since_ms, usize::MAX, is_this);
        let mut answers: BTreeMap<String, Answer> = BTreeMap::new();
        for entry in found.await?.entries {
            let answer = Answer {
                at_ms: entry.at_ms,
                is_done: entry.deed == deeds[0],
                text: entry.details,
            };
            let last = answers.entry(entry.by).or_insert_with(|| answer.clone());
            if last.at_ms < answer.at_ms {
                *last = answer;
            }
        }
        Ok(answers)
    }

    /// Adds to the history what was done.
    pub(super) async fn record(&self, asked: &Asked, done: Done) -> anyhow::Result<()> {
        let entry = HistoryEntry {
            at_ms: asked.at_ms,
            by: asked.by.clone(),
            deed: done.deed,
            shard: done.shard,
            details: done.details,
            why: asked.why.clone(),
        };
        Ok(self.coordinator.record(&entry).await?)
    }
}

/// The shards that a command names, each once.
pub(super) fn named(shards: &[String]) -> anyhow::Result<BTreeSet<ShardId>> {
    let ids = shards.iter().map(|shard| Ok(shard_named(shard)?));
    ids.collect()
}

/// The owners of these rows.
pub(super) fn owners<'a>(rows: impl IntoIterator<Item = &'a Lease>) -> BTreeSet<WorkerId> {
    let owners = rows.into_iter().filter_map(|row| row.owner.clone());
    owners.collect()
}

/// Who asks, and why. Without `--apply` there is no need of a reason.
pub(super) fn asked(change: &ChangeArgs) -> Asked {
    asked_by(change.by.as_deref(), change.why.as_deref())
}

/// The same, of these arguments.
pub(crate) fn asked_by(by: Option<&str>, why: Option<&str>) -> Asked {
    Asked {
        by: by.map_or_else(this_person, str::to_owned),
        why: why.unwrap_or_default().to_owned(),
        at_ms: BootClock.wall_ms(),
    }
}

fn this_person() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
    let host = gethostname::gethostname();
    format!(
        "{}@{}",
        user.as_deref().unwrap_or("somebody"),
        host.to_string_lossy()
    )
}
