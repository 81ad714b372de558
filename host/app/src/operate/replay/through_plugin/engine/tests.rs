use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;

use shardmill_core::backoff::Backoff;
use shardmill_core::lease::{LeaseCounter, WorkerId};
use shardmill_core::plugin::{PluginDigest, PluginName, ProcessorError};
use shardmill_core::ports::{
    Clock, CloseReason, Commit, FailureKind, InstanceContext, LastOutput, Origin, Outcome,
    PortFuture, Processed, ProcessorFactory, RecordFailure, RecordProcessor, Sink, SinkError,
    StartPosition,
};
use shardmill_core::stream::{
    Batch, Emitted, Position, Record, SequenceNumber, ShardId, StreamName,
};
use shardmill_sinks::letters::{Fragment, encode};
use shardmill_worker::BatchLimits;

use super::*;
use crate::operate::replay::remainder::Remainder;
use crate::operate::replay::through_plugin::options::Versions;

/// A plugin by what each record's data says; notes what it gets.
#[derive(Default)]
struct Told {
    seen: Arc<Mutex<Vec<String>>>,
    fails_init: bool,
}

struct Instance {
    shard: String,
    seen: Arc<Mutex<Vec<String>>>,
}

impl ProcessorFactory for Told {
    fn digest(&self) -> &PluginDigest {
        static DIGEST: std::sync::LazyLock<PluginDigest> =
            std::sync::LazyLock::new(|| PluginDigest::from_hex(&"f".repeat(64)).unwrap());
        &DIGEST
    }

    fn instantiate(
        &self,
        context: Arc<InstanceContext>,
        _: Option<bytes::Bytes>,
    ) -> PortFuture<'_, Result<Box<dyn RecordProcessor>, ProcessorError>> {
        let instance = Instance {
            shard: context.shard.to_string(),
            seen: Arc::clone(&self.seen),
        };
        self.seen
            .lock()
            .unwrap()
            .push(format!("init {} {}", context.application, context.shard));
        let result = if self.fails_init {
            Err(ProcessorError::Reported {
                message: "no".into(),
            })
        } else {
            Ok(Box::new(instance) as Box<dyn RecordProcessor>)
        };
        Box::pin(std::future::ready(result))
    }
}

impl RecordProcessor for Instance {
    fn process(&mut self, batch: Batch) -> PortFuture<'_, Result<Processed, ProcessorError>> {
        let texts: Vec<_> = batch
            .records
            .iter()
            .map(|record| String::from_utf8(record.data.to_vec()).unwrap())
            .collect();
        self.seen.lock().unwrap().push(format!(
            "{}#{}: {}",
            self.shard,
            batch.attempt,
            texts.join(" ")
        ));
        if texts.iter().any(|text| text == "trap") {
            let message = "unreachable".to_owned();
            return Box::pin(std::future::ready(Err(ProcessorError::Trapped { message })));
        }
        let mut processed = Processed::default();
        let Outcome {
            failures, commit, ..
        } = &mut processed.outcome;
        for (index, text) in (0_u32..).zip(&texts) {
            let kind = match text.as_str() {
                "retry" => FailureKind::Retry,
                "once" if batch.attempt == 1 => FailureKind::Retry,
                "reject" => FailureKind::Reject,
                "beyond" => {
                    failures.push(RecordFailure {
                        index: 99,
                        kind: FailureKind::Retry,
                        message: String::new(),
                    });
                    continue;
                }
                "hold" => {
                    commit.get_or_insert(
                        index
                            .checked_sub(1)
                            .map_or(Commit::Nothing, Commit::Through),
                    );
                    continue;
                }
                _ => {
                    let data = text.clone().into_bytes().into();
                    processed.emitted.push(Emitted {
                        destination: "out".into(),
                        key: String::new(),
                        data,
                    });
                    continue;
                }
            };
            failures.push(RecordFailure {
                index,
                kind,
                message: format!("{text} as told"),
            });
        }
        let checked = processed.outcome.check(texts.len());
        Box::pin(std::future::ready(checked.map(|()| processed)))
    }

    fn close(
        self: Box<Self>,
        reason: CloseReason,
    ) -> PortFuture<'static, Result<LastOutput, ProcessorError>> {
        self.seen
            .lock()
            .unwrap()
            .push(format!("close {} {}", self.shard, reason.code()));
        let last = Emitted {
            destination: "out".into(),
            key: String::new(),
            data: "last".into(),
        };
        Box::pin(std::future::ready(Ok(LastOutput {
            emitted: vec![last],
            charges: Vec::new(),
        })))
    }
}

impl Versions for Arc<Told> {
    fn version<'a>(
        &'a mut self,
        plugin: &'a PluginName,
    ) -> PortFuture<'a, anyhow::Result<Arc<dyn ProcessorFactory>>> {
        let version: anyhow::Result<Arc<dyn ProcessorFactory>> = match plugin.as_str() {
            "missing" => Err(anyhow::anyhow!("there is no missing.wasm")),
            _ => Ok(Arc::<Told>::clone(self)),
        };
        Box::pin(std::future::ready(version))
    }
}

/// Keeps output; fails so many times first.
#[derive(Default)]
struct Out {
    stored: Mutex<Vec<String>>,
    failures: Mutex<u32>,
}

impl Sink for Out {
    fn write(
        &self,
        _origin: Arc<Origin>,
        emitted: Arc<Vec<Emitted>>,
    ) -> PortFuture<'_, Result<(), SinkError>> {
        let mut failures = self.failures.lock().unwrap();
        if *failures > 0 {
            *failures -= 1;
            let error = SinkError {
                sink: "out".into(),
                message: "down".into(),
            };
            return Box::pin(std::future::ready(Err(error)));
        }
        let text = |piece: &Emitted| String::from_utf8(piece.data.to_vec()).unwrap();
        self.stored.lock().unwrap().extend(emitted.iter().map(text));
        Box::pin(std::future::ready(Ok(())))
    }

    fn flush(&self) -> PortFuture<'_, Result<(), SinkError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

struct Noon;

impl Clock for Noon {
    fn now(&self) -> shardmill_core::time::Moment {
        shardmill_core::time::Moment::from_origin(std::time::Duration::ZERO)
    }

    fn wall_ms(&self) -> u64 {
        1_000_000
    }
}

fn letter(plugin: &str, shard: u32, sequence: u64, data: &str) -> DeadLetter {
    DeadLetter {
        record: Record {
            data: data.as_bytes().to_vec().into(),
            partition_key: "k".into(),
            explicit_hash_key: None,
            position: Position::plain(SequenceNumber::parse(&sequence.to_string()).unwrap()),
            arrival_ms: 5,
        },
        stream: StreamName::new("orders").unwrap(),
        shard: ShardId::new(format!("s-{shard}")).unwrap(),
        application: format!("app-of-{plugin}"),
        plugin: PluginName::new(plugin).unwrap(),
        digest: PluginDigest::from_hex(&"0".repeat(64)).unwrap(),
        reason: "before".into(),
        attempts: 4,
        failed_at_ms: 7,
    }
}

/// Letters of one plugin and shard, numbered from 1.
fn letters(data: &[&str]) -> Vec<DeadLetter> {
    (1..)
        .zip(data)
        .map(|(sequence, data)| letter("alerts", 0, sequence, data))
        .collect()
}

#[derive(Default)]
struct Case {
    out: Arc<Out>,
    plugin: Arc<Told>,
    only: Option<&'static str>,
    stop: CancellationToken,
    raw: Vec<Vec<u8>>,
}

struct Ended {
    summary: ReplaySummary,
    seen: Vec<String>,
    stored: Vec<String>,
    left: Vec<String>,
}

impl Ended {
    /// Data and reason of what is left.
    fn left(&self) -> Vec<(String, String, u32)> {
        let read = |line: &String| {
            let letter = Fragment::decode(line.as_bytes()).unwrap().letter;
            let data = String::from_utf8(letter.record.data.to_vec()).unwrap();
            (data, letter.reason, letter.attempts)
        };
        self.left.iter().map(read).collect()
    }
}

impl Case {
    async fn run(self, letters: &[DeadLetter]) -> Ended {
        let folder = tempfile::tempdir().unwrap();
        let (input, left) = (
            folder.path().join("in.ndjson"),
            folder.path().join("left.ndjson"),
        );
        let lines = letters
            .iter()
            .map(|letter| encode(letter, None).remove(0).to_vec());
        let lines: Vec<_> = lines.chain(self.raw).collect();
        std::fs::write(&input, lines.join(&b'\n')).unwrap();
        let options = ReplayOptions {
            only: self.only.map(|name| PluginName::new(name).unwrap()),
            attempts: 3,
            start: StartPosition::default(),
            leaves_rest: true,
            batches: BatchLimits {
                records: 4,
                ..BatchLimits::default()
            },
            backoff: Backoff::standard(),
            worker: WorkerId::new("replay").unwrap(),
            epoch: LeaseCounter(0),
            destinations: vec!["out".into()],
            plugins: HashMap::new(),
        };
        let ports = ReplayPorts {
            versions: Box::new(Arc::clone(&self.plugin)),
            sink: Arc::clone(&self.out) as Arc<dyn Sink>,
            clock: Arc::new(Noon),
            remainder: Remainder::at(&left).unwrap(),
        };
        let input = LetterInput::open(vec![input]).unwrap();
        let summary = Replay::new(options, ports)
            .run(input, &self.stop, |_| {})
            .await
            .unwrap();
        let left = std::fs::read_to_string(&left).unwrap_or_default();
        Ended {
            summary,
            seen: std::mem::take(&mut self.plugin.seen.lock().unwrap()),
            stored: std::mem::take(&mut self.out.stored.lock().unwrap()),
            left: left.lines().map(str::to_owned).collect(),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn letters_go_through_an_instance_for_each_shard_in_batches_and_their_output_is_stored() {
    let mut all = letters(&["a", "b", "c", "d", "e"]);
    let later = DeadLetter {
        failed_at_ms: 8,
        ..letter("alerts", 0, 2, "again")
    };
    all.extend([
        letter("alerts", 1, 1, "x"),
        letter("alerts", 0, 6, "f"),
        later,
    ]);
    let ended = Case::default().run(&all).await;
    let expected = [
        "init app-of-alerts s-0",
        "s-0#1: a b c d",
        "s-0#1: e",
        "init app-of-alerts s-1",
        "s-1#1: x",
        "s-0#1: f",
        "s-0#1: again",
        "close s-0 shutdown",
        "close s-1 shutdown",
    ];
    assert_eq!(ended.seen, expected);
    assert_eq!(
        ended.stored,
        ["a", "b", "c", "d", "e", "x", "f", "again", "last", "last"]
    );
    assert_eq!(
        ended.summary,
        ReplaySummary {
            processed: 8,
            ..ReplaySummary::default()
        }
    );
    assert!(ended.summary.is_complete());
}

#[tokio::test(start_paused = true)]
async fn a_letter_that_traps_is_found_and_left_with_its_new_reason_and_the_others_are_processed() {
    let ended = Case::default()
        .run(&letters(&["a", "b", "trap", "d"]))
        .await;
    assert_eq!(ended.stored, ["a", "b", "d", "last"]);
    assert_eq!(
        ended.left(),
        [(
            "trap".into(),
            "out of attempts: the plugin trapped: unreachable".into(),
            4 + 2 + 3
        )]
    );
    assert_eq!((ended.summary.processed, ended.summary.failed), (3, 1));
    let left = Fragment::decode(ended.left[0].as_bytes()).unwrap().letter;
    assert_eq!(
        (left.failed_at_ms, left.digest.as_str()),
        (1_000_000, "f".repeat(64).as_str())
    );
    assert!(!ended.summary.is_complete());
}

#[tokio::test(start_paused = true)]
async fn records_that_the_plugin_fails_are_tried_again_unless_it_rejects_them() {
    let ended = Case::default()
        .run(&letters(&["retry", "once", "reject", "d"]))
        .await;
    assert_eq!(
        ended.seen[1..4],
        [
            "s-0#1: retry once reject d",
            "s-0#2: retry once",
            "s-0#3: retry"
        ]
    );
    let reasons = [
        ("reject".into(), "rejected: reject as told".into(), 5),
        ("retry".into(), "out of attempts: retry as told".into(), 7),
    ];
    assert_eq!(ended.left(), reasons);
    assert_eq!(ended.stored, ["d", "once", "last"]);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_speaks_of_letters_it_did_not_get_settles_none() {
    let ended = Case::default().run(&letters(&["a", "beyond"])).await;
    assert_eq!((ended.summary.processed, ended.summary.failed), (1, 1));
    assert!(
        ended.left()[0]
            .1
            .contains("failure index 99 is beyond the batch of 1"),
        "{:?}",
        ended.left()
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_held_back_counts_when_it_is_committed_and_is_left_if_it_never_is() {
    let ended = Case::default()
        .run(&letters(&["a", "hold", "c", "d", "e", "f", "g", "hold"]))
        .await;
    assert_eq!((ended.summary.processed, ended.summary.held_back), (7, 1));
    assert_eq!(
        ended.left(),
        [(
            "hold".into(),
            "held back by the plugin to the end".into(),
            5
        )]
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_dead_instance_held_back_goes_to_the_next_one_as_in_a_host() {
    let ended = Case::default()
        .run(&letters(&["hold", "b", "c", "d", "trap", "f"]))
        .await;
    let calls: Vec<&str> = ended
        .seen
        .iter()
        .map(String::as_str)
        .filter(|call| call.contains('#'))
        .collect();
    let held = "s-0#1: hold b c d";
    let expected = [
        held,
        "s-0#1: trap f",
        held,
        "s-0#2: trap",
        held,
        "s-0#3: trap",
        held,
        "s-0#4: trap",
        held,
        "s-0#2: f",
    ];
    assert_eq!(calls, expected);
    // The commit of the last batch covers what was held back before it.
    assert_eq!(
        (
            ended.summary.processed,
            ended.summary.held_back,
            ended.summary.failed
        ),
        (5, 0, 1)
    );
    assert_eq!(
        ended.left(),
        [(
            "trap".into(),
            "out of attempts: the plugin trapped: unreachable".into(),
            4 + 4
        )]
    );
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_is_down_for_a_while_is_waited_for_and_one_that_stays_down_leaves_everything() {
    let case = Case::default();
    *case.out.failures.lock().unwrap() = 5;
    let ended = case.run(&letters(&["a"])).await;
    assert_eq!(
        (ended.stored, ended.summary.processed),
        (vec!["a".to_owned(), "last".to_owned()], 1)
    );

    let case = Case::default();
    *case.out.failures.lock().unwrap() = u32::MAX;
    let ended = case.run(&letters(&["a", "b", "c", "d", "e"])).await;
    assert_eq!((ended.summary.processed, ended.summary.not_tried), (0, 5));
    assert_eq!(
        ended.summary.stopped.as_deref(),
        Some("sink out cannot store output: down")
    );
    let left: Vec<_> = ended.left().into_iter().collect();
    assert_eq!(left[4], ("e".into(), "before".into(), 4), "as it was");
    assert_eq!(left.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_stop_leaves_what_was_not_tried_as_it_was() {
    let case = Case::default();
    case.stop.cancel();
    let ended = case.run(&letters(&["a", "b"])).await;
    assert_eq!(
        (ended.summary.not_tried, ended.summary.stopped.as_deref()),
        (2, Some("by a signal"))
    );
    assert_eq!((ended.left().len(), ended.seen.len()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn code_that_is_missing_leaves_everything_and_says_why() {
    let all = [letter("missing", 0, 1, "a"), letter("alerts", 0, 1, "b")];
    let ended = Case::default().run(&all).await;
    assert_eq!(
        ended.summary.stopped.as_deref(),
        Some("there is no missing.wasm")
    );
    assert_eq!((ended.summary.not_tried, ended.left().len()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn an_init_that_fails_is_no_letters_failure_and_leaves_every_letter_as_it_was() {
    let case = Case {
        plugin: Arc::new(Told {
            fails_init: true,
            ..Told::default()
        }),
        ..Case::default()
    };
    let ended = case.run(&letters(&["a", "b"])).await;
    assert_eq!((ended.summary.failed, ended.summary.not_tried), (0, 2));
    assert!(
        ended
            .summary
            .stopped
            .unwrap()
            .contains("the plugin reported an error: no")
    );
    assert_eq!(
        ended.seen.len(),
        12,
        "tried for a while, and not for ever: {:?}",
        ended.seen
    );
    assert_eq!(ended.left, encoded(&letters(&["a", "b"])));
}

fn encoded(letters: &[DeadLetter]) -> Vec<String> {
    let line =
        |letter: &DeadLetter| String::from_utf8(encode(letter, None).remove(0).to_vec()).unwrap();
    letters.iter().map(line).collect()
}

#[tokio::test(start_paused = true)]
async fn letters_of_other_plugins_and_other_lines_are_left_out_and_counted() {
    let all = [
        letter("alerts", 0, 1, "a"),
        letter("delays", 0, 2, "b"),
        letter("alerts", 0, 1, "a"),
    ];
    let case = Case {
        only: Some("alerts"),
        raw: vec![b"{\"output\":1}".to_vec()],
        ..Case::default()
    };
    let ended = case.run(&all).await;
    let expected = ReplaySummary {
        processed: 1,
        left_out: 1,
        repeats: 1,
        other_lines: 1,
        ..ReplaySummary::default()
    };
    assert_eq!(ended.summary, expected);
}

#[tokio::test(start_paused = true)]
async fn damaged_lines_and_lone_parts_are_kept_as_they_are() {
    let good = encode(&letter("alerts", 0, 1, "a"), None).remove(0);
    let damaged = good[..good.len() - 5].to_vec();
    let parts = encode(
        &letter("alerts", 0, 2, &"x".repeat(100_000)),
        Some(64 << 10),
    );
    let raw = vec![damaged.clone(), parts[1].to_vec()];
    let ended = Case {
        raw,
        ..Case::default()
    }
    .run(&letters(&["a"]))
    .await;
    assert_eq!((ended.summary.processed, ended.summary.damaged), (1, 2));
    assert_eq!(
        ended.left.iter().map(String::as_bytes).collect::<Vec<_>>(),
        [&damaged[..], &parts[1][..]]
    );
}

#[tokio::test(start_paused = true)]
async fn more_shards_than_instances_are_served_one_after_the_other() {
    let all: Vec<_> = (0..100)
        .map(|shard| letter("alerts", shard, 1, "a"))
        .collect();
    let ended = Case::default().run(&all).await;
    assert_eq!(ended.summary.processed, 100);
    let alive = ended.seen.iter().scan(0_usize, |alive, event| {
        *alive = if event.starts_with("init") {
            *alive + 1
        } else {
            *alive - usize::from(event.starts_with("close"))
        };
        Some(*alive)
    });
    assert_eq!(alive.max(), Some(SESSIONS_MAX));
}

#[test]
fn a_file_of_what_is_left_is_never_overwritten() {
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(
        Remainder::at(file.path())
            .err()
            .unwrap()
            .to_string()
            .contains("already exists")
    );
    assert!(
        Remainder::at(Path::new("/nowhere/left.ndjson")).is_ok(),
        "made when it is needed"
    );
}
