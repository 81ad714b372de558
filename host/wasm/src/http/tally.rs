//! Counts each request once, when all is over with it.

use super::metrics::REQUESTS;

/// How a request ended, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A response came, to its end or as far as the guest wanted it. By class of its status.
    Status(&'static str),
    /// To a host that was not granted.
    Denied,
    /// To an address that is not connected to.
    AddressRefused,
    /// More requests than allowed, at once or in one call.
    TooMany,
    /// Something of it was larger than allowed.
    TooLarge,
    /// Something of it took longer than allowed.
    TimedOut,
    /// The call of the plugin ended first, or the guest let go of it.
    Abandoned,
    /// No connection, or one that broke.
    Failed,
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Status(class) => class,
            Self::Denied => "denied",
            Self::AddressRefused => "address_refused",
            Self::TooMany => "too_many",
            Self::TooLarge => "too_large",
            Self::TimedOut => "timed_out",
            Self::Abandoned => "abandoned",
            Self::Failed => "failed",
        }
    }

    /// The outcome of a response with this status.
    pub(super) fn of_status(status: u16) -> Self {
        Self::Status(match status {
            100..=199 => "1xx",
            200..=299 => "2xx",
            300..=399 => "3xx",
            400..=499 => "4xx",
            _ => "5xx",
        })
    }
}

/// One request's count. Its latest outcome is counted when it is dropped.
#[derive(Debug)]
pub(super) struct Tally {
    plugin: String,
    outcome: Outcome,
}

impl Tally {
    pub(super) fn new(plugin: &str) -> Self {
        Self {
            plugin: plugin.to_owned(),
            outcome: Outcome::Abandoned,
        }
    }

    pub(super) fn note(&mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        let plugin = std::mem::take(&mut self.plugin);
        metrics::counter!(REQUESTS, "plugin" => plugin, "outcome" => self.outcome.as_str())
            .increment(1);
    }
}
