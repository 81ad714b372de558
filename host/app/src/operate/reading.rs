//! Two looks at an application's tables, some time apart, as a host sees them. Writes nothing.

mod shards;
mod tables;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, bail};
use shardmill_aws::{KinesisReader, applications_of_streams};
use shardmill_config::Config;
use shardmill_core::fleet::{FleetRows, Incarnation, LeaderStep, Leadership, StreamIdentity};
use shardmill_core::lease::{Lease, LeaseObserver, Pulse, WorkerId};
use shardmill_core::plan::{
    OVERDUE_LEASES, ObservedLease, Outlook, PlanLimits, ShardList, alive_workers,
};
use shardmill_core::ports::{Clock, LeaseListing, StreamReader};
use shardmill_core::stream::{InitialPosition, StreamName, StreamRef};
use shardmill_core::time::Moment;
use shardmill_serve::BootClock;
use shardmill_worker::{LeaseOptions, refuse_other_stream};

use self::shards::{Beginning, Shards};
use self::tables::Existing;
pub(super) use self::tables::{Look, Tables};
use super::parts::{only_streams, refuse_several_parts};
use crate::cli::ReadingArgs;

/// The longest watch by default: a row says how long its host's leases last, and anybody may have
/// written it.
pub(super) const WATCH_MAX: Duration = Duration::from_mins(1);

/// The part of a lease duration that a watch is longer by default: beats come a little late, and a
/// worker that writes nothing for longer than the duration is dead.
const MARGIN_PARTS: u32 = 5;

/// An id that no worker has: no host has a NUL in its name.
const NOBODY: &str = "\u{0}nobody";

/// How long to watch by default, to know which workers with leases of this duration are alive.
pub(super) fn watch_past(lease_duration: Duration) -> Duration {
    lease_duration.saturating_add(lease_duration / MARGIN_PARTS)
}

/// What was read.
pub(super) struct Reading {
    pub(super) observer: LeaseObserver,
    pub(super) leadership: Leadership,
    pub(super) now: Moment,
    pub(super) wall_ms: u64,
    /// Zero if there was one look only.
    pub(super) watched_for: Duration,
    /// The rows at the first look.
    pub(super) earlier: Vec<Lease>,
    pub(super) listing: LeaseListing,
    pub(super) fleet: FleetRows,
    pub(super) stream: Option<StreamName>,
    pub(super) limits: PlanLimits,
    pub(super) lease_duration: Duration,
    /// What could not be read, and what that means.
    pub(super) notes: Vec<String>,
    /// `None` if the stream was not read.
    shards: Option<Shards>,
}

impl Reading {
    pub(super) async fn take(application: &str, args: &ReadingArgs) -> anyhow::Result<Self> {
        let config = args
            .connection
            .config
            .as_deref()
            .map(Config::load)
            .transpose()?;
        let config = config.as_ref();
        let clients = crate::aws::connect_as(config, &args.connection.aws).await?;
        let tables = Tables::of(application, &clients);
        let mut reading = Self::new(config);
        let last = reading.watch(&tables, config, args.watch.watch_for).await?;
        let named = args.stream.as_deref().map(StreamRef::parse).transpose()?;
        let stream = reading.stream_of(application, config, named, &last);
        let others = applications_of_streams(&clients.dynamodb, application).await;
        reading.note_other_streams(&others);
        reading.note_tables(application, &tables, &last);
        let existing = last.existing;
        (reading.listing, reading.fleet) = (last.listing, last.fleet);
        reading.settle_start(config.is_some());
        match stream {
            Some(stream) => {
                reading.stream = Some(stream.name().clone());
                let reader = KinesisReader::new(clients.kinesis, &stream).speaking(clients.wire);
                reading
                    .read_stream(application, stream.name().clone(), &reader)
                    .await?;
            }
            None if !existing.leases && !existing.coordinator && !others.is_empty() => {
                bail!(only_streams(application, &others))
            }
            None => reading.do_without_stream(application, &tables, existing)?,
        }
        reading.limits.shared_with_kcl |= existing.leases && reading.has_foreign();
        Ok(reading)
    }

    fn new(config: Option<&Config>) -> Self {
        let leases = config.map_or_else(LeaseOptions::default, |config| config.leases);
        Self {
            observer: LeaseObserver::default(),
            leadership: Leadership::default(),
            now: Moment::default(),
            wall_ms: 0,
            watched_for: Duration::ZERO,
            earlier: Vec::new(),
            listing: LeaseListing::default(),
            fleet: FleetRows::default(),
            stream: None,
            limits: PlanLimits {
                initial_position: config.map_or(InitialPosition::TrimHorizon, |config| {
                    config.initial_position
                }),
                max_leases: leases.max_leases,
                balance: leases.balance,
                shared_with_kcl: leases.shared_with_kcl,
                overdue_after: leases.duration * OVERDUE_LEASES,
                // A command did not see when a shard ended: the hosts that did remove its row.
                finished_rows_stay: Duration::ZERO,
            },
            lease_duration: leases.duration,
            notes: Vec::new(),
            shards: None,
        }
    }

    /// Looks, and looks again after `watch_for`, or after a little more than a lease duration: only
    /// two looks show what moves. Returns the last one.
    async fn watch(
        &mut self,
        tables: &Tables,
        config: Option<&Config>,
        watch_for: Option<Duration>,
    ) -> anyhow::Result<Look> {
        let first = tables.look().await?;
        refuse_several_parts(tables.application(), &first.fleet)?;
        self.observe(&first);
        self.settle_duration(config, &first.fleet);
        self.earlier.clone_from(&first.listing.leases);
        let by_default = watch_past(self.lease_duration).min(WATCH_MAX);
        let watch_for = watch_for.unwrap_or(by_default);
        if watch_for.is_zero() || !first.existing.leases {
            return Ok(first);
        }
        let from = self.now;
        tracing::info!(watch_for = ?watch_for, "watching what moves; --watch-for 0s looks once");
        tokio::time::sleep(watch_for).await;
        let last = tables.look().await?;
        self.observe(&last);
        self.watched_for = self.now.since(from);
        Ok(last)
    }

    /// Without a configuration, the fleet's own lease duration is the one that counts.
    fn settle_duration(&mut self, config: Option<&Config>, fleet: &FleetRows) {
        let longest = fleet.workers.iter().map(|row| row.lease_duration).max();
        if let (None, Some(longest)) = (config, longest) {
            self.lease_duration = longest;
            self.limits.overdue_after = longest * OVERDUE_LEASES;
        }
    }

    fn observe(&mut self, look: &Look) {
        let clock = BootClock;
        (self.now, self.wall_ms) = (clock.now(), clock.wall_ms());
        self.observer.observe_workers(&look.fleet.workers, self.now);
        self.observer.observe(&look.listing.leases, self.now);
        self.leadership
            .observe(look.fleet.leader.as_ref(), self.now);
    }

    /// The stream that was named, or is configured, or that the fleet recorded.
    fn stream_of(
        &mut self,
        application: &str,
        config: Option<&Config>,
        named: Option<StreamRef>,
        last: &Look,
    ) -> Option<StreamRef> {
        let configured = config.and_then(|config| config.stream_of_application(application));
        if let Some(own) = &configured {
            self.limits.initial_position = own.initial_position;
        }
        let written_down = last.fleet.stream.as_ref();
        named
            .or_else(|| configured.map(|own| own.stream))
            .or_else(|| config.and_then(|config| config.stream.clone()))
            .or_else(|| written_down.map(|row| row.name.clone().into()))
    }

    fn note_other_streams(&mut self, others: &[String]) {
        if !others.is_empty() {
            self.notes.push(format!(
                "further streams have their own leases; name one of these to see them: {}",
                others.join(", ")
            ));
        }
    }

    fn note_tables(&mut self, application: &str, tables: &Tables, last: &Look) {
        if !last.existing.leases {
            self.notes.push(format!(
                "there is no lease table {application} yet; the first host creates it"
            ));
        } else if !last.existing.coordinator {
            let table = tables.coordinator.name();
            self.notes.push(format!(
                "there is no table {table}: no shardmill host has served this application yet"
            ));
        }
        for row in &last.fleet.workers {
            if let Some(reason) = &row.cannot_look {
                self.notes
                    .push(format!("{} cannot read its leases: {reason}", row.worker));
            }
        }
    }

    /// A start that was recorded stays, even if another one is configured.
    fn settle_start(&mut self, has_config: bool) {
        let Some(start) = &self.fleet.start else {
            return;
        };
        let configured = self.limits.initial_position;
        if has_config && let Some(kept) = start.kept_instead_of(configured) {
            self.notes.push(format!(
                "initial-position is {configured}, but the application started with {kept}, which \
                    stays in force"
            ));
        }
        self.limits.initial_position = start.position;
    }

    fn do_without_stream(
        &mut self,
        application: &str,
        tables: &Tables,
        existing: Existing,
    ) -> anyhow::Result<()> {
        if !existing.leases && !existing.coordinator {
            bail!(
                "there is no lease table {application} and no table {}: name the application (a \
                    plugin's name, unless the configuration says otherwise), or the stream with \
                    --stream to see what a first host would do",
                tables.coordinator.name()
            );
        }
        self.notes.push(
            "no stream is known, so shards without rows are not shown; use --stream".to_owned(),
        );
        Ok(())
    }

    /// Lists the shards, if the stream is the one that the checkpoints belong to: otherwise a host
    /// would not start.
    async fn read_stream(
        &mut self,
        application: &str,
        stream: StreamName,
        reader: &KinesisReader,
    ) -> anyhow::Result<()> {
        let Some(identity) = self.identity_of(&stream, reader).await else {
            return Ok(());
        };
        refuse_other_stream(application, self.fleet.stream.as_ref(), &stream, identity)
            .context("no host would serve this")?;
        let beginning = self.beginning();
        match Shards::read(reader, identity, beginning, &self.listing.leases).await {
            Ok(shards) => self.shards = Some(shards),
            Err(error) => self
                .notes
                .push(format!("the shards of {stream} cannot be listed: {error}")),
        }
        Ok(())
    }

    async fn identity_of(
        &mut self,
        stream: &StreamName,
        reader: &KinesisReader,
    ) -> Option<StreamIdentity> {
        let problem = match reader.identity().await {
            Ok(Some(identity)) => return Some(identity),
            Ok(None) => format!("there is no stream {stream}; leases are kept until it is back"),
            Err(error) => {
                format!("stream {stream} cannot be read, so its shards are not shown: {error}")
            }
        };
        self.notes.push(problem);
        None
    }

    /// Before there is a start, the application begins where a first host would begin now.
    fn beginning(&self) -> Beginning {
        match &self.fleet.start {
            Some(start) if start.found_leases => Beginning::Unknown,
            Some(start) => start.since_ms().map_or(Beginning::Oldest, Beginning::At),
            None if !self.listing.leases.is_empty() => Beginning::Unknown,
            None => match self.limits.initial_position {
                InitialPosition::TrimHorizon => Beginning::Oldest,
                InitialPosition::AtTimestamp(ms) => Beginning::At(ms),
                InitialPosition::Latest => Beginning::Latest,
            },
        }
    }

    fn has_foreign(&self) -> bool {
        let alive = self.alive();
        let Ok(nobody) = nobody() else {
            return false;
        };
        self.outlook(&nobody, &alive)
            .foreign(&self.listing.leases, &self.fleet.workers)
            .is_some()
    }

    /// Owners of leases and registered hosts that may be alive.
    pub(super) fn may_live(&self) -> BTreeSet<WorkerId> {
        let owners = self.listing.leases.iter().filter(|lease| {
            let pulse = self.observer.pulse(lease, self.now, self.lease_duration);
            pulse.is_some_and(Pulse::may_live)
        });
        let owners = owners.filter_map(|lease| lease.owner.clone());
        owners.chain(self.alive()).collect()
    }

    /// Workers that are alive and not shutting down.
    pub(super) fn alive(&self) -> BTreeSet<WorkerId> {
        alive_workers(&self.observer, self.now)
    }

    pub(super) fn outlook<'a>(
        &'a self,
        me: &'a WorkerId,
        alive: &'a BTreeSet<WorkerId>,
    ) -> Outlook<'a> {
        Outlook {
            me,
            observer: &self.observer,
            alive,
            lease_duration: self.lease_duration,
            now: self.now,
        }
    }

    /// The rows as `me` sees them, if it runs.
    pub(super) fn leases_of(&self, me: &WorkerId) -> Vec<ObservedLease> {
        self.outlook(me, &self.alive())
            .leases_if_running(self.listing.leases.iter())
    }

    pub(super) fn shards(&self) -> Option<ShardList<'_>> {
        self.shards.as_ref().map(Shards::as_list)
    }

    /// Whether a first sync was complete.
    pub(super) fn is_bootstrapped(&self) -> bool {
        self.fleet
            .is_bootstrapped_given(!self.listing.leases.is_empty())
    }

    /// Whether `worker` leads, or would at its next look.
    pub(super) fn would_lead(&self, worker: &WorkerId) -> bool {
        let row = self.fleet.workers.iter().find(|row| row.worker == *worker);
        let run = row.map_or_else(
            || Incarnation::from_random(0),
            |row| row.incarnation.clone(),
        );
        self.leadership
            .decide(worker, &run, self.lease_duration, self.now)
            != LeaderStep::Follow
    }

    /// The leader that is on record.
    pub(super) fn leader(&self) -> Option<&WorkerId> {
        self.fleet
            .leader
            .as_ref()
            .and_then(|row| row.holder.as_ref())
            .map(|(worker, _)| worker)
    }
}

/// An id that no worker has, to see the fleet from outside.
pub(super) fn nobody() -> anyhow::Result<WorkerId> {
    WorkerId::new(NOBODY).context("an id")
}
