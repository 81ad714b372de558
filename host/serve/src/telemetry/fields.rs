//! The fields of a log line, as people and programs that know `key=value` read them.

use std::borrow::Cow;
use std::fmt;

use shardmill_core::text::{one_line, printable};
use tracing::field::Field;
use tracing_subscriber::fmt::format::Writer;

/// Writes one field; the message has no name.
pub(super) fn write_field(
    writer: &mut Writer<'_>,
    field: &Field,
    value: &dyn fmt::Debug,
) -> fmt::Result {
    let text = format!("{value:?}");
    if field.name() == "message" {
        return writer.write_str(&printable(&text));
    }
    if writer.has_ansi_escapes() {
        write!(
            writer,
            "\u{1b}[3m{}\u{1b}[0m\u{1b}[2m=\u{1b}[0m",
            field.name()
        )?;
    } else {
        write!(writer, "{}=", field.name())?;
    }
    writer.write_str(&value_of(&text))
}

/// In quotes if it would not end where it ends, or not be seen.
fn value_of(text: &str) -> Cow<'_, str> {
    let ends_early = |c: char| c.is_whitespace() || matches!(c, ',' | '=' | '"');
    let is_bare = !text.is_empty() && !text.contains(ends_early);
    if is_bare || is_quoted(text) {
        return one_line(text);
    }
    let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
    Cow::Owned(format!("\"{}\"", one_line(&quoted)))
}

/// Texts come in quotes; what else there is comes as it shows itself.
fn is_quoted(text: &str) -> bool {
    let inside = text
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    let mut is_escaped = false;
    inside.is_some_and(|inside| {
        inside.chars().all(|c| {
            let is_end = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            !is_end
        }) && !is_escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_ends_where_it_ends_and_is_seen_if_it_is_empty() {
        for (text, expected) in [
            ("shardId-000000000000", "shardId-000000000000"),
            ("free, and below", r#""free, and below""#),
            ("a=b", r#""a=b""#),
            ("", r#""""#),
            (r#""two words""#, r#""two words""#),
            (r#""a" or "b""#, r#""\"a\" or \"b\"""#),
            (r#"["a", "b"]"#, r#""[\"a\", \"b\"]""#),
            (r"C:\temp dir", r#""C:\\temp dir""#),
            ("a\nlevel=error", r#""a\u000alevel=error""#),
        ] {
            assert_eq!(value_of(text), expected, "{text}");
        }
    }
}
