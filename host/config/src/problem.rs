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
        Self {
            key: key.into(),
            message: message.into(),
        }
    }

    /// The key's whole path.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// The same problem, in a section.
    pub(super) fn under(self, section: &str) -> Self {
        Self {
            key: format!("{section}.{}", self.key),
            ..self
        }
    }

    /// Names the line that sets the key, for people; the key itself is named in any case.
    pub(super) fn with_line(&self, text: &str) -> String {
        match self.line(text) {
            Some(line) => format!("line {line}: {self}"),
            None => self.to_string(),
        }
    }

    /// The line of `text` that sets the key, or else the one that opens what it is in
    /// (`batch = { records = 0 }`).
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

/// Characters of a line that are shown, which a list of all keys is shorter than: a file that is no
/// configuration may be one line of megabytes.
const SHOWN_CHARS_MAX: usize = 2_000;

/// The error of a file that does not parse, with what would be right: a key that was meant, or a
/// value as an example.
pub(super) fn with_help(error: &toml::de::Error) -> String {
    let text = error.to_string();
    let lines: Vec<String> = text.trim_end().lines().map(cut).collect();
    let text = lines.join("\n");
    match help(error.message(), &text) {
        Some(help) => format!("{text}\n{help}"),
        None => text,
    }
}

fn cut(line: &str) -> String {
    let mut signs = line.chars();
    let shown: String = signs.by_ref().take(SHOWN_CHARS_MAX).collect();
    if signs.next().is_some() {
        format!("{shown}...")
    } else {
        shown
    }
}

/// What a message of serde's lacks, by a part of it.
const EXAMPLES: [(&str, &str); 12] = [
    (
        "expected a duration",
        "a duration is written such as \"500ms\", \"10s\" or \"5m\"",
    ),
    (
        "expected parsable string",
        "a size is written such as \"512KiB\" or \"4MiB\"",
    ),
    (
        "expected usize",
        "a whole number is written without quotes, such as 100",
    ),
    (
        "expected u32",
        "a whole number is written without quotes, such as 100",
    ),
    (
        "expected u64",
        "a whole number is written without quotes, such as 100",
    ),
    (
        "expected a boolean",
        "true or false is written without quotes",
    ),
    (
        "expected a string",
        "text is written in quotes, such as \"orders\"",
    ),
    (
        "missing field `type`",
        "say what it is, such as type = \"file\", \"kinesis\", \"http\" or \"stdout\"",
    ),
    (
        "missing field `path`",
        "say which file, such as path = \"out.ndjson\"",
    ),
    (
        "missing field `url`",
        "say where to, such as url = \"https://example.com/records\"",
    ),
    (
        "missing field `stream`",
        "say which stream, such as stream = \"orders\"",
    ),
    (
        "socket address",
        "an address is written as IP:PORT, such as \"127.0.0.1:9090\" or \"[::1]:9090\"; names \
            are not accepted",
    ),
];

/// What is not spelt wrong but called otherwise.
const OTHER_WORDS: [(&str, &str); 2] = [("sink", "dead-letter"), ("dlq", "dead-letter")];

fn help(message: &str, text: &str) -> Option<String> {
    if message.contains("expected path string") && text.contains("[plugins.") {
        return Some(
            "`plugins` is the folder of plugins; what differs by plugin goes under [plugin.NAME]"
                .to_owned(),
        );
    }
    if let Some(meant) = meant(message) {
        return Some(format!("did you mean `{meant}`?"));
    }
    let (_, example) = EXAMPLES.iter().find(|(part, _)| message.contains(part))?;
    Some((*example).to_owned())
}

/// The known key that an unknown one is nearest to, if it is near.
fn meant(message: &str) -> Option<&str> {
    /// Below that, two words have little in common; clap's bound for flags.
    const NEAR: f64 = 0.7;
    let rest = message
        .strip_prefix("unknown field `")
        .or_else(|| message.strip_prefix("unknown variant `"))?;
    let (unknown, known) = rest.split_once('`')?;
    // The known ones stand between ticks: every second part.
    let mut known = known.split('`').skip(1).step_by(2);
    if let Some((_, other)) = OTHER_WORDS.iter().find(|(said, _)| *said == unknown) {
        return known.find(|known| known == other);
    }
    let near = known
        .map(|known| (strsim::jaro_winkler(unknown, known), known))
        .filter(|(nearness, _)| *nearness > NEAR);
    near.max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, known)| known)
}

/// The line, counted from one, that sets `path` or opens the section of that name.
fn line_of(path: &str, text: &str) -> Option<usize> {
    let mut section = String::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(header) = line
            .strip_prefix('[')
            .and_then(|rest| rest.split(']').next())
        {
            section = bare(header.trim_start_matches('['));
            if section == path {
                return Some(index + 1);
            }
        } else if let Some((key, _)) = line.split_once('=') {
            let key = bare(key);
            let whole = if section.is_empty() {
                key
            } else {
                format!("{section}.{key}")
            };
            if whole == path {
                return Some(index + 1);
            }
        }
    }
    None
}

/// A dotted key without spaces and quotes.
fn bare(key: &str) -> String {
    key.chars()
        .filter(|c| !c.is_whitespace() && *c != '"' && *c != '\'')
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_parse_is_told_with_the_key_that_was_meant_or_an_example() {
        for (text, expected) in [
            ("straem = \"s\"", "did you mean `stream`?"),
            ("worker_id = \"a\"", "did you mean `worker-id`?"),
            ("[leases]\nduraton = \"10s\"", "did you mean `duration`?"),
            ("[leases]\nduration = 10", "such as \"500ms\", \"10s\""),
            (
                "[leases]\nduration = \"10 parsecs\"",
                "such as \"500ms\", \"10s\"",
            ),
            (
                "[batch]\nbytes = \"4 megs\"",
                "such as \"512KiB\" or \"4MiB\"",
            ),
            ("[batch]\nrecords = -5", "without quotes, such as 100"),
            (
                "[host]\nadmin = \"localhost:9090\"",
                "such as \"127.0.0.1:9090\"",
            ),
            (
                "[host]\nfan-out-allowed = \"yes\"",
                "true or false is written without quotes",
            ),
            (
                "[plugins.orders]\nstream = \"s\"",
                "goes under [plugin.NAME]",
            ),
            ("stream = 5", "in quotes, such as \"orders\""),
            ("[failure]\nsink = \"dead\"", "did you mean `dead-letter`?"),
            (
                "[sinks.out]\ntype = \"file\"",
                "such as path = \"out.ndjson\"",
            ),
            (
                "[sinks.out]\npath = \"out.ndjson\"",
                "such as type = \"file\"",
            ),
            (
                "[plugin.orders.batch]\nrecord = 5",
                "did you mean `records`?",
            ),
        ] {
            let told = crate::Config::parse(text, std::path::Path::new(".")).unwrap_err();
            assert!(told.contains(expected), "{text}: {told}");
            assert!(told.contains("line "), "{text}: {told}");
        }
        let told = crate::Config::parse("xyzzy = 1", std::path::Path::new(".")).unwrap_err();
        assert!(!told.contains("did you mean"), "{told}");
    }

    #[test]
    fn a_problem_names_the_line_of_its_key_in_its_own_section() {
        let text = "stream = \"s\"\n[checkpoint]\nrecords = 1\n[plugin.a.batch]\nrecords = 0\n";
        assert_eq!(
            Problem::new("plugin.a.batch.records", "zero").line(text),
            Some(5)
        );
        assert_eq!(
            Problem::new("checkpoint.records", "zero").line(text),
            Some(3)
        );
        assert_eq!(Problem::new("batch.records", "zero").line(text), None);
        let inline = "stream = \"s\"\nplugin.a = { batch = { records = 0 } }\n";
        assert_eq!(
            Problem::new("batch.records", "zero")
                .under("plugin.a")
                .line(inline),
            Some(2)
        );
        assert_eq!(
            Problem::new("stream", "bad").with_line(text),
            "line 1: stream: bad"
        );
        assert_eq!(
            Problem::new("host.buffer", "bad").with_line(text),
            "host.buffer: bad"
        );
    }
}
