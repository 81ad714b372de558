use std::fmt;

use crate::stream::Utc;
use crate::text::{one_line, steers};

/// The longest name of whoever asks for something, in characters.
pub const NAME_CHARS_MAX: usize = 100;
/// The longest reason, in characters: hosts read it with each look at the row.
pub const WHY_CHARS_MAX: usize = 300;

/// Whether this is fit to be the name of whoever asks for something, as a command or a console
/// passes it on: one line, nothing that steers a terminal, and no white space around it.
pub fn is_name_of_person(text: &str) -> bool {
    let is_short = (1..=NAME_CHARS_MAX).contains(&text.chars().count());
    is_short && text.trim() == text && !text.contains(steers)
}

/// Who asked for something, why, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The person or program, as it called itself: nothing proves it.
    pub by: String,
    /// The reason, for people.
    pub why: String,
    /// When, by the clock of whoever asked, in milliseconds since the Unix epoch.
    pub at_ms: u64,
}

/// For people, on one line: anyone who can write rows can write anything.
impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { by, why, at_ms } = self;
        write!(
            f,
            "by {} at {}: {}",
            one_line(by),
            Utc(*at_ms),
            one_line(why)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_a_reason_stay_on_one_line_whatever_is_in_them() {
        let asked = Asked {
            by: "ops\n\u{1b}[2J".to_owned(),
            why: "incident 7\r\nERROR all is well".to_owned(),
            at_ms: 1_767_225_600_000,
        };
        let text = asked.to_string();
        assert!(text.starts_with("by ops"), "{text}");
        assert!(!text.contains(['\n', '\r', '\u{1b}']), "{text}");
    }
}
