//! Names of things, so that no function takes two bare strings.

use std::fmt;
use std::sync::Arc;

/// A name that Kinesis or DynamoDB would refuse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {name:?} is not valid: {rule}")]
pub struct InvalidName {
    /// What was being named.
    pub what: &'static str,
    /// The name as given.
    pub name: String,
    /// The rule that it breaks.
    pub rule: &'static str,
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal, $signs:literal, $max:literal, $rule:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(Arc<str>);

        impl $type {
            /// Checks the characters and the length.
            pub fn new(name: impl AsRef<str>) -> Result<Self, InvalidName> {
                let name = name.as_ref();
                let is_allowed = |c: char| c.is_ascii_alphanumeric() || $signs.contains(c);
                if name.is_empty() || name.len() > $max || !name.chars().all(is_allowed) {
                    return Err(InvalidName { what: $what, name: name.to_owned(), rule: $rule });
                }
                Ok(Self(name.into()))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// A stream's name (AWS limit: 128 characters).
    StreamName,
    "stream name",
    "_.-",
    128,
    "use 1 to 128 letters, digits, '_', '.' or '-'"
);
name!(
    /// A shard's id, such as `shardId-000000000003` (AWS limit: 128 characters).
    ShardId,
    "shard id",
    "_.-",
    128,
    "use 1 to 128 letters, digits, '_', '.' or '-'"
);
name!(
    /// A fan-out consumer's name, one of its kind on its stream (AWS limit: 128 characters).
    ConsumerName,
    "consumer name",
    "_.-",
    128,
    "use 1 to 128 letters, digits, '_', '.' or '-'"
);
name!(
    /// The key of a lease row. For one stream it is the shard id; the KCL's multi-stream mode puts
    /// `account:stream:epoch:` before it (KCL FAQ).
    LeaseKey,
    "lease key",
    "_.-:",
    2048,
    "use 1 to 2048 letters, digits, '_', '.', '-' or ':'"
);

impl LeaseKey {
    /// The key of a single-stream application's lease on `shard`.
    pub fn of_shard(shard: &ShardId) -> Self {
        Self(shard.0.clone())
    }

    /// What the KCL's multi-stream mode puts before the shard id, `account:stream:epoch`; `None`
    /// for one stream's key.
    pub fn stream_prefix(&self) -> Option<&str> {
        self.0.rsplit_once(':').map(|(stream, _)| stream)
    }

    /// The shard this key stands for: what follows the last `:`.
    pub fn shard_id(&self) -> ShardId {
        let id = self.0.rsplit(':').next().unwrap_or(&self.0);
        ShardId(id.into())
    }
}
