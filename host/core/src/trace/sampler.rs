//! Which batches are traced.

use super::TraceId;

/// Takes a fixed part of all traces, by their ids alone: a batch that is tried again is traced
/// again, and other samplers that go by ids take the same ones (OpenTelemetry's consistent
/// probability sampling).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampler {
    /// Ids from here on are taken: 0 takes all, 2^56 none.
    from: u64,
}

/// A part that is none: not from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be from 0 to 1, such as 0.01 for one batch in a hundred")]
pub struct BadRatio;

/// One more than the greatest number that ids are compared by.
const ALL: u64 = 1 << 56;

impl Sampler {
    /// Takes this part of all traces, from 0 to 1.
    ///
    /// # Errors
    /// `ratio` is out of range, or no number.
    pub fn new(ratio: f64) -> Result<Self, BadRatio> {
        if !(0.0..=1.0).contains(&ratio) {
            return Err(BadRatio);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 0 to 2^56, which a float holds exactly"
        )]
        let taken = (ratio * ALL as f64) as u64;
        Ok(Self { from: ALL - taken })
    }

    /// Takes no trace at all.
    pub const fn none() -> Self {
        Self { from: ALL }
    }

    /// Whether this trace is taken.
    pub fn takes(self, trace: TraceId) -> bool {
        trace.random_part() >= self.from
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::{Position, SequenceNumber, ShardId};

    fn id(number: u32) -> TraceId {
        let shard = ShardId::new("shardId-000000000000").unwrap();
        let sequence = SequenceNumber::parse(&format!("4966{number}")).unwrap();
        TraceId::of_batch("orders", &shard, &Position::plain(sequence))
    }

    #[test]
    fn as_many_are_taken_as_were_asked_for_and_always_the_same() {
        let taken = |ratio: f64| {
            let sampler = Sampler::new(ratio).unwrap();
            (0..20_000)
                .filter(|number| sampler.takes(id(*number)))
                .count()
        };
        assert_eq!((taken(0.0), taken(1.0)), (0, 20_000));
        // Three standard deviations of so many draws.
        assert!((158..=242).contains(&taken(0.01)), "{}", taken(0.01));
        assert_eq!(taken(0.01), taken(0.01));
        let (few, many) = (Sampler::new(0.1).unwrap(), Sampler::new(0.3).unwrap());
        let is_consistent = |number| !few.takes(id(number)) || many.takes(id(number));
        assert!((0..20_000).all(is_consistent));
    }

    #[test]
    fn a_part_that_is_none_is_refused() {
        for ratio in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Sampler::new(ratio), Err(BadRatio));
        }
    }
}
