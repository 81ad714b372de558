//! Which records a plugin gets: a prefix of the partition key, and patterns over the JSON of the
//! data in the form of AWS Lambda's event filters. Pure: from a key and bytes to a verdict.
//!
//! `pattern.rs` reads patterns, `level.rs` combines those that look at the same object, `judge.rs`
//! reads a record once and only as far as a pattern looks, `rule.rs` compares one value.

mod filter;
mod judge;
mod level;
mod pattern;
mod problem;
mod rule;
#[cfg(test)]
mod tests;
mod twice;
mod verdict;

pub use filter::Filter;
pub use problem::Problem;
pub use verdict::Verdict;
