//! Reads dead letters from files: joins parts, drops repeats, and counts lines that are something
//! else.

use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use shardmill_core::ports::DeadLetter;

use super::envelope::{Fragment, LetterError};
use super::join::{Incomplete, Joiner};
use super::seen::Seen;
use super::source::{input_name, open_input};

/// Longest line that can be a letter: 10 MiB of data (AWS limit) in base64, and 2 MiB of room for
/// the rest.
const LINE_BYTES_MAX: usize = 16 << 20;
/// Letters of one input. Each is remembered, in some 40 bytes: 400 MB.
const LETTERS_MAX: usize = 10_000_000;

/// What one line of the input, or several that belong together, turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A letter.
    Letter(Box<DeadLetter>),
    /// A line that is meant to be a letter and cannot be read.
    Damaged {
        /// Where, and what is wrong.
        problem: String,
        /// The line, to be kept; its start only if it is longer than any letter.
        line: Bytes,
    },
}

/// The input cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {name}: {source}")]
pub struct InputError {
    name: String,
    source: io::Error,
}

/// Reads letters from files, one after the other. Blocks, so it belongs on the blocking pool.
pub struct LetterInput {
    paths: std::vec::IntoIter<PathBuf>,
    open: Option<OpenInput>,
    joiner: Joiner,
    seen: Seen,
    other_lines: u64,
    repeats: u64,
}

struct OpenInput {
    name: String,
    lines: Box<dyn BufRead + Send>,
    line: u64,
}

// === impl LetterInput ===

impl LetterInput {
    /// Reads `paths` in this order; `-` is standard input. Opens the first now, so that a wrong
    /// name is reported early.
    pub fn open(paths: Vec<PathBuf>) -> Result<Self, InputError> {
        let mut input = Self {
            paths: paths.into_iter(),
            open: None,
            joiner: Joiner::default(),
            seen: Seen::default(),
            other_lines: 0,
            repeats: 0,
        };
        input.open_next()?;
        Ok(input)
    }

    /// The next letter; `None` at the end of the last file.
    pub fn next_item(&mut self) -> Result<Option<Item>, InputError> {
        loop {
            let Some(open) = &mut self.open else {
                return Ok(None);
            };
            if self.seen.len() >= LETTERS_MAX {
                let source = io::Error::other(format!(
                    "more than {LETTERS_MAX} letters at once: take fewer files, or parts"
                ));
                return Err(InputError {
                    name: open.name.clone(),
                    source,
                });
            }
            let Some(line) = open.next_line()? else {
                self.open_next()?;
                continue;
            };
            let place = format!("{}, line {}", open.name, open.line);
            if let Some(item) = self.read(&place, line) {
                return Ok(Some(item));
            }
        }
    }

    /// Letters of which parts are missing; to be called at the end.
    pub fn incomplete(&mut self) -> Vec<Incomplete> {
        std::mem::take(&mut self.joiner).finish()
    }

    /// Lines that are something else, such as output of a sink that is also emitted to.
    pub fn other_lines(&self) -> u64 {
        self.other_lines
    }

    /// Letters that were there more than once.
    pub fn repeats(&self) -> u64 {
        self.repeats
    }

    fn read(&mut self, place: &str, line: Bytes) -> Option<Item> {
        let damaged = |problem: String, line| {
            Some(Item::Damaged {
                problem: format!("{place}: {problem}"),
                line,
            })
        };
        if line.len() > LINE_BYTES_MAX {
            return damaged("longer than any dead letter".to_owned(), line);
        }
        let fragment = match Fragment::decode(&line) {
            Ok(fragment) => fragment,
            Err(LetterError::Other) => {
                self.other_lines += 1;
                return None;
            }
            Err(error) => return damaged(error.to_string(), line),
        };
        let letter = match self.joiner.push(fragment) {
            Ok(letter) => letter?,
            Err(error) => return damaged(error.to_string(), line),
        };
        if is_new(&mut self.seen, &letter) {
            return Some(Item::Letter(Box::new(letter)));
        }
        self.repeats += 1;
        None
    }

    fn open_next(&mut self) -> Result<(), InputError> {
        self.open = self
            .paths
            .next()
            .map(|path| OpenInput::open(&path))
            .transpose()?;
        Ok(())
    }
}

impl OpenInput {
    fn open(path: &Path) -> Result<Self, InputError> {
        let name = input_name(path);
        match open_input(path) {
            Ok(lines) => Ok(Self {
                name,
                lines,
                line: 0,
            }),
            Err(source) => Err(InputError { name, source }),
        }
    }

    /// A line without its end; skips empty ones. Of a line that is longer than any letter, only the
    /// start.
    fn next_line(&mut self) -> Result<Option<Bytes>, InputError> {
        loop {
            let line = self.read_line().map_err(|source| InputError {
                name: self.name.clone(),
                source,
            })?;
            if line.as_ref().is_none_or(|line| !line.is_empty()) {
                return Ok(line.map(Bytes::from));
            }
        }
    }

    fn read_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        const LIMIT: u64 = LINE_BYTES_MAX as u64 + 2;
        let mut line = Vec::new();
        let count = self
            .lines
            .by_ref()
            .take(LIMIT)
            .read_until(b'\n', &mut line)?;
        if count == 0 {
            return Ok(None);
        }
        self.line += 1;
        if count as u64 == LIMIT && line.last() != Some(&b'\n') {
            self.lines.skip_until(b'\n')?;
        }
        while matches!(line.last(), Some(b'\n' | b'\r')) {
            line.pop();
        }
        Ok(Some(line))
    }
}

/// Whether the letter comes for the first time.
fn is_new(seen: &mut Seen, letter: &DeadLetter) -> bool {
    let DeadLetter {
        application,
        stream,
        shard,
        record,
        failed_at_ms,
        ..
    } = letter;
    seen.insert(&(application, stream, shard, &record.position, failed_at_ms))
}

#[cfg(test)]
mod tests {
    use super::super::encode;
    use super::super::envelope::tests::letter;
    use super::*;

    fn numbered(n: u64, bytes: usize) -> DeadLetter {
        DeadLetter {
            failed_at_ms: n,
            ..letter(vec![b'x'; bytes])
        }
    }

    fn file(lines: &[&[u8]]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), lines.join(&b'\n')).unwrap();
        file
    }

    fn read_all(files: &[&tempfile::NamedTempFile]) -> (LetterInput, Vec<Item>) {
        let mut input =
            LetterInput::open(files.iter().map(|file| file.path().to_owned()).collect()).unwrap();
        let mut items = Vec::new();
        while let Some(item) = input.next_item().unwrap() {
            items.push(item);
        }
        (input, items)
    }

    #[test]
    fn letters_of_several_files_come_in_order_once_and_other_lines_are_counted() {
        let [one, two, three] = [1, 2, 3].map(|n| numbered(n, 10));
        let line = |letter: &DeadLetter| encode(letter, None).remove(0);
        let first = file(&[&line(&one), b"", b"{\"alert\":1}", &line(&two), &line(&one)]);
        let second = file(&[&line(&two), &line(&three)]);
        let (input, items) = read_all(&[&first, &second]);
        assert_eq!(
            items,
            [one, two, three].map(|letter| Item::Letter(Box::new(letter)))
        );
        assert_eq!((input.repeats(), input.other_lines()), (2, 1));
    }

    #[test]
    fn parts_are_put_together_over_lines_and_files() {
        let large = numbered(1, 200_000);
        let parts = encode(&large, Some(64 << 10));
        let lines: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
        let (first, second) = (file(&lines[2..]), file(&lines[..2]));
        let (mut input, items) = read_all(&[&first, &second]);
        assert_eq!(items, [Item::Letter(Box::new(large))]);
        assert_eq!(input.incomplete(), []);
        let (mut input, items) = read_all(&[&first]);
        assert_eq!(
            (items, input.incomplete()[0].missing.clone()),
            (vec![], vec![1, 2])
        );
    }

    #[test]
    fn a_damaged_line_is_named_and_given_back_and_reading_goes_on() {
        let good = encode(&numbered(1, 10), None).remove(0);
        let damaged = &good[..good.len() - 4];
        let long = vec![b'y'; LINE_BYTES_MAX + 5];
        let input = file(&[damaged, &long, &good]);
        let (_, items) = read_all(&[&input]);
        let [
            Item::Damaged { problem, line },
            Item::Damaged {
                problem: too_long, ..
            },
            Item::Letter(_),
        ] = &items[..]
        else {
            panic!("{items:?}");
        };
        assert!(
            problem.contains("line 1: a damaged dead letter"),
            "{problem}"
        );
        assert_eq!(line, damaged);
        assert!(
            too_long.contains("line 2: longer than any dead letter"),
            "{too_long}"
        );
    }

    #[test]
    fn a_file_that_is_not_there_is_named_at_once() {
        let error = LetterInput::open(vec!["/nowhere/letters.ndjson".into()])
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("/nowhere/letters.ndjson"), "{error}");
    }
}
