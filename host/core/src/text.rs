//! Makes text from others fit for a terminal, a log line or a row.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether the character can mislead a terminal or a reader: control characters, including those of
/// C1, which some terminals obey in UTF-8; line separators; and characters that change the
/// direction of writing.
pub fn steers(c: char) -> bool {
    let turns =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns || matches!(c, '\u{2028}' | '\u{2029}')
}

/// The text on one line: such characters, line breaks included, are written as JSON escapes
/// (`\u001b`).
pub fn one_line(text: &str) -> Cow<'_, str> {
    escape(text, steers)
}

/// The same for text of several lines, whose breaks stay. JSON stays JSON: outside its strings,
/// line breaks are the only such characters in it.
pub fn printable(text: &str) -> Cow<'_, str> {
    escape(text, |c| c != '\n' && steers(c))
}

fn escape(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_escaped(c) {
            // Writing to a string cannot fail, and all these characters have at most four digits.
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// What is put where something was left out.
const LEFT_OUT: char = '…';
/// What a reason puts before what brought it about.
const BECAUSE: &str = ": ";

/// A reason in at most `chars_max` characters, with its cause.
///
/// A reason names what failed, and then what brought that about, each after a colon: the last is
/// what somebody has to mend. So what lies between is left out first, as in `cannot start…: no
/// space left`. Only a cause that is too long itself loses its end.
pub fn shortened(reason: &str, chars_max: usize) -> Cow<'_, str> {
    let chars = reason.chars().count();
    if chars <= chars_max {
        return Cow::Borrowed(reason);
    }
    let (_, cause) = reason.rsplit_once(BECAUSE).unwrap_or_default();
    let cause_chars = cause.chars().count();
    let room = chars_max.saturating_sub(1 + BECAUSE.len());
    // A third says what failed; more if the cause leaves room.
    let head_chars = (room / 3).max(room.saturating_sub(cause_chars));
    let cause_begins_in_head = chars - cause_chars <= head_chars + BECAUSE.len();
    if cause.is_empty() || head_chars == 0 || cause_begins_in_head {
        return Cow::Owned(beginning(reason, chars_max));
    }
    let head: String = reason.chars().take(head_chars).collect();
    let cause = beginning(cause, room - head_chars);
    Cow::Owned(format!("{head}{LEFT_OUT}{BECAUSE}{cause}"))
}

/// The text, or as much of its beginning as fits with a sign that there was more.
fn beginning(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    let kept = text.chars().take(chars_max.saturating_sub(1));
    kept.chain([LEFT_OUT]).take(chars_max).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_that_is_too_long_keeps_what_failed_and_why() {
        let reason = "cannot start: the state: cannot be read: refused: no right to GetItem";
        assert_eq!(shortened(reason, 69), reason);
        assert_eq!(
            shortened(reason, 60),
            "cannot start: the state: cannot be rea…: no right to GetItem",
            "the cause whole, and as much of the rest as fits"
        );
        assert_eq!(
            shortened(reason, 24),
            "cannot …: no right to G…",
            "at least a third for what failed"
        );
        let short = shortened(reason, 50).into_owned();
        assert_eq!(
            shortened(&short, 40),
            "cannot start: the …: no right to GetItem",
            "also of what is short already"
        );
    }

    #[test]
    fn a_reason_without_a_cause_or_with_one_at_its_beginning_is_cut_at_its_end() {
        assert_eq!(shortened("one long sentence", 9), "one long…");
        assert_eq!(shortened("nothing follows: ", 9), "nothing …");
        assert_eq!(shortened("a: one long cause", 14), "a: one long c…");
    }

    #[test]
    fn a_reason_never_has_more_characters_than_are_allowed_and_never_half_of_one() {
        let reason = "żółć 東京: 🚀🚀🚀 é: ошибка — 東京 🚀 конец";
        for chars_max in 0..=reason.chars().count() {
            let short = shortened(reason, chars_max);
            assert!(short.chars().count() <= chars_max, "{chars_max}: {short}");
            assert_eq!(short.is_empty(), chars_max == 0);
        }
        assert_eq!(shortened("ab", 1), "…");
        assert_eq!(shortened("a: b: c", 1), "…");
        assert_eq!(shortened("", 0), "");
    }

    #[test]
    fn what_steers_a_terminal_is_written_out_and_the_rest_is_left_alone() {
        let hostile = "a\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}b\nINFO forged\u{2028}x\u{7f}";
        let line = one_line(hostile);
        assert_eq!(
            line,
            r"a\u001b]0;owned\u0007\u009b2J\u202eb\u000aINFO forged\u2028x\u007f"
        );
        assert!(!line.contains(steers));
        assert_eq!(printable("two\nlines\t\r"), "two\nlines\\u0009\\u000d");
        let harmless = "żółć — 東京 🚀 \u{301}";
        assert!(matches!(one_line(harmless), Cow::Borrowed(same) if same == harmless));
    }
}
