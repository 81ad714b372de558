//! Makes text from others fit for a terminal or a log line.

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

#[cfg(test)]
mod tests {
    use super::*;

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
