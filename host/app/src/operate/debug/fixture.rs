//! A recording's records as a file for `shardmill test --captured`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use shardmill_core::recording::Recording;
use shardmill_sinks::Captured;

/// Writes the records of the run-up and of the batch, in order, to a file that is not there yet.
pub(super) fn save(recording: &Recording, path: &Path) -> anyhow::Result<()> {
    let write = || -> std::io::Result<()> {
        let mut file = BufWriter::new(File::create_new(path)?);
        let batches = recording.run_up.iter().chain([&recording.batch]);
        for record in batches.flat_map(|batch| batch.records.iter()) {
            let captured = Captured {
                stream: recording.context.stream.clone(),
                shard: recording.context.shard.clone(),
                record: record.clone(),
            };
            file.write_all(&captured.encode())?;
            file.write_all(b"\n")?;
        }
        file.flush()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
