//! What a host may do with a version that it died of, or may have died of. Before a version is
//! loaded or called for the first time it is marked, and the mark goes once it did well: one that
//! nobody holds any more was left by a process that died.
//!
//! ```text
//!   deaths of a version:   none ──> with others    some ──> alone    two, one of them alone ──> not, until somebody says so
//! ```
//!
//! A process that is killed by a person, by the system for want of memory, or with its machine,
//! leaves the same marks. So one death is a suspicion and no more, and what has done well for a
//! while is not marked any more.

mod proven;
mod trials;

use std::fmt;
use std::time::Duration;

pub use proven::{PROVEN_MAX, Proven};
pub use trials::{Entry, Over, Trials};

use crate::stream::Utc;

/// How long a version is on trial before no death of the host counts as its own. A minute: what is
/// wrong with code or with its memory shows within its first batches, and machines do not lose
/// power twice in the first minutes of one version.
pub(crate) const PROVEN_AFTER: Duration = Duration::from_mins(1);
/// Deaths that quarantine a version, if it was alone on trial in one of them at least.
pub(crate) const DEATHS_MAX: usize = 2;

/// How what is told of deaths begins.
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

/// What a process left behind that died with a version on trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Death {
    /// How far the version had come.
    pub stage: Stage,
    /// Whether no other version was on trial in that process.
    pub was_alone: bool,
    /// The process.
    pub process: u32,
    /// When the trial began, in milliseconds since the Unix epoch, on that host's wall clock. For
    /// people.
    pub at_ms: u64,
}

/// What follows for a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ruling {
    /// It may be tried beside others.
    Together,
    /// It may be tried with no other version on trial: should the host die, it is known of which.
    Alone,
    /// It may not be tried.
    Quarantined,
}

/// What follows from the deaths of one version.
pub fn ruling(deaths: &[Death]) -> Ruling {
    let was_alone = deaths.iter().any(|death| death.was_alone);
    match deaths.len() {
        0 => Ruling::Together,
        DEATHS_MAX.. if was_alone => Ruling::Quarantined,
        _ => Ruling::Alone,
    }
}

/// The deaths in words; nothing is to be told of none.
pub fn told(deaths: &[Death]) -> String {
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
    /// A word for programs.
    pub fn code(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Start => "start",
            Self::Call => "call",
        }
    }

    /// The stage of that word.
    pub fn of_word(word: &str) -> Option<Self> {
        [Self::Load, Self::Start, Self::Call]
            .into_iter()
            .find(|stage| stage.code() == word)
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
    fn the_last_death_is_told_with_its_stage_process_and_time() {
        let text = told(&[
            death(true, 2_000),
            Death {
                stage: Stage::Load,
                ..death(false, 1_000)
            },
        ]);
        let expected = "the host died 2 times with this version on trial, last in its calls or \
            soon after one, in process 7, which began with it at 1970-01-01T00:00:02Z";
        assert_eq!(text, expected);
        assert!(told(&[death(true, 1)]).starts_with("the host died once "));
        assert_eq!(Stage::of_word(Stage::Start.code()), Some(Stage::Start));
        assert_eq!(Stage::of_word("sleep"), None);
    }
}
