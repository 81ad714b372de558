//! Our own wire formats under the SDK: it signs, sends, retries and reads errors; this encodes the
//! requests that carry data and decodes their replies.
//!
//! The SDK asks a [`protocol`] to do both, and takes another one for a single call. What is decoded
//! does not fit the SDK's types, which own each text: it is left in the call's [`Inbox`], and the
//! SDK gets an empty reply. If ours cannot read a reply in JSON, the SDK's own protocol does.

mod answer;
mod protocol;
mod request;
mod speech;
#[cfg(test)]
mod tests;

pub(super) use answer::{Decoded, Inbox};
pub(super) use protocol::config;
pub use speech::{Wire, WireSetting};
