use super::Tally;
use crate::hash;
use crate::stream::ShardId;

/// How a plugin's shadow runs, and when it is to end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShadowPolicy {
    /// The part of the shards on which it runs, above 0 and at most 1.
    pub share: f64,
    /// Whether it may send HTTP requests, as the plugin may. They have effects.
    pub may_send_http: bool,
    /// After so many compared records it is promoted; `None` leaves that to an operator.
    pub promote_after: Option<u64>,
    /// With more differences than that, counting outputs that may still turn out to be some, it is
    /// not promoted by itself.
    pub differences_max: u64,
    /// At so many differences it is dropped; `None` leaves that to an operator.
    pub drop_after: Option<u64>,
}

/// What is to become of a shadow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ruling {
    /// It stays.
    GoOn,
    /// It is to be the plugin's version, which then is tried as any other, for this reason.
    Promote(String),
    /// It is to run no more, for this reason.
    Drop(String),
}

impl Default for ShadowPolicy {
    fn default() -> Self {
        Self {
            share: 1.0,
            may_send_http: false,
            promote_after: None,
            differences_max: 0,
            drop_after: None,
        }
    }
}

impl ShadowPolicy {
    /// Whether it runs on this shard. The same shards on each host, also after a move.
    pub fn picks(&self, shard: &ShardId) -> bool {
        const PARTS: u64 = 1_000_000;
        let part = hash::stable(shard.as_str().bytes()) % PARTS;
        (part as f64) < self.share * PARTS as f64
    }

    /// What follows from what is known.
    pub fn rule(&self, tally: &Tally) -> Ruling {
        let differences = tally.differences();
        if let Some(most) = self.drop_after
            && differences >= most
        {
            return Ruling::Drop(format!("shadow.drop-after = {most}: {tally}"));
        }
        match self.promote_after {
            Some(records)
                if tally.records >= records
                    && tally.differences_at_most() <= self.differences_max =>
            {
                Ruling::Promote(format!("shadow.promote-after = {records}: {tally}"))
            }
            Some(_) | None => Ruling::GoOn,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(records: u64, differences: u64) -> Tally {
        Tally {
            records,
            only_shadow: differences,
            ..Tally::default()
        }
    }

    #[test]
    fn without_a_rule_a_shadow_stays_until_an_operator_ends_it() {
        let policy = ShadowPolicy::default();
        assert_eq!(policy.rule(&tally(u64::MAX, u64::MAX)), Ruling::GoOn);
    }

    #[test]
    fn a_shadow_is_promoted_after_enough_records_and_dropped_at_too_many_differences() {
        let policy = ShadowPolicy {
            promote_after: Some(100),
            differences_max: 2,
            drop_after: Some(5),
            ..ShadowPolicy::default()
        };
        assert_eq!(policy.rule(&tally(99, 0)), Ruling::GoOn);
        assert!(matches!(policy.rule(&tally(100, 2)), Ruling::Promote(_)));
        assert_eq!(policy.rule(&tally(100, 3)), Ruling::GoOn);
        let waiting = Tally {
            waiting: 2,
            undecided: 1,
            ..tally(100, 0)
        };
        assert_eq!(policy.rule(&waiting), Ruling::GoOn, "they may differ");
        assert!(matches!(policy.rule(&tally(1, 5)), Ruling::Drop(_)));
    }

    #[test]
    fn a_share_of_the_shards_is_picked_and_always_the_same() {
        let shards = || (0..1_000).map(|n| ShardId::new(format!("shardId-{n:012}")).unwrap());
        let picked = |share| {
            let policy = ShadowPolicy {
                share,
                ..ShadowPolicy::default()
            };
            shards().filter(|shard| policy.picks(shard)).count()
        };
        assert_eq!(picked(1.0), 1_000);
        assert!((150..350).contains(&picked(0.25)), "{}", picked(0.25));
    }
}
