//! The events of one `SubscribeToShard` call.

use aws_sdk_kinesis::types as sdk;
use shardmill_core::ports::{PortFuture, ReadError, ShardEvent, SubscribeError, Subscription};
use shardmill_core::stream::SequenceNumber;

use shardmill_wire::Reply;

use super::convert;
use super::errors::event_error;
use super::wire::{Decoded, Inbox};

type Events = aws_sdk_kinesis::primitives::event_stream::EventReceiver<
    sdk::SubscribeToShardEventStream,
    sdk::error::SubscribeToShardEventStreamError,
>;

/// One subscription. Dropping it closes its connection.
pub(super) struct KinesisSubscription {
    events: Events,
    /// Holds the event that the SDK just received, if our decoder read it.
    inbox: Inbox,
}

impl KinesisSubscription {
    pub(super) fn new(events: Events, inbox: Inbox) -> Self {
        Self { events, inbox }
    }

    async fn receive(&mut self) -> Result<Option<ShardEvent>, SubscribeError> {
        loop {
            let received = self.events.recv().await;
            let event = match received.map_err(|error| event_error(&error))? {
                Some(sdk::SubscribeToShardEventStream::SubscribeToShardEvent(event)) => event,
                // A kind of event that is newer than this program, so it carries no records.
                Some(other) => {
                    tracing::debug!(?other, "unknown event skipped");
                    continue;
                }
                None => return Ok(None),
            };
            let reply = match self.inbox.take() {
                Some(Decoded::Reply(reply)) => Ok(reply),
                Some(Decoded::Puts(_)) | None => decoded_by_sdk(event),
            };
            return match reply.and_then(event_of) {
                Ok(event) => Ok(Some(event)),
                Err(error) => Err(error.into()),
            };
        }
    }
}

impl Subscription for KinesisSubscription {
    fn next(&mut self) -> PortFuture<'_, Result<Option<ShardEvent>, SubscribeError>> {
        Box::pin(self.receive())
    }
}

fn decoded_by_sdk(event: sdk::SubscribeToShardEvent) -> Result<Reply, ReadError> {
    Ok(Reply {
        records: convert::records(event.records)?,
        next: None,
        // Empty if the member is not there.
        continuation: Some(event.continuation_sequence_number),
        millis_behind_latest: Some(event.millis_behind_latest),
        children: convert::child_shards(event.child_shards)?,
    })
}

fn event_of(event: Reply) -> Result<ShardEvent, ReadError> {
    let next = match event.continuation.unwrap_or_default().as_str() {
        "" if event.children.is_empty() => {
            // A shard's end names its children. Were this believed, a cut-off event could end a
            // shard (so does the KCL).
            return Err(convert::unreadable(
                "an event has neither a continuation nor child shards",
            ));
        }
        "" => None,
        text => Some(SequenceNumber::parse(text).map_err(convert::unreadable)?),
    };
    let behind = event.millis_behind_latest.unwrap_or(0);
    let event = ShardEvent {
        records: event.records,
        next,
        millis_behind_latest: Some(u64::try_from(behind).unwrap_or(0)),
        children: event.children,
    };
    event.in_order()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> sdk::builders::SubscribeToShardEventBuilder {
        sdk::SubscribeToShardEvent::builder()
            .set_records(Some(Vec::new()))
            .millis_behind_latest(-1)
    }

    fn event_from(event: sdk::SubscribeToShardEvent) -> Result<ShardEvent, ReadError> {
        decoded_by_sdk(event).and_then(event_of)
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
        let ended = event_from(
            event()
                .continuation_sequence_number("")
                .child_shards(child())
                .build()
                .unwrap(),
        )
        .unwrap();
        assert_eq!((ended.next, ended.children.len()), (None, 1));
        let cut = event_from(event().continuation_sequence_number("").build().unwrap());
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
        let open = event_from(built).unwrap();
        assert_eq!(open.next, Some(SequenceNumber::parse("42").unwrap()));
        assert_eq!(open.millis_behind_latest, Some(0));
        let wrong = event_from(
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
