//! The hostile corpus on the engine: each entry comes to what is expected of it, while a
//! well-behaved instance in the same runtime goes on and after which a new one can be made. Each
//! test is about the entries of one outcome.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::support::corpus::{self, Call, Entry, Expected};
use crate::support::{batch, context, instance, name, plugin, runtime};
use bytes::Bytes;
use shardmill_core::plugin::{GuestLimits, InstanceFate, ProcessorError};
use shardmill_core::ports::{CloseReason, InstanceContext, ProcessorFactory, RecordProcessor};
use shardmill_wasm::{LoadError, Plugin, Runtime, RuntimeOptions};

/// Deadline of what is expected to pass it.
const DEADLINE: Duration = Duration::from_millis(200);
/// Deadline of everything else: far more than any needs.
const PATIENCE: Duration = Duration::from_mins(2);
/// Batches that each instance is given: what leaks a little in each must have leaked enough.
const BATCHES: usize = 4;

/// Memory of all instances together: enough for one that takes all it may and for those that work
/// beside it, not for two that never gave theirs back.
const MEMORY_BYTES: usize = 112 << 20;

/// Bytes of what is told of any entry: the lines that an operator reads.
const TOLD_BYTES_MAX: usize = 6 << 10;

/// What came of an entry.
#[derive(Debug)]
enum Came {
    Refused(LoadError),
    Failed(Call, ProcessorError),
    Well,
}

/// Runs the entries of which `is_meant` is so, one after the other.
async fn run(is_meant: impl Fn(&Expected) -> bool) {
    let entries: Vec<_> = corpus::all()
        .into_iter()
        .filter(|entry| is_meant(&entry.expected))
        .collect();
    assert!(!entries.is_empty());
    let options = RuntimeOptions {
        instances_memory_bytes: MEMORY_BYTES,
        ..RuntimeOptions::default()
    };
    let runtime = Runtime::new(options).unwrap();
    let good = plugin(&runtime, "noop").await;
    let mut wrong = Vec::new();
    for entry in entries {
        for (number, file) in (entry.files)().into_iter().enumerate() {
            let came = outcome(&runtime, &good, &entry, file.into()).await;
            if !is_as_expected(&entry.expected, &came) {
                wrong.push(format!(
                    "{} ({number}): {}, came: {came:?}",
                    entry.name,
                    said(&came)
                ));
            }
            let told = said(&came);
            if told.len() > TOLD_BYTES_MAX || told.contains(char::is_control) {
                wrong.push(format!(
                    "{} ({number}) tells {} bytes: {:?}",
                    entry.name,
                    told.len(),
                    &told[..told.floor_char_boundary(TOLD_BYTES_MAX)]
                ));
            }
            let mut fresh = instance(&good, &[])
                .await
                .expect("a well-behaved plugin starts after it");
            fresh
                .process(batch(2))
                .await
                .expect("a well-behaved plugin works after it");
        }
    }
    assert!(
        wrong.is_empty(),
        "{} not as expected:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

async fn outcome(runtime: &Runtime, good: &Plugin, entry: &Entry, file: Bytes) -> Came {
    let loaded = while_others_work(good, runtime.load(name(entry.name), file)).await;
    let plugin = match loaded {
        Ok(plugin) => plugin,
        Err(error) => return Came::Refused(error),
    };
    match while_others_work(good, calls(&plugin, entry)).await {
        Ok(()) => Came::Well,
        Err((call, error)) => Came::Failed(call, error),
    }
}

/// A whole life: started, given batches, asked for its state, started from one, closed.
async fn calls(plugin: &Plugin, entry: &Entry) -> Result<(), (Call, ProcessorError)> {
    let context = limited(entry);
    let start = |state| plugin.instantiate(Arc::clone(&context), state);
    let mut instance = start(None).await.map_err(|error| (Call::Init, error))?;
    for _ in 0..BATCHES {
        let processed = instance.process(batch(2)).await;
        check_fate(instance.as_mut(), processed.as_ref().err()).await;
        processed.map_err(|error| (Call::Process, error))?;
    }
    if plugin.saves_state() {
        let saved = instance.save().await;
        check_fate(instance.as_mut(), saved.as_ref().err()).await;
        saved.map_err(|error| (Call::Save, error))?;
        start(Some(Bytes::from_static(b"foreign")))
            .await
            .map_err(|error| (Call::Load, error))?;
    }
    instance
        .close(CloseReason::Shutdown)
        .await
        .map_err(|error| (Call::Close, error))?;
    Ok(())
}

/// What is dead is never entered again; what is not can be.
async fn check_fate(instance: &mut dyn RecordProcessor, error: Option<&ProcessorError>) {
    let Some(error) = error else { return };
    let again = instance.process(batch(1)).await;
    let is_refused = matches!(again, Err(ProcessorError::Host { .. }));
    assert_eq!(
        is_refused,
        error.fate() == InstanceFate::Dead,
        "after {error}: {again:?}"
    );
}

fn limited(entry: &Entry) -> Arc<InstanceContext> {
    let is_stopped_by_time = matches!(
        entry.expected,
        Expected::Fails {
            kind: "deadline",
            ..
        } | Expected::Runs
            | Expected::Contained
    );
    let deadline = if is_stopped_by_time {
        DEADLINE
    } else {
        PATIENCE
    };
    let limits = GuestLimits {
        process_deadline: deadline,
        init_deadline: deadline,
        ..GuestLimits::default()
    };
    let general = context(entry.config);
    Arc::new(InstanceContext {
        limits: Some(limits),
        ..InstanceContext::clone(&general)
    })
}

/// Both share the runtime, so an attack that held anything shared would show.
async fn while_others_work<T>(plugin: &Plugin, attack: impl Future<Output = T>) -> T {
    let mut good = instance(plugin, &[]).await.unwrap();
    let mut batches = 0_u32;
    let mut attack = std::pin::pin!(attack);
    let result = loop {
        tokio::select! {
            biased;
            processed = good.process(batch(10)) => { processed.unwrap(); batches += 1; }
            result = &mut attack, if batches > 0 => break result,
        }
    };
    assert!(batches > 0);
    result
}

fn is_as_expected(expected: &Expected, came: &Came) -> bool {
    // A panic of the host shows as an error of the host, and memory that did not come back as a
    // lack of it.
    let is_hosts = match came {
        Came::Refused(error) => matches!(error, LoadError::Host { .. }),
        Came::Failed(_, error) => error.is_hosts(),
        Came::Well => false,
    };
    if is_hosts {
        return false;
    }
    match (*expected, came) {
        (Expected::Contained, _)
        | (Expected::Runs, Came::Failed(..) | Came::Well)
        | (Expected::Harmless, Came::Well) => true,
        (Expected::Refused { says, mend }, Came::Refused(error)) => {
            let text = error.to_string();
            text.contains(says) && text.contains(mend)
        }
        (Expected::Fails { call, kind, says }, Came::Failed(failed, error)) => {
            (call, kind) == (*failed, error.code()) && error.to_string().contains(says)
        }
        _ => false,
    }
}

fn said(came: &Came) -> String {
    match came {
        Came::Refused(error) => error.to_string(),
        Came::Failed(_, error) => error.to_string(),
        Came::Well => "nothing".to_owned(),
    }
}

fn fails_as(expected: &Expected, wanted: &str) -> bool {
    matches!(expected, Expected::Fails { kind, .. } if *kind == wanted)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_plugin_is_refused_by_what_it_is_with_the_mend() {
    run(|expected| matches!(expected, Expected::Refused { .. })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_loop_or_wait_in_any_call_is_stopped_at_the_deadline() {
    run(|expected| fails_as(expected, "deadline")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_big_or_asks_for_too_much_is_stopped_by_the_limit_that_is_named() {
    run(|expected| fails_as(expected, "limit")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trap_costs_the_instance_and_says_why() {
    run(|expected| fails_as(expected, "trapped")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outcomes_that_make_no_sense_are_refused_whole() {
    run(|expected| fails_as(expected, "invalid_outcome")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_is_denied_something_can_report_it_and_lives_on() {
    run(|expected| {
        ["reported", "misconfigured", "state"]
            .iter()
            .any(|kind| fails_as(expected, kind))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_are_cut_and_odd_but_valid_components_run() {
    run(|expected| *expected == Expected::Harmless).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_flipped_lost_or_cut_off_the_host_refuses_it_or_runs_it() {
    run(|expected| *expected == Expected::Contained).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_function_that_the_host_links_may_be_called_with_anything_and_without_end() {
    run(|expected| *expected == Expected::Runs).await;
}

#[test]
fn the_corpus_has_names_of_its_own_and_covers_the_table() {
    let entries = corpus::all();
    let names: BTreeSet<_> = entries.iter().map(|entry| entry.name).collect();
    assert_eq!(names.len(), entries.len(), "a name is used twice");
    assert!(entries.len() >= 80, "{}", entries.len());
    let kinds = [
        "deadline",
        "limit",
        "trapped",
        "invalid_outcome",
        "reported",
        "misconfigured",
        "state",
    ];
    let is_known = |expected: &Expected| match expected {
        Expected::Fails { kind, .. } => kinds.contains(kind),
        _ => true,
    };
    assert!(
        entries.iter().all(|entry| is_known(&entry.expected)),
        "an outcome that no test looks for"
    );
    // The others of table D are about files in the folder, records and sinks.
    for row in [
        "D1", "D2", "D3", "D4", "D5", "D6", "D7", "D12", "D13", "D14", "D15", "D16", "D17", "D22",
        "D25", "D26", "D27",
    ] {
        assert!(
            entries.iter().any(|entry| entry.attacks == row),
            "nothing attacks {row}"
        );
    }
}

#[test]
fn the_page_of_attacks_lists_the_corpus_as_it_is() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/attacks.md");
    let page = std::fs::read_to_string(page).unwrap();
    for (class, entries) in corpus::by_class() {
        let row = format!("| `{class}` | {} |", entries.len());
        assert!(page.contains(&row), "docs/attacks.md lacks the row {row}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_several_lines_of_a_result_say_is_cut_and_made_printable() {
    let runtime = runtime(GuestLimits::default());
    let evil = plugin(&runtime, "evil").await;
    for (how, expected) in [
        ("giant-message", "ééé"),
        ("steering-message", " [2J ]0;owned "),
    ] {
        let mut instance = instance(&evil, &[("misbehave", how)]).await.unwrap();
        let processed = instance.process(batch(2)).await.unwrap();
        let message = &processed.outcome.failures[0].message;
        assert!(
            message.starts_with(expected) && message.len() <= 1_030,
            "{message:?}"
        );
        assert!(!message.contains(char::is_control), "{message:?}");
    }
}

#[tokio::test]
async fn an_instance_has_the_limits_of_its_context() {
    let plugin = plugin(&runtime(GuestLimits::default()), "evil").await;
    let context = |limits| {
        let general = context(&[]);
        Arc::new(InstanceContext {
            limits,
            ..InstanceContext::clone(&general)
        })
    };
    assert!(plugin.instantiate(context(None), None).await.is_ok());
    let tight = GuestLimits {
        memory_bytes: 1 << 16,
        ..GuestLimits::default()
    };
    let refused = plugin
        .instantiate(context(Some(tight)), None)
        .await
        .err()
        .expect("it does not fit");
    assert!(refused.to_string().contains("memory"), "{refused}");
}
