//! Creates and describes streams. A worker only asks for a stream's identity; the rest is for
//! commands that people type.

use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::operation::create_stream::CreateStreamError;
use aws_sdk_kinesis::types::{StreamDescriptionSummary, StreamStatus};
use shardmill_core::fleet::StreamIdentity;
use shardmill_core::ports::ReadError;
use shardmill_core::stream::StreamRef;

use super::errors::read_error;
use super::{convert, naming};

/// Real Kinesis takes 10 to 30 s to make a stream; ten times that means that it will not.
const ACTIVE_WAIT_MAX: Duration = Duration::from_mins(5);
/// The embedded stack is ready at once and should not be waited for long.
const POLL_FIRST: Duration = Duration::from_millis(20);
/// DescribeStreamSummary allows 20 calls a second for the whole account (AWS limit).
const POLL_MAX: Duration = Duration::from_secs(2);

/// Stream administration through one client.
#[derive(Debug, Clone)]
pub struct StreamAdmin {
    client: Client,
}

/// A stream as `DescribeStreamSummary` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamDescription {
    /// The stream's ARN, which names region and account.
    pub arn: String,
    /// `ACTIVE`, `CREATING`, `UPDATING` or `DELETING`.
    pub status: String,
    /// Shards that take records.
    pub open_shards: u32,
    /// Seconds since the Unix epoch. A stream of the same name with another time is another stream.
    pub created_at: i64,
    /// How long records are kept.
    pub retention_hours: u32,
}

/// Why a stream could not be created or described.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// Kinesis refused or did not answer.
    #[error(transparent)]
    Kinesis(#[from] ReadError),
    /// The stream was created, but did not become usable.
    #[error("stream {stream} is still {status} after {waited:?}")]
    NotActive {
        /// The stream.
        stream: StreamRef,
        /// The last status seen.
        status: String,
        /// How long we waited.
        waited: Duration,
    },
}

impl StreamAdmin {
    /// An administrator of the account and region that `client` speaks to.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Creates the stream if it does not exist, and waits until it can be used. An existing stream
    /// keeps its shards; a stream of another account cannot be created.
    pub async fn ensure_stream(
        &self,
        stream: impl Into<StreamRef>,
        shards: u32,
    ) -> Result<StreamDescription, AdminError> {
        let stream = stream.into();
        if self.describe(&stream).await?.is_none() {
            // If another program was faster, that one is used.
            self.create_new(&stream, shards).await?;
        }
        self.wait_until_active(&stream).await
    }

    /// The stream as it is now; `None` if it does not exist.
    pub async fn describe(
        &self,
        stream: impl Into<StreamRef>,
    ) -> Result<Option<StreamDescription>, AdminError> {
        let summary = summary(&self.client, &stream.into()).await?;
        Ok(summary.map(|summary| StreamDescription {
            arn: summary.stream_arn.clone(),
            status: summary.stream_status.as_str().to_owned(),
            open_shards: u32::try_from(summary.open_shard_count).unwrap_or(0),
            created_at: summary.stream_creation_timestamp.secs(),
            retention_hours: u32::try_from(summary.retention_period_hours).unwrap_or(0),
        }))
    }

    /// Asks for a new stream. False if there is one of this name already, which stays as it is.
    ///
    /// # Errors
    ///
    /// If Kinesis refuses it or does not answer. Then there may be one nevertheless.
    pub async fn create_new(
        &self,
        stream: impl Into<StreamRef>,
        shards: u32,
    ) -> Result<bool, AdminError> {
        let reply = self
            .client
            .create_stream()
            .stream_name(stream.into().name().as_str())
            .shard_count(i32::try_from(shards).unwrap_or(i32::MAX))
            .send()
            .await;
        match reply {
            Ok(_) => Ok(true),
            Err(error)
                if error
                    .as_service_error()
                    .is_some_and(CreateStreamError::is_resource_in_use_exception) =>
            {
                Ok(false)
            }
            Err(error) => Err(read_error(&error).into()),
        }
    }

    /// Deletes the stream with all its records, also if it has fan-out consumers.
    ///
    /// # Errors
    ///
    /// If Kinesis refuses it or does not answer, or if there is no such stream.
    pub async fn delete(&self, stream: impl Into<StreamRef>) -> Result<(), AdminError> {
        let reply = self
            .client
            .delete_stream()
            .stream_name(stream.into().name().as_str())
            .enforce_consumer_deletion(true)
            .send()
            .await;
        reply.map(|_| ()).map_err(|error| read_error(&error).into())
    }

    async fn wait_until_active(&self, stream: &StreamRef) -> Result<StreamDescription, AdminError> {
        let mut poll = POLL_FIRST;
        let mut waited = Duration::ZERO;
        loop {
            let description = self.describe(stream).await?;
            let status = match description {
                Some(found) if is_usable(&found.status) => return Ok(found),
                Some(found) => found.status,
                None => "not there".to_owned(),
            };
            if waited >= ACTIVE_WAIT_MAX {
                return Err(AdminError::NotActive {
                    stream: stream.clone(),
                    status,
                    waited,
                });
            }
            tokio::time::sleep(poll).await;
            waited += poll;
            poll = (poll * 2).min(POLL_MAX);
        }
    }
}

/// What distinguishes the stream from another of its name: its creation time. `None` if it does not
/// exist or is being deleted.
pub(super) async fn identity(
    client: &Client,
    stream: &StreamRef,
) -> Result<Option<StreamIdentity>, ReadError> {
    let summary = match summary(client, stream).await? {
        Some(summary) if summary.stream_status != StreamStatus::Deleting => summary,
        Some(_) | None => return Ok(None),
    };
    let millis = summary.stream_creation_timestamp.to_millis().unwrap_or(0);
    // The SDK gives 1970 for a member that is missing: a time that is not the stream's would stop
    // every host.
    match u64::try_from(millis) {
        Ok(created_at_ms) if created_at_ms > 0 => Ok(Some(StreamIdentity { created_at_ms })),
        _ => Err(convert::unreadable(
            "the stream's creation time is missing or out of range",
        )),
    }
}

async fn summary(
    client: &Client,
    stream: &StreamRef,
) -> Result<Option<StreamDescriptionSummary>, ReadError> {
    let request = client
        .describe_stream_summary()
        .set_stream_name(naming::name(stream))
        .set_stream_arn(naming::arn(stream));
    match request.send().await {
        Ok(reply) => Ok(reply.stream_description_summary),
        Err(error) => match read_error(&error) {
            ReadError::NotFound { .. } => Ok(None),
            other => Err(other),
        },
    }
}

/// A stream that is being resharded can be read and written.
fn is_usable(status: &str) -> bool {
    status == StreamStatus::Active.as_str() || status == StreamStatus::Updating.as_str()
}
