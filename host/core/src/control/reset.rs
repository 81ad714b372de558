//! Where an application begins that starts over.

use std::fmt;

use super::Place;
use crate::fleet::ApplicationStart;
use crate::stream::{InitialPosition, Utc};

/// Where shards go that are reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResetStart {
    /// The first record that is delivered.
    pub to: Place,
    /// What is written down instead of where the application began; `None` if that stays.
    pub replaces: Option<ApplicationStart>,
    /// The position that is configured and not used: only single shards are reset, and a beginning
    /// is that of all.
    pub unused: Option<InitialPosition>,
}

/// Why an application cannot start over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetRefusal {
    /// No host has begun.
    NeverBegan,
    /// It is to begin at a time that has not come.
    Future {
        /// The time, in milliseconds since the Unix epoch.
        begins_ms: u64,
        /// The stream's time.
        now_ms: u64,
    },
}

/// Where an application begins again that began at `recorded`, as if no host had ever served it:
/// where it is configured to begin, if that is known. `LATEST` stays the moment that it was, so
/// that nothing that arrived since is left out. `is_whole`: whether all its shards are reset.
/// `now_ms` is the stream's time.
///
/// # Errors
///
/// If it never began, or is to begin in the future.
pub fn start_anew(
    recorded: Option<&ApplicationStart>,
    configured: Option<InitialPosition>,
    is_whole: bool,
    now_ms: u64,
) -> Result<ResetStart, ResetRefusal> {
    let recorded = recorded.ok_or(ResetRefusal::NeverBegan)?;
    let other = configured.filter(|position| recorded.kept_instead_of(*position).is_some());
    let (replaces, unused) = match other {
        Some(position) if is_whole => {
            let start = ApplicationStart {
                position,
                looked_at_ms: now_ms,
                found_leases: recorded.found_leases,
            };
            (Some(start), None)
        }
        other => (None, other),
    };
    let to = place_of(replaces.as_ref().unwrap_or(recorded));
    match to {
        Place::Time(begins_ms) if begins_ms > now_ms => {
            Err(ResetRefusal::Future { begins_ms, now_ms })
        }
        _ => Ok(ResetStart {
            to,
            replaces,
            unused,
        }),
    }
}

fn place_of(start: &ApplicationStart) -> Place {
    match start.position {
        InitialPosition::TrimHorizon => Place::Horizon,
        InitialPosition::Latest => Place::Time(start.looked_at_ms),
        InitialPosition::AtTimestamp(ms) => Place::Time(ms),
    }
}

/// What is wrong and how to go on.
impl fmt::Display for ResetRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverBegan => f.write_str(
                "no host has written down where the application began: there is nothing to reset; \
                    start a host, or send shards to a place with `shardmill seek`",
            ),
            Self::Future { begins_ms, now_ms } => write!(
                f,
                "the application is to begin at {}, and the stream's time is {}: configure a time \
                    in the past",
                Utc(*begins_ms),
                Utc(*now_ms)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 900;

    fn began(position: InitialPosition) -> ApplicationStart {
        ApplicationStart {
            position,
            looked_at_ms: 70,
            found_leases: false,
        }
    }

    #[test]
    fn an_application_starts_over_where_it_began_and_latest_stays_the_moment_that_it_was() {
        for (position, to) in [
            (InitialPosition::TrimHorizon, Place::Horizon),
            (InitialPosition::Latest, Place::Time(70)),
            (InitialPosition::AtTimestamp(5), Place::Time(5)),
        ] {
            for configured in [None, Some(position)] {
                let start = start_anew(Some(&began(position)), configured, true, NOW_MS).unwrap();
                let expected = ResetStart {
                    to: to.clone(),
                    replaces: None,
                    unused: None,
                };
                assert_eq!(start, expected, "{position}");
            }
        }
    }

    #[test]
    fn a_beginning_that_is_configured_since_replaces_the_old_one_for_all_shards_or_for_none() {
        let began = began(InitialPosition::TrimHorizon);
        let configured = InitialPosition::Latest;
        let whole = start_anew(Some(&began), Some(configured), true, NOW_MS).unwrap();
        assert_eq!(whole.to, Place::Time(NOW_MS));
        let expected = ApplicationStart {
            position: configured,
            looked_at_ms: NOW_MS,
            found_leases: false,
        };
        assert_eq!(whole.replaces, Some(expected));
        let part = start_anew(Some(&began), Some(configured), false, NOW_MS).unwrap();
        assert_eq!((part.to, part.replaces), (Place::Horizon, None));
        assert_eq!(part.unused, Some(configured));
    }

    #[test]
    fn nothing_begins_in_the_future_or_without_a_beginning() {
        assert_eq!(
            start_anew(None, None, true, NOW_MS),
            Err(ResetRefusal::NeverBegan)
        );
        let began = began(InitialPosition::TrimHorizon);
        let later = Some(InitialPosition::AtTimestamp(NOW_MS + 1));
        let expected = ResetRefusal::Future {
            begins_ms: NOW_MS + 1,
            now_ms: NOW_MS,
        };
        assert_eq!(start_anew(Some(&began), later, true, NOW_MS), Err(expected));
        assert!(start_anew(Some(&began), later, false, NOW_MS).is_ok());
    }
}
