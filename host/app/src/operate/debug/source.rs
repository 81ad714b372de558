//! Which batch is meant: by a record of an application, by a file of a recording, or by a dead
//! letter.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use shardmill_config::Config;
use shardmill_core::lease::LeaseCounter;
use shardmill_core::plugin::plugin_of_label;
use shardmill_core::ports::{DeadLetter, InstanceContext, StartPosition};
use shardmill_core::recording::{FailureRecord, RecordName, Recording};
use shardmill_core::stream::Batch;
use shardmill_serve::recordings::{Found, read};
use shardmill_sinks::letters::{Item, LetterInput};

use super::storage::Storage;
use crate::cli::DebugArgs;

/// Dead letters that the message about an ambiguous file names.
const LETTERS_SHOWN: usize = 5;

/// What is to be run, or shown.
pub(super) enum Source {
    /// The recordings of an application.
    List(Vec<Found>),
    /// A batch.
    Recording(Box<Recording>),
}

/// The record that is meant, if one is named.
struct Wanted(Option<RecordName>);

impl Wanted {
    fn parse(record: Option<&str>) -> anyhow::Result<Self> {
        Ok(Self(record.map(RecordName::parse).transpose()?))
    }

    fn is(&self, letter: &DeadLetter) -> bool {
        self.0
            .as_ref()
            .is_none_or(|place| place.shard == letter.shard && place.is_at(&letter.record.position))
    }
}

pub(super) fn find(args: &DebugArgs, storage: &Storage, config: &Config) -> anyhow::Result<Source> {
    let wanted = Wanted::parse(args.record.as_deref())?;
    let file = PathBuf::from(&args.what);
    if file.is_file() {
        let recording = of_file(&file, &wanted, storage, config)?;
        return Ok(Source::Recording(Box::new(recording)));
    }
    let found = list(storage)?;
    let Some(record) = &wanted.0 else {
        let own = found.into_iter().filter(|found| match &found.summary {
            Ok(summary) => summary.application == args.what,
            Err(_) => true,
        });
        return Ok(Source::List(own.collect()));
    };
    let Some(recording) = of_application(&args.what, record, &found)? else {
        return Err(none(&args.what, record, storage, &found));
    };
    Ok(Source::Recording(Box::new(recording)))
}

fn list(storage: &Storage) -> anyhow::Result<Vec<Found>> {
    let folder = storage.folder()?;
    folder.list().with_context(|| {
        format!(
            "cannot read the recordings in {}: run this where the host runs, as its user, or copy \
                the folder and name it by --from",
            folder.path().display()
        )
    })
}

/// The newest whole recording of a batch with that record.
fn of_application(
    application: &str,
    record: &RecordName,
    found: &[Found],
) -> anyhow::Result<Option<Recording>> {
    let mut damaged = None;
    for one in found.iter().filter(|one| one.may_hold(application, record)) {
        match read(&one.path) {
            Ok(recording) if recording.holds(record) => return Ok(Some(recording)),
            Ok(_) => {}
            Err(problem) => damaged = Some(format!("{}: {problem}", one.path.display())),
        }
    }
    damaged.map_or(Ok(None), |damaged| Err(anyhow!(damaged)))
}

fn none(
    application: &str,
    record: &RecordName,
    storage: &Storage,
    found: &[Found],
) -> anyhow::Error {
    let folder = storage.folder_if_known();
    let folder = folder.map_or_else(String::new, |folder| folder.path().display().to_string());
    anyhow!(
        "there is no recording of {record} of application {application} among the {} in {folder}: \
            another host may have held the shard then, or it is too old; `shardmill debug \
            {application}` lists what is here, and `shardmill debug FILE` runs a dead letter alone",
        found.len()
    )
}

fn of_file(
    file: &Path,
    wanted: &Wanted,
    storage: &Storage,
    config: &Config,
) -> anyhow::Result<Recording> {
    let problem = match read(file) {
        Ok(recording) => return Ok(recording),
        Err(problem) => problem,
    };
    let Some(letter) = letter_of(file, wanted)? else {
        bail!("{}: {problem}", file.display());
    };
    if let Some(recording) = recording_of(&letter, storage)? {
        return Ok(recording);
    }
    alone(letter, config)
}

/// The letter that is meant; `None` if there is none in the file.
fn letter_of(file: &Path, wanted: &Wanted) -> anyhow::Result<Option<DeadLetter>> {
    let mut input = LetterInput::open(vec![file.to_owned()])?;
    let mut letters: Vec<DeadLetter> = Vec::new();
    let mut count = 0_usize;
    while let Some(item) = input.next_item()? {
        if let Item::Letter(letter) = item
            && wanted.is(&letter)
        {
            count += 1;
            if letters.len() < LETTERS_SHOWN {
                letters.push(*letter);
            }
        }
    }
    if count > 1 && !are_of_one_record(&letters) {
        let places: Vec<String> = letters
            .iter()
            .map(|letter| place_of(letter).to_string())
            .collect();
        bail!(
            "{} has {count} dead letters: say which record is meant, such as {}",
            file.display(),
            places.join(" or ")
        );
    }
    Ok(letters.pop())
}

fn are_of_one_record(letters: &[DeadLetter]) -> bool {
    letters
        .windows(2)
        .all(|two| place_of(&two[0]) == place_of(&two[1]))
}

fn place_of(letter: &DeadLetter) -> RecordName {
    RecordName::of(&letter.shard, &letter.record.position)
}

/// The recording of the letter's record, if it is known where to look and there is one.
fn recording_of(letter: &DeadLetter, storage: &Storage) -> anyhow::Result<Option<Recording>> {
    let Some(found) = storage
        .folder_if_known()
        .and_then(|folder| folder.list().ok())
    else {
        return Ok(None);
    };
    of_application(&letter.application, &place_of(letter), &found)
}

/// The letter's record alone, without a state or batches before it, and with the plugin's present
/// settings: all that a letter knows.
fn alone(letter: DeadLetter, config: &Config) -> anyhow::Result<Recording> {
    let name = plugin_of_label(letter.plugin.as_str());
    let plugins = config.settings_of_plugins().map_err(anyhow::Error::msg)?;
    let own = plugins.get(name);
    let destinations: Vec<String> = config.sinks.keys().cloned().collect();
    let context = InstanceContext {
        plugin: letter.plugin,
        application: letter.application,
        stream: letter.stream,
        shard: letter.shard,
        worker: config.worker_id.clone(),
        epoch: LeaseCounter(0),
        start: StartPosition::At(letter.record.position.sequence.clone()),
        destinations: own.map_or(destinations.clone(), |own| own.destinations(&destinations)),
        config: own.map_or_else(Vec::new, |own| own.config.clone().into_iter().collect()),
        limits: Some(own.map_or(config.limits, |own| own.limits)),
        permissions: Arc::new(own.map(|own| own.permissions.clone()).unwrap_or_default()),
    };
    Ok(Recording {
        secrets: context.permissions.secrets.keys().cloned().collect(),
        context: Arc::new(context),
        digest: letter.digest,
        state: None,
        is_state_missing: true,
        run_up: Vec::new(),
        missing_batches: 0,
        batch: Batch {
            records: Arc::new(vec![letter.record]),
            attempt: letter.attempts.max(1),
            millis_behind_latest: 0,
            trace: None,
        },
        failure: FailureRecord {
            code: FailureRecord::LETTER.to_owned(),
            message: letter.reason,
            records: Vec::new(),
        },
        took: Duration::ZERO,
        at_ms: letter.failed_at_ms,
    })
}
