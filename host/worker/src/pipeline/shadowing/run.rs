//! The shadow itself: an instance that is given what the live one was given, and the comparison.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{
    InstanceContext, Processed, ProcessorFactory, RecordProcessor, TickTime, Ticked,
};
use shardmill_core::shadow::{Agreement, Difference, Matching, Side, Tally, compare};
use shardmill_core::stream::{Batch, Emitted};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::settings::ShadowSettings;
use crate::tap::Differing;
use crate::timer::Stopwatch;

/// What the live instance was called with, and what came of it.
pub(super) enum Step {
    Batch(GivenBatch),
    Tick(GivenTick),
}

impl Step {
    fn records(&self) -> u64 {
        match self {
            Self::Batch(given) => given.batch.records.len() as u64,
            Self::Tick(_) => 0,
        }
    }
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
    context: Arc<InstanceContext>,
    state: Option<Bytes>,
    matching: Matching,
    /// Whether either holds records back: what that one emits may still come.
    holds_back: bool,
    /// The last record of the last batch.
    last: Option<String>,
}

/// Whether the shadow is where the live instance is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    GoesOn,
    Ends,
}

impl ShadowRun {
    pub(super) fn new(
        settings: ShadowSettings,
        version: Arc<dyn ProcessorFactory>,
        context: Arc<InstanceContext>,
        state: Option<Bytes>,
    ) -> Self {
        Self {
            settings,
            version,
            context,
            state,
            matching: Matching::default(),
            holds_back: false,
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
            if course == Course::Ends {
                return;
            }
        }
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
        shadow.started(self.version.digest(), result);
        made.ok()
    }

    async fn instance(&mut self) -> Result<Box<dyn RecordProcessor>, ProcessorError> {
        self.settings.terms.check(self.version.as_ref())?;
        let context = Arc::clone(&self.context);
        self.version.instantiate(context, self.state.take()).await
    }

    async fn batch(&mut self, shadow: &mut dyn RecordProcessor, given: GivenBatch) -> Course {
        let GivenBatch {
            batch,
            at_work,
            took,
            ..
        } = given;
        let records = batch.records.len();
        if let Some(last) = batch.records.last() {
            self.last = Some(format!("{}@{}", self.context.shard, last.position));
        }
        let started = Stopwatch::start();
        let result = self.in_time(shadow.process(batch)).await;
        let shadow_took = started.elapsed();
        let agreement = compare(
            at_work.as_ref().map(|processed| &processed.outcome),
            result.as_ref().map(|processed| &processed.outcome),
        );
        if agreement == Agreement::Unknown {
            self.settings.shadow.missed(records as u64);
            return Course::Ends;
        }
        let mut found = Tally {
            records: records as u64,
            at_work_took: took,
            shadow_took,
            ..self.found(agreement)
        };
        if agreement == Agreement::ShadowFailed {
            found.last_failure = Some(why_failed(&result));
        }
        let course = match (&at_work, &result) {
            (Ok(at_work), Ok(shadow)) if agreement == Agreement::Same => {
                let holds_back = |one: &Processed| one.outcome.holds_back(records);
                self.holds_back = holds_back(at_work) || holds_back(shadow);
                self.compare(&at_work.emitted, &shadow.emitted, &mut found);
                Course::GoesOn
            }
            _ => Course::Ends,
        };
        self.settings.shadow.add(self.version.digest(), &found);
        course
    }

    async fn tick(&mut self, shadow: &mut dyn RecordProcessor, given: GivenTick) -> Course {
        let result = self.in_time(shadow.tick(given.time)).await;
        let (at_work, shadow) = match (given.at_work, result) {
            (Ok(at_work), Ok(shadow)) => (at_work, shadow),
            (Err(_), Err(_)) => return Course::Ends,
            (Err(_), Ok(_)) => {
                let found = self.found(Agreement::AtWorkFailed);
                self.settings.shadow.add(self.version.digest(), &found);
                return Course::Ends;
            }
            (Ok(_), Err(error)) => {
                let found = Tally {
                    last_failure: Some(error.to_string()),
                    ..self.found(Agreement::ShadowFailed)
                };
                self.settings.shadow.add(self.version.digest(), &found);
                return Course::Ends;
            }
        };
        let mut found = self.found(Agreement::Same);
        self.compare(&at_work.emitted, &shadow.emitted, &mut found);
        self.settings.shadow.add(self.version.digest(), &found);
        Course::GoesOn
    }

    /// A call of the shadow, for at most its deadline. An instance that must be dropped is not
    /// called again: an error ends the run.
    async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, ProcessorError>>,
    ) -> Result<T, ProcessorError> {
        let deadline = self.settings.terms.deadline;
        let result = tokio::time::timeout(deadline, call).await;
        result.unwrap_or(Err(ProcessorError::DeadlineExceeded {
            call: "process or tick",
            limit: deadline,
        }))
    }

    fn found(&self, agreement: Agreement) -> Tally {
        let mut found = Tally {
            calls: 1,
            at_work_failed: u64::from(agreement == Agreement::AtWorkFailed),
            shadow_failed: u64::from(agreement == Agreement::ShadowFailed),
            ..Tally::default()
        };
        if found.differences() > 0 {
            found.first_difference.clone_from(&self.last);
        }
        found
    }

    fn compare(&mut self, at_work: &[Emitted], shadow: &[Emitted], found: &mut Tally) {
        let compared = self.matching.call(at_work, shadow);
        found.same += compared.same;
        self.differ(&compared.differences, found);
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
            self.settings.tap.differed(&Differing {
                application: &self.context.application,
                shard: &self.context.shard,
                differences,
            });
        }
    }

    /// What is unmatched now stays so, unless one of the two still held records back.
    fn end(mut self) {
        let unmatched = std::mem::take(&mut self.matching).end();
        if self.holds_back || unmatched.is_empty() {
            return;
        }
        let mut found = Tally::default();
        self.differ(&unmatched, &mut found);
        self.settings.shadow.add(self.version.digest(), &found);
    }
}

/// Why the shadow failed, or what it says of the first record that it failed.
fn why_failed(result: &Result<Processed, ProcessorError>) -> String {
    match result {
        Ok(processed) => {
            let first = processed.outcome.failures.first();
            first.map_or_else(String::new, |failure| failure.message.clone())
        }
        Err(error) => error.to_string(),
    }
}
