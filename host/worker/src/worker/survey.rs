//! What the leader asks Kinesis of the stream's shards, beside its passes: a call that hangs keeps
//! it from nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;

use shardmill_core::fleet::StreamIdentity;
use shardmill_core::plan::{GoneShards, MissingShards};
use shardmill_core::ports::{ReadError, StreamReader};
use shardmill_core::stream::{Shard, ShardId};
use shardmill_core::time::Moment;
use tokio::task::{JoinError, JoinSet};

use crate::Freezer;
use crate::gone::confirm_gone;

/// What a survey is to find out.
pub(super) struct Questions {
    /// Now.
    pub(super) asked_at: Moment,
    /// Shards that have rows now: one whose row is made meanwhile is not missed.
    pub(super) rows: Vec<ShardId>,
    /// The stream that the checkpoints belong to.
    pub(super) identity: StreamIdentity,
    /// When the application began, in milliseconds since the Unix epoch, if shards that were closed
    /// before are looked for.
    pub(super) since_ms: Option<u64>,
}

/// A complete listing, and what Kinesis said about shards that have rows and were not in it.
pub(super) struct Survey {
    /// Before the listing.
    pub(super) asked_at: Moment,
    pub(super) shards: Vec<Shard>,
    pub(super) gone: GoneShards,
    /// Which shards were open when the application began, or since.
    pub(super) open_since: OpenSince,
}

/// What Kinesis said about shards that were closed before the application began.
pub(super) enum OpenSince {
    NotAsked,
    /// It does not tell: the beginning lies ahead, say.
    NotTold,
    /// All others were closed before.
    Shards(BTreeSet<ShardId>),
}

/// How a survey ended; an error if its task did not.
pub(super) type SurveyEnd = Result<(Result<Survey, ReadError>, MissingShards), JoinError>;

/// At most one survey at a time, and its answer until somebody takes it.
#[derive(Default)]
pub(super) struct Surveys {
    running: JoinSet<(Result<Survey, ReadError>, MissingShards)>,
    answer: Option<Result<Survey, ReadError>>,
    /// By the surveys that ended.
    missing: MissingShards,
}

impl Surveys {
    /// Whether none runs, and none has an answer that nobody took.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.answer.is_none()
    }

    /// Begins one.
    pub(super) fn begin(
        &mut self,
        reader: Arc<dyn StreamReader>,
        questions: Questions,
        freezer: &Freezer,
    ) {
        let mut missing = self.missing.clone();
        self.running.spawn(freezer.clone().guard(async move {
            let answer = survey(reader.as_ref(), questions, &mut missing).await;
            (answer, missing)
        }));
    }

    /// The next that ends, for [`Surveys::ended`]; `None` if none runs. May be dropped at any time.
    pub(super) async fn next_ended(&mut self) -> Option<SurveyEnd> {
        self.running.join_next().await
    }

    pub(super) fn ended(&mut self, ended: SurveyEnd) {
        // One that panicked said nothing, and another begins with the next pass.
        if let Ok((answer, missing)) = ended {
            (self.answer, self.missing) = (Some(answer), missing);
        }
    }

    /// Waits until the one that runs has answered, if one does.
    pub(super) async fn answered(&mut self) {
        if let Some(ended) = self.next_ended().await {
            self.ended(ended);
        }
    }

    pub(super) fn take_answer(&mut self) -> Option<Result<Survey, ReadError>> {
        self.answer.take()
    }
}

async fn survey(
    reader: &dyn StreamReader,
    questions: Questions,
    missing: &mut MissingShards,
) -> Result<Survey, ReadError> {
    let Questions {
        asked_at,
        rows,
        identity,
        since_ms,
    } = questions;
    let shards = reader.list_shards().await?;
    missing.listed(rows.into_iter(), &shards);
    let to_ask = missing.to_ask();
    let gone = confirm_gone(missing, to_ask, reader, identity).await;
    let open_since = match since_ms {
        Some(since_ms) => match reader.list_shards_since(since_ms).await? {
            Some(since) => OpenSince::Shards(since.into_iter().map(|shard| shard.id).collect()),
            None => OpenSince::NotTold,
        },
        None => OpenSince::NotAsked,
    };
    Ok(Survey {
        asked_at,
        shards,
        gone,
        open_since,
    })
}
