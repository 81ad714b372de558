//! `shardmill put`.

use std::fmt::Write;

use indicatif::{HumanBytes, HumanCount};
use shardmill_aws::{PutError, PutTarget, StreamWriter};
use shardmill_core::ports::ReadError;
use shardmill_serve::Signals;
use shardmill_sinks::letters::input_name;

use crate::author::feed::KeySource;
use crate::author::pump::{PumpSummary, PutKeys, pump};
use crate::cli::PutArgs;
use crate::output::{Interrupted, no_stream, print, print_json};

pub(crate) async fn execute(args: PutArgs) -> anyhow::Result<()> {
    let signals = Signals::listen()?;
    let clients = crate::aws::connect_to(&args.connection).await?;
    let target = PutTarget::parse(&args.stream)?;
    let writer = StreamWriter::to(clients.kinesis, target).speaking(clients.wire);
    let keys = PutKeys {
        source: key_source(args.key_field, args.key),
        explicit_hash: args.explicit_hash_key,
    };
    let summary = match pump(&writer, &args.file, keys, signals.stop()).await {
        Err(error) if is_without_stream(&error) => return Err(no_stream(&args.stream)),
        summary => summary?,
    };
    if args.output.json {
        print_json(&summary)?;
    } else if summary.records == 0 && !summary.was_stopped {
        let (stream, file) = (&args.stream, input_name(&args.file));
        print(&format!(
            "nothing was put into {stream}: {file} has no lines"
        ));
    } else {
        print(&as_text(&summary, &args.stream));
    }
    conclude(&summary)
}

fn conclude(summary: &PumpSummary) -> anyhow::Result<()> {
    if summary.was_stopped {
        let records = HumanCount(summary.records);
        let text = format!(": {records} records were put, the rest of the input was not");
        return Err(Interrupted(text).into());
    }
    Ok(())
}

/// The command line takes one of them at most.
fn key_source(field: Option<String>, key: Option<String>) -> KeySource {
    match (field, key) {
        (Some(field), _) => KeySource::Field(field),
        (None, Some(key)) => KeySource::Given(key),
        (None, None) => KeySource::LineNumber,
    }
}

/// Whether the stream did not exist from the start.
fn is_without_stream(error: &anyhow::Error) -> bool {
    error.downcast_ref::<PutError>().is_some_and(|error| {
        matches!(error.cause, ReadError::NotFound { .. }) && error.stored.records == 0
    })
}

fn as_text(summary: &PumpSummary, stream: &str) -> String {
    let (records, bytes) = (HumanCount(summary.records), HumanBytes(summary.bytes));
    let (seconds, rate) = (summary.seconds, summary.records_per_second);
    let mut text =
        format!("{records} records ({bytes}) put into {stream} in {seconds:.1} s, {rate:.0}/s");
    if summary.retries > 0 {
        // Writing to a string cannot fail.
        let _ = write!(text, ", {} sent again", HumanCount(summary.retries));
    }
    text
}
