//! One read of a shard for several plugins: which replies are kept, and which callers can be served
//! from them.

mod calls;
mod chain;
mod chain_place;

pub use calls::Calls;
pub use chain::{Absorbed, Chain, Source};
pub use chain_place::{ChainPlace, decode, encode};
