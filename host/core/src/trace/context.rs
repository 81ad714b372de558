//! `traceparent`, as W3C Trace Context writes it: <https://www.w3.org/TR/trace-context/>.

use std::fmt;

use super::{SpanId, TraceId};

/// A span, as others name it who belong to its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// The trace that it belongs to.
    pub trace: TraceId,
    /// Its own id in that trace.
    pub span: SpanId,
    /// Whether it is recorded by whoever made it.
    pub is_sampled: bool,
}

/// Characters of a `traceparent` of version 00. Later versions may append to it.
const LENGTH: usize = 55;

impl TraceContext {
    /// Reads a header's value; `None` if it is none. Whatever a later version appends is left out.
    pub fn parse(text: &str) -> Option<Self> {
        let known = text.get(..LENGTH)?;
        let [version, trace, span, flags] = parts_of(known)?;
        if !may_follow(version, &text[LENGTH..]) {
            return None;
        }
        Some(Self {
            trace: TraceId::new(u128::from_str_radix(trace, 16).ok()?)?,
            span: SpanId::new(u64::from_str_radix(span, 16).ok()?)?,
            is_sampled: u8::from_str_radix(flags, 16).ok()? & 1 == 1,
        })
    }
}

/// Capital letters are not allowed.
/// Four parts, each of hexadecimal digits, and as many as it is to have.
fn parts_of(known: &str) -> Option<[&str; 4]> {
    let mut parts = known.split('-');
    let (version, trace) = (parts.next()?, parts.next()?);
    let (span, flags) = (parts.next()?, parts.next()?);
    let four = [version, trace, span, flags];
    let has_lengths = four.map(str::len) == [2, 32, 16, 2];
    let is_hex = |part: &str| part.bytes().all(|b| b.is_ascii_digit() || is_letter(b));
    let is_fit = parts.next().is_none() && has_lengths && four.into_iter().all(is_hex);
    is_fit.then_some(four)
}

/// Whether a header of that version may have `rest` behind what is known.
fn may_follow(version: &str, rest: &str) -> bool {
    match version {
        "ff" => false,
        "00" => rest.is_empty(),
        _ => rest.is_empty() || rest.starts_with('-'),
    }
}

fn is_letter(byte: u8) -> bool {
    (b'a'..=b'f').contains(&byte)
}

/// As a header's value.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.is_sampled);
        write!(f, "00-{}-{}-{flags:02x}", self.trace, self.span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the standard.
    const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_header_is_read_as_it_is_written() {
        let context = TraceContext::parse(EXAMPLE).unwrap();
        assert_eq!(context.to_string(), EXAMPLE);
        assert!(context.is_sampled);
        let unsampled = EXAMPLE.replace("-01", "-00");
        let context = TraceContext::parse(&unsampled).unwrap();
        assert!(!context.is_sampled);
        assert_eq!(context.to_string(), unsampled);
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        let later = EXAMPLE.replacen("00-", "cc-", 1);
        assert!(TraceContext::parse(&later).is_some());
        assert!(TraceContext::parse(&format!("{later}-what-the-future-will-be")).is_some());
        assert!(TraceContext::parse(&format!("{later}.what")).is_none());
        assert!(TraceContext::parse(&format!("{EXAMPLE}-more")).is_none());
    }

    #[test]
    fn what_is_no_context_is_none() {
        let broken = [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0x",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e47-3600f067aa0ba902b7-01",
            "00--bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "äää4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ];
        for text in broken {
            assert_eq!(TraceContext::parse(text), None, "{text:?}");
        }
    }
}
