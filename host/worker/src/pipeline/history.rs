//! What a live instance was given, for the recording of a batch that fails.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use shardmill_core::plugin::{PluginDigest, ProcessorError};
use shardmill_core::ports::{InstanceContext, Outcome};
use shardmill_core::recording::{FailureRecord, Recording, RunUp, detached};
use shardmill_core::rollout::At;
use shardmill_core::stream::Batch;
use shardmill_core::token_bucket::TokenBucket;

use crate::recordings::{Recordings, Room};

/// Recordings that an instance may make at once, and then each second. A poison record in the
/// largest batch is found in 14 halves; a plugin that rejects a record of each batch must not have
/// all of its stream written to a disk.
const BURST: u32 = 16;
const PER_SECOND: u32 = 1;

/// See the module's description. Costs nothing if nothing is recorded.
pub(super) struct History {
    recordings: Recordings,
    /// Whether batches may be small parts of large replies: a filter left out the rest.
    are_sparse: bool,
    /// `None` if nothing is recorded.
    of_instance: Option<OfInstance>,
}

struct OfInstance {
    room: Room,
    run_up: RunUp,
    rate: Option<TokenBucket>,
}

/// A call that has ended.
pub(super) struct Delivered<'a> {
    pub(super) batch: Batch,
    pub(super) result: Result<&'a Outcome, &'a ProcessorError>,
    pub(super) took: Duration,
    pub(super) at: At,
}

/// Whose history it is.
#[derive(Clone, Copy)]
pub(super) struct Whose<'a> {
    pub(super) context: &'a Arc<InstanceContext>,
    pub(super) digest: &'a PluginDigest,
}

impl History {
    pub(super) fn new(recordings: Recordings, are_sparse: bool) -> Self {
        let of_instance = recordings.room().map(|room| OfInstance {
            room,
            run_up: RunUp::default(),
            rate: None,
        });
        Self {
            recordings,
            are_sparse,
            of_instance,
        }
    }

    /// That of another instance.
    pub(super) fn of_another(&self) -> Self {
        Self::new(self.recordings.clone(), self.are_sparse)
    }

    /// The instance is where `state` says.
    pub(super) fn begin(&mut self, state: Option<Bytes>) {
        if let Some(own) = &mut self.of_instance {
            own.run_up.begin(state, own.room.take());
            own.room.keep(own.run_up.bytes());
        }
    }

    /// There is no instance any more.
    pub(super) fn end(&mut self) {
        self.begin(None);
    }

    /// Records the batch if it failed, and keeps it for the recording of the next one that does.
    pub(super) fn delivered(&mut self, call: Delivered<'_>, whose: &Whose<'_>) {
        let Some(own) = &mut self.of_instance else {
            return;
        };
        if let Some(failure) = FailureRecord::of(call.result)
            && own.may_record(call.at)
        {
            let recording = own.recording(failure, &call, whose);
            self.recordings.keep(recording);
        }
        let batch = if self.are_sparse {
            detached(&call.batch)
        } else {
            call.batch
        };
        own.run_up.push(batch, own.room.take());
        own.room.keep(own.run_up.bytes());
    }
}

impl OfInstance {
    fn may_record(&mut self, at: At) -> bool {
        let rate = self
            .rate
            .get_or_insert_with(|| TokenBucket::new(PER_SECOND, BURST, at.now));
        rate.take(at.now)
    }

    fn recording(
        &self,
        failure: FailureRecord,
        call: &Delivered<'_>,
        whose: &Whose<'_>,
    ) -> Recording {
        Recording {
            context: Arc::clone(whose.context),
            secrets: whose.context.permissions.secrets.keys().cloned().collect(),
            digest: whose.digest.clone(),
            state: self.run_up.state().cloned(),
            is_state_missing: self.run_up.is_state_missing(),
            run_up: self.run_up.batches(),
            missing_batches: self.run_up.missing(),
            batch: call.batch.clone(),
            failure,
            took: call.took,
            at_ms: call.at.wall_ms,
        }
    }
}
