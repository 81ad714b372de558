//! A version that runs in the shadow of the one at work: it gets the same records, and what it
//! emits is compared and stored nowhere. Here is what the comparison says, and what follows from
//! it.

mod comparison;
mod matching;
mod policy;
mod tally;

pub use comparison::{Agreement, compare};
pub use matching::{CALLS_APART_MAX, Compared, Difference, Matching, Side};
pub use policy::{Ruling, ShadowPolicy};
pub use tally::Tally;
