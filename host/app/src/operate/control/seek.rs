//! `shardmill seek`.

use std::collections::BTreeSet;

use anyhow::bail;
use shardmill_aws::{AwsClients, KinesisReader, RowMove};
use shardmill_config::Config;
use shardmill_core::control::{
    Asked, Deed, Place, SeekRefusal, SeekRequest, SeekStep, ShardSeek, plan_seek,
};
use shardmill_core::fleet::FleetRows;
use shardmill_core::lease::{Lease, WorkerId};
use shardmill_core::ports::{Created, Directing, LeaseStore, StoreError, StreamReader};
use shardmill_core::stream::{LeaseKey, Shard, ShardId, StreamRef};

use super::application::{Application, Done, asked, named};
use super::cancel::Cancelled;
use super::distance::Distance;
use super::pause::stands;
use super::place::resolve;
use super::report::{Report, StepRow};
use super::start::NewStart;
use super::wait::Waited;
use crate::cli::{ChangeArgs, SeekArgs, Target};

/// Shards whose records are counted: more take too long, and too many calls.
const COUNTED_MAX: usize = 16;

/// What sends shards somewhere, and with what else.
pub(super) struct Sending<'a> {
    /// The command.
    pub(super) command: &'static str,
    pub(super) deed: Deed,
    /// What else is to be known.
    pub(super) notes: Vec<String>,
    /// What is written down before any shard goes there.
    pub(super) start: Option<&'a NewStart>,
}

/// A seek that waits to be done.
const WAITING: Cancelled = Cancelled {
    command: "seek",
    of: |directives| {
        let seek = directives.seek.as_ref();
        seek.map(|seek| format!("sent to {} {}", seek.to, seek.asked))
    },
    remove: |directives| directives.seek = None,
};

pub(crate) async fn seek(args: &SeekArgs) -> anyhow::Result<()> {
    let Some(to) = &args.to else {
        let (name, shards) = (&args.application, &args.shards);
        return WAITING.execute(name, shards, &args.change).await;
    };
    let clients = crate::aws::connect_to(&args.change.connection).await?;
    let application = Application::open(&args.application, &clients).await?;
    let fleet = application.fleet().await?;
    let reader = reader(
        args.stream.as_deref(),
        &args.application,
        &args.change,
        &clients,
        &fleet,
    )?;
    let seeking = Sending {
        command: "seek",
        deed: Deed::Seek,
        notes: Vec::new(),
        start: None,
    };
    let to = Destination {
        to,
        application: &application,
        reader: &reader,
        fleet: &fleet,
    };
    send(args, to, seeking).await
}

/// Where shards are sent, and what is known of it.
pub(super) struct Destination<'a> {
    pub(super) to: &'a Target,
    pub(super) application: &'a Application,
    pub(super) reader: &'a KinesisReader,
    pub(super) fleet: &'a FleetRows,
}

/// Shows where the shards go, and with `--apply` sends them there.
pub(super) async fn send(
    args: &SeekArgs,
    destination: Destination<'_>,
    sending: Sending<'_>,
) -> anyhow::Result<()> {
    let Destination {
        to,
        application,
        reader,
        fleet,
    } = destination;
    let plan = Plan::make(args, to, application, reader, fleet).await?;
    let mut report = plan.report(args, reader).await;
    report.command = sending.command;
    report.notes.extend(sending.notes);
    let refused = plan.refused();
    if args.change.apply && refused == 0 {
        if let Some(start) = sending.start {
            start.write(application).await?;
        }
        plan.apply(application, sending.deed).await?;
        report.applied = true;
        let shards = plan.shards();
        report.waited = Waited::until(application, &shards, &args.change, |row| {
            row.directives.seek.is_none()
        })
        .await?;
        let stayed = application.stayed(&plan.asked, &shards).await?;
        report.notes.extend(stayed);
    }
    report.show(&args.change)?;
    if refused > 0 {
        bail!("{refused} shard(s) cannot be sent there, so nothing is changed");
    }
    Waited::conclude(report.waited.as_ref())
}

/// The stream that was named, or that the configuration or the fleet names.
pub(super) fn reader(
    named: Option<&str>,
    application: &str,
    change: &ChangeArgs,
    clients: &AwsClients,
    fleet: &FleetRows,
) -> anyhow::Result<KinesisReader> {
    let configured = configured_stream(application, change)?;
    let named = named.map(StreamRef::parse).transpose()?;
    let written_down = fleet.stream.as_ref();
    let stream = named
        .or(configured)
        .or_else(|| written_down.map(|row| row.name.clone().into()));
    let Some(stream) = stream else {
        bail!("no host has served the application yet: name its stream with --stream");
    };
    let reader = KinesisReader::new(clients.kinesis.clone(), &stream);
    Ok(reader.speaking(clients.wire.clone()))
}

fn configured_stream(application: &str, change: &ChangeArgs) -> anyhow::Result<Option<StreamRef>> {
    let Some(path) = &change.connection.config else {
        return Ok(None);
    };
    let own = Config::load(path)?.stream_of_application(application);
    Ok(own.map(|own| own.stream))
}

/// What is done to each shard.
struct Plan {
    steps: Vec<ShardSeek>,
    rows: Vec<Lease>,
    asked: Asked,
    /// Finished shards that hold records from the place on and stay finished.
    left_finished: usize,
}

impl Plan {
    async fn make(
        args: &SeekArgs,
        to: &Target,
        application: &Application,
        reader: &KinesisReader,
        fleet: &FleetRows,
    ) -> anyhow::Result<Self> {
        let rows = application.rows().await?;
        let only = named(&args.shards)?;
        let only = (!only.is_empty()).then_some(only);
        let concerned = concerned(&rows, only.as_ref());
        let is_ahead = matches!(to, Target::Tip | Target::Forward(_));
        let to = resolve(to, reader, fleet, &concerned).await?;
        let listed = listed_from(reader, &to).await?;
        let with_state = with_state(application, &rows).await?;
        let asked = asked(&args.change);
        let steps = plan_seek(&SeekRequest {
            to: &to,
            is_ahead,
            only: only.as_ref(),
            reopens_finished: args.reopen,
            state: args.state.map(Into::into),
            asked: &asked,
            rows: &rows,
            listed: &listed,
            with_state: &with_state,
        });
        let leaves_finished = !args.reopen && only.is_none();
        Ok(Self {
            left_finished: if leaves_finished {
                finished(&listed, &rows)
            } else {
                0
            },
            steps,
            rows,
            asked,
        })
    }

    fn row(&self, shard: &ShardId) -> Option<&Lease> {
        let mut rows = self.rows.iter();
        rows.find(|row| row.key.shard_id() == *shard)
    }

    fn shards(&self) -> BTreeSet<ShardId> {
        self.steps.iter().map(|step| step.shard.clone()).collect()
    }

    fn refused(&self) -> usize {
        let steps = self.steps.iter();
        steps
            .filter(|step| matches!(step.step, SeekStep::Refuse(_)))
            .count()
    }

    async fn report(&self, args: &SeekArgs, reader: &KinesisReader) -> Report {
        let mut notes = Vec::new();
        if self.left_finished > 0 {
            notes.push(format!(
                "{} shard(s) were read to their end and hold records from there on; --reopen reads \
                    them again, and what follows them from its beginning",
                self.left_finished
            ));
        }
        if self.is_delivering() {
            notes.push(
                "records are delivered until the holders go there, so the numbers are of now. A \
                    shard that is past a later place by then stays where it is. To have them exact, \
                    pause the shards first"
                    .to_owned(),
            );
        }
        let mut steps = Vec::new();
        for (index, step) in self.steps.iter().enumerate() {
            let distance = if index < COUNTED_MAX {
                self.distance(step, reader).await
            } else {
                None
            };
            steps.push(self.step_row(step, distance.as_ref()));
        }
        if self.steps.len() > COUNTED_MAX {
            notes.push(format!(
                "records are counted in the first {COUNTED_MAX} shards only"
            ));
        }
        Report {
            application: args.application.clone(),
            command: "seek",
            applied: false,
            steps,
            waited: None,
            notes,
        }
    }

    /// Whether the checkpoint of a shard may move meanwhile.
    fn is_delivering(&self) -> bool {
        let directed = self.steps.iter().filter_map(|step| match &step.step {
            SeekStep::Direct { seen, .. } => Some(seen),
            _ => None,
        });
        directed
            .into_iter()
            .any(|row| row.owner.is_some() && !stands(row))
    }

    /// What lies between, where that can be read.
    async fn distance(&self, step: &ShardSeek, reader: &KinesisReader) -> Option<Distance> {
        if matches!(step.step, SeekStep::Refuse(_)) {
            return None;
        }
        let row = self.row(&step.shard)?;
        Distance::of(reader, row, &step.to).await.ok().flatten()
    }

    fn step_row(&self, step: &ShardSeek, distance: Option<&Distance>) -> StepRow {
        let from = step.from.as_ref();
        let refused = match &step.step {
            SeekStep::Refuse(refusal) => Some(refusal.to_string()),
            SeekStep::Direct { .. } | SeekStep::Reopen(_) | SeekStep::Create(_) => None,
        };
        let distance = distance.map(|distance| format!(" ({distance})"));
        let owner = self.row(&step.shard).and_then(|row| row.owner.as_ref());
        StepRow {
            what: step.shard.to_string(),
            now: match (&step.step, from) {
                (SeekStep::Refuse(SeekRefusal::Unknown), _) => "-".to_owned(),
                (_, None) => "finished".to_owned(),
                (_, Some(from)) => from.to_string(),
            },
            then: format!("{}{}", step.to, distance.unwrap_or_default()),
            by: owner.map(ToString::to_string),
            refused,
        }
    }

    /// Parents before children.
    async fn apply(&self, application: &Application, deed: Deed) -> anyhow::Result<()> {
        let mut told = BTreeSet::new();
        let mut changed = Vec::new();
        for step in &self.steps {
            let Some(owner) = apply_step(application, step).await? else {
                changed.push(step.shard.to_string());
                continue;
            };
            told.extend(owner);
            let from = step.from.as_ref();
            let from = from.map_or_else(|| "finished".to_owned(), ToString::to_string);
            let done = Done {
                deed,
                shard: Some(step.shard.clone()),
                details: format!("{from} to {}", step.to),
            };
            application.record(&self.asked, done).await?;
        }
        application.nudge_all(told).await;
        if !changed.is_empty() {
            bail!(
                "changed meanwhile, and not sent there: {}: run it again",
                changed.join(", ")
            );
        }
        Ok(())
    }
}

/// Who is to be told; `None` if the row changed since it was read.
async fn apply_step(
    application: &Application,
    step: &ShardSeek,
) -> anyhow::Result<Option<Option<WorkerId>>> {
    let leases = &application.leases;
    let is_done = match &step.step {
        SeekStep::Direct { seen, next } => match leases.direct(seen, next).await? {
            Directing::Applied(row) => return Ok(Some(row.owner)),
            Directing::Changed(_) => false,
        },
        SeekStep::Reopen(seen) => {
            leases.reopen(seen, &step.to.checkpoint()).await? == RowMove::Moved
        }
        SeekStep::Create(row) => leases.create(row).await? == Created::New,
        SeekStep::Refuse(_) => true,
    };
    Ok(is_done.then_some(None))
}

/// The shards that may hold records from the place on.
async fn listed_from(reader: &KinesisReader, to: &Place) -> anyhow::Result<Vec<Shard>> {
    if let Place::Time(ms) = to
        && let Some(shards) = reader.list_shards_since(*ms).await?
    {
        return Ok(shards);
    }
    Ok(reader.list_shards().await?)
}

/// Those that are named, or else all that are not finished.
fn concerned(rows: &[Lease], only: Option<&BTreeSet<ShardId>>) -> Vec<Lease> {
    let is_concerned = |row: &&Lease| match only {
        Some(only) => only.contains(&row.key.shard_id()),
        None => !row.is_finished(),
    };
    rows.iter().filter(is_concerned).cloned().collect()
}

/// Closed shards of the list that no host reads any more.
fn finished(listed: &[Shard], rows: &[Lease]) -> usize {
    let is_read = |shard: &Shard| {
        let mut rows = rows.iter();
        rows.any(|row| row.key.shard_id() == shard.id && !row.is_finished())
    };
    let closed = listed.iter().filter(|shard| !shard.is_open());
    closed.filter(|shard| !is_read(shard)).count()
}

/// The shards that have a state.
pub(super) async fn with_state(
    application: &Application,
    rows: &[Lease],
) -> anyhow::Result<BTreeSet<LeaseKey>> {
    let mut with_state = BTreeSet::new();
    if !application.leases.has_state_table().await? {
        return Ok(with_state);
    }
    for row in rows.iter().filter(|row| !row.is_finished()) {
        match application.leases.state(&row.key).await {
            Ok(None) => {}
            // One that cannot be read is one: it may be dropped.
            Ok(Some(_)) | Err(StoreError::Refused { .. }) => {
                with_state.insert(row.key.clone());
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(with_state)
}
