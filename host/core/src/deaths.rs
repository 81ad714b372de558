//! What a host may do with a version that it died of, or may have died of.
//!
//! Before a version is loaded or called for the first time it is marked, and the mark is removed
//! once the version has worked for a while: it is proven. A mark whose process is gone was left by
//! one that died.
//!
//! | deaths with a version unproven | the version may be tried |
//! |---|---|
//! | none | beside others |
//! | some | as the only unproven one, for a bounded time; then beside others |
//! | two or more, and it was the only unproven one in at least one of them | not until an operator releases it |
//!
//! A process that is killed by a person, by the system because memory ran out, or together with its
//! machine, leaves the same marks. So one death is only a suspicion.

mod proven;
mod reports;
mod unproven;

use std::fmt;
use std::time::Duration;

pub use proven::{PROVEN_MAX, Proven};
pub use reports::{Reports, Row};
pub use unproven::{Entry, Unmark, Unproven};

use crate::stream::Utc;

/// How long a version must work before a death of the host no longer counts against it. A minute:
/// faults in its code or its memory use show within the first batches, and machines do not lose
/// power twice in the first minutes of one version.
pub(crate) const PROVEN_AFTER: Duration = Duration::from_mins(1);
/// How long others wait for a version, in all: five times what one takes that does well. One that
/// is denied memory in every call, or whose calls do not end, is never proven.
pub(crate) const TRIED_FOR: Duration = Duration::from_mins(5);
/// Deaths that quarantine a version, if it was the only unproven one in at least one of them.
pub(crate) const DEATHS_MAX: usize = 2;

/// The start of every text about deaths.
pub(crate) const DIED: &str = "the host died ";

/// What a host was doing with a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Reading, compiling and linking it.
    Load,
    /// Making an instance.
    Start,
    /// In a call of an instance, or soon after it.
    Call,
}

/// The mark of a process that died while a version was unproven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Death {
    /// What the host was doing with the version.
    pub stage: Stage,
    /// Whether no other version was unproven in that process.
    pub was_alone: bool,
    /// The id of the process that died.
    pub process: u32,
    /// When the version was marked, in milliseconds since the Unix epoch, on that host's wall
    /// clock. For people.
    pub at_ms: u64,
}

/// How a version may be tried, after its deaths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ruling {
    /// It may be tried beside others.
    Together,
    /// It may be tried as the only unproven version: if the host dies, this version is the cause.
    Alone,
    /// It may not be tried, until an operator releases it.
    Quarantined,
}

/// Judges a version by its deaths, as the table above does.
pub fn ruling(deaths: &[Death]) -> Ruling {
    let was_alone = deaths.iter().any(|death| death.was_alone);
    match deaths.len() {
        0 => Ruling::Together,
        DEATHS_MAX.. if was_alone => Ruling::Quarantined,
        _ => Ruling::Alone,
    }
}

/// The reason for a quarantine, in words. `deaths` must not be empty.
pub fn describe(deaths: &[Death]) -> String {
    let times = match deaths.len() {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    };
    let text = format!("{DIED}{times} with this version on trial");
    let Some(last) = deaths.iter().max_by_key(|death| death.at_ms) else {
        return text;
    };
    let (stage, process, at) = (last.stage, last.process, Utc(last.at_ms));
    format!("{text}, last {stage}, in process {process}, which began with it at {at}")
}

impl Stage {
    /// The stage's stable name, as marks contain it.
    pub fn code(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Start => "start",
            Self::Call => "call",
        }
    }

    /// The stage with that name.
    pub fn of_code(code: &str) -> Option<Self> {
        [Self::Load, Self::Start, Self::Call]
            .into_iter()
            .find(|stage| stage.code() == code)
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Load => "while it was loaded",
            Self::Start => "while an instance was created",
            Self::Call => "in its calls or soon after one",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn death(was_alone: bool, at_ms: u64) -> Death {
        Death {
            stage: Stage::Call,
            was_alone,
            process: 7,
            at_ms,
        }
    }

    #[test]
    fn one_death_is_a_suspicion_and_two_are_guilt_only_if_nobody_else_can_have_been_it() {
        assert_eq!(ruling(&[]), Ruling::Together);
        assert_eq!(ruling(&[death(true, 1)]), Ruling::Alone);
        assert_eq!(
            ruling(&[death(false, 1), death(false, 2), death(false, 3)]),
            Ruling::Alone
        );
        assert_eq!(
            ruling(&[death(false, 1), death(true, 2)]),
            Ruling::Quarantined
        );
    }

    #[test]
    fn the_last_death_is_reported_with_its_stage_process_and_time() {
        let text = describe(&[
            death(true, 2_000),
            Death {
                stage: Stage::Load,
                ..death(false, 1_000)
            },
        ]);
        let expected = "the host died 2 times with this version on trial, last in its calls or \
            soon after one, in process 7, which began with it at 1970-01-01T00:00:02Z";
        assert_eq!(text, expected);
        assert!(describe(&[death(true, 1)]).starts_with("the host died once "));
        assert_eq!(Stage::of_code(Stage::Start.code()), Some(Stage::Start));
        assert_eq!(Stage::of_code("sleep"), None);
    }
}
