//! `shardmill plan --hosts`: how many hosts are wanted, by the function that the leader uses, on
//! the rows that it reads.

mod report;
mod text;

use shardmill_config::Config;

use super::super::reading::Reading;
use crate::cli::PlanArgs;
use crate::output::{print, print_json};

pub(super) fn execute(args: &PlanArgs, reading: &Reading) -> anyhow::Result<()> {
    let config = args.reading.connection.config.as_deref();
    let config = config.map(Config::load).transpose()?;
    let report = report::report(&args.application, config.as_ref(), reading)?;
    if args.reading.output.json {
        return print_json(&report);
    }
    print(text::as_text(&report).trim_end());
    Ok(())
}
