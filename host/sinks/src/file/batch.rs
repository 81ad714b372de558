//! What is written to a file at once.

use std::io::{self, BufWriter, Write};

use shardmill_core::ports::Origin;
use shardmill_core::stream::Emitted;

use crate::LineFormat;
use crate::line::Size;

/// Bytes that are gathered before they are written: lines may be six times as large as what was
/// emitted, and those of a large batch are never held whole.
const BUFFER_BYTES: usize = 64 << 10;

/// Output on its way into lines.
pub(super) struct Batch<'a> {
    pub(super) format: LineFormat,
    pub(super) origin: &'a Origin,
    pub(super) emitted: &'a [Emitted],
}

impl Batch<'_> {
    /// How many bytes its lines have. They are made for that and not kept.
    pub(super) fn bytes(&self) -> usize {
        let mut size = Size(0);
        // Counting cannot fail.
        let _ = self.write(&mut size);
        size.0
    }

    /// Writes its lines, a bufferful at a time.
    pub(super) fn write_buffered(&self, out: impl Write) -> io::Result<()> {
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, out);
        let written = self.write(&mut out).and_then(|()| out.flush());
        // Dropped, it would write once more what could not be written.
        let _unwritten = out.into_parts();
        written
    }

    /// Writes its lines, in pieces of any length.
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        for piece in self.emitted {
            self.format.write(out, self.origin, piece)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use shardmill_core::plugin::PluginName;
    use shardmill_core::stream::ShardId;

    use super::*;

    /// Takes some bytes, and then no more.
    #[derive(Default)]
    struct Full {
        offered: usize,
        largest: usize,
    }

    impl Write for &mut Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.offered += bytes.len();
            self.largest = self.largest.max(bytes.len());
            if self.offered > 1 << 20 {
                Err(io::ErrorKind::StorageFull.into())
            } else {
                Ok(bytes.len())
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_large_batch_is_never_held_whole_and_nothing_is_written_after_a_failure() {
        let origin = Origin {
            plugin: PluginName::new("alerts").unwrap(),
            shard: ShardId::new("shardId-000000000000").unwrap(),
            through: None,
            trace: None,
        };
        let data = Bytes::from(vec![1; 100 << 10]);
        let piece = Emitted {
            destination: "out".into(),
            key: String::new(),
            data,
        };
        let pieces = vec![piece; 100];
        let batch = Batch {
            format: LineFormat::Envelope,
            origin: &origin,
            emitted: &pieces,
        };
        assert!(batch.bytes() > 50 << 20, "escapes are six bytes each");
        let mut full = Full::default();
        let error = batch.write_buffered(&mut full).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(full.largest <= BUFFER_BYTES, "{}", full.largest);
        assert!(full.offered <= (1 << 20) + BUFFER_BYTES, "{}", full.offered);
    }
}
