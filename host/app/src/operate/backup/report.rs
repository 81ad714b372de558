//! What `backup` shows.

use std::path::Path;

use comfy_table::Table;
use serde::Serialize;
use shardmill_core::backup::BackedUpShard;
use shardmill_core::stream::Utc;

use crate::cli::OutputArgs;
use crate::operate::backup_file::Content;
use crate::output::{Page, age_since, or_dash, print, print_json, short_digest, table};

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Report {
    application: String,
    to: String,
    bytes: usize,
    at_ms: u64,
    stream: String,
    arn: Option<String>,
    /// Where the version is that the fleet is to run, if one was deployed.
    deployed: Option<String>,
    shards: Vec<ShardRow>,
    /// Of the plugins folder.
    files: Vec<String>,
    notes: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct ShardRow {
    shard: String,
    checkpoint: String,
    /// When the record of the checkpoint arrived.
    arrived_ms: Option<u64>,
    read_at_ms: u64,
    state_bytes: Option<usize>,
    version: Option<String>,
}

impl Report {
    pub(super) fn of(to: &Path, content: &Content, bytes: usize, notes: Vec<String>) -> Self {
        let backup = &content.backup;
        Self {
            application: backup.application.clone(),
            to: to.display().to_string(),
            bytes,
            at_ms: backup.at_ms,
            stream: backup.stream.row.name.to_string(),
            arn: backup.stream.arn.clone(),
            deployed: backup.deploy.as_ref().map(|it| it.reference.to_string()),
            shards: backup.shards.iter().map(ShardRow::of).collect(),
            files: content.files.iter().map(|file| file.name.clone()).collect(),
            notes,
        }
    }

    /// Prints the report, as JSON if `--json` asks for it.
    pub(super) fn show(&self, output: OutputArgs) -> anyhow::Result<()> {
        if output.json {
            return print_json(self);
        }
        print(self.as_text().trim_end());
        Ok(())
    }

    fn as_text(&self) -> String {
        let mut page = Page::new(8);
        let (to, bytes) = (&self.to, self.bytes);
        page.line(
            "backup",
            format_args!("{to}, {bytes} bytes, of {}", Utc(self.at_ms)),
        );
        page.line(
            "of",
            format_args!("{}, stream {}", self.application, self.stream),
        );
        if let Some(deployed) = &self.deployed {
            page.line("deployed", deployed);
        }
        page.list("files", &self.files);
        page.plain(format_args!("\n{}", self.table()));
        for note in &self.notes {
            page.plain(format_args!("\n{note}"));
        }
        page.plain(
            "\nkeep it as secret as the records: it has what plugins keep of them, and their places",
        );
        page.into_text()
    }

    fn table(&self) -> Table {
        let mut table = table([
            "SHARD",
            "CHECKPOINT",
            "ITS RECORD ARRIVED",
            "STATE",
            "VERSION",
        ]);
        for row in &self.shards {
            let arrived = row
                .arrived_ms
                .map(|ms| age_since(ms, row.read_at_ms) + " before");
            let state = row.state_bytes.map(|bytes| format!("{bytes} bytes"));
            table.add_row([
                row.shard.clone(),
                row.checkpoint.clone(),
                or_dash(arrived.as_deref()),
                or_dash(state.as_deref()),
                or_dash(row.version.as_deref().map(short_digest)),
            ]);
        }
        table
    }
}

impl ShardRow {
    fn of(shard: &BackedUpShard) -> Self {
        let lease = &shard.lease;
        let digest = lease.plugin_digest.as_ref();
        Self {
            shard: lease.key.to_string(),
            checkpoint: lease.checkpoint.to_string(),
            arrived_ms: lease.settled_arrival_ms,
            read_at_ms: shard.read_at_ms,
            state_bytes: shard.state.as_ref().map(|state| state.bytes.len()),
            version: digest.map(|digest| digest.as_str().to_owned()),
        }
    }
}
