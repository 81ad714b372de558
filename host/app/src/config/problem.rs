//! A setting that parses but cannot work, and the line it stands on.

use shardmill_worker::InvalidOptions;

/// What is wrong with which key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    /// The key's whole path, such as `plugin.orders.batch.records`.
    key: String,
    message: String,
}

impl Problem {
    pub(super) fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: key.into(), message: message.into() }
    }

    /// The same problem, in a section.
    pub(super) fn under(self, section: &str) -> Self {
        Self { key: format!("{section}.{}", self.key), ..self }
    }

    /// Names the line that sets the key, for people; the key itself is named in any case.
    pub(super) fn with_line(&self, text: &str) -> String {
        match self.line(text) {
            Some(line) => format!("line {line}: {self}"),
            None => self.to_string(),
        }
    }

    /// The line of `text` that sets the key, or else the one that opens what it is in (`batch = { records = 0 }`).
    pub(super) fn line(&self, text: &str) -> Option<usize> {
        let mut path = self.key.as_str();
        loop {
            if let Some(line) = line_of(path, text) {
                return Some(line);
            }
            path = path.rsplit_once('.')?.0;
        }
    }
}

impl From<InvalidOptions> for Problem {
    fn from(InvalidOptions { setting, problem }: InvalidOptions) -> Self {
        Self::new(setting, problem)
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.key, self.message)
    }
}

/// The line, counted from one, that sets `path` or opens the section of that name.
fn line_of(path: &str, text: &str) -> Option<usize> {
    let mut section = String::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            section = bare(header.trim_start_matches('['));
            if section == path {
                return Some(index + 1);
            }
        } else if let Some((key, _)) = line.split_once('=') {
            let key = bare(key);
            let whole = if section.is_empty() { key } else { format!("{section}.{key}") };
            if whole == path {
                return Some(index + 1);
            }
        }
    }
    None
}

/// A dotted key without spaces and quotes.
fn bare(key: &str) -> String {
    key.chars().filter(|c| !c.is_whitespace() && *c != '"' && *c != '\'').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_the_line_of_its_key_in_its_own_section() {
        let text = "stream = \"s\"\n[checkpoint]\nrecords = 1\n[plugin.a.batch]\nrecords = 0\n";
        assert_eq!(Problem::new("plugin.a.batch.records", "zero").line(text), Some(5));
        assert_eq!(Problem::new("checkpoint.records", "zero").line(text), Some(3));
        assert_eq!(Problem::new("batch.records", "zero").line(text), None);
        let inline = "stream = \"s\"\nplugin.a = { batch = { records = 0 } }\n";
        assert_eq!(Problem::new("batch.records", "zero").under("plugin.a").line(inline), Some(2));
        assert_eq!(Problem::new("stream", "bad").with_line(text), "line 1: stream: bad");
        assert_eq!(Problem::new("host.buffer", "bad").with_line(text), "host.buffer: bad");
    }
}
