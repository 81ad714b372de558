//! What a shard's lease row shows, and what follows from it.

use std::time::Duration;

use super::Cause;
use super::holder::{Claim, Holder};
use crate::lease::{Availability, Lease};

/// A row, and what follows from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseStatus {
    /// The row as it was read.
    pub lease: Lease,
    /// Whether it is free, held, or expired.
    pub availability: Availability,
    /// The owner that the row names, if it names one.
    pub holder: Option<Holder>,
    /// How long its owner has held it: from the take, by the owner's wall clock, to now, by the
    /// reader's.
    pub held_for: Option<Duration>,
    /// Whether its checkpoint moved between the two looks; `None` if there was only one.
    pub has_advanced: Option<bool>,
    /// The claim on it, if another worker asked for it.
    pub claim: Option<Claim>,
    /// What blocks it, the most important cause first.
    pub causes: Vec<Cause>,
}
