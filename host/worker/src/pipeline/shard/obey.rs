//! Does what operators want of the shard, between two batches: goes to another place, skips
//! records, or stays paused.

mod edit;

use std::sync::Arc;
use std::time::Duration;

use shardmill_core::control::{
    Deed, NextStep, Pause, Reached, Seek, SeekState, Skip, StateEdit, Stays,
};
use shardmill_core::lease::Checkpoint;
use shardmill_core::pipeline::GiveUp;
use shardmill_core::ports::{ObeyState, ObeyWrite, SavedState};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::{LeaseKey, Record, Utc};

use super::{ShardPipeline, after};
use crate::holding::{Obeyed, Stopped};
use crate::metrics;
use crate::pipeline::delivery::Waits;
use crate::pipeline::give_up::GivenUp;
use crate::signs::Stage;
use crate::status::ShardState;

/// A pause that ends by itself is looked at this often: the wall clock may be set meanwhile.
const PAUSE_LOOK_MAX: Duration = Duration::from_secs(30);

/// What is to be done, as a value of its own.
enum Task {
    Seek(Seek),
    EndSeek(Seek, Stays),
    EditState(StateEdit),
    EndSkip,
    StayPaused(Pause),
}

impl ShardPipeline {
    /// Whether there is something to do before the next delivery.
    pub(super) fn must_obey(&mut self) -> bool {
        self.next_task().is_some()
    }

    /// Does all that is wanted. Only called when no call of the plugin is under way.
    pub(super) async fn obey(&mut self) -> Result<(), Stopped> {
        if self.directions.is_skip_new() {
            // One of them may be what the shard waits for, or is halted at.
            self.deliveries.try_at_once();
        }
        while let Some(task) = self.next_task() {
            match task {
                Task::Seek(seek) => self.seek(&seek).await?,
                Task::EndSeek(seek, stays) => self.end_seek(&seek, stays).await?,
                Task::EditState(edit) => self.edit_state(&edit).await?,
                Task::EndSkip => self.end_skip().await?,
                Task::StayPaused(pause) => self.stay_paused(&pause).await?,
            }
        }
        Ok(())
    }

    fn next_task(&mut self) -> Option<Task> {
        let reached = Reached {
            checkpoint: self.saving.settled_checkpoint(),
            arrival_ms: self.saving.last_arrival_ms(),
            is_all_read: self.is_all_settled(),
        };
        let wall_ms = self.context.at().wall_ms;
        match self.directions.next_step(&reached, wall_ms) {
            NextStep::GoOn => None,
            NextStep::Seek(seek) => Some(Task::Seek(seek.clone())),
            NextStep::EndSeek(seek, stays) => Some(Task::EndSeek(seek.clone(), stays)),
            NextStep::EditState(edit) => Some(Task::EditState(edit.clone())),
            NextStep::EndSkip(_) => Some(Task::EndSkip),
            NextStep::StayPaused(pause) => Some(Task::StayPaused(pause.clone())),
        }
    }

    /// Whether the reader found nothing more, and everything that it had read is settled.
    fn is_all_settled(&self) -> bool {
        let is_read = self.context.is_at_tip() && !self.intake.is_shut();
        let (fetched, _) = self.context.last_reply();
        let is_settled = self.saving.settled_checkpoint() >= last(fetched);
        is_read && is_settled && !self.intake.has_something() && !self.saving.is_busy()
    }

    // Pause.

    /// Delivers nothing until the pause ends, or something else is wanted. The lease is kept all
    /// the while, and nothing of what was read ahead.
    async fn stay_paused(&mut self, pause: &Pause) -> Result<(), Stopped> {
        self.write_checkpoint().await?;
        self.intake.drop_read_ahead();
        self.versions.leave_trial();
        let why = words_of(pause);
        tracing::info!(shard = %self.context.shard(), why, "the shard is paused");
        self.trouble.set_paused(Some(why));
        self.context.enter(Stage::Paused);
        self.show_state(ShardState::Paused);
        self.say_at_once();
        while self.is_paused_by(pause) {
            self.wait_paused().await?;
        }
        tracing::info!(shard = %self.context.shard(), "the shard is not paused any more");
        self.trouble.set_paused(None);
        self.show_state(ShardState::Processing);
        self.say_at_once();
        Ok(())
    }

    /// Has the row say now that the shard stands, or goes on: somebody waits for it.
    fn say_at_once(&self) {
        self.note_progress();
        self.context.keeper().verify();
    }

    fn is_paused_by(&mut self, pause: &Pause) -> bool {
        matches!(self.next_task(), Some(Task::StayPaused(now)) if now == *pause)
    }

    async fn wait_paused(&mut self) -> Result<(), Stopped> {
        let wall_ms = self.context.at().wall_ms;
        let ends_in = self.directions.pause_ends_in(wall_ms);
        let ends_in = ends_in.map(|wait| wait.min(PAUSE_LOOK_MAX));
        let may_close = !self.saving.holds_back();
        let asked_for_room = self.deliveries.asked_for_room();
        tokio::select! {
            biased;
            stopped = self.gate.stopped() => return Err(stopped),
            () = self.directions.news() => return Ok(()),
            () = after(ends_in) => return Ok(()),
            () = super::parallel::any(asked_for_room), if may_close => {}
        }
        for at in 0..self.deliveries.parallelism().get() {
            self.make_room(at).await?;
        }
        Ok(())
    }

    // Seek.

    /// Goes to another place: what was settled is written down first, and nothing that was read or
    /// handed out before counts any more.
    async fn seek(&mut self, seek: &Seek) -> Result<(), Stopped> {
        self.write_checkpoint().await?;
        self.put_away().await?;
        // A state that was saved just now settles all that was delivered, which may lie past the
        // place.
        if let Some(Task::EndSeek(seek, stays)) = self.next_task() {
            self.rewind();
            return self.end_seek(&seek, stays).await;
        }
        self.go_to(seek).await
    }

    /// What was settled is written down by now.
    async fn go_to(&mut self, seek: &Seek) -> Result<(), Stopped> {
        let (from, to) = (self.saving.settled_checkpoint(), seek.to.checkpoint());
        let Some(state) = self.state_at(&to, seek.state).await? else {
            self.rewind();
            return self.end_seek(seek, Stays::HasState).await;
        };
        let write = ObeyWrite {
            seen_version: self.directions.own().version,
            next: self.directions.own().changed(|next| next.seek = None),
            to: Some(to.clone()),
            state,
            progress: self.progress(),
        };
        if !self.write_obeyed(write).await? {
            // It was taken back: the shard goes on where it was.
            self.rewind();
            return Ok(());
        }
        self.begin_at(&to);
        self.show_sought(&from, seek);
        self.wait_for_parents().await
    }

    fn show_sought(&self, from: &Checkpoint, seek: &Seek) {
        let (shard, to) = (self.context.shard(), &seek.to);
        tracing::info!(
            %shard,
            %from,
            %to,
            asked = %seek.asked,
            "the shard was sent to another place"
        );
        self.context.count(metrics::SEEKS, 1);
        let details = format!("{from} to {to}");
        self.record(Deed::Sought, details, &seek.asked.why);
    }

    /// The shard stays where it is: the row need not ask for the place any more.
    async fn end_seek(&mut self, seek: &Seek, stays: Stays) -> Result<(), Stopped> {
        self.write_checkpoint().await?;
        let own = self.directions.own();
        if own.seek.as_ref() != Some(seek) {
            return Ok(());
        }
        let write = ObeyWrite {
            seen_version: own.version,
            next: own.changed(|next| next.seek = None),
            to: None,
            state: ObeyState::Untouched,
            progress: self.progress(),
        };
        if self.write_obeyed(write).await? {
            let shard = self.context.shard();
            tracing::info!(
                %shard,
                to = %seek.to,
                asked = %seek.asked,
                "the shard stays where it is: {stays}"
            );
            let details = format!("not sent to {}: {stays}", seek.to);
            self.record(Deed::Stayed, details, &seek.asked.why);
        }
        Ok(())
    }

    /// What becomes of the plugin's state; `None` if nobody has said it. An unreadable one is no
    /// obstacle if it is dropped.
    async fn state_at(
        &mut self,
        to: &Checkpoint,
        wanted: SeekState,
    ) -> Result<Option<ObeyState>, Stopped> {
        if !self.context.options().keeps_state {
            return Ok(Some(ObeyState::Untouched));
        }
        if wanted == SeekState::Drop {
            return Ok(Some(ObeyState::Removed));
        }
        let key = LeaseKey::of_shard(self.context.shard());
        let mut failures = 0;
        loop {
            let error = match self.context.store().state(&key).await {
                Ok(found) => {
                    self.works_again(failures);
                    return Ok(found_state_at(to, wanted, found));
                }
                Err(error) => error,
            };
            failures += 1;
            let reason = format!("cannot read the state that is to be kept: {error}");
            self.failed(failures, "state", reason);
            self.wait_to_retry(failures).await?;
        }
    }

    /// Nothing of what was read, handed out or held back before counts any more.
    fn begin_at(&mut self, place: &Checkpoint) {
        self.saving.begin_at(place.clone());
        self.traces.forget();
        self.deliveries.forget_all();
        if !SeededBug::SeekKeepsReadAhead.is_on() {
            self.intake.restart(place);
        }
        self.saving.show_unsettled(None);
        self.trouble.none_waits();
        self.trouble.show_parked(self.deliveries.parked());
        self.context.update_status(|status| {
            status.checkpoint = place.clone();
            (status.settled, status.fetched) = (None, None);
            status.is_at_tip = false;
        });
        self.note_progress();
    }

    /// A shard that begins again waits for its parents as every shard does, if one of them is read
    /// again as well: the lease is given back, and taken once they have ended.
    async fn wait_for_parents(&mut self) -> Result<(), Stopped> {
        if SeededBug::SoughtChildRunsOn.is_on() {
            return Ok(());
        }
        let parents = self.parents.clone();
        for parent in &parents {
            let context = Arc::clone(&self.context);
            let row = context.store().get(&LeaseKey::of_shard(parent)).await;
            // Without an answer, whoever takes the lease finds out.
            let has_ended = row.is_ok_and(|row| row.is_none_or(|row| row.is_finished()));
            if !has_ended {
                tracing::info!(
                    shard = %self.context.shard(),
                    %parent,
                    "waiting for a parent that is read again"
                );
                return Err(Stopped::Draining);
            }
        }
        Ok(())
    }

    // Skip.

    /// Gives up those of `records` that are to be skipped, before the plugin gets any of them, and
    /// puts the others back. `None` if there are such; else the records, as they came.
    pub(super) async fn skip_some(
        &mut self,
        at: usize,
        records: Vec<Record>,
    ) -> Result<Option<Vec<Record>>, Stopped> {
        let Some(skip) = self.directions.skip().cloned() else {
            return Ok(Some(records));
        };
        let mut positions = records.iter().map(|record| &record.position);
        if !positions.any(|position| skip.records.contains(position)) {
            return Ok(Some(records));
        }
        self.skip(at, &records, skip).await?;
        Ok(None)
    }

    async fn skip(&mut self, at: usize, records: &[Record], skip: Skip) -> Result<(), Stopped> {
        let verdict = self.deliveries.one_mut(at).skipping(records, &skip);
        let then = match &skip.dead_letters {
            Some(sink) if !SeededBug::SkipDropsLetters.is_on() => GiveUp::DeadLetter(sink.clone()),
            Some(_) | None => GiveUp::Skip,
        };
        if let GiveUp::DeadLetter(sink) = &then {
            let given_up = GivenUp::of(records, &verdict);
            if !self.store_letters(sink, &given_up, Some(&skip)).await? {
                tracing::info!(
                    shard = %self.context.shard(),
                    "the skip was cancelled"
                );
                self.saving.report_unstored(records);
                self.go_again(at, records, records.to_vec());
                return Ok(());
            }
        }
        self.saving.report(records, &verdict);
        self.deliveries.one_mut(at).note(records, &verdict);
        self.settle_all_given_up(at, &GivenUp::of(records, &verdict), &then);
        let again = self.deliveries.one_mut(at).going_again(records, &verdict);
        self.go_again(at, records, again);
        self.show_progress();
        Ok(())
    }

    /// Puts these of a batch's records where they are delivered next.
    fn go_again(&mut self, at: usize, records: &[Record], again: Vec<Record>) {
        let now = self.context.now();
        let delivery = self.deliveries.one_mut(at);
        let lane = delivery.lane_of(records);
        if !again.is_empty() {
            let waits = if lane.is_some() {
                Waits::Key(now)
            } else {
                Waits::Shard
            };
            delivery.put_back(again, waits, &mut self.intake);
        }
        if let Some(lane) = lane {
            delivery.leave_lane(&lane, &mut self.intake);
        }
    }

    /// The checkpoint is past the records: the row need not ask for it any more.
    async fn end_skip(&mut self) -> Result<(), Stopped> {
        self.write_checkpoint().await?;
        let own = self.directions.own();
        let Some(skip) = own.skip.clone() else {
            return Ok(());
        };
        let write = ObeyWrite {
            seen_version: own.version,
            next: own.changed(|next| next.skip = None),
            to: None,
            state: ObeyState::Untouched,
            progress: self.progress(),
        };
        if self.write_obeyed(write).await? {
            tracing::info!(
                shard = %self.context.shard(),
                records = %skip.records,
                asked = %skip.asked,
                "the records were skipped"
            );
            let details = skip.records.to_string();
            self.record(Deed::Skipped, details, &skip.asked.why);
        }
        Ok(())
    }

    // The row, and the history.

    /// Whether it was written: not if something else is wanted by now.
    async fn write_obeyed(&mut self, write: ObeyWrite) -> Result<bool, Stopped> {
        let next = write.next.clone();
        match self.context.keeper().obey(write).await {
            Ok(Obeyed::Done) => {
                if !SeededBug::SeeksAgain.is_on() {
                    self.directions.see(&next);
                }
                Ok(true)
            }
            Ok(Obeyed::Outdated(now)) => {
                self.directions.see(&now);
                Ok(false)
            }
            Err(_) => Err(self.why_refused()),
        }
    }

    /// Has the history say what was done, or not done.
    fn record(&self, deed: Deed, details: String, why: &str) {
        let chronicle = &self.context.ports().chronicle;
        chronicle.obeyed(deed, self.context.shard(), details, why);
    }
}

/// What becomes of the state that was `found`; `None` if nobody has said it.
fn found_state_at(
    to: &Checkpoint,
    wanted: SeekState,
    found: Option<SavedState>,
) -> Option<ObeyState> {
    match found {
        None => Some(ObeyState::Untouched),
        Some(_) if wanted == SeekState::Absent => None,
        Some(saved) => Some(ObeyState::Moved(SavedState {
            checkpoint: to.clone(),
            ..saved
        })),
    }
}

fn words_of(pause: &Pause) -> String {
    match pause.until_ms {
        Some(until) => format!("paused until {} {}", Utc(until), pause.asked),
        None => format!("paused {}", pause.asked),
    }
}

/// A position as the checkpoint that covers it; the least one if there is none.
fn last(fetched: Option<shardmill_core::stream::Position>) -> Checkpoint {
    fetched.map_or(Checkpoint::AtTimestamp, Checkpoint::At)
}
