//! The guests are the examples of this package, one component each. Here is what two of them share.

pub mod echo;
pub mod noop;
