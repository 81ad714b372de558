//! The leader's audit: hash keys that no lease covers.

use shardmill_core::plan::GoneShards;
use shardmill_core::stream::{HashKeyRange, holes};

use super::Worker;
use super::gauges::show_holes;

/// Holes that are seen in this many audits in a row are no reshard under way (KCL: three).
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

impl Worker {
    /// Looks for hash keys that no lease covers. What can be mended is mended by the plan; what
    /// stays is shown. Rows of shards that Kinesis does not know cover nothing.
    pub(super) fn audit(&mut self, gone: &GoneShards) {
        let listing = self.observed.listing.as_ref();
        let rows = listing.into_iter().flat_map(|(listing, _)| &listing.leases);
        let covering =
            rows.filter(|row| !row.is_finished() && !gone.confirmed.contains(&row.key.shard_id()));
        let holes = holes(covering.filter_map(|row| row.hash_range));
        let lasting = self.duties.audits.found(holes);
        show_holes(&self.options.plugin, lasting.len());
        if let Some(first) = lasting.first() {
            tracing::warn!(holes = lasting.len(), %first, "audits keep finding hash keys that no \
                lease covers");
        }
        let shown = lasting.iter().map(ToString::to_string).collect();
        self.status.update(|status| status.coverage_holes = shown);
    }

    /// What this host found as the leader is for its successor to say: it may be mended by now.
    pub(super) fn forget_holes(&mut self) {
        if std::mem::take(&mut self.duties.audits).in_a_row > 0 {
            show_holes(&self.options.plugin, 0);
            self.status.update(|status| status.coverage_holes.clear());
        }
    }
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
