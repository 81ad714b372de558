//! JSON, in place: the ends of strings by SIMD search, base64 straight from the input.

use std::borrow::Cow;

use bytes::Bytes;
use memchr::memchr2;

use crate::blocks::Blocks;
use crate::reader::{Read, Reader, Unreadable};

/// Maps and lists inside each other; a reply has four.
const DEPTH_MAX: usize = 16;
/// Digits of a number that surely fit: no time and no lag has more.
const DIGITS_MAX: usize = 18;

/// A place in a JSON text.
pub(crate) struct Json<'a> {
    input: &'a [u8],
    at: usize,
    depth: usize,
    blocks: Blocks,
}

impl<'a> Json<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Self {
        Self {
            input,
            at: 0,
            depth: 0,
            blocks: Blocks::new(input.len() / 4 * 3),
        }
    }

    fn rest(&self) -> &'a [u8] {
        self.input.get(self.at..).unwrap_or_default()
    }

    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.input.get(self.at) {
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
                other => return Some(*other),
            }
        }
        None
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn require(&mut self, byte: u8, what: &'static str) -> Read<()> {
        if self.take(byte) {
            Ok(())
        } else {
            Err(self.expected(what))
        }
    }

    fn go_deeper(&mut self) -> Read<()> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.expected("fewer maps and lists inside each other"));
        }
        Ok(())
    }

    /// Between the quotes, and whether there are escapes.
    fn string(&mut self) -> Read<(&'a [u8], bool)> {
        self.require(b'"', "a string")?;
        let text = self.rest();
        let mut length = 0;
        let mut has_escapes = false;
        loop {
            let ahead = text.get(length..).unwrap_or_default();
            let Some(found) = memchr2(b'"', b'\\', ahead) else {
                return Err(self.expected("the end of a string"));
            };
            length += found;
            if text.get(length) == Some(&b'"') {
                self.at += length + 1;
                return Ok((text.get(..length).unwrap_or_default(), has_escapes));
            }
            // An escape is two bytes or more, and its second one is never the end.
            has_escapes = true;
            length += 2;
        }
    }

    /// What a string between quotes says. Escapes are rare, and left to a library.
    fn unescaped(&self, between: &'a [u8], has_escapes: bool) -> Read<Cow<'a, str>> {
        let wrong = || self.expected("a string of UTF-8 without control characters");
        if has_escapes {
            let quoted = [b"\"", between, b"\""].concat();
            let text: String = serde_json::from_slice(&quoted).map_err(|_| wrong())?;
            return Ok(Cow::Owned(text));
        }
        if has_control_characters(between) {
            return Err(wrong());
        }
        let text = std::str::from_utf8(between).map_err(|_| wrong())?;
        Ok(Cow::Borrowed(text))
    }

    /// A name between quotes. Nearly all are plain, which costs less to see than UTF-8.
    fn name(&self, between: &'a [u8], has_escapes: bool) -> Read<Cow<'a, [u8]>> {
        if !has_escapes && between.is_ascii() && !has_control_characters(between) {
            return Ok(Cow::Borrowed(between));
        }
        Ok(match self.unescaped(between, has_escapes)? {
            Cow::Borrowed(name) => Cow::Borrowed(name.as_bytes()),
            Cow::Owned(name) => Cow::Owned(name.into_bytes()),
        })
    }

    fn digits(&mut self) -> &'a [u8] {
        let rest = self.rest();
        let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += length;
        rest.get(..length).unwrap_or_default()
    }

    /// The digits before the point, which has no zero in front of others.
    fn whole(&mut self) -> Read<&'a [u8]> {
        let digits = self.digits();
        let is_number = match digits {
            [] => false,
            [b'0'] => true,
            [first, ..] => *first != b'0',
        };
        if is_number {
            Ok(digits)
        } else {
            Err(self.expected("a number"))
        }
    }

    /// The digits after the point, if there is one.
    fn fraction(&mut self) -> Read<&'a [u8]> {
        if self.rest().first() != Some(&b'.') {
            return Ok(&[]);
        }
        self.at += 1;
        let digits = self.digits();
        if digits.is_empty() {
            return Err(self.expected("digits after the point"));
        }
        Ok(digits)
    }

    fn exponent(&mut self) -> Read<i32> {
        if !matches!(self.rest().first(), Some(b'e' | b'E')) {
            return Ok(0);
        }
        self.at += 1;
        let is_negative = self.rest().first() == Some(&b'-');
        if is_negative || self.rest().first() == Some(&b'+') {
            self.at += 1;
        }
        let digits = self.digits();
        // Three digits are more than any time has.
        if digits.is_empty() || digits.len() > 3 {
            return Err(self.expected("an exponent"));
        }
        let exponent = digits
            .iter()
            .fold(0, |sum, digit| sum * 10 + i32::from(digit - b'0'));
        Ok(if is_negative { -exponent } else { exponent })
    }

    fn number_of(&self, digits: &[u8]) -> Read<i64> {
        if digits.len() > DIGITS_MAX {
            return Err(self.expected("a smaller number"));
        }
        Ok(digits
            .iter()
            .fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0')))
    }

    fn skip_number(&mut self) -> Read<()> {
        self.take(b'-');
        self.whole()?;
        self.fraction()?;
        self.exponent()?;
        Ok(())
    }

    fn skip_word(&mut self, word: &'static str) -> Read<()> {
        if !self.rest().starts_with(word.as_bytes()) {
            return Err(self.expected("a value"));
        }
        self.at += word.len();
        Ok(())
    }
}

impl<'a> Reader<'a> for Json<'a> {
    fn object(&mut self, mut member: impl FnMut(&mut Self, &[u8]) -> Read<()>) -> Read<()> {
        self.require(b'{', "a map")?;
        self.go_deeper()?;
        if !self.take(b'}') {
            loop {
                let (name, has_escapes) = self.string()?;
                let name = self.name(name, has_escapes)?;
                self.require(b':', "a colon")?;
                member(self, &name)?;
                if !self.take(b',') {
                    break;
                }
            }
            self.require(b'}', "the end of a map")?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn array(&mut self, mut element: impl FnMut(&mut Self) -> Read<()>) -> Read<()> {
        self.require(b'[', "a list")?;
        self.go_deeper()?;
        if !self.take(b']') {
            loop {
                element(self)?;
                if !self.take(b',') {
                    break;
                }
            }
            self.require(b']', "the end of a list")?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn null(&mut self) -> Read<bool> {
        if self.peek() != Some(b'n') {
            return Ok(false);
        }
        self.skip_word("null")?;
        Ok(true)
    }

    fn text(&mut self) -> Read<Cow<'a, str>> {
        let (between, has_escapes) = self.string()?;
        self.unescaped(between, has_escapes)
    }

    fn blob(&mut self) -> Read<Bytes> {
        let (between, has_escapes) = self.string()?;
        let decoded = if has_escapes {
            let text = self.unescaped(between, has_escapes)?;
            self.blocks.decode_base64(text.as_bytes())
        } else {
            self.blocks.decode_base64(between)
        };
        decoded.ok_or_else(|| self.expected("base64 before this place"))
    }

    fn integer(&mut self) -> Read<i64> {
        let is_negative = self.take(b'-');
        let digits = self.whole()?;
        if matches!(self.rest().first(), Some(b'.' | b'e' | b'E')) {
            return Err(self.expected("a whole number"));
        }
        let number = self.number_of(digits)?;
        Ok(if is_negative { -number } else { number })
    }

    /// Seconds, with or without an exponent: Kinesis writes `1.441215410867E9`. Exact to the
    /// millisecond, which a detour over floating point is not.
    fn time_ms(&mut self) -> Read<i64> {
        let is_negative = self.take(b'-');
        let whole = self.whole()?;
        let fraction = self.fraction()?;
        // How many digits of the fraction are milliseconds or more.
        let shift = self.exponent()? + 3;
        let mut ms: i64 = self.number_of(whole)?;
        let places =
            usize::try_from(shift).map_err(|_| self.expected("a time of a millisecond or more"))?;
        if whole.len() + places > DIGITS_MAX {
            return Err(self.expected("a smaller number"));
        }
        for place in 0..places {
            let digit = fraction
                .get(place)
                .map_or(0, |digit| i64::from(digit - b'0'));
            ms = ms * 10 + digit;
        }
        // Rounded, so that it is what the nearest floating point number says, too.
        if fraction.get(places).is_some_and(|digit| *digit >= b'5') {
            ms += 1;
        }
        Ok(if is_negative { -ms } else { ms })
    }

    fn skip(&mut self) -> Read<()> {
        match self.peek() {
            Some(b'{') => self.object(|reader, _| reader.skip()),
            Some(b'[') => self.array(Self::skip),
            Some(b'"') => self.text().map(|_| ()),
            Some(b'-' | b'0'..=b'9') => self.skip_number(),
            Some(b't') => self.skip_word("true"),
            Some(b'f') => self.skip_word("false"),
            Some(b'n') => self.skip_word("null"),
            _ => Err(self.expected("a value")),
        }
    }

    fn end(&mut self) -> Read<()> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.expected("the end of the reply")),
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

/// Looks at all bytes, whatever the first ones are: without a branch for each, the compiler
/// compares many at a time.
fn has_control_characters(text: &[u8]) -> bool {
    text.iter().copied().fold(u8::MAX, u8::min) < b' '
}
