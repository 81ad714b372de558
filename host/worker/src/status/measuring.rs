//! What a status says to whoever measures the load.

use std::collections::BTreeMap;
use std::time::Duration;

use shardmill_core::scaling::{ShardSample, Stance};
use shardmill_core::stream::ShardId;

use super::{BlockedStatus, ShardState, ShardStatus, StatusBoard, Why};

/// Failures in a row from which on a shard counts as blocked: fewer are hiccups.
const BLOCKED_FROM: u32 = 3;

impl StatusBoard {
    /// The held shards at this moment, each with so many instances at most.
    pub(crate) fn measure_shards(&self, parallelism: usize) -> BTreeMap<ShardId, ShardSample> {
        let known = self.lock();
        let held = known.shards.iter().filter(|(_, shard)| shard.is_held());
        let samples = held.filter_map(|(id, shard)| {
            let sample = ShardSample {
                epoch: shard.epoch,
                records: shard.records,
                lag: shard.waiting().map(Duration::from_millis),
                spent: shard.time.until_now(),
                stance: shard.stance(),
                parallelism,
            };
            Some((ShardId::new(id).ok()?, sample))
        });
        samples.collect()
    }
}

impl ShardStatus {
    fn is_held(&self) -> bool {
        match self.state {
            ShardState::Starting
            | ShardState::Processing
            | ShardState::Paused
            | ShardState::Halted
            | ShardState::Draining => true,
            ShardState::Ended | ShardState::Released | ShardState::Lost | ShardState::GaveUp => {
                false
            }
        }
    }

    /// How long the oldest record has waited for the plugin. What the plugin holds back waits for
    /// nothing that a host could do: then the reader's lag counts.
    fn waiting(&self) -> Option<u64> {
        if self.held_back_records > 0 {
            self.millis_behind_latest
        } else {
            self.lag_ms
        }
    }

    fn stance(&self) -> Stance {
        let is_stopped = matches!(self.state, ShardState::Paused | ShardState::Halted);
        match &self.blocked {
            _ if is_stopped => Stance::Paused,
            Some(BlockedStatus {
                why: Why::Paused | Why::Halted,
                ..
            }) => Stance::Paused,
            Some(blocked) if blocked.attempts >= BLOCKED_FROM => Stance::Blocked,
            Some(_) | None => Stance::Flows,
        }
    }
}

#[cfg(test)]
mod tests {
    use shardmill_core::lease::Checkpoint;

    use super::*;

    fn shard() -> ShardStatus {
        ShardStatus {
            state: ShardState::Processing,
            lag_ms: Some(60_000),
            millis_behind_latest: Some(2_000),
            ..ShardStatus::starting(7, Checkpoint::TrimHorizon)
        }
    }

    #[test]
    fn records_that_the_plugin_holds_back_are_no_backlog() {
        assert_eq!(shard().waiting(), Some(60_000));
        let holding = ShardStatus {
            held_back_records: 1,
            ..shard()
        };
        assert_eq!(holding.waiting(), Some(2_000));
    }

    #[test]
    fn a_slow_call_is_work_and_a_call_that_fails_again_and_again_is_none() {
        let with = |why, attempts| {
            let blocked = BlockedStatus {
                why,
                attempts,
                reason: "in the plugin".to_owned(),
            };
            ShardStatus {
                blocked: Some(blocked),
                ..shard()
            }
            .stance()
        };
        assert_eq!(shard().stance(), Stance::Flows);
        assert_eq!(with(Why::Plugin, 0), Stance::Flows);
        assert_eq!(with(Why::Plugin, 3), Stance::Blocked);
        assert_eq!(with(Why::Paused, 0), Stance::Paused);
        let halted = ShardStatus {
            state: ShardState::Halted,
            ..shard()
        };
        assert_eq!(halted.stance(), Stance::Paused);
    }
}
