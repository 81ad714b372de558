//! The coordinator table of several streams: each has partitions of its own, under what the keys of
//! its leases begin with, so that a stream that is created again begins anew.

use aws_sdk_kinesis::Client;
use shardmill_core::ports::StoreError;
use shardmill_core::stream::StreamRef;

use super::coordinator_item::{self, PREFIX};
use super::coordinator_table::CoordinatorTable;
use super::row::{self, ID, KIND};
use super::stream_asked::StreamAsked;
use super::table::{self, Key};

impl CoordinatorTable {
    /// The same for a host, which asks Kinesis for the stream. Others find what a host wrote down.
    /// Of no effect unless the application is `APPLICATION:STREAM`.
    #[must_use]
    pub fn of_stream(self, kinesis: Client, stream: &StreamRef) -> Self {
        self.asking(StreamAsked::new(kinesis, stream.clone()))
    }

    /// Makes sure that there is a table; and that it names the stream, if only one stream's rows
    /// are meant: commands could not know otherwise.
    pub(super) async fn ensure(&self) -> Result<(), StoreError> {
        let key = [Key::Hash(KIND), Key::Range(ID)];
        table::ensure(self.client(), self.name(), &key, &self.options).await?;
        self.learn_stream().await?;
        let Some(stream) = self.scope().stream() else {
            return Ok(());
        };
        let prefix = stream.prefix().unwrap_or_default();
        let item = coordinator_item::encode_own_stream(stream.name(), prefix);
        let request = self.client().put_item().table_name(self.name());
        let reply = request.set_item(Some(item)).send().await;
        reply.map(drop).map_err(|error| self.error(&error))
    }

    /// Finds out which stream is meant, if only its rows are and that is not known.
    pub(super) async fn learn_stream(&self) -> Result<(), StoreError> {
        let Some(stream) = self.scope().unknown_stream() else {
            return Ok(());
        };
        let prefix = match stream.asked() {
            Some(asked) => Some(asked.prefix().await?),
            None => self.stored_prefix().await?,
        };
        let Some(prefix) = prefix else {
            return Err(StoreError::Refused {
                message: format!(
                    "table {} does not know stream {}: no host has served it there yet",
                    self.name(),
                    stream.name()
                ),
            });
        };
        stream.learn(prefix);
        Ok(())
    }

    /// What a host wrote down of the stream that is meant.
    pub(super) async fn stored_prefix(&self) -> Result<Option<String>, StoreError> {
        let Some(stream) = self.scope().stream() else {
            return Ok(None);
        };
        let key = coordinator_item::own_stream_key(stream.name());
        let request = self.client().get_item().table_name(self.name());
        let request = request.set_key(Some(key)).consistent_read(true);
        let reply = request.send().await.map_err(|error| self.error(&error))?;
        let prefix = reply.item.as_ref().map(|item| row::string(item, PREFIX));
        Ok(prefix.and_then(Result::ok).map(str::to_owned))
    }
}
