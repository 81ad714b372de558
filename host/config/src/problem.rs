//! A setting that is wrong: an unknown key, a value of the wrong kind, or one that cannot work.

use std::collections::BTreeMap;
use std::fmt;

use shardmill_worker::InvalidOptions;
use toml::de::DeTable;

use super::key_lines::line_at;
use super::wording::{example, in_words_of_the_file};

/// The key of a value that a check refused.
pub(super) trait At<T> {
    /// The value is that of `key`.
    fn at(self, key: impl Into<String>) -> Result<T, Problem>;
}

/// The section of a key that is wrong.
pub(super) trait Under {
    /// The key is one of `section`.
    fn under(self, section: &str) -> Self;
}

impl<T, E: fmt::Display> At<T> for Result<T, E> {
    fn at(self, key: impl Into<String>) -> Result<T, Problem> {
        self.map_err(|error| Problem::new(key, error.to_string()))
    }
}

impl<T> Under for Result<T, Problem> {
    fn under(self, section: &str) -> Self {
        self.map_err(|problem| Problem {
            key: format!("{section}.{}", problem.key),
            ..problem
        })
    }
}

/// What is wrong with a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    /// The key's whole path, such as `plugin.orders.batch.records`.
    key: String,
    message: String,
    /// Whether it is wrong independently of the other keys.
    stands_alone: bool,
    /// What the key should be called.
    meant: Option<String>,
}

impl Problem {
    /// A value that cannot work, maybe because of another key, which `message` then names.
    pub(super) fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            message: message.into(),
            stands_alone: false,
            meant: None,
        }
    }

    /// An unknown key, or a value of the wrong kind, with what would be right: the key that was
    /// meant, or an example.
    ///
    /// `value` is what the key has.
    pub(super) fn of_type(
        key: String,
        value: Option<&toml::Value>,
        error: &toml::de::Error,
    ) -> Self {
        Self {
            message: with_help(&key, value, error.message()),
            key,
            stands_alone: !error.message().starts_with("missing field"),
            meant: meant(error.message()).map(str::to_owned),
        }
    }

    /// The key's whole path.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// The whole path of the key that was meant, if the key looks like a typing mistake.
    pub(super) fn meant(&self) -> Option<String> {
        let name = self.meant.as_ref()?;
        Some(match self.key.rsplit_once('.') {
            Some((section, _)) => format!("{section}.{name}"),
            None => name.clone(),
        })
    }

    /// Whether it may be there only because `other`, which is wrong too, was taken out: then it
    /// names that key, as every contradiction does.
    pub(super) fn may_follow_from(&self, other: &str) -> bool {
        if self.stands_alone {
            return false;
        }
        let (section, last) = other.rsplit_once('.').unwrap_or(("", other));
        let of_section = section.rsplit('.').next().unwrap_or_default();
        let is_beside = self.key == section || self.key.starts_with(&format!("{section}."));
        has_word(&self.message, &format!("{of_section}.{last}"))
            || is_beside && has_word(&self.message, last)
    }

    /// Whether it has to do with a key of the name `word` in another file: it may be right once
    /// that is. In doubt true: a missed report is better than a false one.
    pub(super) fn speaks_of(&self, word: &str) -> bool {
        !self.stands_alone && (has_word(&self.key, word) || has_word(&self.message, word))
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

/// Whether `text` contains `word`, which may have dots in it, as a whole word.
fn has_word(text: &str, word: &str) -> bool {
    let is_of_key = |c: char| c.is_alphanumeric() || c == '-';
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_of_key) && !after.is_some_and(is_of_key)
    })
}

/// Characters of a message that are shown. A list of all keys is shorter; a file that is not a
/// configuration may be one line of megabytes.
const SHOWN_CHARS_MAX: usize = 2_000;

/// What is wrong with a key, and what would be right. Lists all known keys only if none is similar.
fn with_help(key: &str, value: Option<&toml::Value>, message: &str) -> String {
    let said = match meant(message) {
        Some(_) => message.split(", expected").next().unwrap_or(message),
        None => message,
    };
    let said = cut(&in_words_of_the_file(said, value));
    match help(key, message) {
        Some(help) => format!("{said}; {help}"),
        None => said,
    }
}

/// The keys and values of `text`, unchecked. If it is not TOML, the error has the first mistake of
/// each line.
pub(super) fn table_of(text: &str) -> Result<toml::Table, Vec<String>> {
    toml::from_str(text).map_err(|error| {
        let (_, mut errors) = DeTable::parse_recoverable(text);
        // What is TOML and has no value, such as a whole number of more than 64 bits.
        if errors.is_empty() {
            errors.push(error);
        }
        of_syntax(text, &errors)
    })
}

fn of_syntax(text: &str, errors: &[toml::de::Error]) -> Vec<String> {
    let mut by_line = BTreeMap::new();
    for error in errors {
        let at = error.span().map_or(0, |span| span.start);
        by_line
            .entry(line_at(text, at))
            .or_insert_with(|| error.message());
    }
    let shown = |line: usize| cut(text.lines().nth(line - 1).unwrap_or_default().trim());
    let shown = by_line
        .iter()
        .map(|(line, message)| format!("line {line}: {}: {message}", shown(*line)));
    shown.collect()
}

/// The most problems reported at once; more would not be read.
pub(super) const TOLD_MAX: usize = 20;

/// One problem alone, or several as a list with their number.
pub(super) fn listed(problems: &[String]) -> String {
    let shown = &problems[..problems.len().min(TOLD_MAX)];
    let more = if shown.len() < problems.len() {
        "\n  and more: fix these first"
    } else {
        ""
    };
    match shown {
        [one] => one.clone(),
        _ => format!("{} problems:\n  {}{more}", shown.len(), shown.join("\n  ")),
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

/// Words that are not misspelt, but that the file has another word for.
const OTHER_WORDS: [(&str, &str); 2] = [("sink", "dead-letter"), ("dlq", "dead-letter")];

fn help(key: &str, message: &str) -> Option<String> {
    if key == "plugins" && message.starts_with("invalid type: map") {
        return Some(
            "`plugins` is the folder of plugins, or a list of sources; what differs by plugin goes \
                under [plugin.NAME]"
                .to_owned(),
        );
    }
    if let Some(meant) = meant(message) {
        return Some(format!("did you mean `{meant}`?"));
    }
    example(key, message)
}

/// The known key that is most similar to an unknown one, if it is similar enough.
fn meant(message: &str) -> Option<&str> {
    /// Below that, two words have little in common. The same bound as clap has for flags.
    const NEAR: f64 = 0.7;
    let rest = message
        .strip_prefix("unknown field `")
        .or_else(|| message.strip_prefix("unknown variant `"))?;
    let (unknown, known) = rest.split_once('`')?;
    // The known ones are between backticks: every second part.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_parse_is_reported_with_the_key_that_was_meant_or_an_example() {
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
            ("[batch]\nrecords = -5", "expected a whole number from 0 on"),
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
    fn a_problem_that_names_a_key_which_was_taken_out_may_follow_from_that() {
        let follows = |key: &str, message: &str, other: &str| {
            Problem::new(key, message).may_follow_from(other)
        };
        let half = "must be at most half of host.buffer, or a batch would never fill";
        assert!(follows("plugin.orders.batch.bytes", half, "host.buffer"));
        assert!(!follows("plugin.orders.batch.bytes", half, "host.cache"));
        let order = "cannot be kept with failure.order = \"key\"";
        let taken = "plugin.orders.failure.order";
        assert!(follows("plugin.orders.grants.state", order, taken));
        let missing = "no sink is named \"out\": add [sinks.out], or name an existing one";
        assert!(follows("failure.dead-letter", missing, "sinks.out"));
        assert!(!follows("failure.dead-letter", missing, "sinks.outer"));
        let beside = "\"dead-letter\" needs the name of a sink: set dead-letter as well";
        assert!(follows(
            "failure.on-exhausted",
            beside,
            "failure.dead-letter"
        ));
        assert!(!follows(
            "plugin.a.limits.memory",
            beside,
            "failure.dead-letter"
        ));
    }
}
