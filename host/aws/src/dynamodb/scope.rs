//! Which rows of an application's tables are meant: all of them, those of one standalone host, or
//! those of one stream.
//!
//! Standalone hosts have tables of another key, so that each of them reads its own rows only.
//! Streams that have a table in common are told apart by the keys of the rows, as in the KCL's
//! multi-stream mode. In the coordinator table, each part has partitions of its own.

use std::sync::{Arc, OnceLock};

use shardmill_core::lease::Lease;
use shardmill_core::plugin::{Part, split_part};
use shardmill_core::stream::LeaseKey;

use super::attributes::{Item, text};
use super::lease_item::{self, LEASE_KEY, Row};
use super::row::KIND;
use super::stream_asked::StreamAsked;
use super::table::Key;

/// The partition key of lease and state tables of standalone hosts.
pub(super) const HOST: &str = "host";
/// KCL, in multi-stream mode: `ACCOUNT:STREAM:CREATED`, with the time in seconds since the Unix
/// epoch.
const STREAM_NAME: &str = "streamName";
/// KCL, in multi-stream mode.
const SHARD_ID: &str = "shardId";

/// The key of a table whose hosts share the leases, as the KCL has it.
const SHARED: [Key; 1] = [Key::Hash(LEASE_KEY)];
/// The key of a table whose hosts are standalone.
const STANDALONE: [Key; 2] = [Key::Hash(HOST), Key::Range(LEASE_KEY)];

/// Which rows are meant.
#[derive(Debug, Clone)]
pub(super) enum Scope {
    Whole,
    Host(String),
    Stream(OneStream),
}

/// The rows of one stream, in a table of several.
#[derive(Debug, Clone)]
pub(super) struct OneStream {
    /// `STREAM` or `ACCOUNT.STREAM`.
    name: String,
    /// What the keys of its rows begin with, once that is known.
    prefix: Arc<OnceLock<String>>,
    /// A host asks Kinesis for it; others look where hosts and the KCL wrote it down.
    asked: Option<StreamAsked>,
}

impl Scope {
    /// Reads `APPLICATION`, `APPLICATION@HOST` or `APPLICATION:STREAM`.
    pub(super) fn of(application: &str) -> Self {
        match split_part(application).1 {
            Part::Whole => Self::Whole,
            Part::Host(host) => Self::Host(host.to_owned()),
            Part::Stream(stream) => Self::Stream(OneStream {
                name: stream.to_owned(),
                prefix: Arc::default(),
                asked: None,
            }),
        }
    }

    /// The same, asking Kinesis for the stream, if only one stream's rows are meant.
    pub(super) fn asking(self, asked: StreamAsked) -> Self {
        match self {
            Self::Stream(stream) => Self::Stream(OneStream {
                asked: Some(asked),
                ..stream
            }),
            Self::Whole | Self::Host(_) => self,
        }
    }

    /// The standalone host, if only its rows are meant.
    pub(super) fn host(&self) -> Option<&str> {
        match self {
            Self::Host(host) => Some(host),
            Self::Whole | Self::Stream(_) => None,
        }
    }

    /// The stream, if only its rows are meant and what their keys begin with is not known.
    pub(super) fn unknown_stream(&self) -> Option<&OneStream> {
        self.stream().filter(|stream| stream.prefix().is_none())
    }

    /// The stream, if only its rows are meant.
    pub(super) fn stream(&self) -> Option<&OneStream> {
        match self {
            Self::Stream(stream) => Some(stream),
            Self::Whole | Self::Host(_) => None,
        }
    }

    /// The key of a table of leases or state.
    pub(super) fn keys(&self) -> &'static [Key] {
        match self {
            Self::Whole | Self::Stream(_) => &SHARED,
            Self::Host(_) => &STANDALONE,
        }
    }

    /// The key of a row in a table of leases or state.
    pub(super) fn key_of(&self, lease: &LeaseKey) -> Item {
        let key = Item::from([(LEASE_KEY.to_owned(), text(lease.as_str()))]);
        match self {
            Self::Whole | Self::Host(_) => self.own(key),
            Self::Stream(stream) => {
                Item::from([(LEASE_KEY.to_owned(), text(&stream.key(lease.as_str())))])
            }
        }
    }

    /// A row of a table of leases or state, as the table has it.
    pub(super) fn own(&self, mut item: Item) -> Item {
        match self {
            Self::Whole => {}
            Self::Host(host) => {
                item.insert(HOST.to_owned(), text(host));
            }
            Self::Stream(stream) => stream.own(&mut item),
        }
        item
    }

    /// What a row of the lease table is, under the key that hosts know it by; `None` for a row of
    /// another stream.
    pub(super) fn classify(&self, item: &Item) -> Option<Row> {
        match (lease_item::classify(item), self) {
            (Row::Lease(lease), Self::Stream(stream)) => {
                let lease = stream.known(*lease)?;
                Some(Row::Lease(Box::new(lease)))
            }
            (Row::Bad(row), Self::Stream(stream)) => stream.has(&row.key).then_some(Row::Bad(row)),
            (row, _) => Some(row),
        }
    }

    /// The lease in a row, under the key that hosts know it by.
    pub(super) fn decode(&self, item: &Item) -> Result<Lease, String> {
        let lease = lease_item::decode(item)?;
        match self {
            Self::Whole | Self::Host(_) => Ok(lease),
            Self::Stream(stream) => stream
                .known(lease)
                .ok_or_else(|| "it is the row of another stream".to_owned()),
        }
    }

    /// Whether a row is a standalone host's, and no such host is meant.
    pub(super) fn is_anothers(&self, item: &Item) -> bool {
        self.host().is_none() && item.contains_key(HOST)
    }

    /// Whether a row is a lease of a table of one stream, and one stream of several is meant.
    pub(super) fn is_of_one_stream(&self, item: &Item) -> bool {
        if self.stream().is_none() {
            return false;
        }
        match lease_item::classify(item) {
            Row::Lease(lease) => lease.key.stream_prefix().is_none(),
            Row::Bad(_) | Row::Foreign => false,
        }
    }

    /// A partition of the coordinator table.
    pub(super) fn partition(&self, kind: &str) -> String {
        match self {
            Self::Whole => kind.to_owned(),
            // A host's name may contain anything, a kind does not.
            Self::Host(host) => format!("{kind}@{host}"),
            // A stream that is created again is another one.
            Self::Stream(stream) => format!("{kind}:{}", stream.prefix().unwrap_or_default()),
        }
    }

    /// A row, or the key of a row, of the coordinator table, as the table has it.
    pub(super) fn own_of_coordinator(&self, mut item: Item) -> Item {
        if !matches!(self, Self::Whole)
            && let Some(Ok(kind)) = item.get(KIND).map(|kind| kind.as_s())
        {
            let partition = self.partition(kind);
            item.insert(KIND.to_owned(), text(&partition));
        }
        item
    }
}

impl OneStream {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What the keys of its rows begin with; `None` until [`Self::learn`] was called.
    pub(super) fn prefix(&self) -> Option<&str> {
        self.prefix.get().map(String::as_str)
    }

    pub(super) fn asked(&self) -> Option<&StreamAsked> {
        self.asked.as_ref()
    }

    /// From now on, keys begin with this. The first word counts.
    pub(super) fn learn(&self, prefix: String) {
        let _ = self.prefix.set(prefix);
    }

    /// Whether a prefix that a row has may be this stream's: it does not know when it was created.
    pub(super) fn may_have(&self, prefix: &str) -> bool {
        let parts: Vec<&str> = prefix.split(':').collect();
        match parts[..] {
            [account, stream, _created] => {
                let of_account = self.name.split_once('.') == Some((account, stream));
                of_account || self.name == stream
            }
            _ => false,
        }
    }

    fn has(&self, key: &str) -> bool {
        let prefix = key.rsplit_once(':').map(|(prefix, _)| prefix);
        prefix.is_some() && prefix == self.prefix()
    }

    fn key(&self, lease: &str) -> String {
        format!("{}:{lease}", self.prefix().unwrap_or_default())
    }

    fn own(&self, item: &mut Item) {
        let Some(Ok(shard)) = item.get(LEASE_KEY).map(|key| key.as_s().cloned()) else {
            return;
        };
        let prefix = self.prefix().unwrap_or_default();
        item.insert(LEASE_KEY.to_owned(), text(&self.key(&shard)));
        item.insert(STREAM_NAME.to_owned(), text(prefix));
        item.insert(SHARD_ID.to_owned(), text(&shard));
    }

    /// The lease under its shard's id, if it is this stream's.
    fn known(&self, lease: Lease) -> Option<Lease> {
        if !self.has(lease.key.as_str()) {
            return None;
        }
        let key = LeaseKey::of_shard(&lease.key.shard_id());
        Some(Lease { key, ..lease })
    }
}
