//! What both formats can be asked for. A reply's meaning is written against this.

use std::borrow::Cow;

use bytes::Bytes;

/// Text that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("byte {at} of the reply: expected {expected}")]
pub struct Unreadable {
    /// How many bytes of the reply come before the place.
    pub at: usize,
    /// What should be there.
    pub expected: &'static str,
}

/// What a read gives.
pub(crate) type Read<T> = Result<T, Unreadable>;

/// A place in a body; each call reads one value and moves on.
pub(crate) trait Reader<'a>: Sized {
    /// A map: calls `member` with each name, which reads the value. A name is UTF-8, and given as
    /// bytes since it is only compared.
    fn object(&mut self, member: impl FnMut(&mut Self, &[u8]) -> Read<()>) -> Read<()>;

    /// A list: calls `element` for each element, which reads it.
    fn array(&mut self, element: impl FnMut(&mut Self) -> Read<()>) -> Read<()>;

    /// Whether a null is next, which is then read.
    fn null(&mut self) -> Read<bool>;

    /// Text, in place unless it is written in pieces or with escapes.
    fn text(&mut self) -> Read<Cow<'a, str>>;

    /// Reads binary data; a slice of the reply where the format allows it.
    fn blob(&mut self) -> Read<Bytes>;

    /// Reads a whole number that fits in 64 bits.
    fn integer(&mut self) -> Read<i64>;

    /// A time, in milliseconds since the Unix epoch.
    fn time_ms(&mut self) -> Read<i64>;

    /// Any value, which is checked and dropped.
    fn skip(&mut self) -> Read<()>;

    /// Fails unless the reply ends here.
    fn end(&mut self) -> Read<()>;

    /// The bytes that are left.
    fn left(&self) -> usize;

    /// An error at this place.
    fn expected(&self, what: &'static str) -> Unreadable;

    /// Text, or `None` for a null.
    fn optional_text(&mut self) -> Read<Option<String>> {
        if self.null()? {
            return Ok(None);
        }
        Ok(Some(self.text()?.into_owned()))
    }

    /// Keeps a member's value; a member that comes twice is refused.
    fn once<T>(&self, member: &mut Option<T>, value: T) -> Read<()> {
        if member.replace(value).is_some() {
            return Err(self.expected("each member once"));
        }
        Ok(())
    }
}
