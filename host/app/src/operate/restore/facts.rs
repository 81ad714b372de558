//! What is known of the stream, and of the tables, before anything is written.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use shardmill_aws::{AwsClients, KinesisReader, LeaseTable, StreamAdmin};
use shardmill_core::backup::{
    Backup, RestorePlan, RestorePolicy, RestoreStep, StreamNow, StreamRelation, TablesNow,
    closed_since, relation,
};
use shardmill_core::fleet::StreamIdentity;
use shardmill_core::lease::{Lease, Pulse, WorkerId};
use shardmill_core::ports::{Clock, LeaseStore, SavedState, StreamReader};
use shardmill_core::stream::{LeaseKey, Shard, ShardId, StreamRef, holes};
use shardmill_serve::BootClock;

use crate::cli::RestoreArgs;
use crate::operate::living;
use crate::operate::parts::refuse_several_parts;
use crate::operate::reading::{Look, Tables};
use crate::output::no_stream;

/// The stream that the application is to read.
pub(super) struct Stream {
    pub(super) reader: KinesisReader,
    reference: StreamRef,
    arn: String,
    pub(super) retention_hours: u32,
    pub(super) identity: StreamIdentity,
    shards: Vec<Shard>,
    closed_before: BTreeSet<ShardId>,
    pub(super) now_ms: u64,
}

/// Where a backup is restored to.
pub(super) struct Destination<'a> {
    pub(super) application: &'a str,
    pub(super) stream: &'a Stream,
    pub(super) target: &'a Target,
}

/// The tables of the application that is restored.
pub(super) struct Target {
    pub(super) look: Look,
    pub(super) rows: Vec<Lease>,
    pub(super) states: BTreeMap<LeaseKey, SavedState>,
    pub(super) has_states: bool,
    living: BTreeMap<WorkerId, Pulse>,
}

impl Stream {
    pub(super) async fn read(
        stream: &StreamRef,
        backup: &Backup,
        policy: RestorePolicy,
        clients: &AwsClients,
    ) -> anyhow::Result<Self> {
        let admin = StreamAdmin::new(clients.kinesis.clone());
        let reader = KinesisReader::new(clients.kinesis.clone(), stream);
        let reader = reader.speaking(clients.wire.clone());
        let described = admin.describe(stream.clone()).await?;
        let (Some(found), Some(identity)) = (described, reader.identity().await?) else {
            return Err(no_stream(stream.name().as_str()));
        };
        let shards = reader.list_shards().await?;
        refuse_holes(&shards)?;
        let now_ms = reader.now_ms().await?;
        let mut read = Self {
            reader,
            reference: stream.clone(),
            arn: found.arn,
            retention_hours: found.retention_hours,
            identity,
            shards,
            closed_before: BTreeSet::new(),
            now_ms: now_ms.unwrap_or_else(|| BootClock.wall_ms()),
        };
        if relation(backup, &read.now()) != StreamRelation::Same {
            read.refuse_future(policy)?;
            read.ask_closed(backup, policy).await?;
        }
        Ok(read)
    }

    /// Kinesis reads from no time that is to come.
    fn refuse_future(&self, policy: RestorePolicy) -> anyhow::Result<()> {
        if policy.from_ms.is_some_and(|from| from > self.now_ms) {
            bail!("--from-time is in the future, by the stream's clock");
        }
        Ok(())
    }

    /// What Kinesis does not answer is read.
    async fn ask_closed(&mut self, backup: &Backup, policy: RestorePolicy) -> anyhow::Result<()> {
        for (since_ms, closed) in closed_since(backup, &self.shards, policy) {
            let Some(left) = self.reader.list_shards_since(since_ms).await? else {
                continue;
            };
            let left: BTreeSet<ShardId> = left.into_iter().map(|shard| shard.id).collect();
            let before = closed.into_iter().filter(|shard| !left.contains(shard));
            self.closed_before.extend(before);
        }
        Ok(())
    }

    pub(super) fn now(&self) -> StreamNow<'_> {
        StreamNow {
            name: self.reference.name(),
            arn: Some(&self.arn),
            identity: self.identity,
            shards: &self.shards,
            closed_before: &self.closed_before,
        }
    }

    pub(super) fn arn(&self) -> &str {
        &self.arn
    }
}

/// A shard that a listing lacks would be left out.
fn refuse_holes(shards: &[Shard]) -> anyhow::Result<()> {
    let open = shards.iter().filter(|shard| shard.is_open());
    if let Some(hole) = holes(open.map(|shard| shard.hash_range)).first() {
        bail!(
            "no open shard has the hash keys {hole}: the stream is being resharded; run it again \
                when it is ACTIVE"
        );
    }
    Ok(())
}

impl Target {
    pub(super) async fn read(
        application: &str,
        args: &RestoreArgs,
        clients: &AwsClients,
    ) -> anyhow::Result<Self> {
        let tables = Tables::of(application, clients);
        let (look, living) = living::watch(&tables, &args.connection, args.watch).await?;
        refuse_several_parts(application, &look.fleet)?;
        if let Some(bad) = look.listing.bad_rows.first() {
            bail!(
                "row {} of {application} cannot be read: {}; remove it first",
                bad.key,
                bad.problem
            );
        }
        let table = LeaseTable::new(clients.dynamodb.clone(), application);
        let has_states = table.has_state_table().await?;
        let rows = if look.existing.leases {
            table.list_consistently().await?.leases
        } else {
            Vec::new()
        };
        let mut states = BTreeMap::new();
        if has_states {
            for row in &rows {
                if let Some(state) = table.state(&row.key).await? {
                    states.insert(row.key.clone(), state);
                }
            }
        }
        Ok(Self {
            look,
            rows,
            states,
            has_states,
            living,
        })
    }

    pub(super) fn now(&self) -> TablesNow<'_> {
        TablesNow {
            rows: &self.rows,
            states: &self.states,
            fleet: &self.look.fleet,
        }
    }

    /// Why nothing may be written.
    pub(super) fn obstacles(&self, plan: &RestorePlan) -> Vec<String> {
        let mut obstacles: Vec<String> = plan.refusals.iter().map(ToString::to_string).collect();
        obstacles.extend(refused_shards(plan));
        let living = self.living.iter();
        let living: Vec<String> = living
            .map(|(who, pulse)| format!("{who} ({pulse})"))
            .collect();
        if !living.is_empty() {
            obstacles.push(format!(
                "somebody may be at work: {}; stop the hosts first. One that was killed counts as \
                    dead once it was watched for longer than its lease duration: --watch-for",
                living.join(", ")
            ));
        }
        obstacles
    }
}

/// Why the shards of a plan forbid it, each with its shard.
fn refused_shards(plan: &RestorePlan) -> Vec<String> {
    let mut refused = Vec::new();
    for shard in &plan.shards {
        if let RestoreStep::Refuse { why, .. } = &shard.step {
            refused.push(format!("{}: {why}", shard.shard));
        }
    }
    refused
}
