//! Records that the plugin's filter keeps from it.

use shardmill_core::stream::{Position, Record};
use shardmill_filter::Verdict;

/// Records that were read one after another, apart from those between them that the plugin gets.
pub(super) struct Filtered {
    /// The last of them.
    pub(super) through: Position,
    /// When it arrived, in milliseconds since the Unix epoch; 0 if Kinesis did not say.
    pub(super) arrival_ms: u64,
    /// Those that did not match.
    pub(super) no_match: u64,
    /// Those that were not JSON.
    pub(super) not_json: u64,
    /// What all of them cost.
    pub(super) cost_bytes: usize,
}

impl Filtered {
    /// One record, with what the filter said of it.
    pub(super) fn of(record: &Record, verdict: Verdict) -> Self {
        let is_json = verdict != Verdict::NotJson;
        Self {
            through: record.position.clone(),
            arrival_ms: record.arrival_ms,
            no_match: u64::from(is_json),
            not_json: u64::from(!is_json),
            cost_bytes: record.cost_bytes(),
        }
    }

    /// Both, of which the other was read later.
    pub(super) fn followed_by(self, later: Self) -> Self {
        Self {
            through: later.through,
            arrival_ms: later.arrival_ms,
            no_match: self.no_match + later.no_match,
            not_json: self.not_json + later.not_json,
            cost_bytes: self.cost_bytes + later.cost_bytes,
        }
    }

    /// How many there are.
    pub(super) fn records(&self) -> u64 {
        self.no_match + self.not_json
    }
}
