//! Dead letters as text: what a failure policy stores, and what `shardmill replay` reads.

mod envelope;
mod input;
mod join;
mod room;
mod seen;
mod source;
mod storing;

pub(crate) use envelope::is_readable;
pub use envelope::{Fragment, LETTER_VERSION, LetterError, encode};
pub use input::{InputError, Item, LetterInput};
#[cfg(test)]
pub(crate) use join::Joiner;
pub use join::{Incomplete, JoinError};
pub use room::ROOM_BYTES;
pub(crate) use room::Rooms;
pub use source::{input_name, open_input};
pub(crate) use storing::{LetterTarget, Storing};
