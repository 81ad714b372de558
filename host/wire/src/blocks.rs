//! The memory that holds records' data.
//!
//! A slice keeps all of what it was cut from alive. So what slices are cut from is small: a record
//! that waits for long (parked, or the last of its reply) must not hold a reply of 10 MiB that
//! nobody accounts for. A reply up to [`SLICED_BYTES_MAX`] is sliced as it is. Of a larger one,
//! which only a reader that is far behind gets, data is written to blocks of that size.

use bytes::{Bytes, BytesMut};

/// The most that one record keeps alive beside its own data. A shard gives out 2 MB a second, read
/// in five calls: a reply of a reader that keeps up has at most 400 KB of data.
pub(crate) const SLICED_BYTES_MAX: usize = 512 * 1024;

/// Smaller data is copied in any case: what a reply holds of a record besides its data (170 bytes
/// or so) would be most of what a slice keeps alive, and the copy costs next to nothing.
pub(crate) const SLICE_BYTES_MIN: usize = 512;

/// Data that is written one after another, in as few allocations as the bound allows.
pub(crate) struct Blocks {
    block: BytesMut,
    /// Bytes that may still come: a block is no larger than what it is for.
    expected: usize,
}

impl Blocks {
    /// For at most `expected` bytes in all.
    pub(crate) fn new(expected: usize) -> Self {
        Self {
            block: BytesMut::new(),
            expected,
        }
    }

    /// A copy of `data`.
    pub(crate) fn copy(&mut self, data: &[u8]) -> Bytes {
        self.make_room(data.len());
        self.block.extend_from_slice(data);
        self.block.split().freeze()
    }

    /// What `text` is in base64; `None` if it is none.
    pub(crate) fn decode_base64(&mut self, text: &[u8]) -> Option<Bytes> {
        let room = base64_simd::STANDARD.estimated_decoded_length(text.len());
        self.make_room(room);
        self.block.resize(room, 0);
        let data = base64_simd::STANDARD
            .decode(text, base64_simd::Out::from_slice(&mut self.block))
            .ok()?;
        let length = data.len();
        self.block.truncate(length);
        Some(self.block.split().freeze())
    }

    fn make_room(&mut self, bytes: usize) {
        if self.block.capacity() < bytes {
            let size = self.expected.min(SLICED_BYTES_MAX).max(bytes);
            self.block = BytesMut::with_capacity(size);
        }
        self.expected = self.expected.saturating_sub(bytes);
    }
}
