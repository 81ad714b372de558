//! Reading and writing one frame of bytes, field by field.

use std::fmt;

/// The version of all three layouts, which is the first number of each frame.
pub(crate) const LAYOUT: u32 = 1;

/// A frame that is not what its layout says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// It begins with another version of the layout.
    Layout(u32),
    /// It ends before what it says is in it.
    Ends,
    /// It goes on after its end.
    GoesOn,
    /// A text is not UTF-8.
    NoText,
    /// A number has a value that means nothing; carries its name.
    Meaningless(&'static str),
}

/// A value that has no place in a frame: longer than 4 GiB, or more than that many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layout(found) => {
                write!(f, "has layout {found}, where layout {LAYOUT} is expected")
            }
            Self::Ends => f.write_str("ends too early"),
            Self::GoesOn => f.write_str("has bytes after its end"),
            Self::NoText => f.write_str("has a text that is not UTF-8"),
            Self::Meaningless(what) => write!(f, "has no meaning: {what}"),
        }
    }
}

impl std::error::Error for Malformed {}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("longer than 4 GiB")
    }
}

impl std::error::Error for TooLong {}

/// What is left of a frame.
#[derive(Debug, Clone)]
pub(crate) struct Reading<'a> {
    rest: &'a [u8],
}

impl<'a> Reading<'a> {
    /// After the version of the layout, which it checks.
    pub(crate) fn new(frame: &'a [u8]) -> Result<Self, Malformed> {
        let mut reading = Self { rest: frame };
        match reading.u32()? {
            LAYOUT => Ok(reading),
            other => Err(Malformed::Layout(other)),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Malformed::Ends)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// The next `length` bytes.
    pub(crate) fn bytes(&mut self, length: u32) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(length).map_err(|_| Malformed::Ends)?;
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed::Ends)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next `length` bytes, which are UTF-8.
    pub(crate) fn text(&mut self, length: u32) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes(length)?).map_err(|_| Malformed::NoText)
    }

    /// How many things come, each of at least `bytes_min`: no more than there is room for, so that
    /// a reader may reserve memory for them.
    pub(crate) fn count(&mut self, bytes_min: usize) -> Result<usize, Malformed> {
        let count = usize::try_from(self.u32()?).map_err(|_| Malformed::Ends)?;
        if count > self.rest.len() / bytes_min {
            return Err(Malformed::Ends);
        }
        Ok(count)
    }

    /// Nothing may be left.
    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Malformed::GoesOn)
        }
    }
}

/// The length of something as its frame has it.
pub(crate) fn length(bytes: &[u8]) -> Result<u32, TooLong> {
    u32::try_from(bytes.len()).map_err(|_| TooLong)
}
