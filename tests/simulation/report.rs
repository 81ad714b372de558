//! What a seed's run came to, and the sum over many.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// One run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeedReport {
    /// Which.
    pub seed: u64,
    /// Over all requests: simulated time, host, operation, body.
    pub hash: u64,
    /// Simulated time from beginning to end.
    pub simulated_ms: u64,
    /// Simulated time from the healing until all was settled, if it was.
    pub converged_ms: Option<u64>,
    /// Records put.
    pub records: u64,
    /// SDK requests, each attempt counted.
    pub requests: u64,
    /// Faults that happened and rare states that were reached.
    pub counts: BTreeMap<String, u64>,
    /// What was wrong; normally empty.
    pub violations: Vec<String>,
}

impl SeedReport {
    /// Whether the invariant with this name, such as `S9`, was broken.
    pub fn breaks(&self, invariant: &str) -> bool {
        let begins = format!("{invariant} at ");
        self.violations.iter().any(|what| what.starts_with(&begins))
    }
}

/// Many runs.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Runs.
    pub seeds: u64,
    /// Simulated time.
    pub simulated_ms: u64,
    /// Longest time from a healing until all was settled, and the seed.
    pub slowest: (u64, u64),
    /// Records put.
    pub records: u64,
    /// SDK requests, each attempt counted.
    pub requests: u64,
    /// Sums of the counters.
    pub counts: BTreeMap<String, u64>,
    /// Runs that were wrong.
    pub failing: Vec<u64>,
}

impl Summary {
    /// Takes in one run.
    pub fn add(&mut self, report: &SeedReport) {
        self.seeds += 1;
        self.simulated_ms += report.simulated_ms;
        self.records += report.records;
        self.requests += report.requests;
        self.slowest = self
            .slowest
            .max((report.converged_ms.unwrap_or(0), report.seed));
        for (what, count) in &report.counts {
            *self.counts.entry(what.clone()).or_default() += count;
        }
        if !report.violations.is_empty() {
            self.failing.push(report.seed);
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hours = self.simulated_ms as f64 / 3_600_000.0;
        let (slowest_ms, seed) = self.slowest;
        let Self {
            seeds,
            records,
            requests,
            ..
        } = self;
        writeln!(
            f,
            "seeds {seeds}, simulated hours {hours:.1}, records {records}, SDK requests {requests}"
        )?;
        writeln!(
            f,
            "slowest to settle once healed: {:.1} s (seed {seed})",
            slowest_ms as f64 / 1_000.0
        )?;
        for (what, count) in &self.counts {
            writeln!(f, "  {what:<45} {count:>10}")?;
        }
        write!(f, "seeds with violations: {}", self.failing.len())
    }
}
