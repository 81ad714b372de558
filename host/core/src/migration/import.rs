//! Where each shard starts here, after another library has stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::library::FinishedRows;
use super::{Found, FoundShard};
use crate::fleet::StreamIdentity;
use crate::lease::{Checkpoint, Lease};
use crate::stream::{InitialPosition, Shard, ShardId, StreamName};

/// The input for deciding an import.
#[derive(Debug, Clone, Copy)]
pub struct ImportRequest<'a> {
    /// The library's place on the stream.
    pub found: &'a Found,
    /// All shards of the stream, open and closed.
    pub shards: &'a [Shard],
    /// The rows that the application already has.
    pub rows: &'a [Lease],
    /// Where a shard starts that has no parents and no checkpoint of the library.
    pub initial: InitialPosition,
}

/// What happens to one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardImport {
    /// The shard that the row is for.
    pub shard: ShardId,
    /// The library's checkpoint, if it wrote one.
    pub found: Option<Checkpoint>,
    /// What is to be written to our row.
    pub step: ImportStep,
    /// Why the step was chosen.
    pub why: ImportReason,
}

impl ShardImport {
    /// Whether a worker of the application holds the shard at a checkpoint before the library's:
    /// the application began without the import, and reads again what the library had read.
    pub fn is_behind(&self) -> bool {
        matches!((&self.step, &self.found), (ImportStep::Served(at), Some(found)) if found > at)
    }
}

/// What to write for a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportStep {
    /// A fresh row, if there is none.
    Create(Box<Lease>),
    /// Another checkpoint, into a row that no worker ever held, if the row is unchanged.
    Move {
        /// The row as seen.
        seen: Box<Lease>,
        /// The row after the write: its checkpoint and children differ.
        to: Box<Lease>,
    },
    /// Nothing: the row already has this checkpoint.
    Keep(Checkpoint),
    /// Nothing: a worker of this application held the row, so its checkpoint wins.
    Served(Checkpoint),
    /// Nothing: it does not get a row now.
    Leave,
}

impl ImportStep {
    /// Where a host starts reading, if the shard has a row.
    pub fn starts_at(&self) -> Option<&Checkpoint> {
        match self {
            Self::Create(lease) => Some(&lease.checkpoint),
            Self::Move { to, .. } => Some(&to.checkpoint),
            Self::Keep(checkpoint) | Self::Served(checkpoint) => Some(checkpoint),
            Self::Leave => None,
        }
    }

    /// Whether a row is written.
    pub fn writes(&self) -> bool {
        matches!(self, Self::Create(_) | Self::Move { .. })
    }

    /// The step's stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Move { .. } => "move",
            Self::Keep(_) => "keep",
            Self::Served(_) => "served",
            Self::Leave => "leave",
        }
    }
}

/// Why a shard starts there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportReason {
    /// After the library's checkpoint.
    Continues,
    /// The library read it to its end.
    Finished,
    /// The library has no row for it, and removes the row of a shard at its end.
    ClosedWithoutRow,
    /// According to the library it ended, but Kinesis lists it as open.
    FinishedButOpen,
    /// It has no checkpoint of the library, and all its parents are finished.
    ParentsFinished,
    /// It has no checkpoint of the library, and no parents.
    NeverRead,
    /// Its row is created when its parents end.
    WaitsForParents,
    /// Its children were read, and the library removes such rows.
    FinishedAndRemoved,
    /// Kinesis no longer knows it: its records are gone.
    Gone,
}

impl ImportReason {
    /// The reason's stable name for programs; it never changes.
    pub fn code(self) -> &'static str {
        match self {
            Self::Continues => "continues",
            Self::Finished => "finished",
            Self::ClosedWithoutRow => "closed-without-row",
            Self::FinishedButOpen => "finished-but-open",
            Self::ParentsFinished => "parents-finished",
            Self::NeverRead => "never-read",
            Self::WaitsForParents => "waits-for-parents",
            Self::FinishedAndRemoved => "finished-and-removed",
            Self::Gone => "gone",
        }
    }
}

impl fmt::Display for ImportReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Continues => "after the library's checkpoint",
            Self::Finished => "the library read it to its end",
            Self::ClosedWithoutRow => {
                "it is closed and has no row: the library removes the row of a shard that it finished"
            }
            Self::FinishedButOpen => {
                "the library marked it as finished, but it still takes records: nobody knows how \
                    far it was read"
            }
            Self::ParentsFinished => "no checkpoint, and its parents are finished: from its first record",
            Self::NeverRead => "no checkpoint: from the initial position",
            Self::WaitsForParents => "no checkpoint: the end of its parents makes its row",
            Self::FinishedAndRemoved => "its children were read: it is finished, and its row was removed",
            Self::Gone => "Kinesis does not know it any more: nothing is left to read",
        })
    }
}

/// Decides for each shard of the stream, and for each that only the library knows, parents first.
pub fn plan_import(request: &ImportRequest<'_>) -> Vec<ShardImport> {
    let mut shards: Vec<&Shard> = request.shards.iter().collect();
    // Ids rise with creation time, so this puts parents first.
    shards.sort_by(|a, b| a.id.cmp(&b.id));
    let mut planner = Planner::of(request);
    let mut steps: Vec<ShardImport> = shards.iter().map(|shard| planner.decide(shard)).collect();
    let listed: BTreeSet<&ShardId> = shards.iter().map(|shard| &shard.id).collect();
    let gone = request
        .found
        .shards
        .iter()
        .filter(|found| !listed.contains(&found.shard));
    steps.extend(gone.map(|found| ShardImport {
        shard: found.shard.clone(),
        found: found.checkpoint.clone(),
        step: ImportStep::Leave,
        why: ImportReason::Gone,
    }));
    steps
}

struct Planner<'a> {
    request: &'a ImportRequest<'a>,
    found: BTreeMap<&'a ShardId, &'a FoundShard>,
    rows: BTreeMap<ShardId, &'a Lease>,
    children: BTreeMap<&'a ShardId, Vec<ShardId>>,
    /// Listed shards that are decided so far, and whether each is finished.
    is_finished: BTreeMap<ShardId, bool>,
}

impl<'a> Planner<'a> {
    fn of(request: &'a ImportRequest<'a>) -> Self {
        let mut children: BTreeMap<&ShardId, Vec<ShardId>> = BTreeMap::new();
        for shard in request.shards {
            for parent in &shard.parents {
                children.entry(parent).or_default().push(shard.id.clone());
            }
        }
        let found = request.found.shards.iter();
        Self {
            request,
            found: found.map(|found| (&found.shard, found)).collect(),
            rows: request
                .rows
                .iter()
                .map(|row| (row.key.shard_id(), row))
                .collect(),
            children,
            is_finished: BTreeMap::new(),
        }
    }

    fn decide(&mut self, shard: &Shard) -> ShardImport {
        let found = self
            .found
            .get(&shard.id)
            .and_then(|found| found.checkpoint.clone());
        let (start, why) = self.start_of(shard, found.as_ref());
        let has_ended =
            start == Some(Checkpoint::ShardEnd) || why == ImportReason::FinishedAndRemoved;
        self.is_finished.insert(shard.id.clone(), has_ended);
        ShardImport {
            shard: shard.id.clone(),
            found,
            step: start.map_or(ImportStep::Leave, |start| self.step(shard, start)),
            why,
        }
    }

    fn start_of(
        &self,
        shard: &Shard,
        found: Option<&Checkpoint>,
    ) -> (Option<Checkpoint>, ImportReason) {
        match found {
            Some(Checkpoint::ShardEnd) if shard.is_open() => {
                (Some(self.fresh_start(shard)), ImportReason::FinishedButOpen)
            }
            Some(Checkpoint::ShardEnd) => (Some(Checkpoint::ShardEnd), ImportReason::Finished),
            Some(checkpoint) => (Some(checkpoint.clone()), ImportReason::Continues),
            None => self.start_without_checkpoint(shard),
        }
    }

    fn start_without_checkpoint(&self, shard: &Shard) -> (Option<Checkpoint>, ImportReason) {
        let has_row = self.found.contains_key(&shard.id);
        if !has_row && !shard.is_open() {
            match self.request.found.library.finished_rows() {
                FinishedRows::RemovedAtEnd => {
                    return (Some(Checkpoint::ShardEnd), ImportReason::ClosedWithoutRow);
                }
                FinishedRows::RemovedLater if self.has_descendant_with_row(&shard.id) => {
                    return (None, ImportReason::FinishedAndRemoved);
                }
                FinishedRows::RemovedLater | FinishedRows::Stay => {}
            }
        }
        // A parent that Kinesis does not list has no records left.
        let parents = shard.parents.iter();
        let mut listed = parents.filter_map(|parent| self.is_finished.get(parent));
        if !listed.all(|is_finished| *is_finished) {
            return (None, ImportReason::WaitsForParents);
        }
        let why = if shard.parents.is_empty() {
            ImportReason::NeverRead
        } else {
            ImportReason::ParentsFinished
        };
        (Some(self.fresh_start(shard)), why)
    }

    /// A shard with parents continues where they ended; the configuration does not matter.
    fn fresh_start(&self, shard: &Shard) -> Checkpoint {
        if shard.parents.is_empty() {
            Checkpoint::initial(self.request.initial)
        } else {
            Checkpoint::TrimHorizon
        }
    }

    fn has_descendant_with_row(&self, shard: &ShardId) -> bool {
        let (mut open, mut visited) = (vec![shard], BTreeSet::new());
        // Each shard is visited once, so that a listing with a cycle of parents ends too.
        while let Some(next) = open.pop() {
            for child in self.children.get(next).into_iter().flatten() {
                if self.found.contains_key(child) {
                    return true;
                }
                if visited.insert(child) {
                    open.push(child);
                }
            }
        }
        false
    }

    fn step(&self, shard: &Shard, start: Checkpoint) -> ImportStep {
        let Some(row) = self.rows.get(&shard.id) else {
            return ImportStep::Create(Box::new(self.row(shard, start)));
        };
        if row.was_held() {
            ImportStep::Served(row.checkpoint.clone())
        } else if row.checkpoint == start {
            ImportStep::Keep(start)
        } else {
            ImportStep::Move {
                seen: Box::new((*row).clone()),
                to: Box::new(self.row(shard, start)),
            }
        }
    }

    /// The leader removes a finished row once its children have started, so the row must name them.
    fn row(&self, shard: &Shard, start: Checkpoint) -> Lease {
        let children = match start {
            Checkpoint::ShardEnd => self.children.get(&shard.id).cloned().unwrap_or_default(),
            _ => Vec::new(),
        };
        Lease {
            children,
            ..Lease::fresh(shard, start)
        }
    }
}

/// Why nothing may be imported, independently of the shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportBlock {
    /// Rows of the library that cannot be read: their shards would start over.
    BadRows(Vec<String>),
    /// The library has no rows for any shard.
    Empty,
    /// None of the library's shards belongs to the stream.
    OtherShards,
    /// The stream was recreated since then.
    OtherStream,
    /// A fleet does not share this place.
    Obstacle(String),
}

impl fmt::Display for ImportBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadRows(rows) => write!(
                f,
                "{} of its rows cannot be read ({}): correct them, or their shards would start over",
                rows.len(),
                rows.join("; ")
            ),
            Self::Empty => f.write_str("it has no row of any shard: there is nothing to import"),
            Self::OtherShards => f.write_str(
                "none of its shards is one of the stream's: it belongs to another stream, or to \
                    an earlier one of this name; give the right one with --stream",
            ),
            Self::OtherStream => f.write_str(
                "the stream was deleted and created again since: these checkpoints mean nothing on it",
            ),
            Self::Obstacle(why) => f.write_str(why),
        }
    }
}

/// What prevents an import of `found` into a stream with these shards.
pub fn blocks(found: &Found, identity: StreamIdentity, shards: &[Shard]) -> Vec<ImportBlock> {
    let mut blocks = Vec::new();
    if let Some(obstacle) = &found.obstacle {
        blocks.push(ImportBlock::Obstacle(obstacle.clone()));
    } else if found.shards.is_empty() && found.bad_rows.is_empty() {
        blocks.push(ImportBlock::Empty);
    }
    if !found.bad_rows.is_empty() {
        let shown = found
            .bad_rows
            .iter()
            .map(|row| format!("{}: {}", row.key, row.problem));
        blocks.push(ImportBlock::BadRows(shown.collect()));
    }
    let is_recreated = |created: &super::found::StreamCreated| !created.is(identity.created_at_ms);
    if found.stream_created.as_ref().is_some_and(is_recreated) {
        blocks.push(ImportBlock::OtherStream);
    }
    let is_listed = |found: &FoundShard| shards.iter().any(|shard| shard.id == found.shard);
    if !found.shards.is_empty() && !found.shards.iter().any(is_listed) {
        blocks.push(ImportBlock::OtherShards);
    }
    blocks
}

/// Chooses the place that the arguments name.
///
/// # Errors
/// If no place fits, or more than one; the text lists them.
pub fn choose<'a>(
    all: &'a [Found],
    stream: &StreamName,
    group: Option<&str>,
) -> Result<&'a Found, String> {
    let fits = |found: &&Found| {
        found.is_on(stream.as_str())
            && group.is_none_or(|group| found.group.as_deref() == Some(group))
    };
    let fitting: Vec<&Found> = all.iter().filter(fits).collect();
    match fitting[..] {
        [one] => Ok(one),
        [] => Err(format!(
            "it holds nothing of stream {stream}{}: it holds {}",
            in_group(group),
            places(all)
        )),
        _ => Err(format!(
            "it holds several places on stream {stream}: name one of {}",
            places(all)
        )),
    }
}

fn in_group(group: Option<&str>) -> String {
    group.map_or_else(String::new, |group| format!(" for group {group}"))
}

fn places(all: &[Found]) -> String {
    match all {
        [] => "nothing".to_owned(),
        _ => all.iter().map(name_of).collect::<Vec<_>>().join("; "),
    }
}

fn name_of(place: &Found) -> String {
    let stream = place.stream.as_deref().unwrap_or("an unnamed stream");
    match &place.group {
        Some(group) => format!("--group {group}, {stream}"),
        None => stream.to_owned(),
    }
}
