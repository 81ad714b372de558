//! A table that holds the leases of several streams, as the KCL keeps them in multi-stream mode:
//! what the keys of a stream's rows begin with.

use std::collections::BTreeSet;

use aws_sdk_kinesis::Client;
use shardmill_core::plugin::of_stream;
use shardmill_core::ports::StoreError;
use shardmill_core::stream::{LeaseKey, StreamRef};

use super::attributes::Item;
use super::coordinator_table::CoordinatorTable;
use super::lease_item::LEASE_KEY;
use super::lease_table::LeaseTable;
use super::scan::{self, Pages};
use super::scope::OneStream;
use super::stream_asked::StreamAsked;

impl LeaseTable {
    /// The same for a host, which asks Kinesis what the keys of its stream's rows begin with, since
    /// there may be none yet. Others, which only look, find it in the rows. Of no effect unless the
    /// application is `APPLICATION:STREAM`.
    #[must_use]
    pub fn of_stream(self, kinesis: Client, stream: &StreamRef) -> Self {
        let stream = stream.clone();
        self.asking(StreamAsked::new(kinesis, stream))
    }

    /// Finds out what the keys of the stream's rows begin with, if only these are meant and it is
    /// not known.
    pub(super) async fn learn_stream(&self) -> Result<(), StoreError> {
        let Some(stream) = self.scope().unknown_stream() else {
            return Ok(());
        };
        let prefix = match stream.asked() {
            Some(asked) => asked.prefix().await?,
            None => self.prefix_written_down(stream).await?,
        };
        stream.learn(prefix);
        Ok(())
    }

    /// By a host, or by a KCL in the keys of its rows.
    async fn prefix_written_down(&self, stream: &OneStream) -> Result<String, StoreError> {
        let application = of_stream(self.name(), stream.name());
        let coordinator = CoordinatorTable::new(self.client().clone(), &application);
        if coordinator.exists().await?
            && let Some(prefix) = coordinator.stored_prefix().await?
        {
            return Ok(prefix);
        }
        self.prefix_of_rows(stream).await
    }

    /// Of a stream that was created again there are rows of the old one too: the latest is meant.
    async fn prefix_of_rows(&self, stream: &OneStream) -> Result<String, StoreError> {
        let mut found = BTreeSet::new();
        scan::each_item(self.client(), self.name(), Pages::default(), |item| {
            if let Some(prefix) = prefix_of(&item).filter(|prefix| stream.may_have(prefix)) {
                found.insert((created(&prefix), prefix));
            }
        })
        .await?;
        let accounts: BTreeSet<_> = found.iter().map(|(_, prefix)| account(prefix)).collect();
        if accounts.len() > 1 {
            return Err(is_of_several_accounts(self.name(), stream.name()));
        }
        let found = found.pop_last().map(|(_, prefix)| prefix);
        found.ok_or_else(|| was_never_served(self.name(), stream.name()))
    }
}

fn is_of_several_accounts(table: &str, stream: &str) -> StoreError {
    StoreError::Refused {
        message: format!(
            "table {table} has leases of streams {stream} of several accounts: name one as \
                {table}:ACCOUNT.{stream}"
        ),
    }
}

fn was_never_served(table: &str, stream: &str) -> StoreError {
    StoreError::Refused {
        message: format!(
            "table {table} has no lease of stream {stream}: no host has served it there yet"
        ),
    }
}

/// What the key of a lease's row begins with; `None` for other rows.
fn prefix_of(item: &Item) -> Option<String> {
    let key = item.get(LEASE_KEY)?.as_s().ok()?;
    let key = LeaseKey::new(key).ok()?;
    key.stream_prefix().map(str::to_owned)
}

/// The account that the stream is in.
fn account(prefix: &str) -> &str {
    prefix.split(':').next().unwrap_or_default()
}

/// When the stream was created, in seconds since the Unix epoch.
fn created(prefix: &str) -> u64 {
    let created = prefix.rsplit(':').next();
    created.and_then(|text| text.parse().ok()).unwrap_or(0)
}
