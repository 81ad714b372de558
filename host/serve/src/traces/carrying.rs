//! Writes a span's context into output that is a JSON object: one member before all others, and
//! not a byte is changed besides.

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use shardmill_core::trace::TraceContext;

/// Bytes of a piece that is looked at: a larger one is passed on as it is, since reading it would
/// take long.
const DATA_BYTES_MAX: usize = 256 << 10;

#[derive(Deserialize)]
struct Carrier {
    traceparent: Option<IgnoredAny>,
}

/// The object with the context. `None` if it is no JSON object, or names a context already.
pub(super) fn carrying(data: &[u8], context: TraceContext) -> Option<Bytes> {
    if data.len() > DATA_BYTES_MAX {
        return None;
    }
    let opening = data.iter().position(|byte| !byte.is_ascii_whitespace())?;
    // What is not read as text could hold other bytes in its strings.
    let text = std::str::from_utf8(data).ok()?;
    if data[opening] != b'{' {
        return None;
    }
    let carrier: Carrier = serde_json::from_str(text).ok()?;
    if carrier.traceparent.is_some() {
        return None;
    }
    let (before, members) = text.split_at(opening + 1);
    let gap = if members.trim_start().starts_with('}') {
        ""
    } else {
        ","
    };
    let carrying = format!("{before}\"traceparent\":\"{context}\"{gap}{members}");
    Some(carrying.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn written(data: &str) -> Option<String> {
        let context = TraceContext::parse(PARENT).unwrap();
        let carrying = carrying(data.as_bytes(), context)?;
        Some(String::from_utf8(carrying.into()).unwrap())
    }

    #[test]
    fn an_object_gets_one_member_and_keeps_every_byte() {
        let with = |rest: &str| Some(format!("{{\"traceparent\":\"{PARENT}\"{rest}"));
        assert_eq!(written("{}"), with("}"));
        assert_eq!(written("{ }"), with(" }"));
        assert_eq!(
            written(r#"{"a":1.0e5,"a":2}"#),
            with(r#","a":1.0e5,"a":2}"#)
        );
        assert_eq!(
            written("\n {\"z\": \"\\u0000\"}\n"),
            with(",\"z\": \"\\u0000\"}\n").map(|text| format!("\n {text}"))
        );
    }

    #[test]
    fn what_is_no_object_or_has_a_context_stays_as_it_is() {
        for data in [
            "",
            " ",
            "[]",
            "[{}]",
            "5",
            "text",
            "{",
            "{}{}",
            r#"{"a":}"#,
            r#"{"traceparent":"mine"}"#,
        ] {
            assert_eq!(written(data), None, "{data:?}");
        }
        let context = TraceContext::parse(PARENT).unwrap();
        assert_eq!(carrying(b"{\"a\":\"\xff\"}", context), None);
        let large = format!("{{\"a\":\"{}\"}}", "x".repeat(DATA_BYTES_MAX));
        assert_eq!(written(&large), None);
    }
}
