//! Keeps the values of secrets out of every place that a guest's text may reach: log lines, errors,
//! dead letters, the status page. It guards against accidents: a plugin that wants to reveal a
//! value can spell it backwards.

use std::borrow::Cow;

use crate::secrets::Secrets;
use crate::text::clean;

/// Replaces a value.
const REDACTED: &str = "[secret]";
/// Shortest line, in bytes, that is redacted of a value with several lines: a shorter one could be
/// ordinary text.
const LINE_BYTES_MIN: usize = 8;
/// Shortest beginning of a value, in bytes, that is redacted where a text was cut: a shorter one
/// could be ordinary text.
const BEGINNING_BYTES_MIN: usize = 4;

/// Knows the values of one instance's secrets.
#[derive(Default)]
pub(crate) struct Redactor {
    /// Values, and the lines of those that have several, the longest first: one may be a part of
    /// another.
    values: Vec<String>,
}

impl Redactor {
    pub(crate) fn of(secrets: &Secrets) -> Self {
        let mut values = Vec::new();
        for value in secrets.values() {
            let lines = value.lines().map(str::trim);
            let lines = lines.filter(|line| line.len() >= LINE_BYTES_MIN);
            values.push(value.to_owned());
            values.extend(lines.map(str::to_owned));
        }
        values.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        values.dedup();
        Self { values }
    }

    /// The text without any of the values.
    pub(crate) fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for value in &self.values {
            if text.contains(value.as_str()) {
                text = Cow::Owned(text.replace(value.as_str(), REDACTED));
            }
        }
        text
    }

    /// A guest's text as people may see it: without any of the values, and without control
    /// characters. Cuts it before any other work, since it may be as large as a call allows.
    pub(crate) fn shown(&self, text: &str, bytes_max: usize) -> String {
        let beginning = &text[..text.floor_char_boundary(bytes_max)];
        if beginning.len() == text.len() {
            return clean(&self.redact(text), bytes_max);
        }
        let kept = &beginning[..beginning.len() - self.begun_at_end(beginning.as_bytes())];
        let shown = clean(&self.redact(kept), bytes_max);
        if shown.ends_with('…') {
            shown
        } else {
            shown + "…"
        }
    }

    /// Whether a value is in the text.
    pub(crate) fn is_in(&self, text: &str) -> bool {
        self.values
            .iter()
            .any(|value| text.contains(value.as_str()))
    }

    /// How many bytes at the end of a cut text may be the beginning of a value.
    pub(crate) fn begun_at_end(&self, text: &[u8]) -> usize {
        let begun = self.values.iter().map(|value| begun_at_end(text, value));
        begun.max().unwrap_or(0)
    }
}

/// How many bytes at the end of a text may be the beginning of this value.
fn begun_at_end(text: &[u8], value: &str) -> usize {
    let most = value.len().saturating_sub(1).min(text.len());
    (BEGINNING_BYTES_MIN..=most)
        .rev()
        .find(|bytes| text.ends_with(&value.as_bytes()[..*bytes]))
        .unwrap_or(0)
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} values", self.values.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_is_left_in_a_text_wherever_it_stands() {
        let redactor = Redactor::of(&Secrets::of(&["hush", "hush-hush", "other"]));
        assert_eq!(
            redactor.redact("a hush-hush b, hush! othe"),
            "a [secret] b, [secret]! othe"
        );
        assert!(matches!(redactor.redact("nothing here"), Cow::Borrowed(_)));
        assert!(redactor.is_in("x_other_y") && !redactor.is_in("x_othe_r"));
        assert_eq!(format!("{redactor:?}"), "3 values");
    }

    #[test]
    fn a_value_of_several_lines_is_known_by_each_of_them() {
        let redactor = Redactor::of(&Secrets::of(&[
            "-----BEGIN-----\nMIIEvQIBADANBg\nab\n-----END-----",
        ]));
        assert_eq!(
            redactor.redact("line MIIEvQIBADANBg of ab"),
            "line [secret] of ab"
        );
    }

    #[test]
    fn of_a_long_text_only_the_beginning_is_shown_and_no_value_that_the_cut_goes_through() {
        let redactor = Redactor::of(&Secrets::of(&["hush-hush"]));
        assert_eq!(redactor.shown("a hush-hush b", 100), "a [secret] b");
        assert_eq!(redactor.shown("a hush-hush b", 8), "a …");
        assert_eq!(redactor.shown("\u{1b}[2Jbcd", 5), " [2Jb…");
    }

    #[test]
    fn the_beginning_of_a_value_at_a_cut_is_found() {
        let redactor = Redactor::of(&Secrets::of(&["hush-hush"]));
        assert_eq!(redactor.begun_at_end(b"say hush-hu"), 7);
        assert_eq!(redactor.begun_at_end(b"hush"), 4);
        assert_eq!(redactor.begun_at_end(b"hus"), 0);
        assert_eq!(redactor.begun_at_end(b""), 0);
    }
}
