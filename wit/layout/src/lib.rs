//! The layouts of the interfaces `bulk` and `bulk-emit`: how a batch, its outcome and what was
//! emitted cross between the host and a component as one list of bytes each. The host and the
//! guest SDK both use this crate, so that there is one description of them. `bulk.wit` says the
//! same in words, for other languages.
//!
//! All numbers are little-endian. Whoever reads trusts nothing: a frame that is too short, too
//! long or says something else than it should is [`Malformed`].

mod batch;
mod frame;
mod outcome;
mod pieces;

pub use batch::{Batch, Record, write_batch};
pub use frame::{Malformed, TooLong};
pub use outcome::{Commit, Failure, FailureKind, Outcome};
pub use pieces::{Piece, PieceWriter, Pieces};
