//! The events of one `SubscribeToShard` call.

use aws_sdk_kinesis::types as sdk;
use shardmill_core::ports::{PortFuture, ReadError, ShardEvent, SubscribeError, Subscription};
use shardmill_core::stream::SequenceNumber;

use super::convert;
use super::errors::{as_subscribe_error, event_error};

type Events = aws_sdk_kinesis::primitives::event_stream::EventReceiver<
    sdk::SubscribeToShardEventStream,
    sdk::error::SubscribeToShardEventStreamError,
>;

/// One subscription. Dropping it closes its connection.
pub(super) struct KinesisSubscription {
    events: Events,
}

impl KinesisSubscription {
    pub(super) fn new(events: Events) -> Self {
        Self { events }
    }

    async fn receive(&mut self) -> Result<Option<ShardEvent>, SubscribeError> {
        loop {
            match self
                .events
                .recv()
                .await
                .map_err(|error| event_error(&error))?
            {
                Some(sdk::SubscribeToShardEventStream::SubscribeToShardEvent(event)) => {
                    return event_of(event).map(Some).map_err(as_subscribe_error);
                }
                // A kind of event that is newer than this program, and so not one that carries
                // records.
                Some(other) => tracing::debug!(?other, "unknown event skipped"),
                None => return Ok(None),
            }
        }
    }
}

impl Subscription for KinesisSubscription {
    fn next(&mut self) -> PortFuture<'_, Result<Option<ShardEvent>, SubscribeError>> {
        Box::pin(self.receive())
    }
}

fn event_of(event: sdk::SubscribeToShardEvent) -> Result<ShardEvent, ReadError> {
    let children = event.child_shards.unwrap_or_default();
    let children = children
        .into_iter()
        .map(convert::child_shard)
        .collect::<Result<Vec<_>, _>>()?;
    // The SDK gives an empty text for a member that is not there.
    let continuation = match event.continuation_sequence_number.as_str() {
        "" if children.is_empty() => {
            // A shard's end names its children. Were this believed, a cut-off event could end a
            // shard (so does the KCL).
            return Err(convert::unreadable(
                "an event has neither a continuation nor child shards",
            ));
        }
        "" => None,
        text => Some(SequenceNumber::parse(text).map_err(convert::unreadable)?),
    };
    Ok(ShardEvent {
        records: event
            .records
            .into_iter()
            .map(convert::record)
            .collect::<Result<_, _>>()?,
        continuation,
        millis_behind_latest: u64::try_from(event.millis_behind_latest).unwrap_or(0),
        children,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> sdk::builders::SubscribeToShardEventBuilder {
        sdk::SubscribeToShardEvent::builder()
            .set_records(Some(Vec::new()))
            .millis_behind_latest(-1)
    }

    fn child() -> sdk::ChildShard {
        let range = sdk::HashKeyRange::builder()
            .starting_hash_key("0")
            .ending_hash_key("9")
            .build()
            .unwrap();
        let child = sdk::ChildShard::builder()
            .shard_id("shardId-000000000001")
            .parent_shards("shardId-000000000000");
        child.hash_key_range(range).build().unwrap()
    }

    #[test]
    fn an_event_without_a_continuation_is_the_end_only_if_it_names_the_children() {
        let ended = event_of(
            event()
                .continuation_sequence_number("")
                .child_shards(child())
                .build()
                .unwrap(),
        )
        .unwrap();
        assert_eq!((ended.continuation, ended.children.len()), (None, 1));
        let cut = event_of(event().continuation_sequence_number("").build().unwrap());
        assert!(matches!(cut, Err(ReadError::Unavailable { .. })), "{cut:?}");
    }

    #[test]
    fn an_event_with_a_continuation_goes_on_even_if_it_names_children_and_its_lag_is_never_negative()
     {
        let built = event()
            .continuation_sequence_number("42")
            .child_shards(child())
            .build()
            .unwrap();
        let open = event_of(built).unwrap();
        assert_eq!(
            open.continuation,
            Some(SequenceNumber::parse("42").unwrap())
        );
        assert_eq!(open.millis_behind_latest, 0);
        let wrong = event_of(
            event()
                .continuation_sequence_number("forty-two")
                .build()
                .unwrap(),
        );
        assert!(
            matches!(wrong, Err(ReadError::Unavailable { .. })),
            "{wrong:?}"
        );
    }
}
