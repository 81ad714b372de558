//! Reads an application while its hosts are at work.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::bail;
use futures_util::{StreamExt, TryStreamExt, stream};
use shardmill_aws::{AdminError, AwsClients, KinesisReader, LeaseTable, StreamDescription};
use shardmill_core::backup::{BackedUpShard, BackedUpStream, Backup, pair, torn};
use shardmill_core::control::Directives;
use shardmill_core::fleet::FleetRows;
use shardmill_core::lease::Lease;
use shardmill_core::ports::{Clock, LeaseStore};
use shardmill_core::stream::LeaseKey;
use shardmill_serve::BootClock;

use super::arrivals;
use crate::operate::parts::{refuse_several_parts, refuse_unknown_host};
use crate::operate::reading::Tables;

/// Shards read at once. Each is three small reads, one after the other.
const AT_ONCE: usize = 8;
/// How often a row and its state are read again because a checkpoint came between the two. A host
/// writes few a second, and the two reads take some milliseconds.
const READS_MAX: u32 = 20;
const READ_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// Listings, so that shards are found that split while they were read.
const ROUNDS_MAX: u32 = 3;

/// What a backup is made from.
pub(super) struct Opened {
    application: String,
    leases: LeaseTable,
    has_states: bool,
    pub(super) fleet: FleetRows,
}

/// A backup, and what else is to be known of it.
pub(super) struct Taken {
    pub(super) backup: Backup,
    pub(super) notes: Vec<String>,
}

pub(super) async fn open(name: &str, clients: &AwsClients) -> anyhow::Result<Opened> {
    let look = Tables::of(name, clients).look().await?;
    if !look.existing.leases || !look.existing.coordinator {
        bail!(
            "{name} has no tables of shardmill here: no host has served it; `shardmill plugins` \
                lists those that have been served"
        );
    }
    refuse_several_parts(name, &look.fleet)?;
    refuse_unknown_host(name, clients).await?;
    let leases = LeaseTable::new(clients.dynamodb.clone(), name);
    Ok(Opened {
        application: name.to_owned(),
        has_states: leases.has_state_table().await?,
        leases,
        fleet: look.fleet,
    })
}

pub(super) async fn take(
    opened: &Opened,
    found: Result<Option<StreamDescription>, AdminError>,
    reader: &KinesisReader,
) -> anyhow::Result<Taken> {
    let at_ms = BootClock.wall_ms();
    let fleet = &opened.fleet;
    let (Some(row), Some(start)) = (&fleet.stream, fleet.start) else {
        bail!(
            "no host has written down where {} began: start one first",
            opened.application
        );
    };
    let mut notes = Vec::new();
    let arn = arn_of(found, &mut notes);
    let mut shards = opened.shards().await?;
    if arn.is_some() {
        arrivals::find(&mut shards, reader, AT_ONCE, &mut notes).await;
    }
    note_what_is_left_out(&shards, &mut notes);
    Ok(Taken {
        backup: Backup {
            application: opened.application.clone(),
            at_ms,
            stream: BackedUpStream {
                row: row.clone(),
                arn,
            },
            start,
            pause: fleet.control.pause.clone(),
            deploy: fleet.control.deploy.clone(),
            quarantined: fleet.quarantined.clone(),
            shards,
        },
        notes,
    })
}

/// Without the stream a backup is still worth making: it may be what was lost.
fn arn_of(
    found: Result<Option<StreamDescription>, AdminError>,
    notes: &mut Vec<String>,
) -> Option<String> {
    let why = match found {
        Ok(Some(found)) => return Some(found.arn),
        Ok(None) => "it does not exist".to_owned(),
        Err(error) => error.to_string(),
    };
    notes.push(format!(
        "the stream cannot be read: {why}. So the backup has the times of places as hosts wrote them \
            down, which are a little too late, and not the stream's ARN"
    ));
    None
}

/// What waits to be done is asked of this run of the application.
fn note_what_is_left_out(shards: &[BackedUpShard], notes: &mut Vec<String>) {
    for shard in shards {
        let Directives {
            seek, skip, state, ..
        } = &shard.lease.directives;
        if seek.is_some() || skip.is_some() || state.is_some() {
            notes.push(format!(
                "{}: a seek, a skip or a change of its state waits for its holder, and is not in the \
                    backup",
                shard.lease.key
            ));
        }
    }
}

impl Opened {
    /// Every shard, in the order of their ids.
    async fn shards(&self) -> anyhow::Result<Vec<BackedUpShard>> {
        let mut taken: BTreeMap<LeaseKey, BackedUpShard> = BTreeMap::new();
        for _ in 0..ROUNDS_MAX {
            let again = torn(taken.values());
            let listed = self.listed().await?;
            let due: Vec<Lease> = listed
                .into_iter()
                .filter(|row| !taken.contains_key(&row.key) || again.contains(&row.key))
                .collect();
            if due.is_empty() {
                break;
            }
            let found = self.read(due).await?.into_iter();
            taken.extend(found.map(|shard| (shard.lease.key.clone(), shard)));
        }
        Ok(taken.into_values().collect())
    }

    async fn listed(&self) -> anyhow::Result<Vec<Lease>> {
        let listing = self.leases.list_consistently().await?;
        if let Some(bad) = listing.bad_rows.first() {
            bail!(
                "{} row(s) of {} cannot be read, such as {}: {}. Nothing is backed up without them: \
                    correct them first",
                listing.bad_rows.len(),
                self.leases.name(),
                bad.key,
                bad.problem
            );
        }
        Ok(listing.leases)
    }

    /// Those of these rows that are still there, in any order.
    async fn read(&self, rows: Vec<Lease>) -> anyhow::Result<Vec<BackedUpShard>> {
        let reads = stream::iter(rows).map(|row| self.shard(row));
        let found: Vec<Option<BackedUpShard>> =
            reads.buffer_unordered(AT_ONCE).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// The row and the state that belongs to it; `None` if the row is gone.
    async fn shard(&self, listed: Lease) -> anyhow::Result<Option<BackedUpShard>> {
        if !self.has_states || listed.is_finished() {
            return Ok(Some(BackedUpShard {
                lease: listed,
                state: None,
                read_at_ms: BootClock.wall_ms(),
            }));
        }
        let key = listed.key.clone();
        let mut before = listed;
        for _ in 0..READS_MAX {
            let state = self.leases.state(&key).await?;
            let Some(after) = self.leases.get(&key).await? else {
                return Ok(None);
            };
            let read_at_ms = BootClock.wall_ms();
            if let Some((lease, state)) = pair(&before, state, &after) {
                return Ok(Some(BackedUpShard {
                    lease,
                    state,
                    read_at_ms,
                }));
            }
            before = after;
            tokio::time::sleep(READ_AGAIN_AFTER).await;
        }
        Err(self.apart(&key))
    }

    /// Either somebody changed one of the two tables, or a host is very busy.
    fn apart(&self, key: &LeaseKey) -> anyhow::Error {
        let name = &self.application;
        anyhow::anyhow!(
            "{key}: its state does not belong to its checkpoint, after {READS_MAX} reads. If `shardmill \
                state {name}` says so too, one of the tables was restored without the other: \
                docs/how-to/back-up-and-restore.md, \"Fix a state that is newer than its lease\""
        )
    }
}
