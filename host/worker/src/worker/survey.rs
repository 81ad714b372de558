//! What the leader asks Kinesis about the stream's shards. It does so beside its passes, so that a
//! call that hangs delays nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;

use shardmill_core::fleet::StreamIdentity;
use shardmill_core::plan::{GoneShards, MissingShards};
use shardmill_core::ports::{ReadError, StreamReader};
use shardmill_core::stream::{Shard, ShardId};
use shardmill_core::time::Moment;
use tokio::task::{JoinError, JoinSet};

use super::ports::Ports;
use crate::gone::confirm_gone;

/// What a survey is to find out.
pub(super) struct Questions {
    /// When the survey began, before the listing.
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
    /// It does not know, for example because the beginning is still to come.
    NotKnown,
    /// These. All others were closed before.
    Shards(BTreeSet<ShardId>),
}

/// How a survey ended; an error if its task did not.
pub(super) type SurveyEnd = Result<(Result<Survey, ReadError>, MissingShards), JoinError>;

/// Runs one survey at a time, and keeps its answer until it is taken.
#[derive(Default)]
pub(super) struct Surveys {
    running: JoinSet<(Result<Survey, ReadError>, MissingShards)>,
    answer: Option<Result<Survey, ReadError>>,
    /// What the surveys so far found missing.
    missing: MissingShards,
}

impl Surveys {
    /// Whether no survey runs, and no answer waits.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.answer.is_none()
    }

    /// Begins a survey.
    pub(super) fn begin(&mut self, questions: Questions, ports: &Ports) {
        let (reader, mut missing) = (Arc::clone(&ports.reader), self.missing.clone());
        self.running.spawn(ports.freezer.clone().guard(async move {
            let answer = survey(reader.as_ref(), questions, &mut missing).await;
            (answer, missing)
        }));
    }

    /// The next that ends, for [`Surveys::ended`]; `None` if none runs. Cancel-safe.
    pub(super) async fn next_ended(&mut self) -> Option<SurveyEnd> {
        self.running.join_next().await
    }

    pub(super) fn ended(&mut self, ended: SurveyEnd) {
        // A survey that panicked has no answer; another begins with the next pass.
        if let Ok((answer, missing)) = ended {
            (self.answer, self.missing) = (Some(answer), missing);
        }
    }

    /// Waits for the answer of the survey that runs, if one does.
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
        Some(since_ms) => open_since(reader, since_ms).await?,
        None => OpenSince::NotAsked,
    };
    Ok(Survey {
        asked_at,
        shards,
        gone,
        open_since,
    })
}

async fn open_since(reader: &dyn StreamReader, since_ms: u64) -> Result<OpenSince, ReadError> {
    let since = reader.list_shards_since(since_ms).await?;
    Ok(since.map_or(OpenSince::NotKnown, |shards| {
        OpenSince::Shards(shards.into_iter().map(|shard| shard.id).collect())
    }))
}
