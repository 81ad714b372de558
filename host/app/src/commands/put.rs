//! `shardmill put`.

use indicatif::{HumanBytes, HumanCount};
use shardmill_aws::{PutTarget, StreamWriter};

use super::{Interrupted, print, print_json};
use crate::cli::PutArgs;
use crate::feed::KeySource;
use crate::pump::{PumpSummary, pump};
use crate::shutdown::Signals;

pub(super) async fn execute(args: PutArgs) -> anyhow::Result<()> {
    let signals = Signals::listen()?;
    let clients = crate::aws::connect(&crate::aws::of_place(&args.aws)?).await?;
    let target = PutTarget::parse(&args.stream)?;
    let writer = StreamWriter::to(clients.kinesis, target);
    let key = args.key_field.map_or(KeySource::LineNumber, KeySource::Field);
    let summary = pump(&writer, &args.file, key, signals.stop()).await?;
    if args.json {
        print_json(&summary)?;
    } else {
        print(&told(&summary, &args.stream));
    }
    if summary.was_stopped {
        let line = format!(": {} records were put, and no more of the input", HumanCount(summary.records));
        return Err(Interrupted(line).into());
    }
    Ok(())
}

fn told(summary: &PumpSummary, stream: &str) -> String {
    let (records, bytes) = (HumanCount(summary.records), HumanBytes(summary.bytes));
    let again =
        if summary.retries > 0 { format!(", {} sent again", HumanCount(summary.retries)) } else { String::new() };
    let PumpSummary { seconds, records_per_second: rate, .. } = summary;
    format!("{records} records ({bytes}) put into {stream} in {seconds:.1} s, {rate:.0}/s{again}")
}
