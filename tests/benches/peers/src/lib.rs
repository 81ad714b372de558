//! What the consumers share: their arguments, and how they tell how far they are.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};

/// What the command line says, in this order.
pub struct Arguments {
    /// Where Kinesis listens.
    pub endpoint: String,
    /// The stream, read from its beginning.
    pub stream: String,
    /// Where to write how many records were seen.
    pub count: Count,
}

impl Arguments {
    /// Reads them.
    pub fn read() -> Result<Self> {
        let mut words = std::env::args().skip(1);
        let mut next = || words.next().context("usage: ENDPOINT STREAM COUNT-FILE");
        Ok(Self {
            endpoint: next()?,
            stream: next()?,
            count: Count::new(&next()?)?,
        })
    }
}

/// A file that always holds the number of records seen so far. Written once a reply or ten thousand
/// records, so that it costs nothing that could be measured.
pub struct Count(File);

impl Count {
    fn new(path: &str) -> Result<Self> {
        Ok(Self(File::create(path).with_context(|| path.to_owned())?))
    }

    /// Numbers only grow, and so each covers the one before.
    pub fn write(&self, records: u64) -> Result<()> {
        Ok(self.0.write_all_at(records.to_string().as_bytes(), 0)?)
    }
}
