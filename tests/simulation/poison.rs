//! Records that fail, and the failure policy under which they do: drawn from dice of their own, so
//! that a run without them is the run that its seed has always meant.

use std::time::Duration;

use shardmill_core::pipeline::{FailurePolicy, GiveUp, Order};

/// Where dead letters go.
pub const DEAD_LETTER_SINK: &str = "dead";

/// How a record fails, whichever host gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Poison {
    /// The plugin traps on it.
    Trap,
    /// The plugin returns an error for the whole batch.
    Error,
    /// The plugin reports it, and asks for another try.
    Retry,
    /// The plugin reports it, and says that it will never work.
    Reject,
    /// The plugin returns an error for it twice, and then it works.
    ErrorTwice,
    /// The plugin reports it twice, and then it works.
    RetryTwice,
    /// The plugin takes seconds over it, reports it, and asks for another try.
    Slow,
}

/// How many of the records that are put are poison, and of which kinds.
#[derive(Debug, Clone, Default)]
pub struct Poisons {
    /// Of a record.
    pub chance: f64,
    /// Those that the policy can come to terms with.
    pub kinds: Vec<Poison>,
}

impl Poison {
    const ALL: [(Self, &'static [u8]); 7] = [
        (Self::Trap, b"traps"),
        (Self::Error, b"fails"),
        (Self::Retry, b"reported"),
        (Self::Reject, b"rejected"),
        (Self::ErrorTwice, b"fails twice"),
        (Self::RetryTwice, b"reported twice"),
        (Self::Slow, b"slow"),
    ];

    /// The data of a record of this kind.
    pub fn data(self) -> &'static [u8] {
        Self::ALL
            .iter()
            .find(|(kind, _)| *kind == self)
            .map_or(b"", |(_, data)| data)
    }

    /// The kind of a record with this data.
    pub fn of(data: &[u8]) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(_, poison)| *poison == data)
            .map(|(kind, _)| *kind)
    }

    /// Whether it works after two failures.
    pub fn is_passing(self) -> bool {
        matches!(self, Self::ErrorTwice | Self::RetryTwice)
    }
}

/// Another policy than the default one.
pub fn draw_policy(dice: &mut fastrand::Rng) -> FailurePolicy {
    let then = match dice.u32(0..100) {
        0..45 => Some(GiveUp::DeadLetter(DEAD_LETTER_SINK.to_owned())),
        45..80 => Some(GiveUp::Skip),
        80..90 => Some(GiveUp::Halt),
        _ => None,
    };
    let attempts = (dice.u32(0..4) > 0).then_some(dice.u32(1..=5));
    let max_age = (dice.u32(0..3) == 0).then_some(Duration::from_secs(dice.u64(1..40)));
    FailurePolicy {
        attempts: attempts.filter(|_| then.is_some()),
        max_age: max_age.filter(|_| then.is_some()),
        bisect: dice.bool(),
        order: if dice.bool() {
            Order::Key
        } else {
            Order::Shard
        },
        then,
        ..FailurePolicy::default()
    }
}

impl Poisons {
    /// Poison that a fleet under `policy` gets rid of, within the time of a run: by age only where
    /// hosts know the time.
    pub fn draw(dice: &mut fastrand::Rng, policy: &FailurePolicy, wall_clocks_err: bool) -> Self {
        let gives_up = policy.then.is_some();
        let ends = gives_up
            && (policy.attempts.is_some() || (policy.max_age.is_some() && !wall_clocks_err));
        let can_be = |kind: &Poison| match kind {
            Poison::Trap | Poison::Error | Poison::Retry => ends,
            Poison::Reject => gives_up,
            Poison::ErrorTwice | Poison::RetryTwice => true,
            // Only where all records of some keys are so.
            Poison::Slow => false,
        };
        let mut kinds: Vec<_> = Poison::ALL
            .iter()
            .map(|(kind, _)| *kind)
            .filter(can_be)
            .collect();
        // All at once hide bugs.
        kinds.retain(|_| dice.u32(0..3) > 0);
        Self {
            chance: 0.01 * 15_f64.powf(dice.f64()),
            kinds,
        }
    }

    /// The data of the next record.
    pub fn next_data(&self, dice: &mut fastrand::Rng) -> &'static [u8] {
        let is_poison = !self.kinds.is_empty() && dice.f64() < self.chance;
        if is_poison {
            self.kinds[dice.usize(..self.kinds.len())].data()
        } else {
            b"shardmill"
        }
    }
}
