//! What goes into a plugin, and what comes of it.

use super::{Micros, Place};
use crate::policy::{Cause, GiveUp};

/// A batch on its way into a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Unique in the history.
    pub id: u64,
    /// Who.
    pub host: String,
    /// Of which shard.
    pub shard: String,
    /// The lease counter of the take that began the tenure.
    pub epoch: u64,
    /// The records, as delivered.
    pub places: Vec<Place>,
    /// The plugin's version.
    pub digest: String,
    /// Which instance of it, by a number that no other has in the history. An instance that another
    /// one replaced gets nothing more, and what it held back goes to the other one.
    pub instance: u64,
    /// 1 for the first.
    pub attempt: u32,
    /// When, by the host's own suspend-aware clock.
    pub local_at: Micros,
}

/// A record that a host gave up, as it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenUp {
    /// Of which shard.
    pub shard: String,
    /// The lease counter of the take that began the tenure.
    pub epoch: u64,
    /// Which.
    pub at: Place,
    /// What it did with it.
    pub how: GiveUp,
    /// Why.
    pub cause: Cause,
}

/// How a delivery ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The plugin returned an outcome; records not reported as failed are settled.
    Ok,
    /// It returned an error; nothing is settled.
    Error,
    /// It trapped; nothing is settled and the instance is dead.
    Trap,
    /// The host dropped the call.
    Cancelled,
}

/// Something that a plugin emitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Unique in the history: a record that is delivered again emits another.
    pub id: u64,
    /// The record that it came of; of several, the last. It must be stored before a checkpoint
    /// covers that record.
    pub of: Place,
}
