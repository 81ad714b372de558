//! The embedded Kinesis: ferrokinesis in memory, behind a front that keeps what the real service
//! promises.
//!
//! | ferrokinesis 0.7 alone | with the front |
//! |---|---|
//! | two puts at once may show a later record before an earlier one, which a reader then never sees | puts go one at a time |
//! | its durable mode writes the whole state at every put | an append-only journal of what is new |
//! | `GetRecords` has no `ChildShards`, no lag, no 10 MiB limit, and may end a shard early over expired records | answered by the front |
//! | `ListShards` forgets the stream on its second page | the token names it |
//! | `ListShards` ignores its `ShardFilter` | kept |
//! | AT_TIMESTAMP past the last record starts at the first one | starts at the tip |
//! | `SubscribeToShard` never ends a shard, shows no lag, has no takeover, and runs ahead of the journal | pushed by the front |
//! | in CBOR, times are seconds, and what the front corrects is not corrected | as in JSON; times are milliseconds, as the real service has them |
//! | records of more than 1 MiB are refused, though it has `UpdateMaxRecordSize` | stored by the front |
//! | `UpdateShardCount` makes shards without parents | refused |

mod entry;
mod front;
mod get_records;
mod journal;
mod keeper;
mod kept_store;
mod large_puts;
mod replies;
mod requests;
mod restore;
mod shard_filter;
mod speech;
mod subscriptions;

use axum::Router;
use tokio_util::sync::CancellationToken;

use crate::error::StartError;

pub(crate) use front::{Front, serve};

/// The service, empty and kept in memory only, to be called without a socket: for simulations.
pub async fn in_process() -> Result<Router, StartError> {
    Ok(front::router(
        Front::restore(None, CancellationToken::new()).await?,
    ))
}
