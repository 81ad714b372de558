//! CBOR (RFC 8949), in place: what services and emulators of Kinesis write, maps and strings of
//! indefinite length included, as Jackson makes them.

use std::borrow::Cow;

use bytes::Bytes;

use crate::blocks::{Blocks, SLICE_BYTES_MIN, SLICED_BYTES_MAX};
use crate::reader::{Read, Reader, Unreadable};

/// Maps, lists and tags inside each other; a reply has five.
const DEPTH_MAX: usize = 16;
/// Below this, a number is seconds and not milliseconds. Kinesis counts milliseconds, against the
/// format's own rules; emulators count seconds. As milliseconds this is in 1973, before any record;
/// as seconds in the year 5138.
const SECONDS_MAX: u64 = 100_000_000_000;

// Major types (RFC 8949, 3.1).
const UNSIGNED: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const MAP: u8 = 5;
const TAG: u8 = 6;
const SIMPLE: u8 = 7;

// Simple values and floating point numbers (RFC 8949, 3.3).
const NULL: u8 = 0xF6;
const UNDEFINED: u8 = 0xF7;
const BREAK: u8 = 0xFF;
const FLOAT_32: u8 = 26;
const FLOAT_64: u8 = 27;

/// A place in a CBOR body.
pub(crate) struct Cbor<'a> {
    input: &'a [u8],
    at: usize,
    depth: usize,
    /// What slices are cut from; `None` if too much would be kept alive.
    body: Option<&'a Bytes>,
    /// Where all other data goes.
    blocks: Blocks,
}

/// The first bytes of a value.
#[derive(Clone, Copy)]
struct Head {
    major: u8,
    /// The low five bits, which say how the argument is written.
    info: u8,
    /// Its number or length; `None` if the length is indefinite.
    argument: Option<u64>,
}

impl<'a> Cbor<'a> {
    /// Over a body that may be kept.
    pub(crate) fn new(body: &'a Bytes) -> Self {
        let is_small = body.len() <= SLICED_BYTES_MAX;
        Self {
            body: is_small.then_some(body),
            ..Self::copying(body)
        }
    }

    /// Over bytes that belong to somebody else.
    pub(crate) fn copying(input: &'a [u8]) -> Self {
        Self {
            input,
            at: 0,
            depth: 0,
            body: None,
            blocks: Blocks::new(input.len()),
        }
    }

    fn peek(&self) -> Option<u8> {
        self.input.get(self.at).copied()
    }

    #[inline]
    fn take(&mut self, length: u64) -> Read<&'a [u8]> {
        let rest = self.input.get(self.at..).unwrap_or_default();
        let taken = usize::try_from(length)
            .ok()
            .and_then(|length| rest.get(..length));
        let taken = taken.ok_or_else(|| self.expected("more bytes"))?;
        self.at += taken.len();
        Ok(taken)
    }

    #[inline]
    fn take_array<const LENGTH: usize>(&mut self) -> Read<[u8; LENGTH]> {
        let rest = self.input.get(self.at..).unwrap_or_default();
        let taken = rest.first_chunk();
        let taken = *taken.ok_or_else(|| self.expected("more bytes"))?;
        self.at += LENGTH;
        Ok(taken)
    }

    #[inline]
    fn head(&mut self) -> Read<Head> {
        let first = self.peek().ok_or_else(|| self.expected("a value"))?;
        self.at += 1;
        let info = first & 0x1F;
        let argument = match info {
            0..=23 => Some(u64::from(info)),
            24 => Some(u64::from(u8::from_be_bytes(self.take_array()?))),
            25 => Some(u64::from(u16::from_be_bytes(self.take_array()?))),
            26 => Some(u64::from(u32::from_be_bytes(self.take_array()?))),
            27 => Some(u64::from_be_bytes(self.take_array()?)),
            31 => None,
            _ => return Err(self.expected("a length that the format knows")),
        };
        Ok(Head {
            major: first >> 5,
            info,
            argument,
        })
    }

    fn takes_break(&mut self) -> bool {
        let is_next = self.peek() == Some(BREAK);
        self.at += usize::from(is_next);
        is_next
    }

    fn go_deeper(&mut self) -> Read<()> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.expected("fewer maps and lists inside each other"));
        }
        Ok(())
    }

    /// Calls `entry` for each entry of a map or list whose head was read.
    fn entries(&mut self, head: Head, mut entry: impl FnMut(&mut Self) -> Read<()>) -> Read<()> {
        self.go_deeper()?;
        match head.argument {
            // An entry takes a byte or more: a length that lies ends with the input.
            Some(count) => {
                for _ in 0..count {
                    entry(self)?;
                }
            }
            None => {
                while !self.takes_break() {
                    entry(self)?;
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// The bytes of a string whose head was read, put together if it comes in pieces.
    #[inline]
    fn string(&mut self, head: Head) -> Read<Cow<'a, [u8]>> {
        let Some(length) = head.argument else {
            return self.pieces(head.major).map(Cow::Owned);
        };
        self.take(length).map(Cow::Borrowed)
    }

    fn pieces(&mut self, major: u8) -> Read<Vec<u8>> {
        let mut whole = Vec::new();
        while !self.takes_break() {
            let head = self.head()?;
            match head.argument {
                Some(length) if head.major == major => whole.extend_from_slice(self.take(length)?),
                _ => return Err(self.expected("a piece of a string")),
            }
        }
        Ok(whole)
    }

    fn require_utf8<'b>(&self, bytes: &'b [u8]) -> Read<&'b str> {
        std::str::from_utf8(bytes).map_err(|_| self.no_utf8())
    }

    fn no_utf8(&self) -> Unreadable {
        self.expected("text of UTF-8 before this place")
    }

    #[inline]
    fn typed(&mut self, major: u8, what: &'static str) -> Read<Head> {
        let before = self.at;
        let head = self.head()?;
        if head.major != major {
            self.at = before;
            return Err(self.expected(what));
        }
        Ok(head)
    }

    fn signed(&self, head: Head) -> Read<i64> {
        let wrong = || self.expected("a whole number of 64 bits before this place");
        let number = head
            .argument
            .and_then(|number| i64::try_from(number).ok())
            .ok_or_else(wrong)?;
        match head.major {
            UNSIGNED => Ok(number),
            NEGATIVE => Ok(-1 - number),
            _ => Err(wrong()),
        }
    }

    /// Seconds, as the format has it. Only emulators write times so.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "whole milliseconds within bounds that are checked"
    )]
    fn float_ms(&self, head: Head) -> Read<i64> {
        let seconds = match (head.info, head.argument) {
            (FLOAT_64, Some(bits)) => f64::from_bits(bits),
            (FLOAT_32, Some(bits)) => f64::from(f32::from_bits(bits as u32)),
            _ => return Err(self.expected("a time before this place")),
        };
        let ms = (seconds * 1_000.0).round();
        // Also false for what is not a number.
        if ms.abs() < SECONDS_MAX as f64 * 1_000.0 {
            Ok(ms as i64)
        } else {
            Err(self.expected("an earlier time before this place"))
        }
    }
}

impl<'a> Reader<'a> for Cbor<'a> {
    fn object(&mut self, mut member: impl FnMut(&mut Self, &[u8]) -> Read<()>) -> Read<()> {
        let head = self.typed(MAP, "a map")?;
        self.entries(head, |reader| {
            let head = reader.typed(TEXT, "text")?;
            let name = reader.string(head)?;
            // Nearly all names are, and this costs less than to look for UTF-8.
            if !name.is_ascii() {
                reader.require_utf8(&name)?;
            }
            member(reader, &name)
        })
    }

    fn array(&mut self, element: impl FnMut(&mut Self) -> Read<()>) -> Read<()> {
        let head = self.typed(ARRAY, "a list")?;
        self.entries(head, element)
    }

    fn null(&mut self) -> Read<bool> {
        let is_null = matches!(self.peek(), Some(NULL | UNDEFINED));
        self.at += usize::from(is_null);
        Ok(is_null)
    }

    fn text(&mut self) -> Read<Cow<'a, str>> {
        let head = self.typed(TEXT, "text")?;
        match self.string(head)? {
            Cow::Borrowed(bytes) => self.require_utf8(bytes).map(Cow::Borrowed),
            Cow::Owned(bytes) => {
                let text = String::from_utf8(bytes).map_err(|_| self.no_utf8())?;
                Ok(Cow::Owned(text))
            }
        }
    }

    fn blob(&mut self) -> Read<Bytes> {
        let head = self.typed(BYTES, "bytes")?;
        let data = match self.string(head)? {
            Cow::Borrowed(data) => data,
            Cow::Owned(data) => return Ok(Bytes::from(data)),
        };
        Ok(match self.body {
            Some(body) if data.len() >= SLICE_BYTES_MIN => body.slice_ref(data),
            Some(_) | None => self.blocks.copy(data),
        })
    }

    fn integer(&mut self) -> Read<i64> {
        let head = self.head()?;
        self.signed(head)
    }

    fn time_ms(&mut self) -> Read<i64> {
        let mut head = self.head()?;
        // Tag 1: a time. Kinesis writes it, emulators do not.
        if head.major == TAG && head.argument == Some(1) {
            head = self.head()?;
        }
        if head.major == SIMPLE {
            return self.float_ms(head);
        }
        let number = self.signed(head)?;
        Ok(if number.unsigned_abs() < SECONDS_MAX {
            number * 1_000
        } else {
            number
        })
    }

    fn skip(&mut self) -> Read<()> {
        let head = self.head()?;
        match head.major {
            UNSIGNED | NEGATIVE if head.argument.is_some() => Ok(()),
            // False, true, null, undefined, and fractions: the others mean nothing (RFC 8949, 3.3).
            SIMPLE if matches!(head.info, 20..=23 | 25..=27) => Ok(()),
            BYTES => self.string(head).map(|_| ()),
            TEXT => {
                let text = self.string(head)?;
                self.require_utf8(&text).map(|_| ())
            }
            ARRAY => self.entries(head, Self::skip),
            MAP => self.entries(head, |reader| {
                reader.skip()?;
                reader.skip()
            }),
            TAG if head.argument.is_some() => {
                self.go_deeper()?;
                self.skip()?;
                self.depth -= 1;
                Ok(())
            }
            _ => Err(self.expected("a value")),
        }
    }

    fn end(&mut self) -> Read<()> {
        if self.left() == 0 {
            Ok(())
        } else {
            Err(self.expected("the end of the reply"))
        }
    }

    fn left(&self) -> usize {
        self.input.len().saturating_sub(self.at)
    }

    fn expected(&self, what: &'static str) -> Unreadable {
        Unreadable {
            at: self.at,
            expected: what,
        }
    }
}
