//! Two looks at an application's tables, a while apart, as a host sees them. Nothing is written.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, bail};
use shardmill_aws::{CoordinatorTable, KinesisReader, LeaseTable, applications_of_streams};
use shardmill_config::{AwsConfig, Config};
use shardmill_core::fleet::{
    FleetRows, Incarnation, LeaderStep, Leadership, StreamIdentity, StreamRow, StreamVerdict,
};
use shardmill_core::lease::{Lease, LeaseObserver, Pulse, WorkerId};
use shardmill_core::plan::{
    GoneShards, MissingShards, OVERDUE_LEASES, ObservedLease, Outlook, PlanLimits, ShardList,
    alive_workers,
};
use shardmill_core::ports::{
    Clock, Coordinator, LeaseListing, LeaseStore, StoreError, StreamReader,
};
use shardmill_core::stream::{InitialPosition, Shard, ShardId, StreamName, StreamRef};
use shardmill_core::time::Moment;
use shardmill_serve::BootClock;
use shardmill_worker::{LeaseOptions, WorkerError, confirm_gone};

use crate::cli::ReadingArgs;

/// The longest look without `--watch-for`: a row says how long its host's leases last, and anybody
/// may have written it.
pub(super) const WATCH_MAX: Duration = Duration::from_mins(1);

/// The part of a lease duration by which watching is longer, unless it is said: beats come a little
/// late, and whoever writes nothing for longer than the duration is dead.
const MARGIN_PARTS: u32 = 5;

/// How long to watch, unless it is said, to know who is alive of those whose leases last this long.
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
    shards: Option<Vec<Shard>>,
    gone: GoneShards,
    /// Shards that were closed before the application began, as a leader would find out; `None` if
    /// that cannot be known.
    before_start: Option<BTreeSet<ShardId>>,
}

/// Where it is read from.
struct Tables {
    leases: LeaseTable,
    coordinator: CoordinatorTable,
}

/// One look.
struct Look {
    listing: LeaseListing,
    fleet: FleetRows,
    has_leases: bool,
    has_coordinator: bool,
}

fn who_cannot_look(fleet: &FleetRows) -> impl Iterator<Item = String> {
    fleet.workers.iter().filter_map(|row| {
        let reason = row.cannot_look.as_ref()?;
        Some(format!("{} cannot read its leases: {reason}", row.worker))
    })
}

impl Reading {
    pub(super) async fn take(application: &str, args: &ReadingArgs) -> anyhow::Result<Self> {
        let config = args.place.config.as_deref().map(Config::load).transpose()?;
        let file_aws = config
            .as_ref()
            .map_or_else(AwsConfig::default, |config| config.aws.clone());
        let clients = crate::aws::connect(&crate::aws::merge(&file_aws, &args.place.aws)?).await?;
        let tables = Tables {
            leases: LeaseTable::new(clients.dynamodb.clone(), application),
            coordinator: CoordinatorTable::new(clients.dynamodb.clone(), application),
        };
        let mut reading = Self::new(config.as_ref());
        let last = reading
            .watch(&tables, config.as_ref(), args.watch.watch_for)
            .await?;
        let named = args.stream.as_deref().map(StreamRef::parse).transpose()?;
        let stream = reading.stream_of(application, config.as_ref(), named, &last);
        reading.stream = stream.as_ref().map(|stream| stream.name().clone());
        let others = applications_of_streams(&clients.dynamodb, application).await;
        if !others.is_empty() {
            reading.notes.push(format!(
                "further streams have their own leases; ask about them by: {}",
                others.join(", ")
            ));
        }
        reading.note_missing_tables(application, &tables, &last);
        reading.notes.extend(who_cannot_look(&last.fleet));
        let (has_leases, has_any) = (last.has_leases, last.has_leases || last.has_coordinator);
        (reading.listing, reading.fleet) = (last.listing, last.fleet);
        reading.settle_start(config.is_some());
        match stream {
            Some(stream) => {
                let reader = KinesisReader::new(clients.kinesis, &stream).speaking(clients.wire);
                reading
                    .read_stream(application, stream.name().clone(), &reader)
                    .await?;
            }
            None if !has_any => bail!(
                "there is no lease table {application} and no table {}: name the application (a \
                    plugin's name, unless the configuration says otherwise), or the stream with \
                    --stream to see what a first host would do",
                tables.coordinator.name()
            ),
            None => reading.notes.push(
                "no stream is known, so shards without rows are not shown; use --stream".into(),
            ),
        }
        reading.limits.shared_with_kcl |= has_leases && reading.has_foreign();
        Ok(reading)
    }

    /// Looks, and looks again after `watch_for`, or a little more than a lease's time: only two
    /// looks show what moves. Returns the last one.
    async fn watch(
        &mut self,
        tables: &Tables,
        config: Option<&Config>,
        watch_for: Option<Duration>,
    ) -> anyhow::Result<Look> {
        let first = tables.look().await?;
        self.observe(&first);
        self.settle_duration(config, &first.fleet);
        self.earlier.clone_from(&first.listing.leases);
        let by_default = watch_past(self.lease_duration).min(WATCH_MAX);
        let watch_for = watch_for.unwrap_or(by_default);
        if watch_for.is_zero() || !first.has_leases {
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

    /// The stream that was named, or is configured, or that the fleet wrote down.
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

    fn note_missing_tables(&mut self, application: &str, tables: &Tables, last: &Look) {
        if !last.has_leases {
            self.notes.push(format!(
                "there is no lease table {application} yet; the first host creates it"
            ));
        } else if !last.has_coordinator {
            let table = tables.coordinator.name();
            self.notes.push(format!(
                "there is no table {table}: no shardmill host has served this application yet"
            ));
        }
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
            },
            lease_duration: leases.duration,
            notes: Vec::new(),
            shards: None,
            gone: GoneShards::default(),
            before_start: None,
        }
    }

    /// A start that was written down is kept, whatever is configured.
    fn settle_start(&mut self, has_config: bool) {
        let Some(start) = &self.fleet.start else {
            return;
        };
        let configured = self.limits.initial_position;
        if let Some(kept) = start.kept_instead_of(configured).filter(|_| has_config) {
            self.notes.push(format!(
                "initial-position is {configured}, but the application started with {kept}, which \
                    stays in force"
            ));
        }
        self.limits.initial_position = start.position;
    }

    /// Without a configuration, the fleet's own lease duration is the one that counts.
    fn settle_duration(&mut self, config: Option<&Config>, fleet: &FleetRows) {
        if let (None, Some(longest)) = (
            config,
            fleet.workers.iter().map(|row| row.lease_duration).max(),
        ) {
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

    /// Lists the shards, if the stream is the one that the checkpoints belong to: a host would not
    /// start otherwise.
    async fn read_stream(
        &mut self,
        application: &str,
        stream: StreamName,
        reader: &KinesisReader,
    ) -> anyhow::Result<()> {
        let identity = match reader.identity().await {
            Ok(Some(identity)) => identity,
            Ok(None) => {
                self.notes.push(format!(
                    "there is no stream {stream}; leases are kept until it is back"
                ));
                return Ok(());
            }
            Err(error) => {
                self.notes.push(format!(
                    "stream {stream} cannot be read, so its shards are not shown: {error}"
                ));
                return Ok(());
            }
        };
        let application = application.to_owned();
        match (
            StreamRow::judge(self.fleet.stream.as_ref(), &stream, identity),
            self.fleet.stream.clone(),
        ) {
            (StreamVerdict::OtherName, Some(row)) => {
                let error = WorkerError::OtherStream {
                    application,
                    ours: stream,
                    theirs: row.name,
                };
                return Err(error).context("no host would serve this");
            }
            (StreamVerdict::Recreated, _) => {
                return Err(WorkerError::StreamRecreated {
                    application,
                    stream,
                })
                .context("no host would serve this");
            }
            _ => {}
        }
        match reader.list_shards().await {
            Ok(shards) => {
                self.gone = self.look_for_gone(reader, identity, &shards).await;
                self.before_start = self.closed_before_start(reader, &shards).await;
                self.shards = Some(shards);
            }
            Err(error) => self
                .notes
                .push(format!("the shards of {stream} cannot be listed: {error}")),
        }
        Ok(())
    }

    /// Shards that have rows and that Kinesis does not know, as a leader would see them that lists
    /// for the first time.
    async fn look_for_gone(
        &self,
        reader: &KinesisReader,
        identity: StreamIdentity,
        shards: &[Shard],
    ) -> GoneShards {
        let mut missing = MissingShards::default();
        missing.listed(
            self.listing.leases.iter().map(|lease| lease.key.shard_id()),
            shards,
        );
        let questions = missing.to_ask_ahead();
        confirm_gone(&missing, questions, reader, identity).await
    }

    /// Before there is a start, what is closed now is what a first host would find closed.
    async fn closed_before_start(
        &self,
        reader: &KinesisReader,
        shards: &[Shard],
    ) -> Option<BTreeSet<ShardId>> {
        let closed = || {
            shards
                .iter()
                .filter(|shard| !shard.is_open())
                .map(|shard| shard.id.clone())
        };
        let since_ms = match &self.fleet.start {
            Some(start) if start.found_leases => return None,
            Some(start) => start.since_ms(),
            None if !self.listing.leases.is_empty() => return None,
            None => match self.limits.initial_position {
                InitialPosition::Latest => return Some(closed().collect()),
                InitialPosition::AtTimestamp(ms) => Some(ms),
                InitialPosition::TrimHorizon => None,
            },
        };
        let Some(since_ms) = since_ms else {
            return Some(BTreeSet::new());
        };
        match reader.list_shards_since(since_ms).await {
            Ok(Some(since)) => {
                let since: BTreeSet<&ShardId> = since.iter().map(|shard| &shard.id).collect();
                Some(closed().filter(|id| !since.contains(id)).collect())
            }
            Ok(None) | Err(_) => None,
        }
    }

    fn has_foreign(&self) -> bool {
        let alive = self.alive();
        let Some(nobody) = WorkerId::new(NOBODY) else {
            return false;
        };
        self.outlook(&nobody, &alive)
            .foreign(&self.listing.leases, &self.fleet.workers)
            .is_some()
    }

    /// Owners of leases and registered hosts that may live.
    pub(super) fn may_live(&self) -> BTreeSet<WorkerId> {
        let owners = self.listing.leases.iter().filter(|lease| {
            let pulse = self.observer.pulse(lease, self.now, self.lease_duration);
            pulse.is_some_and(Pulse::may_live)
        });
        let owners = owners.filter_map(|lease| lease.owner.clone());
        owners.chain(self.alive()).collect()
    }

    /// Workers that live and are not on their way out.
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
        Some(ShardList {
            shards: self.shards.as_ref()?,
            gone: &self.gone,
            before_start: self.before_start.as_ref(),
        })
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

/// An id that no worker has: nobody names a host with a NUL.
pub(super) const NOBODY: &str = "\u{0}nobody";

impl Tables {
    async fn look(&self) -> anyhow::Result<Look> {
        let (fleet, has_coordinator) = match self.coordinator.fleet().await {
            Err(StoreError::Refused { .. }) if !self.coordinator.exists().await? => {
                (FleetRows::default(), false)
            }
            fleet => (fleet?, true),
        };
        let (listing, has_leases) = match self.leases.list().await {
            Err(StoreError::Refused { .. }) if !self.leases.exists().await? => {
                (LeaseListing::default(), false)
            }
            listing => (listing?, true),
        };
        Ok(Look {
            listing,
            fleet,
            has_leases,
            has_coordinator,
        })
    }
}

/// An age as people read it.
pub(super) fn age(duration: Duration) -> String {
    let whole = if duration < Duration::from_secs(1) {
        u64::try_from(duration.as_millis()).unwrap_or(0)
    } else {
        duration.as_secs() * 1_000
    };
    humantime::format_duration(Duration::from_millis(whole)).to_string()
}
