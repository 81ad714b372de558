//! Where an application begins: what was in the stream before it, what retention takes away, and
//! the initial positions.

use std::time::Duration;

use shardmill_core::stream::InitialPosition;
use shardmill_invariants::history::Micros;

use crate::driver::Driver;
use crate::schedule::Schedule;
use crate::system::EPOCH;

/// How long Kinesis keeps records: the least that it lets anybody configure, which hosts rely on.
pub const RETENTION: Duration = Duration::from_hours(24);

/// What happens to the stream before the first host starts.
#[derive(Debug, Clone, Copy)]
pub struct Past {
    /// Records are put over so long.
    pub lasts: Duration,
    /// How often.
    pub puts: u32,
    /// Shards are split or merged so often meanwhile.
    pub reshards: u32,
    /// Then nothing happens for so long.
    pub quiet: Duration,
}

impl Past {
    /// Some seconds or minutes, right before the first host.
    pub fn draw(dice: &mut fastrand::Rng) -> Self {
        Self {
            lasts: Duration::from_secs(dice.u64(5..200)),
            puts: dice.u32(1..15),
            reshards: dice.u32(0..4),
            quiet: Duration::from_millis(dice.u64(0..5_000)),
        }
    }

    /// When the first host starts.
    pub fn ends_after(&self) -> Duration {
        self.lasts + self.quiet
    }

    /// As old as retention: while hosts run, it is trimmed away.
    pub fn as_old_as_retention(self, dice: &mut fastrand::Rng) -> Self {
        let quiet = RETENTION.saturating_sub(self.lasts.mul_f64(dice.f64()));
        Self { quiet, ..self }
    }
}

/// A time of the stream's clock, in milliseconds since the Unix epoch, as true time.
pub fn micros_of(ms: u64) -> Micros {
    let since = Duration::from_millis(ms).saturating_sub(EPOCH);
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Initial positions of the hosts of a run: usually one, else each start draws one of them.
pub fn draw_positions(dice: &mut fastrand::Rng, past: Option<Past>) -> Vec<InitialPosition> {
    let position = |dice: &mut fastrand::Rng| match dice.u32(0..5) {
        0 => InitialPosition::TrimHorizon,
        1..3 => InitialPosition::Latest,
        _ => {
            // While records were put, or later, but never in the time to come.
            let past_ms = past.map_or(0, |past| {
                if dice.bool() {
                    past.lasts
                } else {
                    past.ends_after()
                }
                .as_millis()
            });
            let ms = dice.u64(..=u64::try_from(past_ms).unwrap_or(0));
            InitialPosition::AtTimestamp(u64::try_from(EPOCH.as_millis()).unwrap_or(0) + ms)
        }
    };
    let count = if dice.u32(0..3) == 0 {
        dice.usize(2..=3)
    } else {
        1
    };
    let mut positions: Vec<InitialPosition> = Vec::new();
    for _ in 0..count {
        let drawn = position(dice);
        if !positions.contains(&drawn) {
            positions.push(drawn);
        }
    }
    positions
}

impl Schedule {
    /// How long the stream was there before the first host.
    pub fn past_lasts(&self) -> Duration {
        self.past.map_or(Duration::ZERO, |past| past.ends_after())
    }
}

impl Driver {
    /// Lets happen what happened before the first host.
    pub(crate) async fn live_through_the_past(&mut self) {
        self.put_backlog().await;
        let Some(past) = self.schedule.past else {
            return;
        };
        let steps = past.puts + past.reshards;
        let mut reshards = past.reshards;
        for step in 0..steps {
            tokio::time::sleep(past.lasts / steps.max(1)).await;
            // Reshards lie anywhere between the puts.
            if self.dice.u32(..steps - step) < reshards {
                reshards -= 1;
                self.reshard().await;
            } else {
                self.put().await;
            }
        }
        tokio::time::sleep(past.quiet).await;
    }

    /// Retention takes what is too old.
    pub(crate) fn trim(&self) {
        for stream in &self.streams {
            stream.trim(RETENTION);
        }
    }
}
