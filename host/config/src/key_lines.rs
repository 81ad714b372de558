//! The lines on which a text sets its keys, from the parser's spans.

use toml::de::{DeTable, DeValue};

use super::key::split_first;

/// The keys of a text, with their places.
pub(super) struct KeyLines<'t> {
    text: &'t str,
    table: DeTable<'t>,
}

// === impl KeyLines ===

impl<'t> KeyLines<'t> {
    /// The keys of `text`, as far as it is TOML.
    pub(super) fn of(text: &'t str) -> Self {
        let (table, _) = DeTable::parse_recoverable(text);
        Self {
            text,
            table: table.into_inner(),
        }
    }

    /// The line that sets `key`, or else the line that opens the innermost table that `key` belongs
    /// in. `None` if the text has neither.
    pub(super) fn line_of(&self, key: &str) -> Option<usize> {
        let (mut table, mut path) = (&self.table, key);
        let mut found = None;
        while let Some((name, rest)) = split_first(path, table.keys().map(|key| &**key.get_ref())) {
            let (key, value) = table.iter().find(|(key, _)| *key.get_ref() == name)?;
            found = Some(line_at(self.text, key.span().start));
            let DeValue::Table(inner) = value.get_ref() else {
                break;
            };
            (table, path) = (inner, rest);
        }
        found
    }
}

/// The line of `text`, counted from one, that the byte `at` is on.
pub(super) fn line_at(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_on_the_line_that_sets_it_in_its_own_section() {
        let text = "stream = \"s\"\n[checkpoint]\nrecords = 1\n[plugin.a.batch]\nrecords = 0\n\
                    [plugin.\"b.c\"]\nstreams = [\n  \"one\",\n]\n";
        let lines = KeyLines::of(text);
        assert_eq!(lines.line_of("plugin.a.batch.records"), Some(5));
        assert_eq!(lines.line_of("checkpoint.records"), Some(3));
        assert_eq!(lines.line_of("checkpoint"), Some(2));
        assert_eq!(lines.line_of("plugin.b.c.streams"), Some(7));
        assert_eq!(lines.line_of("batch.records"), None);
    }

    #[test]
    fn a_key_that_is_missing_is_on_the_line_of_the_table_that_it_belongs_in() {
        let text = "stream = \"s\"\nplugin.a = { batch = { records = 0 } }\n[sinks.out]\n";
        let lines = KeyLines::of(text);
        assert_eq!(lines.line_of("plugin.a.batch.records"), Some(2));
        assert_eq!(lines.line_of("plugin.a.batch.bytes"), Some(2));
        assert_eq!(lines.line_of("sinks.out.path"), Some(3));
    }

    #[test]
    fn text_that_only_looks_like_a_key_is_none() {
        let text = "[plugin.a.config]\nnote = \"\"\"\nlevel = 1\n\"\"\"\nlevel = 2\n";
        assert_eq!(KeyLines::of(text).line_of("plugin.a.config.level"), Some(5));
    }
}
