//! The services as fakes of the ports, behind the simulated network: no SDK, no JSON, no SQL, and
//! so ten times the runs.
//!
//! The fakes keep the contract of the real adapters (`tests/contract`). What those do beyond it is
//! done here as they do it: a call is tried again by itself, and takes no longer than its time
//! limits allow.

pub(crate) mod commands;
mod coordinator;
mod fan_out;
mod net;
mod reader;
mod store;
mod stream;
mod tables;

pub use coordinator::NetCoordinator;
pub use fan_out::NetFanOut;
pub use net::Net;
pub use reader::NetReader;
pub use store::NetStore;
pub use stream::MemoryStream;
pub use tables::MemoryTables;
