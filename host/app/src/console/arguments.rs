//! From what a request asks for to a command line.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use shardmill_config::ConsoleRight;

use super::definition::{Argument, Definition, Kind};
use crate::cli::AwsArgs;

/// Most values of a request: as many shards as one looks at.
const VALUES_MAX: usize = 1_000;
/// Longest value: a reason, or a sequence number.
const VALUE_BYTES_MAX: usize = 4 << 10;

/// How the host itself reaches tables and streams.
#[derive(Debug, Clone, Default)]
pub(crate) struct Surroundings {
    /// The file that the host was started with.
    config: Option<PathBuf>,
    /// The flags with which it was started, as options and their values.
    flags: Vec<(&'static str, String)>,
    /// Whether the host keeps its recordings in the data directory of `--local`.
    is_dev: bool,
}

/// What a request asks for, as values of arguments that the command has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Given {
    positional: Vec<String>,
    /// With their dashes, each with its value if it takes one.
    options: Vec<(String, Option<String>)>,
    /// The names of all that were given.
    pub(super) names: Vec<String>,
}

impl Given {
    /// Reads the arguments of a request. Errors say what is wrong with them.
    pub(super) fn read(
        definition: &Definition,
        arguments: &Map<String, Value>,
    ) -> Result<Self, String> {
        for name in arguments.keys() {
            if definition.argument(name).is_none() {
                return Err(format!("{} has no argument {name:?}", definition.name));
            }
        }
        let mut given = Self::default();
        // In the order of the command line, whatever that of the request is.
        for argument in &definition.arguments {
            let Some(value) = arguments.get(&argument.name) else {
                continue;
            };
            given.add(argument, value)?;
            if definition.takes_application(&argument.name) {
                refuse_file(value)?;
            }
        }
        let count = given.positional.len() + given.options.len();
        if count > VALUES_MAX {
            return Err(format!("{count} values, at most are {VALUES_MAX}"));
        }
        Ok(given)
    }

    fn add(&mut self, argument: &Argument, value: &Value) -> Result<(), String> {
        let name = &argument.name;
        let before = self.positional.len() + self.options.len();
        match (argument.kind, value) {
            // All shards are meant only where nothing is said of shards.
            (_, Value::Array(values)) if values.is_empty() => {
                return Err(format!("{name}: an empty list; leave it out to mean all"));
            }
            (_, Value::Null) if argument.repeats => {
                return Err(format!("{name}: null; leave it out to mean all"));
            }
            (_, Value::Null) | (Kind::Flag, Value::Bool(false)) => {}
            (Kind::Flag, Value::Bool(true)) => self.options.push((format!("--{name}"), None)),
            (Kind::Flag, _) => return Err(format!("{name}: true or false")),
            (_, Value::Array(values)) if argument.repeats => {
                for value in values {
                    self.add_text(argument, value)?;
                }
            }
            _ => self.add_text(argument, value)?,
        }
        if self.positional.len() + self.options.len() > before {
            self.names.push(name.clone());
        }
        Ok(())
    }

    fn add_text(&mut self, argument: &Argument, value: &Value) -> Result<(), String> {
        let name = &argument.name;
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return Err(format!("{name}: a text")),
        };
        if text.len() > VALUE_BYTES_MAX || text.contains(char::is_control) {
            return Err(format!(
                "{name}: one line of at most {VALUE_BYTES_MAX} bytes"
            ));
        }
        if argument.is_positional {
            self.positional.push(text);
        } else {
            self.options.push((format!("--{name}"), Some(text)));
        }
        Ok(())
    }

    /// Every right that the arguments need, with their values.
    pub(super) fn rights(&self, definition: &Definition) -> BTreeSet<ConsoleRight> {
        let arguments = self.names.iter();
        let arguments = arguments.filter_map(|name| definition.argument(name));
        let values = self.options.iter().filter_map(|(option, value)| {
            let name = option.trim_start_matches('-');
            definition.right_of_value(name, value.as_deref()?)
        });
        arguments
            .map(|argument| argument.right)
            .chain(values)
            .collect()
    }

    /// The command line of the request.
    pub(super) fn as_arguments(
        &self,
        definition: &Definition,
        surroundings: &Surroundings,
        by: &str,
    ) -> Vec<String> {
        let mut line = vec!["shardmill".to_owned()];
        line.extend(definition.name.split(' ').map(str::to_owned));
        for (option, value) in &self.options {
            // In one word, so that a value is never taken for an option.
            line.push(match value {
                Some(value) => format!("{option}={value}"),
                None => option.clone(),
            });
        }
        for (name, value) in surroundings.options(definition) {
            line.push(format!("--{name}={value}"));
        }
        line.extend(set_here(definition, by));
        line.push("--".to_owned());
        line.extend(self.positional.iter().cloned());
        line
    }

    /// What a person types to do the same on this host.
    pub(super) fn as_typed(&self, definition: &Definition, surroundings: &Surroundings) -> String {
        let mut words = vec!["shardmill".to_owned(), definition.name.clone()];
        let is_plain = self.positional.iter().all(|word| !word.starts_with('-'));
        if is_plain {
            words.extend(self.positional.iter().map(|word| quoted(word)));
        }
        for (option, value) in &self.options {
            match value {
                // `--to -2h` would be read as two options.
                Some(value) if value.starts_with('-') => {
                    words.push(format!("{option}={}", quoted(value)));
                }
                Some(value) => words.extend([option.clone(), quoted(value)]),
                None => words.push(option.clone()),
            }
        }
        for (name, value) in surroundings.options(definition) {
            words.push(format!("--{name}={}", quoted(&value)));
        }
        if !is_plain {
            words.push("--".to_owned());
            words.extend(self.positional.iter().map(|word| quoted(word)));
        }
        words.join(" ")
    }
}

/// The options that are not for the request to set.
fn set_here(definition: &Definition, by: &str) -> Vec<String> {
    let mut options = Vec::new();
    for name in &definition.set_here {
        match name.as_str() {
            "json" => options.push("--json".to_owned()),
            "by" => options.push(format!("--by={by}")),
            _ => {}
        }
    }
    options
}

/// Files of the host are nobody's business here.
fn refuse_file(value: &Value) -> Result<(), String> {
    let text = match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    if text.contains('/') || Path::new(&text).exists() {
        return Err(format!("{text:?} is no application"));
    }
    Ok(())
}

impl Surroundings {
    /// Of a host that was started by `run`.
    pub(crate) fn of_run(config: &Path, aws: &AwsArgs) -> Self {
        let local = aws.local.as_ref().map(|data| data.display().to_string());
        let flags = [
            ("region", aws.region.clone()),
            ("endpoint", aws.endpoint.clone()),
            ("kinesis-endpoint", aws.kinesis_endpoint.clone()),
            ("dynamodb-endpoint", aws.dynamodb_endpoint.clone()),
            ("local", local),
        ];
        let flags = flags.into_iter();
        Self {
            config: Some(config.to_owned()),
            flags: flags
                .filter_map(|(name, value)| Some((name, value?)))
                .collect(),
            is_dev: false,
        }
    }

    /// Of a host that was started by `dev`.
    #[cfg(feature = "local")]
    pub(crate) fn of_dev(config: Option<&Path>, data: &Path) -> Self {
        Self {
            config: config.map(Path::to_owned),
            flags: vec![("local", data.display().to_string())],
            is_dev: true,
        }
    }

    /// The options that lead a command to where this host's tables are.
    fn options(&self, definition: &Definition) -> Vec<(&'static str, String)> {
        let has = |name: &str| definition.set_here.iter().any(|own| own == name);
        let mut options = Vec::new();
        if has("config")
            && let Some(config) = &self.config
        {
            options.push(("config", config.display().to_string()));
        }
        for (name, value) in &self.flags {
            // There it says where recordings are, and not where tables are.
            let is_of_recordings = definition.name == "debug" && !self.is_dev;
            if has(name) && !is_of_recordings {
                options.push((*name, value.clone()));
            }
        }
        options
    }
}

/// As a shell reads it. What no shell can be given is left as it is; requests have no such text.
fn quoted(word: &str) -> String {
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::definition::Definitions;
    use super::*;

    fn given(name: &str, arguments: &Value) -> Result<(Vec<String>, String), String> {
        let definitions = Definitions::all();
        let definition = definitions.named(name).unwrap();
        let given = Given::read(definition, arguments.as_object().unwrap())?;
        let surroundings = Surroundings::of_run(Path::new("my hosts.toml"), &AwsArgs::default());
        Ok((
            given.as_arguments(definition, &surroundings, "alice"),
            given.as_typed(definition, &surroundings),
        ))
    }

    #[test]
    fn a_request_becomes_the_command_that_a_person_would_type() {
        let asked = json!({
            "why": "it's late", "apply": true, "shards": ["3", "7"], "for": "30m",
            "application": "orders", "all-streams": false, "until": null,
        });
        let (line, typed) = given("pause", &asked).unwrap();
        assert_eq!(
            line,
            [
                "shardmill",
                "pause",
                "--for=30m",
                "--apply",
                "--why=it's late",
                "--config=my hosts.toml",
                "--by=alice",
                "--json",
                "--",
                "orders",
                "3",
                "7"
            ]
        );
        assert_eq!(
            typed,
            "shardmill pause orders 3 7 --for 30m --apply --why \"it's late\" \
                --config='my hosts.toml'"
        );
        let words = shlex::split(&typed).unwrap();
        assert!(words.contains(&"it's late".to_owned()), "{words:?}");
    }

    #[test]
    fn a_value_is_never_taken_for_an_option() {
        let (line, typed) = given(
            "seek",
            &json!({"application": "--help", "to": "-2h", "shards": ["--apply"]}),
        )
        .unwrap();
        let end = line.iter().position(|word| word == "--").unwrap();
        assert_eq!(line[end + 1..], ["--help", "--apply"]);
        assert!(typed.contains("--to=-2h"), "{typed}");
        assert!(typed.ends_with("-- --help --apply"), "{typed}");
    }

    #[test]
    fn no_request_reads_a_file_of_the_host() {
        for file in ["/etc/passwd", "../secrets", "Cargo.toml", "src"] {
            let told = given("debug", &json!({"what": file})).unwrap_err();
            assert!(told.contains("no application"), "{told}");
        }
        assert!(given("debug", &json!({"what": "orders"})).is_ok());
    }

    #[test]
    fn what_a_command_does_not_take_is_refused_by_name() {
        for (arguments, named) in [
            (json!({"by": "eve"}), "\"by\""),
            (json!({"config": "/etc/passwd"}), "\"config\""),
            (json!({"endpoint": "http://evil"}), "\"endpoint\""),
            (json!({"shards": []}), "empty list"),
            (json!({"shards": null}), "null"),
            (json!({"apply": "yes"}), "apply"),
            (json!({"application": ["a", "b"]}), "application"),
            (json!({"application": "a\nb"}), "application"),
            (json!({"why": "x".repeat(VALUE_BYTES_MAX + 1)}), "why"),
            (json!({"shards": vec!["1"; VALUES_MAX + 1]}), "at most"),
        ] {
            let told = given("pause", &arguments).unwrap_err();
            assert!(told.contains(named), "{told}");
        }
    }
}
