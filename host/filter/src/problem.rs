//! What is wrong with a filter.

/// A filter that cannot be used as it is written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {message}")]
pub struct Problem {
    /// The key of the section `[filter]`.
    pub key: &'static str,
    /// What is wrong with its value, and what would be right.
    pub message: String,
}
