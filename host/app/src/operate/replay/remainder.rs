//! The file of what a replay did not process. It is made when there is something to put into it.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use shardmill_core::ports::DeadLetter;
use shardmill_sinks::letters::{LetterInput, encode};

use super::summary::ReplaySummary;

/// Dead letters that are left, to be replayed another day.
pub(crate) struct Remainder {
    path: PathBuf,
    file: Option<BufWriter<File>>,
}

impl Remainder {
    /// Nothing is made yet; but a file that is there already is refused now, so that no letter of
    /// it is overwritten.
    pub(crate) fn at(path: &Path) -> anyhow::Result<Self> {
        if path.try_exists().unwrap_or(true) {
            anyhow::bail!(
                "{} already exists: name another file with --failed",
                path.display()
            );
        }
        Ok(Self {
            path: path.to_owned(),
            file: None,
        })
    }

    /// Keeps a letter, whole.
    pub(crate) fn keep(&mut self, letter: &DeadLetter) -> anyhow::Result<()> {
        encode(letter, None)
            .iter()
            .try_for_each(|line| self.keep_line(line))
    }

    /// Keeps a line as it is.
    pub(crate) fn keep_line(&mut self, line: &[u8]) -> anyhow::Result<()> {
        let path = &self.path;
        let mut write = || -> std::io::Result<()> {
            if self.file.is_none() {
                let file = OpenOptions::new().write(true).create_new(true).open(path)?;
                self.file = Some(BufWriter::new(file));
            }
            let Some(file) = &mut self.file else {
                return Ok(());
            };
            file.write_all(line)?;
            file.write_all(b"\n")
        };
        write().with_context(|| format!("cannot write what is left to {}", self.path.display()))
    }

    /// Keeps the parts of letters that are not complete, and books what is known at the end of an
    /// input.
    pub(crate) fn keep_incomplete(
        &mut self,
        input: &mut LetterInput,
        summary: &mut ReplaySummary,
    ) -> anyhow::Result<()> {
        for incomplete in input.incomplete() {
            let letter = &incomplete.letter;
            let place = format!(
                "{} {} {}",
                letter.stream, letter.shard, letter.record.position
            );
            tracing::warn!(place, parts = incomplete.parts, missing = ?incomplete.missing, "parts of a letter are missing");
            summary.damaged += 1;
            incomplete
                .found
                .iter()
                .try_for_each(|fragment| self.keep_line(&fragment.encode()))?;
        }
        (summary.other_lines, summary.repeats) = (input.other_lines(), input.repeats());
        Ok(())
    }

    /// Stores all of it; `None` if nothing was left.
    pub(crate) fn finish(&mut self) -> anyhow::Result<Option<PathBuf>> {
        let Some(file) = self.file.take() else {
            return Ok(None);
        };
        let stored = file
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error)
            .and_then(|file| file.sync_all());
        stored.with_context(|| format!("cannot write what is left to {}", self.path.display()))?;
        Ok(Some(self.path.clone()))
    }
}
