//! The streams of one plugin: `stream` and `streams`, and what their leases are kept under.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::UNIX_EPOCH;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, de};
use shardmill_core::plugin::{
    Part, PluginName, check_ending, is_of_table_name, of_stream, split_part, tables_of,
};
use shardmill_core::stream::{InitialPosition, StreamRef};
use shardmill_worker::Retrieval;

use super::problem::{At, Problem, Under};
use super::retrieval::{OwnRetrieval, RetrievalDefaults};
use super::settings::StreamConfig;

/// Most streams of one plugin. Each is a worker with its own two tables.
const STREAMS_MAX: usize = 32;
/// Longest application name: a DynamoDB table's name has 255 characters at most, and `-coordinator`
/// is appended to it.
const APPLICATION_MAX: usize = 243;

/// An entry of `streams`: a name or an ARN, alone or with its own settings.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StreamFile {
    stream: String,
    initial_position: Option<String>,
}

/// An entry of `streams` with its own settings.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct StreamTable {
    stream: String,
    initial_position: Option<String>,
}

/// The streams that a plugin's settings name, and how it reads them.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnStreams<'a> {
    /// The value of `stream`.
    pub(super) stream: Option<&'a str>,
    /// The value of `streams`.
    pub(super) streams: &'a [StreamFile],
    /// Where to start on all entries that do not say so themselves.
    pub(super) initial_position: Option<&'a str>,
    /// The value of `multi-stream-table`.
    pub(super) are_in_one_table: bool,
    pub(super) retrieval: OwnRetrieval<'a>,
}

/// The defaults for plugins without their own settings.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamDefaults<'a> {
    /// The stream of plugins that name none.
    pub(super) stream: Option<&'a StreamRef>,
    pub(super) initial_position: InitialPosition,
    pub(super) retrieval: RetrievalDefaults,
}

/// What all streams of a plugin have in common.
struct Common<'a> {
    plugin: &'a PluginName,
    /// The plugin's application.
    application: &'a str,
    /// Where they start unless an entry says otherwise.
    initial_position: InitialPosition,
    own: OwnRetrieval<'a>,
    general: RetrievalDefaults,
    /// Whether the plugin reads only one stream.
    is_only: bool,
    /// Whether the leases of all its streams are in one table.
    are_in_one_table: bool,
}

// === impl OwnStreams ===

impl OwnStreams<'_> {
    pub(super) fn check(
        self,
        plugin: &PluginName,
        application: &str,
        general: &StreamDefaults<'_>,
    ) -> Result<Vec<StreamConfig>, Problem> {
        if self.streams.len() > STREAMS_MAX {
            let message = format!("must be at most {STREAMS_MAX}: use another plugin for more");
            return Err(Problem::new("streams", message));
        }
        let initial_position = match self.initial_position {
            Some(text) => initial_position(Some(text))?,
            None => general.initial_position,
        };
        let single = self.single(general)?;
        let common = Common {
            plugin,
            application,
            initial_position,
            own: self.retrieval,
            general: general.retrieval,
            is_only: self.streams.len() + usize::from(single.is_some()) == 1,
            are_in_one_table: self.are_in_one_table,
        };
        let mut streams = Vec::new();
        if let Some(stream) = single {
            streams.push(common.single(stream)?);
        }
        for entry in self.streams {
            streams.push(common.listed(entry)?);
        }
        refuse_twins(&streams)?;
        Ok(streams)
    }

    /// The stream under `stream`. The general one counts only if the plugin names none.
    fn single(&self, general: &StreamDefaults<'_>) -> Result<Option<StreamRef>, Problem> {
        match self.stream {
            Some(text) => stream(text).map(Some),
            None if self.streams.is_empty() => Ok(general.stream.cloned()),
            None => Ok(None),
        }
    }
}

// === impl Common ===

impl Common<'_> {
    /// The stream under `stream`. It has the application's own table, as it always had.
    fn single(&self, stream: StreamRef) -> Result<StreamConfig, Problem> {
        let application = if self.are_in_one_table {
            of_stream(self.application, &suffix_of(&stream))
        } else {
            self.application.to_owned()
        };
        Ok(StreamConfig {
            label: self.plugin.clone(),
            initial_position: self.initial_position,
            retrieval: self.retrieval(&stream, self.application)?,
            application,
            stream,
        })
    }

    /// An entry of `streams`. Each has its own table, so that adding one changes nothing for the
    /// others.
    fn listed(&self, entry: &StreamFile) -> Result<StreamConfig, Problem> {
        let stream = StreamRef::parse(&entry.stream).at("streams")?;
        let suffix = suffix_of(&stream);
        let (application, consumer) = if self.are_in_one_table {
            // The KCL registers one name on all streams.
            let application = of_stream(self.application, &suffix);
            (application, self.application.to_owned())
        } else {
            let application = format!("{}.{suffix}", self.application);
            check_application("streams", &application)?;
            (application.clone(), application)
        };
        Ok(StreamConfig {
            label: self.plugin.on_stream(&suffix),
            initial_position: entry.position()?.unwrap_or(self.initial_position),
            retrieval: self.retrieval(&stream, &consumer)?,
            application,
            stream,
        })
    }

    fn retrieval(&self, stream: &StreamRef, application: &str) -> Result<Retrieval, Problem> {
        let retrieval = self.own.check(application, self.is_only, self.general)?;
        if let Some(fan_out) = retrieval.fan_out() {
            let name = stream.name().as_str();
            fan_out.consumer.check_stream(name).at("consumer")?;
        }
        Ok(retrieval)
    }
}

/// `None` is the oldest record, the default.
pub(super) fn initial_position(text: Option<&str>) -> Result<InitialPosition, Problem> {
    match text {
        None | Some("trim-horizon") => Ok(InitialPosition::TrimHorizon),
        Some("latest") => Ok(InitialPosition::Latest),
        Some(time) => {
            let time = humantime::parse_rfc3339_weak(time).map_err(|_| {
                let help = r#"use "trim-horizon", "latest" or a time from 1970 on, such as "2026-01-31T00:00:00Z""#;
                Problem::new("initial-position", format!("{time:?} is not one of these: {help}"))
            })?;
            let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            Ok(InitialPosition::AtTimestamp(
                u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX),
            ))
        }
    }
}

/// The stream of all plugins that name none, if one is set.
pub(super) fn general(text: Option<&str>) -> Result<Option<StreamRef>, Problem> {
    text.map(stream).transpose()
}

fn stream(text: &str) -> Result<StreamRef, Problem> {
    StreamRef::parse(text).at("stream")
}

/// Refuses a stream that a plugin names twice, or whose table is that of another stream.
fn refuse_twins(streams: &[StreamConfig]) -> Result<(), Problem> {
    let mut seen = BTreeSet::new();
    if let Some(twice) = streams.iter().find(|one| !seen.insert(&one.stream)) {
        return Err(Problem::new(
            "streams",
            format!("{} is named twice; name it once", twice.stream),
        ));
    }
    refuse_one_by_two_names(streams)?;
    let mut tables = BTreeSet::new();
    let is_taken = |one: &&StreamConfig| {
        let tables_of_one = match split_part(&one.application).1 {
            Part::Stream(_) => vec![one.application.clone()],
            Part::Whole | Part::Host(_) => tables_of(&one.application).to_vec(),
        };
        tables_of_one.into_iter().any(|table| !tables.insert(table))
    };
    match streams.iter().find(is_taken) {
        Some(one) => {
            let message = format!(
                "the leases of {} would be kept in table {}, which another stream uses: give it \
                    to another plugin",
                one.stream, one.application
            );
            Err(Problem::new("streams", message))
        }
        None => Ok(()),
    }
}

/// In one table, a stream by name and the same by ARN would have the same rows. A name does not say
/// whose stream it is.
fn refuse_one_by_two_names(streams: &[StreamConfig]) -> Result<(), Problem> {
    let is_in_one_table =
        |one: &&StreamConfig| matches!(split_part(&one.application).1, Part::Stream(_));
    let mut accounts = BTreeMap::new();
    for one in streams.iter().filter(is_in_one_table) {
        let account = one.stream.account();
        let other = accounts.insert(one.stream.name(), account);
        if other.is_some_and(|other| other.is_none() || account.is_none()) {
            let message = format!(
                "{} may be named twice, by name and by ARN: with multi-stream-table name both by ARN",
                one.stream.name()
            );
            return Err(Problem::new("streams", message));
        }
    }
    Ok(())
}

/// Distinguishes a stream's leases from those of the application's other streams. Depends only on
/// how the stream itself is written, so that it never changes.
fn suffix_of(stream: &StreamRef) -> String {
    match stream.account() {
        Some(account) => format!("{account}.{}", stream.name()),
        None => stream.name().to_string(),
    }
}

/// Checks an application that the operator or an author names. Endings that come from a stream's
/// name are compared with the plugin's other streams instead.
pub(super) fn check_own_application(key: &'static str, application: &str) -> Result<(), Problem> {
    check_application(key, application)?;
    check_ending(application)
        .map_err(|taken| Problem::new(key, format!("{application:?}: {taken}")))
}

fn check_application(key: &'static str, application: &str) -> Result<(), Problem> {
    if (3..=APPLICATION_MAX).contains(&application.len()) && is_of_table_name(application) {
        return Ok(());
    }
    let rule = format!(
        "it names a DynamoDB table: use 3 to {APPLICATION_MAX} letters, digits, '_', '.' or '-'"
    );
    Err(Problem::new(key, format!("{application:?}: {rule}")))
}

// === impl StreamFile ===

impl StreamFile {
    /// The stream as it is written: a name or an ARN.
    pub(super) fn named(&self) -> &str {
        &self.stream
    }

    /// Where its shards start, if the entry says so.
    fn position(&self) -> Result<Option<InitialPosition>, Problem> {
        let text = self.initial_position.as_deref();
        let position = text.map(|text| initial_position(Some(text)).under("streams"));
        position.transpose()
    }
}

impl<'de> Deserialize<'de> for StreamFile {
    /// Written by hand, since the error of an untagged enum would say neither what is wrong nor
    /// what would be right.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entry;

        impl<'de> Visitor<'de> for Entry {
            type Value = StreamFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    r#"a stream's name or ARN, or { stream = "...", initial-position = "..." }"#,
                )
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<StreamFile, E> {
                Ok(StreamFile {
                    stream: text.to_owned(),
                    initial_position: None,
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<StreamFile, A::Error> {
                let StreamTable {
                    stream,
                    initial_position,
                } = StreamTable::deserialize(MapAccessDeserializer::new(map))?;
                Ok(StreamFile {
                    stream,
                    initial_position,
                })
            }
        }

        deserializer.deserialize_any(Entry)
    }
}
