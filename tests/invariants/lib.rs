//! What must hold of every history of a fleet, as pure functions over events: no I/O, no clock, no product code.
//!
//! Used by the simulator, by the process tests and by the exhaustive model, which all write the same [`history::Event`]s.
//! Nothing of the product is shared with it on purpose: a wrong comparison of sequence numbers must not judge itself.

pub mod history;
