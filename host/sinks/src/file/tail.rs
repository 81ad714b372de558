//! The end of a file: lines are kept in memory until the disk is known to have them.
//!
//! A system reports once that written pages could not be stored, to whoever syncs next, and on some
//! file systems to whoever writes next. Then it may drop the pages, and the next sync says that all
//! is well. So whatever fails leaves in doubt all that follows the last sync that worked, and that
//! is cut off and written again before anything else.

use std::fs::{File, Metadata};
use std::io::{self, Write};

use super::batch::Batch;

/// Most bytes of lines that are kept: what a busy file gets in a fraction of a second, so that it
/// is hardly synced more often than checkpoints ask for.
const KEPT_BYTES: usize = 4 << 20;

/// A file as far as lines are appended to it.
pub(super) trait Medium: Write + Send {
    /// What the system says of it, such as how long it is.
    fn metadata(&self) -> io::Result<Metadata>;

    /// Cuts off what is beyond this length.
    fn set_len(&mut self, bytes: u64) -> io::Result<()>;

    /// Returns once all that was written is stored.
    fn sync_data(&mut self) -> io::Result<()>;
}

impl Medium for File {
    fn metadata(&self) -> io::Result<Metadata> {
        File::metadata(self)
    }

    fn set_len(&mut self, bytes: u64) -> io::Result<()> {
        File::set_len(self, bytes)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        File::sync_data(self)
    }
}

/// See the module's description.
pub(super) struct Tail {
    medium: Box<dyn Medium>,
    /// How much of the file is stored.
    stored: u64,
    /// The lines that follow it.
    unstored: Vec<u8>,
    /// Whether the file may lack some of these lines, or have half of a line behind them.
    is_in_doubt: bool,
}

impl Tail {
    /// The end of a file that is `stored` bytes long.
    pub(super) fn new(medium: Box<dyn Medium>, stored: u64) -> Self {
        Self {
            medium,
            stored,
            unstored: Vec::with_capacity(KEPT_BYTES),
            is_in_doubt: false,
        }
    }

    /// How long the file is with all that was accepted.
    pub(super) fn bytes(&self) -> u64 {
        self.stored + self.unstored.len() as u64
    }

    pub(super) fn metadata(&self) -> io::Result<Metadata> {
        self.medium.metadata()
    }

    /// The file is found to be that long. If that is not what was written, somebody has copied and
    /// truncated it, and what was written before is theirs.
    pub(super) fn has_length(&mut self, bytes: u64) -> io::Result<()> {
        if self.is_in_doubt || bytes == self.bytes() {
            return Ok(());
        }
        self.sync()?;
        self.stored = bytes;
        Ok(())
    }

    /// All of the batch, whose lines have so many bytes, or nothing.
    pub(super) fn append(&mut self, batch: &Batch<'_>, bytes: usize) -> io::Result<()> {
        self.mend()?;
        if self.unstored.len() + bytes > KEPT_BYTES {
            self.sync()?;
        }
        let appended = if bytes > KEPT_BYTES {
            self.store_at_once(batch, bytes)
        } else {
            self.append_kept(batch)
        };
        if appended.is_err() {
            self.is_in_doubt = true;
            // For readers: the next call cuts off what this one cannot.
            let _ = self.cut(self.bytes());
        }
        appended
    }

    /// Whoever emitted it has the batch until this returns, so nothing else needs to keep it.
    fn store_at_once(&mut self, batch: &Batch<'_>, bytes: usize) -> io::Result<()> {
        batch.write_buffered(&mut *self.medium)?;
        self.medium.sync_data()?;
        self.stored += bytes as u64;
        Ok(())
    }

    fn append_kept(&mut self, batch: &Batch<'_>) -> io::Result<()> {
        let before = self.unstored.len();
        let written = batch
            .write(&mut self.unstored)
            .and_then(|()| self.medium.write_all(&self.unstored[before..]));
        if written.is_err() {
            self.unstored.truncate(before);
        }
        written
    }

    /// Returns once all that was accepted is stored.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.mend()?;
        if self.unstored.is_empty() {
            return Ok(());
        }
        let synced = self.medium.sync_data();
        if synced.is_ok() {
            self.stored = self.bytes();
            self.unstored.clear();
        }
        self.is_in_doubt = synced.is_err();
        synced
    }

    /// Takes over the lines that the tail of another file cannot store.
    pub(super) fn take_over(&mut self, other: &mut Self) {
        self.unstored.append(&mut other.unstored);
        self.is_in_doubt = true;
    }

    /// Writes again what is in doubt. It is stored with the next sync.
    fn mend(&mut self) -> io::Result<()> {
        if !self.is_in_doubt {
            return Ok(());
        }
        // Somebody may have truncated it meanwhile.
        self.stored = self.stored.min(self.metadata()?.len());
        self.cut(self.stored)?;
        self.medium.write_all(&self.unstored)?;
        self.is_in_doubt = false;
        Ok(())
    }

    /// Cuts off what is beyond `bytes`; a file that somebody made shorter stays as it is.
    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        if self.metadata()?.len() > bytes {
            self.medium.set_len(bytes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
