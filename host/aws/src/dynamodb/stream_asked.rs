//! Asks Kinesis what the keys of a stream's rows begin with, in a table of several streams.

use aws_sdk_kinesis::Client;
use shardmill_core::ports::StoreError;
use shardmill_core::stream::StreamRef;

use crate::kinesis::StreamAdmin;

/// The stream, and how to ask for it.
#[derive(Debug, Clone)]
pub(super) struct StreamAsked {
    kinesis: Client,
    stream: StreamRef,
}

impl StreamAsked {
    pub(super) fn new(kinesis: Client, stream: StreamRef) -> Self {
        Self { kinesis, stream }
    }

    /// As `StreamIdentifier.serialize` of the KCL makes it: `ACCOUNT:STREAM:CREATED`.
    pub(super) async fn prefix(&self) -> Result<String, StoreError> {
        let admin = StreamAdmin::new(self.kinesis.clone());
        let found = admin.describe(&self.stream).await;
        let found = found.map_err(|error| StoreError::Unknown {
            message: format!("cannot describe stream {}: {error}", self.stream),
        })?;
        let Some(found) = found else {
            return Err(StoreError::Unknown {
                message: format!("there is no stream {}", self.stream),
            });
        };
        // arn:aws:kinesis:REGION:ACCOUNT:stream/NAME
        let account = found.arn.split(':').nth(4).unwrap_or_default();
        let name = self.stream.name();
        Ok(format!("{account}:{name}:{}", found.created_at))
    }
}
