//! The leader's audit: hash keys that no lease covers.

use shardmill_core::lease::Lease;
use shardmill_core::plan::GoneShards;
use shardmill_core::stream::{HashKeyRange, holes};

use super::run::Run;
use crate::metrics;

/// Holes that this many audits in a row find are not those of a reshard under way (KCL: three).
const LASTING_AUDITS: u32 = 3;

/// What a leader's audits found.
#[derive(Default)]
pub(super) struct CoverageAudits {
    /// By the last one.
    holes: Vec<HashKeyRange>,
    /// How many in a row have found these very holes.
    in_a_row: u32,
}

impl CoverageAudits {
    /// Looks for hash keys that no lease covers, and shows those that stay uncovered: what the plan
    /// can fix, it fixes. Rows of shards that Kinesis does not know cover nothing.
    pub(super) fn audit(&mut self, rows: &[Lease], gone: &GoneShards, run: &Run) {
        let covering = rows
            .iter()
            .filter(|row| !row.is_finished() && !gone.confirmed.contains(&row.key.shard_id()));
        let lasting = self.found(holes(covering.filter_map(|row| row.hash_range)));
        if let Some(first) = lasting.first() {
            tracing::warn!(
                holes = lasting.len(),
                %first,
                code = "keys-uncovered",
                "audits keep finding hash keys that no lease covers"
            );
        }
        show(lasting, run);
    }

    /// Shows nothing any more: what this host found as the leader may be fixed by now, and is for
    /// its successor to show.
    pub(super) fn forget(&mut self, run: &Run) {
        if std::mem::take(self).in_a_row > 0 {
            show(&[], run);
        }
    }

    /// Takes in what an audit found; returns it if it lasts.
    fn found(&mut self, holes: Vec<HashKeyRange>) -> &[HashKeyRange] {
        self.in_a_row = if holes.is_empty() {
            0
        } else if holes == self.holes {
            self.in_a_row + 1
        } else {
            1
        };
        self.holes = holes;
        if self.in_a_row >= LASTING_AUDITS {
            &self.holes
        } else {
            &[]
        }
    }
}

fn show(holes: &[HashKeyRange], run: &Run) {
    run.gauge(metrics::HOLES, holes.len() as f64);
    let shown = holes.iter().map(ToString::to_string).collect();
    run.status.update(|status| status.coverage_holes = shown);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_three_audits_in_a_row_find_lasts() {
        let all = vec![HashKeyRange::FULL];
        let mut audits = CoverageAudits::default();
        let mut lasts = |holes: &Vec<HashKeyRange>| !audits.found(holes.clone()).is_empty();
        assert_eq!(
            [&all, &all, &all, &all].map(&mut lasts),
            [false, false, true, true]
        );
        assert_eq!(
            [&vec![], &all, &all, &all].map(&mut lasts),
            [false, false, false, true]
        );
    }
}
