//! A shard's part of a shadow run: what the live instance is given is given to an instance of the
//! version in the shadow as well, beside the shard and never before it. What the two emit is
//! compared; what the shadow emits is stored nowhere.
//!
//! The shadow can begin only where the live instance is nothing but its state: when that is made or
//! saved, and, without a state, whenever nothing is held back. From there it is given everything,
//! or else it ends, and begins anew at the next such place. Nothing of the shard ever waits for it.

mod run;
mod settings;

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{
    HeldBack, InstanceContext, Processed, StartPosition, TickTime, Ticked,
};
use shardmill_core::recording::{bytes_of, detached};
use shardmill_core::stream::{Batch, Emitted, Record};
use tokio::sync::mpsc;

pub(super) use self::settings::ShadowSettings;

use self::run::{Cut, GivenBatch, GivenTick, ShadowRun, Step};
use super::history::Whose;
use crate::shadow::Generation;

/// Calls that wait for the shadow. Should it be slower for longer, it begins anew: what it would be
/// given much later says little of now.
const WAITING_MAX: usize = 64;

/// Feeds the shadow of one live instance.
pub(super) struct Shadowing {
    settings: ShadowSettings,
    /// Set where a shadow can begin now, since the live instance is nothing but this.
    begin_at: Option<Beginning>,
    /// The shadow that is fed.
    feed: Option<Feed>,
    /// The last one, for as long as it runs: this live instance has one at a time.
    last: Weak<Cut>,
}

struct Beginning {
    state: Option<Bytes>,
    /// Whether the live instance was given nothing yet.
    is_fresh: bool,
}

struct Feed {
    generation: Generation,
    steps: mpsc::Sender<Step>,
    cut: Arc<Cut>,
}

impl Shadowing {
    pub(super) fn new(settings: ShadowSettings) -> Self {
        Self {
            settings,
            begin_at: None,
            feed: None,
            last: Weak::new(),
        }
    }

    /// That of another instance.
    pub(super) fn of_another(&self) -> Self {
        Self::new(self.settings.clone())
    }

    /// A live instance was made, from this state.
    pub(super) fn made(&mut self, state: Option<&Bytes>) {
        self.feed = None;
        self.is_at(state, true);
    }

    /// The live instance saved this state.
    pub(super) fn saved(&mut self, state: &Bytes) {
        self.is_at(Some(state), false);
    }

    /// A state is kept only while a shadow may need it.
    fn is_at(&mut self, state: Option<&Bytes>, is_fresh: bool) {
        let is_kept = state.is_none() || self.settings.shadow.is_on();
        let state = state.cloned();
        self.begin_at = is_kept.then_some(Beginning { state, is_fresh });
    }

    /// There is no live instance any more.
    pub(super) fn end(&mut self) {
        self.feed = None;
        self.begin_at = None;
    }

    /// The live instance was called with a batch, and this came of it.
    pub(super) fn called(
        &mut self,
        whose: Whose<'_>,
        batch: &Batch,
        result: &Result<Processed, ProcessorError>,
        took: Duration,
    ) {
        if self.is_wanted(whose) {
            self.give_batch(whose.context, batch, result, took);
        } else {
            self.feed = None;
        }
        let holds_back = match result {
            Ok(processed) => processed.outcome.holds_back(batch.records.len()),
            Err(_) => true,
        };
        self.went_on(holds_back);
    }

    fn give_batch(
        &mut self,
        context: &Arc<InstanceContext>,
        batch: &Batch,
        result: &Result<Processed, ProcessorError>,
        took: Duration,
    ) {
        let records = batch.records.len() as u64;
        if !self.is_fed(context, batch.records.first()) {
            return self.settings.shadow.missed(records);
        }
        let emitted = result
            .as_ref()
            .map_or(&[][..], |processed| &processed.emitted);
        let Some(room) = self.settings.shadow.room(bytes_of(batch) + bytes(emitted)) else {
            self.cut();
            return self.settings.shadow.missed(records);
        };
        self.give(Step::Batch(GivenBatch {
            // Records of its own: what waits must not keep whole replies.
            batch: detached(batch),
            at_work: result.clone(),
            took,
            _room: room,
        }));
        if self.feed.is_none() {
            self.settings.shadow.missed(records);
        }
    }

    /// The live instance was called because time had passed, and this came of it.
    pub(super) fn ticked(
        &mut self,
        whose: Whose<'_>,
        time: TickTime,
        result: &Result<Ticked, ProcessorError>,
    ) {
        if !self.is_wanted(whose) {
            self.feed = None;
        } else if self.is_fed(whose.context, None)
            && let Some(room) = self.room_for(result)
        {
            self.give(Step::Tick(GivenTick {
                time,
                at_work: result.clone(),
                _room: room,
            }));
        }
        // A tick changes what a guest without state has in memory, unless that is nothing any more.
        let commits = matches!(result, Ok(ticked) if ticked.held_back == HeldBack::Commit);
        self.went_on(!commits);
    }

    fn room_for(
        &mut self,
        result: &Result<Ticked, ProcessorError>,
    ) -> Option<tokio::sync::OwnedSemaphorePermit> {
        let emitted = result.as_ref().map_or(&[][..], |ticked| &ticked.emitted);
        let room = self.settings.shadow.room(bytes(emitted));
        if room.is_none() {
            self.cut();
        }
        room
    }

    fn is_wanted(&self, whose: Whose<'_>) -> bool {
        let shadow = &self.settings.shadow;
        shadow.is_wanted_on(&whose.context.shard, whose.digest)
    }

    /// After a call: with a state, the instance is more than what was saved until it is saved
    /// again.
    fn went_on(&mut self, holds_back: bool) {
        let can_begin = !self.settings.terms.keeps_state && !holds_back;
        self.begin_at = can_begin.then_some(Beginning {
            state: None,
            is_fresh: false,
        });
    }

    /// Whether a shadow was given all that the live instance was given, or can begin right here,
    /// where `next` is the first record that it gets.
    fn is_fed(&mut self, context: &Arc<InstanceContext>, next: Option<&Record>) -> bool {
        let shadow = &self.settings.shadow;
        if let Some(feed) = &self.feed
            && !feed.steps.is_closed()
            && shadow.goes_on(feed.generation)
        {
            return true;
        }
        self.feed = None;
        if self.last.strong_count() > 0 {
            return false;
        }
        if let Some(beginning) = self.begin_at.take() {
            self.feed = self.begin(context, beginning, next);
        }
        self.feed.is_some()
    }

    fn begin(
        &mut self,
        context: &Arc<InstanceContext>,
        beginning: Beginning,
        next: Option<&Record>,
    ) -> Option<Feed> {
        let wanted = self.settings.shadow.wanted_on(&context.shard)?;
        let (steps, given) = mpsc::channel(WAITING_MAX);
        let next = if beginning.is_fresh { None } else { next };
        let context = shadow_context(context, next, wanted.may_send_http);
        let generation = wanted.generation;
        let run = ShadowRun::new(self.settings.clone(), wanted, context, beginning.state);
        let cut = Arc::new(Cut::default());
        self.last = Arc::downgrade(&cut);
        self.settings.shadow.spawn(run.run(given, Arc::clone(&cut)));
        Some(Feed {
            generation,
            steps,
            cut,
        })
    }

    /// The shadow misses something: what it was given and has not come to is not compared either.
    fn cut(&mut self) {
        if let Some(feed) = self.feed.take() {
            feed.cut.set();
        }
    }

    fn give(&mut self, step: Step) {
        let is_given = |feed: &Feed| feed.steps.try_send(step).is_ok();
        if !self.feed.as_ref().is_some_and(is_given) {
            self.cut();
        }
    }
}

/// Who the shadow is: the same as the live instance, without what has effects elsewhere.
fn shadow_context(
    live: &InstanceContext,
    next: Option<&Record>,
    may_send_http: bool,
) -> Arc<InstanceContext> {
    let mut context = live.clone();
    if let Some(next) = next {
        context.start = StartPosition::At(next.position.sequence.clone());
    }
    if !may_send_http {
        Arc::make_mut(&mut context.permissions).http.clear();
    }
    Arc::new(context)
}

fn bytes(emitted: &[Emitted]) -> usize {
    emitted.iter().map(Emitted::cost_bytes).sum()
}
