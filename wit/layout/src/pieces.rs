//! What a component emitted, from the component to the host.
//!
//! | Bytes | |
//! |---|---|
//! | 4 | layout: 1 |
//! | 4 | how many pieces |
//!
//! Then each piece:
//!
//! | Bytes | |
//! |---|---|
//! | 4 | which destination, by its place in the list of `terms` |
//! | 4 | length of the key |
//! | 4 | length of the data |
//! | | key and data |

use crate::frame::{LAYOUT, Malformed, Reading, TooLong, length};

const PIECE_BYTES: usize = 12;
/// Where the number of pieces stands.
const COUNT: std::ops::Range<usize> = 4..8;

/// One piece that was emitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Which destination, by its place in the list of `terms`.
    pub destination: u32,
    /// The partition key for the sink; may be empty.
    pub key: &'a str,
    /// The payload, as a slice of the frame.
    pub data: &'a [u8],
}

/// Pieces, as they are read.
#[derive(Debug, Clone)]
pub struct Pieces<'a> {
    reading: Reading<'a>,
    left: usize,
}

/// Collects pieces into a frame.
#[derive(Debug, Default)]
pub struct PieceWriter {
    frame: Vec<u8>,
    count: u32,
}

impl<'a> Pieces<'a> {
    /// Reads pieces; their keys and data are slices of the frame.
    ///
    /// # Errors
    ///
    /// If the frame does not begin as pieces do.
    pub fn read(frame: &'a [u8]) -> Result<Self, Malformed> {
        let mut reading = Reading::new(frame)?;
        let left = reading.count(PIECE_BYTES)?;
        Ok(Self { reading, left })
    }

    /// How many are left to be read.
    pub fn left(&self) -> usize {
        self.left
    }

    /// The next piece, or none at the end of the frame.
    ///
    /// # Errors
    ///
    /// If the frame is malformed at this place; nothing after it can be read.
    pub fn next_piece(&mut self) -> Result<Option<Piece<'a>>, Malformed> {
        if self.left == 0 {
            self.reading.end()?;
            return Ok(None);
        }
        self.left -= 1;
        let destination = self.reading.u32()?;
        let key_length = self.reading.u32()?;
        let data_length = self.reading.u32()?;
        Ok(Some(Piece {
            destination,
            key: self.reading.text(key_length)?,
            data: self.reading.bytes(data_length)?,
        }))
    }
}

impl PieceWriter {
    /// Adds a piece.
    ///
    /// # Errors
    ///
    /// If its key or its data is longer than 4 GiB; nothing is added then.
    pub fn push(&mut self, piece: Piece<'_>) -> Result<(), TooLong> {
        let (key, data) = (piece.key.as_bytes(), piece.data);
        let (key_length, data_length) = (length(key)?, length(data)?);
        let count = self.count.checked_add(1).ok_or(TooLong)?;
        if self.frame.is_empty() {
            self.frame.extend(LAYOUT.to_le_bytes());
            self.frame.extend([0; COUNT.end - COUNT.start]);
        }
        for number in [piece.destination, key_length, data_length] {
            self.frame.extend(number.to_le_bytes());
        }
        self.frame.extend_from_slice(key);
        self.frame.extend_from_slice(data);
        self.count = count;
        Ok(())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of the frame so far.
    pub fn len(&self) -> usize {
        self.frame.len()
    }

    /// The frame with all pieces so far; empty if there are none.
    pub fn frame(&mut self) -> &[u8] {
        if let Some(count) = self.frame.get_mut(COUNT) {
            count.copy_from_slice(&self.count.to_le_bytes());
        }
        &self.frame
    }

    /// Forgets all pieces, and keeps the room that they took.
    pub fn clear(&mut self) {
        self.frame.clear();
        self.count = 0;
    }
}
