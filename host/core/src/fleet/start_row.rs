use std::fmt;

use crate::stream::{InitialPosition, Utc};

/// How far this host's clock may be ahead of the stream's, where only this host's is known.
const CLOCK_ERROR_MS: u64 = 5_000;

/// Where an application began on its stream. Written down once, by its first host, before any lease
/// is made or taken; kept for good, whatever is configured later.
///
/// It makes `LATEST` in a lease row one moment for the whole fleet: without it, each new holder
/// would start at its own now, and skip what arrived before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApplicationStart {
    /// What was configured when it began.
    pub position: InitialPosition,
    /// When its first host looked at the tables, in milliseconds since the Unix epoch, on the
    /// stream's own clock and never ahead of it: what `LATEST` means.
    pub looked_at_ms: u64,
    /// Whether leases were there before it: a KCL's, or an earlier shardmill's. When those began is
    /// not known.
    pub found_leases: bool,
}

impl ApplicationStart {
    /// The moment of a first look, by the stream's clock if it tells the time, else by the host's.
    ///
    /// A host whose clock is further ahead than five seconds would skip records, which is why the
    /// stream's comes first.
    pub fn moment(stream_ms: Option<u64>, host_ms: u64) -> u64 {
        stream_ms.unwrap_or_else(|| host_ms.saturating_sub(CLOCK_ERROR_MS))
    }

    /// The time before which nothing is to be read, in milliseconds since the Unix epoch. `None` if
    /// everything is to be read that is kept, or if it is not known, since others began before.
    pub fn since_ms(&self) -> Option<u64> {
        match self.position {
            _ if self.found_leases => None,
            InitialPosition::TrimHorizon => None,
            InitialPosition::Latest => Some(self.looked_at_ms),
            InitialPosition::AtTimestamp(ms) => Some(ms),
        }
    }

    /// What was configured then, if that is not what is configured now.
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
