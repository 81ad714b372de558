use std::fmt;

use crate::stream::{InitialPosition, Utc};

/// How far this host's clock may be ahead of the stream's, if only this host's is known.
const CLOCK_ERROR_MS: u64 = 5_000;

/// Where an application began on its stream. Its first host records it once, before any lease is
/// created or taken; it never changes, whatever is configured later.
///
/// It makes `LATEST` in a lease row the same moment for the whole fleet: without it, each new
/// holder would start at its own present, and skip the records that arrived before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApplicationStart {
    /// The position that was configured when it began.
    pub position: InitialPosition,
    /// When its first host looked at the tables, in milliseconds since the Unix epoch, by the
    /// stream's clock and never ahead of it. This is what `LATEST` means.
    pub looked_at_ms: u64,
    /// Whether leases existed before it: a KCL's, or an earlier shardmill's. It is not known when
    /// those began.
    pub found_leases: bool,
}

impl ApplicationStart {
    /// The moment of a first look, by the stream's clock if it is known, otherwise by the host's.
    ///
    /// A host whose clock is more than five seconds ahead would skip records, so the stream's clock
    /// comes first.
    pub fn moment(stream_ms: Option<u64>, host_ms: u64) -> u64 {
        stream_ms.unwrap_or_else(|| host_ms.saturating_sub(CLOCK_ERROR_MS))
    }

    /// Nothing before this time is read, in milliseconds since the Unix epoch. `None` if everything
    /// that is kept is read, or if the time is unknown because others began before.
    pub fn since_ms(&self) -> Option<u64> {
        match self.position {
            _ if self.found_leases => None,
            InitialPosition::TrimHorizon => None,
            InitialPosition::Latest => Some(self.looked_at_ms),
            InitialPosition::AtTimestamp(ms) => Some(ms),
        }
    }

    /// The position that was configured then, if another one is configured now.
    pub fn kept_instead_of(&self, configured: InitialPosition) -> Option<InitialPosition> {
        (self.position != configured).then_some(self.position)
    }
}

impl fmt::Display for ApplicationStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.position, self.found_leases) {
            (InitialPosition::TrimHorizon, _) => f.write_str("the oldest record"),
            (InitialPosition::Latest, false) => {
                write!(
                    f,
                    "{} (latest when the application started)",
                    Utc(self.looked_at_ms)
                )
            }
            (InitialPosition::Latest, true) => {
                write!(
                    f,
                    "{} (latest when shardmill took the application over)",
                    Utc(self.looked_at_ms)
                )
            }
            (InitialPosition::AtTimestamp(ms), _) => write!(f, "{} (as configured)", Utc(ms)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_streams_clock_counts_and_a_hosts_own_only_with_a_margin() {
        assert_eq!(ApplicationStart::moment(Some(7_000), 90_000), 7_000);
        assert_eq!(ApplicationStart::moment(None, 90_000), 85_000);
        assert_eq!(ApplicationStart::moment(None, 3), 0);
    }

    #[test]
    fn what_comes_before_the_start_is_known_only_if_nobody_began_earlier() {
        let start = |position, found_leases| ApplicationStart {
            position,
            looked_at_ms: 7,
            found_leases,
        };
        assert_eq!(start(InitialPosition::Latest, false).since_ms(), Some(7));
        assert_eq!(
            start(InitialPosition::AtTimestamp(3), false).since_ms(),
            Some(3)
        );
        assert_eq!(start(InitialPosition::TrimHorizon, false).since_ms(), None);
        assert_eq!(start(InitialPosition::Latest, true).since_ms(), None);
    }

    #[test]
    fn a_start_is_kept_whatever_is_configured_later() {
        let start = ApplicationStart {
            position: InitialPosition::Latest,
            looked_at_ms: 7,
            found_leases: false,
        };
        assert_eq!(start.kept_instead_of(InitialPosition::Latest), None);
        assert_eq!(
            start.kept_instead_of(InitialPosition::TrimHorizon),
            Some(InitialPosition::Latest)
        );
        assert_eq!(
            start.to_string(),
            "1970-01-01T00:00:00.007Z (latest when the application started)"
        );
    }
}
