//! The file of what a replay did not process. It is created when the first letter is left.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::DeadLetter;
use shardmill_sinks::letters::{Item, LetterInput, encode};

use super::summary::ReplaySummary;

/// Dead letters that are left, to be replayed later.
pub(crate) struct Remainder {
    path: PathBuf,
    /// Whether an earlier run of the same replay may have left something there.
    is_continued: bool,
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
            is_continued: false,
            file: None,
        })
    }

    /// The same, for a replay that may have a file of its progress. Then an earlier run left what
    /// is there, and this one adds to it.
    pub(super) fn beside(path: &Path, progress: &Path) -> anyhow::Result<Self> {
        if !progress.try_exists().unwrap_or(false) {
            return Self::at(path);
        }
        Ok(Self {
            path: path.to_owned(),
            is_continued: true,
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
            Item::Letter(letter) if only.is_none_or(|only| *only == letter.plugin.plugin()) => {
                return Ok(Some(*letter));
            }
            Item::Letter(_) => summary.left_out += 1,
            Item::Damaged { problem, line } => {
                tracing::warn!(
                    problem,
                    code = "letters-kept",
                    "a line cannot be replayed, keeping it unchanged"
                );
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
                let options = if self.is_continued {
                    options.read(true).append(true).create(true)
                } else {
                    options.write(true).create_new(true)
                };
                let mut file = options.open(&self.path)?;
                if self.is_continued {
                    end_last_line(&mut file)?;
                }
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
            tracing::warn!(
                place,
                parts = incomplete.parts,
                missing = ?incomplete.missing,
                code = "letter-incomplete", "parts of a letter are missing"
            );
            summary.damaged += 1;
            incomplete
                .found
                .iter()
                .try_for_each(|fragment| self.keep_line(&fragment.encode()))?;
        }
        (summary.other_lines, summary.repeats) = (input.other_lines(), input.repeats());
        Ok(())
    }

    /// Stores what was kept until now.
    pub(super) fn sync(&mut self) -> anyhow::Result<()> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let stored = file.flush().and_then(|()| file.get_ref().sync_all());
        stored.with_context(|| self.cannot_write())
    }

    /// Stores all of it. Returns the file; `None` if nothing was left.
    pub(crate) fn finish(&mut self) -> anyhow::Result<Option<PathBuf>> {
        let Some(file) = self.file.take() else {
            let is_earlier = self.is_continued && self.path.exists();
            return Ok(is_earlier.then(|| self.path.clone()));
        };
        let stored = file
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error)
            .and_then(|file| file.sync_all());
        stored.with_context(|| self.cannot_write())?;
        Ok(Some(self.path.clone()))
    }
}

/// A run that died may have left a part of a line: what follows must not become a part of it too.
fn end_last_line(file: &mut File) -> std::io::Result<()> {
    let mut last = [b'\n'];
    if file.seek(SeekFrom::End(0))? > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    if last == [b'\n'] {
        return Ok(());
    }
    file.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_that_died_left_of_a_line_spoils_no_other_line() {
        let folder = tempfile::tempdir().unwrap();
        let (left, progress) = (folder.path().join("left"), folder.path().join("progress"));
        std::fs::write(&progress, "{}").unwrap();
        for (before, after) in [
            ("", "whole\n"),
            ("first\n", "first\nwhole\n"),
            ("first\nsec", "first\nsec\nwhole\n"),
        ] {
            std::fs::write(&left, before).unwrap();
            let mut remainder = Remainder::beside(&left, &progress).unwrap();
            remainder.keep_line(b"whole").unwrap();
            remainder.finish().unwrap();
            assert_eq!(std::fs::read_to_string(&left).unwrap(), after);
        }
    }
}
