use std::fmt;

/// Why a record is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The plugin said that it will never handle it.
    Rejected,
    /// It failed as often as it may.
    Attempts,
    /// What the plugin needs was away as often as it may be.
    Unavailable,
    /// The plugin's configuration was wrong as often as it may be.
    Misconfigured,
    /// It is older than it may be.
    Age,
    /// An operator wants it skipped.
    Skipped,
}

impl Cause {
    /// Every cause once, in the order of declaration.
    pub const ALL: [Self; 6] = [
        Self::Rejected,
        Self::Attempts,
        Self::Unavailable,
        Self::Misconfigured,
        Self::Age,
        Self::Skipped,
    ];

    /// The cause's stable name for metrics.
    pub fn code(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::Attempts => "attempts",
            Self::Unavailable => "unavailable",
            Self::Misconfigured => "misconfigured",
            Self::Age => "age",
            Self::Skipped => "skipped",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rejected => "rejected",
            Self::Attempts => "out of attempts",
            Self::Unavailable => "out of unavailable-attempts",
            Self::Misconfigured => "out of misconfigured-attempts",
            Self::Age => "too old",
            Self::Skipped => "skipped by command",
        })
    }
}
