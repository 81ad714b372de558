//! What the tests of several packages share.

pub mod guests;
