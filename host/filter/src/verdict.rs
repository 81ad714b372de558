//! What a filter says of a record.

/// What a filter says of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The plugin gets it.
    Passes,
    /// No pattern matches it, or its key begins differently.
    NoMatch,
    /// There are patterns, and its data is not JSON.
    NotJson,
}
