//! `ListShards`, whole or not at all: a partial list would make shards look deleted.

use std::collections::BTreeMap;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_kinesis::operation::list_shards::ListShardsError;
use aws_sdk_kinesis::primitives::DateTime;
use aws_sdk_kinesis::types::{self as sdk, ShardFilter, ShardFilterType};
use shardmill_core::ports::ReadError;
use shardmill_core::stream::{SequenceNumber, Shard, ShardId, StreamRef, check_listing};

use super::errors::read_error;
use super::{convert, naming};

/// Shards of one page; also the API's own default and maximum for streams of that size.
pub(super) const PAGE_SHARDS_MAX: i32 = 1_000;
/// A thousand pages are a million shards, far above any account's quota: more means that the paging
/// goes in circles.
const PAGES_MAX: usize = 1_000;
/// A token lives 300 s (AWS limit). A listing that outlives it three times over will not end soon.
const LISTINGS_MAX: usize = 3;

/// Which shards are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listed {
    /// All that Kinesis knows.
    All,
    /// Those that are open, or were closed at this time or later, in milliseconds since the Unix
    /// epoch.
    Since(u64),
}

enum PageError {
    /// The listing took too long and has to start over.
    ExpiredToken,
    Failed(ListingError),
}

enum ListingError {
    /// The service does not accept such a request.
    Invalid(ReadError),
    Other(ReadError),
}

impl ListingError {
    fn into_read_error(self) -> ReadError {
        match self {
            Self::Invalid(error) | Self::Other(error) => error,
        }
    }
}

impl From<ReadError> for PageError {
    fn from(error: ReadError) -> Self {
        Self::Failed(ListingError::Other(error))
    }
}

/// All shards, `page_shards` a page.
pub(super) async fn list_shards(
    client: &Client,
    stream: &StreamRef,
    page_shards: i32,
) -> Result<Vec<Shard>, ReadError> {
    list(client, stream, page_shards, Listed::All)
        .await
        .map_err(ListingError::into_read_error)
}

/// Those that are open, or were closed at `since_ms` or later; `None` if Kinesis does not accept
/// such a filter.
pub(super) async fn list_shards_since(
    client: &Client,
    stream: &StreamRef,
    page_shards: i32,
    since_ms: u64,
) -> Result<Option<Vec<Shard>>, ReadError> {
    match list(client, stream, page_shards, Listed::Since(since_ms)).await {
        Ok(shards) => Ok(Some(shards)),
        Err(ListingError::Invalid(error)) => {
            tracing::debug!(%stream, %error, "kinesis does not show which shards were closed \
                before the start");
            Ok(None)
        }
        Err(ListingError::Other(error)) => Err(error),
    }
}

/// The sequence number that each shard begins with. No record has it.
pub(super) async fn first_sequences(
    client: &Client,
    stream: &StreamRef,
) -> Result<BTreeMap<ShardId, SequenceNumber>, ReadError> {
    let listed = Listed::All;
    let first = convert::first_sequence;
    let found = list_once(client, stream, PAGE_SHARDS_MAX, listed, first).await;
    match found {
        Ok(found) => Ok(found.into_iter().collect()),
        Err(PageError::ExpiredToken) => Err(ReadError::Unavailable {
            message: "the shard listing expired midway".to_owned(),
        }),
        Err(PageError::Failed(error)) => Err(error.into_read_error()),
    }
}

async fn list(
    client: &Client,
    stream: &StreamRef,
    page_shards: i32,
    listed: Listed,
) -> Result<Vec<Shard>, ListingError> {
    for _ in 0..LISTINGS_MAX {
        match list_once(client, stream, page_shards, listed, convert::shard).await {
            Ok(shards) => {
                return match check_listing(&shards) {
                    Ok(()) => Ok(shards),
                    Err(problem) => Err(ListingError::Other(convert::unreadable(problem))),
                };
            }
            Err(PageError::ExpiredToken) => {
                tracing::debug!(%stream, "the shard listing expired midway; restarting");
            }
            Err(PageError::Failed(error)) => return Err(error),
        }
    }
    let message = format!("the shard listing expired {LISTINGS_MAX} times in a row");
    Err(ListingError::Other(ReadError::Unavailable { message }))
}

/// What `wanted` of each shard is, in the order of the listing.
async fn list_once<T>(
    client: &Client,
    stream: &StreamRef,
    page_shards: i32,
    listed: Listed,
    wanted: impl Fn(sdk::Shard) -> Result<T, ReadError>,
) -> Result<Vec<T>, PageError> {
    let request = client
        .list_shards()
        .max_results(page_shards)
        .set_stream_arn(naming::arn(stream));
    // A token also implies the name and the filter; both together are refused (API reference).
    let mut page_request = request
        .clone()
        .set_stream_name(naming::name(stream))
        .set_shard_filter(listed.filter()?);
    let mut shards = Vec::new();
    for _ in 0..PAGES_MAX {
        let page = page_request.send().await;
        let page = page.map_err(|error| page_error(&error))?;
        for shard in page.shards.unwrap_or_default() {
            shards.push(wanted(shard)?);
        }
        match page.next_token.filter(|token| !token.is_empty()) {
            Some(next) => page_request = request.clone().next_token(next),
            None => return Ok(shards),
        }
    }
    let message = format!("the shard listing has more than {PAGES_MAX} pages");
    Err(ReadError::Unavailable { message }.into())
}

impl Listed {
    fn filter(self) -> Result<Option<ShardFilter>, ReadError> {
        let Self::Since(ms) = self else {
            return Ok(None);
        };
        let since = DateTime::from_millis(i64::try_from(ms).unwrap_or(i64::MAX));
        let filter = ShardFilter::builder()
            .r#type(ShardFilterType::FromTimestamp)
            .timestamp(since)
            .build();
        filter.map(Some).map_err(|error| ReadError::Refused {
            message: error.to_string(),
        })
    }
}

fn page_error<R: std::fmt::Debug + 'static>(error: &SdkError<ListShardsError, R>) -> PageError {
    match error.as_service_error() {
        Some(ListShardsError::ExpiredNextTokenException(_)) => PageError::ExpiredToken,
        Some(service)
            if matches!(
                service.code(),
                Some("InvalidArgumentException" | "ValidationException")
            ) =>
        {
            PageError::Failed(ListingError::Invalid(read_error(error)))
        }
        Some(_) | None => read_error(error).into(),
    }
}
