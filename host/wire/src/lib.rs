//! The two wire formats of Kinesis: JSON (`application/x-amz-json-1.1`) and CBOR
//! (`application/x-amz-cbor-1.1`), which the KCL speaks. Pure: from bytes to records and back.
//!
//! What a reply means is decided once, in `reply.rs` and `put_results.rs`; `json.rs` and `cbor.rs`
//! only take a format apart. Both are stricter than they need to be: whatever is odd is refused,
//! and the caller leaves it to the AWS SDK, which decides.
//!
//! A record's data is a slice of a CBOR reply, or is written once; `blocks.rs` says when, and what
//! that keeps in memory.

mod blocks;
mod cbor;
mod cbor_writer;
mod format;
mod json;
mod message;
mod put_results;
mod reader;
mod reply;
#[cfg(test)]
mod tests;

pub use cbor_writer::CborWriter;
pub use format::Format;
pub use message::{Message, read_message};
pub use put_results::{PutResult, read_put_results};
pub use reader::Unreadable;
pub use reply::{Reply, child_shard, read_event, read_reply};
