//! What the program says about itself, and for shells.

pub(crate) mod completions;
pub(crate) mod man;
pub(crate) mod version;
