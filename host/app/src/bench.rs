//! What a plugin costs: batches through one instance of the production engine, beside others that do nothing.
//!
//! Nothing is leased, fetched, stored or checkpointed here; docs/benchmarks.md has the cost of a whole host.

mod batches;
mod measure;
mod native;
mod report;

pub use batches::{BenchInput, BenchInputError, batches};
pub use measure::{Bench, BenchError};
pub use report::{BenchReport, Spread};
