//! Where a shard stands.

use std::time::Duration;

use super::Cause;
use super::holder::{Claim, Holder};
use crate::lease::{Lease, Standing};

/// A row, and what follows from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The row.
    pub lease: Lease,
    /// Free, held, or expired.
    pub standing: Standing,
    /// Who owns it, if anybody does.
    pub holder: Option<Holder>,
    /// How long its owner has held it, by the owner's clock and this one's.
    pub held_for: Option<Duration>,
    /// Whether its checkpoint moved while it was watched; `None` if there was one look only.
    pub has_advanced: Option<bool>,
    /// Who asked for it, if anybody did.
    pub claim: Option<Claim>,
    /// What is in its way, the weightiest first.
    pub causes: Vec<Cause>,
}
