//! What tests share: fakes of the ports, the contract that fakes and real adapters both keep, and the embedded stack.

#![allow(clippy::missing_panics_doc, reason = "a broken promise is a panic")]

pub mod contract;
pub mod embedded;
pub mod fake_lease_store;
pub mod fake_stream;
pub mod faults;
