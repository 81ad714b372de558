//! What a lease table holds, and whether and how a host may use it. Decided before anything is
//! changed.
//!
//! ```text
//!   facts (read by `aws`) ──> diagnose() ──> census, findings with their fixes, the mode that fits
//! ```

mod census;
mod deletion;
mod diagnosis;
mod facts;
mod finding;
mod keys;
mod mode;
mod next;
mod predecessor;
mod schema;
mod stream;

pub use census::{Census, OwnerCensus};
pub use deletion::{DeletionFacts, DeletionRefusal, living, refuse_deletion};
pub use diagnosis::{Diagnosis, diagnose};
pub use facts::{
    Companions, Facts, LeaseFacts, LeaseTableFacts, PredecessorFacts, SecondLook, StreamFacts,
    TableFacts,
};
pub use finding::{Finding, Severity, Topic};
pub use mode::Mode;

#[cfg(test)]
mod tests;
