//! One row of the lease table, as a value.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Checkpoint;
use crate::control::Directives;
use crate::plugin::{PluginDigest, StateFill};
use crate::stream::{HashKeyRange, LeaseKey, Shard, ShardId};
use crate::text::one_line;

/// The id of one running host within an application; stored as `leaseOwner`. Never empty, since it
/// may be an index key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(Arc<str>);

impl WorkerId {
    /// `None` for an empty id.
    pub fn new(id: &str) -> Option<Self> {
        (!id.is_empty()).then(|| Self(id.into()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkerId {
    /// For people, on one line: anyone who can write rows can choose any name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&one_line(&self.0))
    }
}

impl fmt::Debug for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The longest that an owner may be silent. Shards of a host that died wait this long; no host
/// writes a longer duration into its row.
pub const LEASE_DURATION_MAX: Duration = Duration::from_hours(1);

/// The fencing value: raised by one with every write to the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseCounter(pub u64);

impl LeaseCounter {
    /// The value after one more write.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for LeaseCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A lease row: KCL 2.x attributes, and those that shardmill adds (which the KCL ignores and
/// keeps).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The key of the row: the shard's id.
    pub key: LeaseKey,
    /// The worker that holds it; `None` if none does.
    pub owner: Option<WorkerId>,
    /// The number that fences writers: every write is conditional on it, and raises it.
    pub counter: LeaseCounter,
    /// Owner changes since the last checkpoint.
    pub owner_switches: u64,
    /// How far the shard is settled.
    pub checkpoint: Checkpoint,
    /// The shards that must end before this one starts.
    pub parents: Vec<ShardId>,
    /// The shards that follow it; known once this one has ended.
    pub children: Vec<ShardId>,
    /// The shard's hash keys, if known.
    pub hash_range: Option<HashKeyRange>,
    /// shardmill: the plugin version that settled what the checkpoint covers.
    pub plugin_digest: Option<PluginDigest>,
    /// shardmill: how far behind the tip the holder was at its last write, in milliseconds.
    pub millis_behind_latest: Option<u64>,
    /// shardmill, for people only: when the last settled record arrived, in milliseconds since the
    /// Unix epoch.
    pub settled_arrival_ms: Option<u64>,
    /// Present while a KCL 3.x hand-off is under way; always removed by a take.
    pub checkpoint_owner: Option<WorkerId>,
    /// shardmill: the worker that asked the owner for the lease. Stays when the owner gives it up;
    /// a take removes it.
    pub claimant: Option<WorkerId>,
    /// shardmill, for people only: wall time of the last take, in milliseconds since the Unix
    /// epoch.
    pub held_since_ms: Option<u64>,
    /// shardmill and KCL 3.x (`throughputKBps`): bytes of record data a second, as the holder
    /// measured.
    pub bytes_per_second: Option<u64>,
    /// shardmill, for people only: why the shard makes no progress, if so.
    pub stuck: Option<String>,
    /// shardmill, for people only: the last record that was given up by the failure policy, and
    /// why.
    pub given_up: Option<String>,
    /// shardmill, for people only: how much of its limit the plugin's state took when it was last
    /// saved.
    pub state_fill: Option<StateFill>,
    /// shardmill: what operators want of the shard.
    pub directives: Directives,
}

impl Lease {
    /// A fresh, unowned lease on `shard`.
    pub fn fresh(shard: &Shard, checkpoint: Checkpoint) -> Self {
        Self {
            key: LeaseKey::of_shard(&shard.id),
            owner: None,
            counter: LeaseCounter(0),
            owner_switches: 0,
            checkpoint,
            parents: shard.parents.clone(),
            children: Vec::new(),
            hash_range: Some(shard.hash_range),
            plugin_digest: None,
            millis_behind_latest: None,
            settled_arrival_ms: None,
            checkpoint_owner: None,
            claimant: None,
            held_since_ms: None,
            bytes_per_second: None,
            stuck: None,
            given_up: None,
            state_fill: None,
            directives: Directives::default(),
        }
    }

    /// Whether the shard was read to its end. A finished lease is never read again.
    pub fn is_finished(&self) -> bool {
        self.checkpoint == Checkpoint::ShardEnd
    }

    /// Whether a worker of the application ever held the lease. A host records when it took it; a
    /// KCL stays its owner.
    pub(crate) fn was_held(&self) -> bool {
        self.owner.is_some() || self.held_since_ms.is_some() || self.plugin_digest.is_some()
    }

    /// The right to write to this row as `owner`, based on its present state.
    pub fn token(&self, owner: WorkerId) -> LeaseToken {
        LeaseToken {
            key: self.key.clone(),
            owner,
            counter: self.counter,
        }
    }
}

/// The right to write to one row: valid while the row still shows this owner and this counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseToken {
    /// The key of the row that may be written.
    pub key: LeaseKey,
    /// The worker that holds the lease.
    pub owner: WorkerId,
    /// The counter after the holder's last write.
    pub counter: LeaseCounter,
}

impl LeaseToken {
    /// The token after one applied write.
    pub fn advanced(&self) -> Self {
        Self {
            counter: self.counter.next(),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_write_moves_the_counter_by_one_and_never_back_to_an_old_value() {
        assert_eq!(LeaseCounter(41).next().to_string(), "42");
        assert_eq!(LeaseCounter(u64::MAX).next(), LeaseCounter(u64::MAX));
    }

    #[test]
    fn a_token_is_for_the_row_as_it_was_seen_and_advances_with_it() {
        let id = ShardId::new("shardId-000000000003").unwrap();
        let shard = Shard {
            id,
            parents: Vec::new(),
            hash_range: HashKeyRange::FULL,
            ending_sequence: None,
        };
        let me = WorkerId::new("me").unwrap();
        let seen = Lease {
            counter: LeaseCounter(7),
            ..Lease::fresh(&shard, Checkpoint::Latest)
        };
        let token = seen.token(me.clone());
        assert_eq!(
            token,
            LeaseToken {
                key: seen.key.clone(),
                owner: me,
                counter: LeaseCounter(7)
            }
        );
        assert_eq!(
            token.advanced(),
            LeaseToken {
                counter: LeaseCounter(8),
                ..token
            }
        );
    }

    #[test]
    fn an_empty_id_is_no_worker() {
        assert_eq!(WorkerId::new(""), None);
        assert_eq!(WorkerId::new("a").unwrap().as_str(), "a");
    }
}
