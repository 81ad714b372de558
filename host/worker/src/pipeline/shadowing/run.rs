//! The shadow itself: an instance that is given what the live one was given, and the comparison.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{
    HeldBack, InstanceContext, Outcome, Processed, ProcessorFactory, RecordProcessor, TickTime,
    Ticked,
};
use shardmill_core::shadow::{
    Agreement, CALLS_APART_MAX, Difference, Matching, Side, Tally, compare,
};
use shardmill_core::stream::{Batch, Emitted};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::settings::ShadowSettings;
use crate::shadow::{Generation, WantedShadow};
use crate::tap::Differing;
use crate::timer::Stopwatch;

/// What the live instance was called with, and what came of it.
pub(super) enum Step {
    Batch(GivenBatch),
    Tick(GivenTick),
}

pub(super) struct GivenBatch {
    pub(super) batch: Batch,
    pub(super) at_work: Result<Processed, ProcessorError>,
    /// How long that took.
    pub(super) took: Duration,
    /// Of what may wait for shadows.
    pub(super) _room: OwnedSemaphorePermit,
}

pub(super) struct GivenTick {
    pub(super) time: TickTime,
    pub(super) at_work: Result<Ticked, ProcessorError>,
    pub(super) _room: OwnedSemaphorePermit,
}

impl Step {
    fn records(&self) -> u64 {
        match self {
            Self::Batch(given) => given.batch.records.len() as u64,
            Self::Tick(_) => 0,
        }
    }
}

/// Ends a run after the call that is under way. Held by the run for as long as it lasts.
#[derive(Default)]
pub(super) struct Cut(AtomicBool);

impl Cut {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// See the module's description.
pub(super) struct ShadowRun {
    settings: ShadowSettings,
    version: Arc<dyn ProcessorFactory>,
    generation: Generation,
    context: Arc<InstanceContext>,
    state: Option<Bytes>,
    matching: Matching,
    /// For what `matching` keeps, of what may wait for shadows.
    room: Option<OwnedSemaphorePermit>,
    /// Outputs that wait, as they were told.
    waiting: u64,
    /// Calls in a row after which only the shadow held records back.
    held_back: u64,
    /// The last record of the last batch.
    last: Option<String>,
}

/// Whether the shadow is where the live instance is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    GoesOn,
    Ends,
}

/// Which of the two held records back after a call.
#[derive(Debug, Clone, Copy)]
struct Holding {
    at_work: bool,
    shadow: bool,
}

impl Holding {
    fn of(records: usize, at_work: &Outcome, shadow: &Outcome) -> Self {
        Self {
            at_work: at_work.holds_back(records),
            shadow: shadow.holds_back(records),
        }
    }
}

impl ShadowRun {
    pub(super) fn new(
        settings: ShadowSettings,
        wanted: WantedShadow,
        context: Arc<InstanceContext>,
        state: Option<Bytes>,
    ) -> Self {
        Self {
            settings,
            version: wanted.version,
            generation: wanted.generation,
            context,
            state,
            matching: Matching::default(),
            room: None,
            waiting: 0,
            held_back: 0,
            last: None,
        }
    }

    /// Runs until the two differ in what comes next, it is cut, or nothing more is given.
    pub(super) async fn run(mut self, mut given: mpsc::Receiver<Step>, cut: Arc<Cut>) {
        if let Some(shadow) = self.start().await {
            self.follow(shadow, &mut given, &cut).await;
        }
        given.close();
        while let Ok(step) = given.try_recv() {
            self.settings.shadow.missed(step.records());
        }
        self.end();
    }

    async fn start(&mut self) -> Option<Box<dyn RecordProcessor>> {
        let made = self.instance().await;
        let result = made.as_ref().map(|_| ()).map_err(ToString::to_string);
        if let Err(error) = &result {
            let (plugin, shard) = (&self.context.plugin, &self.context.shard);
            tracing::info!(%plugin, %shard, digest = %self.version.digest(), error, "the version \
                in the shadow does not start");
        }
        let shadow = &self.settings.shadow;
        shadow.started(self.generation, result);
        made.ok()
    }

    async fn instance(&mut self) -> Result<Box<dyn RecordProcessor>, ProcessorError> {
        self.settings.terms.check(self.version.as_ref())?;
        let context = Arc::clone(&self.context);
        self.version.instantiate(context, self.state.take()).await
    }

    async fn follow(
        &mut self,
        mut shadow: Box<dyn RecordProcessor>,
        given: &mut mpsc::Receiver<Step>,
        cut: &Cut,
    ) {
        while !cut.is_set()
            && let Some(step) = given.recv().await
        {
            let course = match step {
                Step::Batch(given) => self.batch(shadow.as_mut(), given).await,
                Step::Tick(given) => self.tick(shadow.as_mut(), given).await,
            };
            self.show_waiting();
            if course == Course::Ends {
                return;
            }
        }
    }

    async fn batch(&mut self, shadow: &mut dyn RecordProcessor, given: GivenBatch) -> Course {
        let GivenBatch {
            batch,
            at_work,
            took,
            _room,
        } = given;
        let records = batch.records.len();
        self.remember_last(&batch);
        let started = Stopwatch::start();
        let result = self.process(shadow, batch).await;
        let mut found = Tally {
            records: records as u64,
            at_work_took: took,
            shadow_took: started.elapsed(),
            ..Tally::default()
        };
        let agreement = compare(outcome_of(&at_work), outcome_of(&result));
        let course = self.note(agreement, why_failed(&result), &mut found);
        if let (Course::GoesOn, Ok(at_work), Ok(shadow)) = (course, &at_work, &result) {
            let holding = Holding::of(records, &at_work.outcome, &shadow.outcome);
            self.note_holding(holding, &mut found);
            self.compare(&at_work.emitted, &shadow.emitted, &mut found);
        }
        self.settings.shadow.add(self.generation, &found);
        self.unless_full(course)
    }

    async fn process(
        &self,
        shadow: &mut dyn RecordProcessor,
        batch: Batch,
    ) -> Result<Processed, ProcessorError> {
        let records = batch.records.len();
        let processed = self.in_time(shadow.process(batch)).await?;
        self.allowed(processed, records)
    }

    /// Where differences of this call are said to be.
    fn remember_last(&mut self, batch: &Batch) {
        if let Some(last) = batch.records.last() {
            self.last = Some(format!("{}@{}", self.context.shard, last.position));
        }
    }

    async fn tick(&mut self, shadow: &mut dyn RecordProcessor, given: GivenTick) -> Course {
        let result = if self.version.ticks() {
            self.in_time(shadow.tick(given.time)).await
        } else {
            Ok(Ticked::default())
        };
        let nothing = Outcome::default();
        let agreement = compare(
            given.at_work.as_ref().map(|_| &nothing),
            result.as_ref().map(|_| &nothing),
        );
        let why = result.as_ref().err().map(ToString::to_string);
        let mut found = Tally::default();
        let course = self.note(agreement, why, &mut found);
        if let (Course::GoesOn, Ok(at_work), Ok(shadow)) = (course, &given.at_work, &result) {
            if shadow.held_back == HeldBack::Commit {
                self.held_back = 0;
            }
            self.compare(&at_work.emitted, &shadow.emitted, &mut found);
        }
        self.settings.shadow.add(self.generation, &found);
        self.unless_full(course)
    }

    /// A call of the shadow, for at most its deadline: beyond that, the records count as not
    /// compared, since a busy machine may be the reason. After an error the instance is not called
    /// again.
    async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, ProcessorError>>,
    ) -> Result<T, ProcessorError> {
        let deadline = self.settings.terms.deadline;
        let result = tokio::time::timeout(deadline, call).await;
        result.unwrap_or_else(|_| {
            Err(ProcessorError::Host {
                message: format!("the call of the shadow did not return within {deadline:?}"),
            })
        })
    }

    /// With parallel keys no instance may hold records back.
    fn allowed(&self, processed: Processed, records: usize) -> Result<Processed, ProcessorError> {
        if !self.settings.terms.is_alone && processed.outcome.holds_back(records) {
            return Err(ProcessorError::HoldsBack);
        }
        Ok(processed)
    }

    /// Notes whether the two agree. `why`: why the shadow failed, if it did.
    fn note(&self, agreement: Agreement, why: Option<String>, found: &mut Tally) -> Course {
        found.calls = 1;
        match agreement {
            Agreement::Same => return Course::GoesOn,
            Agreement::BothFailed => return Course::Ends,
            Agreement::Unknown => {
                *found = Tally {
                    missed: found.records,
                    last_lack: why.map(|why| format!("the shadow was not compared: {why}")),
                    ..Tally::default()
                };
                return Course::Ends;
            }
            Agreement::AtWorkFailed => found.at_work_failed = 1,
            Agreement::ShadowFailed => {
                found.shadow_failed = 1;
                found.last_failure = why.map(|why| format!("the shadow failed: {why}"));
            }
        }
        found.first_difference.clone_from(&self.last);
        Course::Ends
    }

    fn note_holding(&mut self, holding: Holding, found: &mut Tally) {
        if !holding.shadow || holding.at_work {
            self.held_back = 0;
            return;
        }
        self.held_back += 1;
        if self.held_back.is_multiple_of(CALLS_APART_MAX) {
            found.held_back += 1;
            found.first_difference.clone_from(&self.last);
        }
    }

    fn compare(&mut self, at_work: &[Emitted], shadow: &[Emitted], found: &mut Tally) {
        let compared = self.matching.call(at_work, shadow);
        found.same += compared.same;
        self.differ(&compared.differences, found);
    }

    /// Ends the run if there is no room for what waits for its match, which is part of what may
    /// wait for shadows.
    fn unless_full(&mut self, course: Course) -> Course {
        let bytes = self.matching.bytes();
        // Given back first: the room for all of it is taken anew.
        self.room = None;
        if bytes > 0 {
            self.room = self.settings.shadow.room(bytes);
            if self.room.is_none() {
                return Course::Ends;
            }
        }
        course
    }

    fn differ(&self, differences: &[Difference], found: &mut Tally) {
        for difference in differences {
            match difference.side {
                Side::AtWork => found.only_at_work += difference.times,
                Side::Shadow => found.only_shadow += difference.times,
            }
        }
        if !differences.is_empty() {
            found.first_difference.clone_from(&self.last);
            self.show(differences);
        }
    }

    fn show(&self, differences: &[Difference]) {
        self.settings.tap.differed(&Differing {
            application: &self.context.application,
            shard: &self.context.shard,
            differences,
        });
    }

    fn show_waiting(&mut self) {
        let waiting = self.matching.waiting();
        let shadow = &self.settings.shadow;
        shadow.waits(self.generation, self.waiting, waiting);
        self.waiting = waiting;
    }

    /// Of what waits now nobody knows whether its match would have come.
    fn end(mut self) {
        let undecided = std::mem::take(&mut self.matching).end();
        self.show_waiting();
        if undecided.is_empty() {
            return;
        }
        self.show(&undecided);
        let found = Tally {
            undecided: undecided.iter().map(|one| one.times).sum(),
            ..Tally::default()
        };
        self.settings.shadow.add(self.generation, &found);
    }
}

fn outcome_of(result: &Result<Processed, ProcessorError>) -> Result<&Outcome, &ProcessorError> {
    result.as_ref().map(|processed| &processed.outcome)
}

/// Why the shadow failed, or what it says of the first record that it failed; `None` if it did not.
fn why_failed(result: &Result<Processed, ProcessorError>) -> Option<String> {
    match result {
        Ok(processed) => {
            let first = processed.outcome.failures.first();
            first.map(|failure| failure.message.clone())
        }
        Err(error) => Some(error.to_string()),
    }
}
