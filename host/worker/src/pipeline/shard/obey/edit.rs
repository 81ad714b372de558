//! Replaces or removes the plugin's state, as an operator wants it, in one write with the directive
//! that asks for it.

use shardmill_core::control::{Deed, EditFacts, EditRefusal, NewState, StateEdit};
use shardmill_core::lease::Checkpoint;
use shardmill_core::plugin::StateFill;
use shardmill_core::ports::{CloseReason, ObeyState, ObeyWrite, Progress, SavedState};

use super::super::ShardPipeline;
use super::super::parallel::Closed;
use crate::holding::Stopped;
use crate::signs::Stage;

impl ShardPipeline {
    /// The next instance starts from another state, or from none. An instance that lives has the
    /// old one in its memory, and saves it once more before it goes.
    pub(super) async fn edit_state(&mut self, edit: &StateEdit) -> Result<(), Stopped> {
        self.write_checkpoint().await?;
        let staged = self.staged(edit).await?;
        if !self.is_still_wanted(edit) {
            return Ok(());
        }
        let settled = self.saving.settled_checkpoint();
        let options = self.context.options();
        let facts = EditFacts {
            settled: &settled,
            keeps_state: options.keeps_state,
            staged_bytes: staged.as_ref().map(|state| state.bytes.len()),
            bytes_max: options.state_bytes_max(),
        };
        match edit.place(&facts) {
            Ok(place) => self.take_over_state(edit, staged, place).await,
            Err(refusal) => self.refuse_edit(edit, &refusal).await,
        }
    }

    /// The state that a command left for the shard; `None` if it is gone, or none is to be taken
    /// over.
    async fn staged(&mut self, edit: &StateEdit) -> Result<Option<SavedState>, Stopped> {
        if !self.context.options().keeps_state {
            return Ok(None);
        }
        let Some(key) = edit.staged() else {
            return Ok(None);
        };
        let mut failures = 0;
        loop {
            let error = match self.context.store().state(key).await {
                Ok(staged) => {
                    self.works_again(failures);
                    return Ok(staged);
                }
                Err(error) => error,
            };
            failures += 1;
            let reason = format!("cannot read the state that is to be taken over: {error}");
            self.failed(failures, "state", reason);
            self.wait_to_retry(failures).await?;
            if !self.is_still_wanted(edit) {
                self.works_again(failures);
                return Ok(None);
            }
        }
    }

    fn is_still_wanted(&mut self, edit: &StateEdit) -> bool {
        matches!(self.next_task(), Some(super::Task::EditState(now)) if now == *edit)
    }

    async fn take_over_state(
        &mut self,
        edit: &StateEdit,
        staged: Option<SavedState>,
        place: Checkpoint,
    ) -> Result<(), Stopped> {
        self.put_away().await?;
        let (state, fill) = self.state_after(edit, staged, &place);
        let write = ObeyWrite {
            seen_version: self.directions.own().version,
            next: self.directions.own().changed(|next| next.state = None),
            to: Some(place.clone()),
            state,
            progress: Progress {
                state_fill: Some(fill),
                ..self.progress()
            },
        };
        if !self.write_obeyed(write).await? {
            // It was taken back: the shard goes on as it was.
            self.rewind();
            return Ok(());
        }
        self.begin_at(&place);
        tracing::info!(
            shard = %self.context.shard(),
            %place,
            what = %edit,
            asked = %edit.asked,
            "the plugin's state was edited"
        );
        let details = format!("{edit}, at {place}");
        self.record(Deed::EditedState, details, &edit.asked.why);
        Ok(())
    }

    /// What the state table has after the edit, and how full that is.
    fn state_after(
        &self,
        edit: &StateEdit,
        staged: Option<SavedState>,
        place: &Checkpoint,
    ) -> (ObeyState, StateFill) {
        let (NewState::Staged(key), Some(staged)) = (&edit.to, staged) else {
            return (ObeyState::Removed, StateFill(0));
        };
        let bytes_max = self.context.options().state_bytes_max();
        let fill = StateFill::of(staged.bytes.len(), bytes_max);
        let state = SavedState {
            checkpoint: place.clone(),
            ..staged
        };
        let staged = key.clone();
        (ObeyState::Imported { state, staged }, fill)
    }

    /// Leaves the reason in the row, where whoever asked finds it. The shard goes on as it was.
    async fn refuse_edit(
        &mut self,
        edit: &StateEdit,
        refusal: &EditRefusal,
    ) -> Result<(), Stopped> {
        let reason = refusal.to_string();
        let refused = StateEdit {
            refused: Some(reason.clone()),
            ..edit.clone()
        };
        let write = ObeyWrite {
            seen_version: self.directions.own().version,
            next: self
                .directions
                .own()
                .changed(|next| next.state = Some(refused)),
            to: None,
            state: ObeyState::Untouched,
            progress: self.progress(),
        };
        if self.write_obeyed(write).await? {
            tracing::warn!(
                shard = %self.context.shard(),
                reason,
                asked = %edit.asked,
                code = "state-not-edited", "the plugin's state was not edited"
            );
            let details = format!("refused: {reason}");
            self.record(Deed::EditedState, details, &edit.asked.why);
        }
        Ok(())
    }

    /// Closes every instance and stores what it emitted last: what follows starts afresh.
    pub(super) async fn put_away(&mut self) -> Result<(), Stopped> {
        let Closed { output, error } = self.close_all(CloseReason::Reload).await;
        if let Some(error) = error {
            tracing::warn!(
                shard = %self.context.shard(),
                %error,
                code = "close-failed-at-edit",
                "the instance failed in close"
            );
        }
        self.store_last_output(output).await?;
        self.saving.flush(&mut self.gate).await?;
        self.gate.check_held()?;
        self.context.enter(Stage::Checkpointing);
        Ok(())
    }
}
