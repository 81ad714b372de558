//! What was observed of one shard, or of one worker, since it was written last.

use std::collections::BTreeMap;

use super::metric::{KclMetric, Kind, Level};
use super::observation::Observation;
use crate::stream::ShardId;

/// Values of one metric that are kept until they are written. Some shard may be called a hundred
/// times a second while it catches up: ten seconds of that.
pub const VALUES_MAX: usize = 1_000;
/// From here on it is time to write, whatever the interval.
const VALUES_MANY: usize = VALUES_MAX / 2;

/// What is observed together: a shard of an application, or a host without a shard.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// The application: the name of its lease table.
    pub application: String,
    /// The host's id, as rows have it.
    pub worker: String,
    /// `ACCOUNT:STREAM:CREATED`, if the lease table holds several streams.
    pub stream_id: Option<String>,
    /// The shard; `None` if it is about the host.
    pub shard: Option<ShardId>,
}

/// Values by metric, each in the order in which they came.
pub type Values = BTreeMap<KclMetric, Vec<f64>>;

/// See the module's description. Of bounded size.
#[derive(Debug)]
pub struct Tally {
    level: Level,
    values: Values,
    left_out: u64,
}

impl Tally {
    /// A tally that keeps the metrics of this level and of those below.
    pub fn new(level: Level) -> Self {
        Self {
            level,
            values: Values::new(),
            left_out: 0,
        }
    }

    /// Takes in what was observed. Returns whether it is time to write what is kept.
    pub fn note(&mut self, observation: &Observation) -> bool {
        let mut has_many = false;
        observation.values(|metric, value| {
            if metric.level <= self.level {
                let values = self.values.entry(metric).or_default();
                if values.len() < VALUES_MAX {
                    values.push(value);
                } else {
                    self.left_out += add_to_last(values, metric, value);
                }
                has_many |= values.len() >= VALUES_MANY;
            }
        });
        has_many
    }

    /// All that was taken in since the last time, and how many values found no room.
    pub fn take(&mut self) -> (Values, u64) {
        (
            std::mem::take(&mut self.values),
            std::mem::take(&mut self.left_out),
        )
    }
}

/// Adds an amount to the last value, so that the sum is right. How many values are lost.
fn add_to_last(values: &mut [f64], metric: KclMetric, value: f64) -> u64 {
    match (metric.kind, values.last_mut()) {
        (Kind::Amount, Some(last)) => {
            *last += value;
            0
        }
        (Kind::Amount | Kind::Sample, _) => 1,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::metric::{
        CALL_TIME, PROCESS_SUCCESS, PROCESS_TIME, READ_TIME, RECORDS, RENEW_TIME,
    };
    use super::*;

    fn delivered(records: u64) -> Observation {
        Observation::Delivered {
            took: Duration::from_millis(1),
            is_ok: true,
            records,
            bytes: 10 * records,
        }
    }

    #[test]
    fn a_host_that_cannot_write_keeps_so_many_values_and_all_records_are_in_the_sum() {
        let mut tally = Tally::new(Level::Detailed);
        let calls = 3 * VALUES_MAX;
        for _ in 0..calls {
            tally.note(&delivered(2));
        }
        let (values, left_out) = tally.take();
        assert!(values.values().all(|kept| kept.len() == VALUES_MAX));
        let records: f64 = values[&RECORDS].iter().sum();
        assert!((records - 2.0 * calls as f64).abs() < f64::EPSILON);
        // Its times and its successes.
        assert_eq!(left_out, 2 * (calls - VALUES_MAX) as u64);
        assert_eq!(tally.take(), (Values::new(), 0));
    }

    #[test]
    fn it_asks_to_be_written_before_anything_is_left_out() {
        let mut tally = Tally::new(Level::Detailed);
        let asked = (1..=VALUES_MAX)
            .find(|_| tally.note(&delivered(1)))
            .unwrap_or(0);
        assert!(asked > 0 && asked < VALUES_MAX, "{asked}");
        let (values, left_out) = tally.take();
        assert_eq!((values[&PROCESS_TIME].len(), left_out), (asked, 0));
        assert!(!tally.note(&delivered(1)));
    }

    #[test]
    fn the_summary_has_what_alarms_need_and_nothing_of_single_requests() {
        let took = Duration::from_millis(3);
        let mut tally = Tally::new(Level::Summary);
        tally.note(&Observation::Read { took, is_ok: true });
        tally.note(&Observation::Renewed { took, is_ok: true });
        tally.note(&Observation::Called { took });
        tally.note(&delivered(1));
        let (values, _) = tally.take();
        assert!(!values.contains_key(&READ_TIME) && !values.contains_key(&RENEW_TIME));
        assert_eq!(values[&CALL_TIME], [3.0]);
        assert_eq!(values[&PROCESS_SUCCESS], [1.0]);
    }
}
