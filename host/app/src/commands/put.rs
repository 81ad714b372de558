//! `shardmill put`.

use indicatif::{HumanBytes, HumanCount};
use shardmill_aws::StreamWriter;
use shardmill_core::stream::StreamName;

use super::{print, print_json};
use crate::cli::PutArgs;
use crate::config::AwsConfig;
use crate::feed::KeySource;
use crate::pump::{PumpSummary, pump};
use crate::shutdown::Signals;

pub(super) async fn execute(args: PutArgs) -> anyhow::Result<()> {
    let signals = Signals::listen()?;
    let aws = crate::aws::merge(&AwsConfig::default(), &args.aws)?;
    let clients = crate::aws::connect(&aws).await?;
    let writer = StreamWriter::new(clients.kinesis, StreamName::new(&args.stream)?);
    let key = args.key_field.map_or(KeySource::LineNumber, KeySource::Field);
    let summary = pump(&writer, &args.file, key, signals.stop()).await?;
    if args.json {
        return print_json(&summary);
    }
    let (records, bytes) = (HumanCount(summary.records), HumanBytes(summary.bytes));
    let again =
        if summary.retries > 0 { format!(", {} sent again", HumanCount(summary.retries)) } else { String::new() };
    let PumpSummary { seconds, records_per_second: rate, .. } = summary;
    print(&format!("{records} records ({bytes}) put into {} in {seconds:.1} s, {rate:.0}/s{again}", args.stream));
    Ok(())
}
