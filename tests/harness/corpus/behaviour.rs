//! Real guests that misbehave as they are told: loops, bombs, traps, floods and lies in every call.

use super::super::guests::guest;
use super::{Call, Entry, Expected, fails};

pub(super) fn entries() -> Vec<Entry> {
    let mut entries = stopped();
    entries.extend(floods());
    entries.extend(lies());
    entries.extend(states());
    entries
}

/// An entry of the guest `evil`, whose configuration is named like the entry.
macro_rules! evil {
    ($guest:literal, $misbehave:literal, $attacks:literal, $expected:expr) => {
        Entry {
            config: &[("misbehave", $misbehave)],
            ..Entry::new(
                concat!("evil-", $misbehave),
                $attacks,
                || vec![guest($guest)],
                $expected,
            )
        }
    };
    ($misbehave:literal, $attacks:literal, $expected:expr) => {
        evil!("evil", $misbehave, $attacks, $expected)
    };
}

fn stopped() -> Vec<Entry> {
    let deadline = |call| fails(call, "deadline", "did not return");
    let memory = |call| fails(call, "limit", "memory bytes");
    vec![
        evil!("loop", "D2", deadline(Call::Process)),
        evil!("loop-in-init", "D2", deadline(Call::Init)),
        evil!("loop-in-close", "D2", deadline(Call::Close)),
        evil!("sleep", "D14", deadline(Call::Process)),
        evil!("sleep-in-init", "D14", deadline(Call::Init)),
        evil!(
            "trap",
            "D1",
            fails(Call::Process, "trapped", "process panics as asked")
        ),
        evil!(
            "trap-in-init",
            "D4",
            fails(Call::Init, "trapped", "init panics as asked")
        ),
        evil!(
            "trap-in-close",
            "D1",
            fails(Call::Close, "trapped", "close panics as asked")
        ),
        evil!(
            "error",
            "D1",
            fails(Call::Process, "reported", "process fails as asked")
        ),
        evil!(
            "error-in-init",
            "D4",
            fails(Call::Init, "misconfigured", "init fails as asked")
        ),
        evil!(
            "error-in-close",
            "D1",
            fails(Call::Close, "reported", "close fails as asked")
        ),
        evil!("exit", "D1", fails(Call::Process, "trapped", "")),
        evil!("exit-in-init", "D4", fails(Call::Init, "trapped", "")),
        evil!("abort", "D1", fails(Call::Process, "trapped", "")),
        evil!("memory", "D3", memory(Call::Process)),
        evil!("memory-in-init", "D3", memory(Call::Init)),
        evil!("memory-leak", "D3", memory(Call::Process)),
        evil!("one-giant-allocation", "D3", memory(Call::Process)),
        // Rust guests keep their stack in linear memory, before its start: they run out of that,
        // not of the host's.
        evil!("recursion", "D3", fails(Call::Process, "trapped", "")),
    ]
}

fn floods() -> Vec<Entry> {
    vec![
        evil!("log-flood", "D13", Expected::Harmless),
        evil!("stdout-flood", "D13", Expected::Harmless),
        evil!("stderr-flood", "D13", Expected::Harmless),
        evil!("unended-line", "D13", Expected::Harmless),
        evil!("long-line", "D13", Expected::Harmless),
        evil!("control-characters", "D13", Expected::Harmless),
        evil!("metric-flood", "D13", Expected::Harmless),
        evil!("histogram-flood", "D27", Expected::Harmless),
        evil!("metric-names", "D13", Expected::Harmless),
        evil!("metric-values", "D13", Expected::Harmless),
        evil!(
            "giant-emit",
            "D13",
            fails(Call::Process, "limit", "passed to the host in one call")
        ),
        evil!(
            "many-emits",
            "D13",
            fails(Call::Process, "reported", "too much")
        ),
        evil!(
            "many-pieces",
            "D13",
            fails(Call::Process, "reported", "too much")
        ),
        evil!(
            "long-key",
            "D13",
            fails(
                Call::Process,
                "reported",
                "the key is longer than 2048 bytes"
            )
        ),
        evil!(
            "emit-nowhere",
            "D13",
            fails(Call::Process, "misconfigured", "known: ")
        ),
        evil!(
            "emit-in-init",
            "D13",
            fails(Call::Init, "reported", "only process and close may emit")
        ),
        evil!("giant-error", "D13", fails(Call::Process, "reported", "éé")),
        evil!(
            "many-failures",
            "D13",
            fails(Call::Process, "limit", "passed to the host in one call")
        ),
    ]
}

fn lies() -> Vec<Entry> {
    let invalid = |says| fails(Call::Process, "invalid_outcome", says);
    vec![
        evil!("bad-index", "D15", invalid("beyond the batch")),
        evil!("unsorted", "D15", invalid("failure index")),
        evil!("duplicate", "D15", invalid("is not above the one before")),
        evil!(
            "commit-beyond",
            "D16",
            invalid("commit index 1000000 is beyond the batch")
        ),
        evil!(
            "probe-world",
            "D22",
            fails(Call::Process, "reported", PROBED)
        ),
        evil!(
            "probe-more",
            "D22",
            fails(Call::Process, "reported", PROBED_MORE)
        ),
        evil!("retry-for-centuries", "D13", Expected::Contained),
        evil!("giant-message", "D13", Expected::Contained),
        evil!(
            "steering-trap",
            "D13",
            fails(Call::Process, "trapped", "steered as asked")
        ),
        evil!("steering-message", "D13", Expected::Contained),
    ]
}

const PROBED: &str =
    "env=0 args=0 file=false folder=false written=false denied=true bound=false name=false";
const PROBED_MORE: &str =
    "stdin=0 listening=false ipv6=false metadata=false link=false removed=false program=false";

/// The guest that keeps state, which the host asks for and gives back.
fn states() -> Vec<Entry> {
    vec![
        evil!(
            "evil_state",
            "state-too-large",
            "D13",
            fails(Call::Save, "state", "more than the limit of 262144")
        ),
        evil!(
            "evil_state",
            "state-giant",
            "D13",
            fails(Call::Save, "limit", "passed to the host in one call")
        ),
        evil!(
            "evil_state",
            "loop-in-save",
            "D2",
            fails(Call::Save, "deadline", "save")
        ),
        evil!(
            "evil_state",
            "trap-in-save",
            "D1",
            fails(Call::Save, "trapped", "save panics as asked")
        ),
        evil!(
            "evil_state",
            "error-in-save",
            "D1",
            fails(Call::Save, "reported", "save fails as asked")
        ),
        evil!(
            "evil_state",
            "memory-in-save",
            "D3",
            fails(Call::Save, "limit", "memory bytes")
        ),
        evil!(
            "evil_state",
            "emit-in-save",
            "D13",
            fails(Call::Save, "reported", "only process and close may emit")
        ),
        evil!(
            "evil_state",
            "loop-in-load",
            "D2",
            fails(Call::Load, "deadline", "load")
        ),
        evil!(
            "evil_state",
            "trap-in-load",
            "D1",
            fails(Call::Load, "trapped", "load panics as asked")
        ),
        evil!(
            "evil_state",
            "error-in-load",
            "D4",
            fails(
                Call::Load,
                "state",
                "this version refuses it: load fails as asked"
            )
        ),
    ]
}
