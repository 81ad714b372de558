//! The file of what a replay did not process. It is created when the first letter is left.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::DeadLetter;
use shardmill_sinks::letters::{Item, LetterInput, encode};

use super::summary::ReplaySummary;

/// Dead letters that are left, to be replayed later.
pub(crate) struct Remainder {
    path: PathBuf,
    file: Option<BufWriter<File>>,
}

impl Remainder {
    /// Creates nothing yet. A file that exists already is an error, so that no letter in it is
    /// overwritten.
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

    /// The letter of an item, if it is one of the plugin `only`. A damaged line is kept; both that
    /// and a letter of another plugin are counted.
    pub(super) fn wanted(
        &mut self,
        item: Item,
        only: Option<&PluginName>,
        summary: &mut ReplaySummary,
    ) -> anyhow::Result<Option<DeadLetter>> {
        match item {
            Item::Letter(letter) if only.is_none_or(|only| *only == letter.plugin) => {
                return Ok(Some(*letter));
            }
            Item::Letter(_) => summary.left_out += 1,
            Item::Damaged { problem, line } => {
                tracing::warn!(problem, "kept as it is");
                summary.damaged += 1;
                self.keep_line(&line)?;
            }
        }
        Ok(None)
    }

    /// Keeps a letter, whole.
    pub(crate) fn keep(&mut self, letter: &DeadLetter) -> anyhow::Result<()> {
        encode(letter, None)
            .iter()
            .try_for_each(|line| self.keep_line(line))
    }

    /// Keeps a line as it is.
    pub(crate) fn keep_line(&mut self, line: &[u8]) -> anyhow::Result<()> {
        self.write_line(line).with_context(|| self.cannot_write())
    }

    fn write_line(&mut self, line: &[u8]) -> std::io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            missing => {
                let mut options = OpenOptions::new();
                let file = options.write(true).create_new(true).open(&self.path)?;
                missing.insert(BufWriter::new(file))
            }
        };
        file.write_all(line)?;
        file.write_all(b"\n")
    }

    fn cannot_write(&self) -> String {
        format!("cannot write what is left to {}", self.path.display())
    }

    /// Keeps the parts of incomplete letters, and counts what is known only at the end of an input.
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

    /// Stores all of it. Returns the file; `None` if nothing was left.
    pub(crate) fn finish(&mut self) -> anyhow::Result<Option<PathBuf>> {
        let Some(file) = self.file.take() else {
            return Ok(None);
        };
        let stored = file
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error)
            .and_then(|file| file.sync_all());
        stored.with_context(|| self.cannot_write())?;
        Ok(Some(self.path.clone()))
    }
}
