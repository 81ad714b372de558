//! One read of a shard for several plugins: what is kept of the replies, and which callers can be
//! served from it.

mod calls;
mod chain;
mod place;

pub use calls::Calls;
pub use chain::{Absorbed, Chain, Source};
pub use place::{Place, decode, encode};
