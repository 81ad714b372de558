//! The span that a record comes from, as far as the record carries it: Kinesis has no headers, so
//! producers write it into data that is a JSON object, as `traceparent` and `tracestate` at the top
//! or within `_datadog`.

use std::borrow::Cow;

use memchr::memmem::Finder as Search;
use serde::Deserialize;
use serde::de::IgnoredAny;
use shardmill_core::trace::{Link, TraceContext};

/// The name that is looked for before anything is parsed.
const NAME: &str = "traceparent";
/// Bytes of a `tracestate` that are passed on: what everybody has to pass on (W3C Trace Context,
/// 3.3.1.5). A longer one is left out.
const STATE_BYTES_MAX: usize = 512;
/// Bytes of a record that is parsed. In a larger one nothing is looked for: it would take
/// milliseconds.
const DATA_BYTES_MAX: usize = 1 << 20;

/// Finds what records carry.
pub(super) struct Finder(Search<'static>);

/// Values of another type than text are not what is looked for, and no mistake.
#[derive(Deserialize)]
struct Carrier<'a> {
    #[serde(borrow)]
    traceparent: Option<Field<'a>>,
    #[serde(borrow)]
    tracestate: Option<Field<'a>>,
    #[serde(borrow, rename = "_datadog")]
    datadog: Option<Inner<'a>>,
}

/// What Datadog's libraries add to records.
#[derive(Deserialize)]
#[serde(untagged)]
enum Inner<'a> {
    Context {
        #[serde(borrow)]
        traceparent: Cow<'a, str>,
        #[serde(borrow)]
        tracestate: Option<Cow<'a, str>>,
    },
    Other(IgnoredAny),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Field<'a> {
    Text(#[serde(borrow)] Cow<'a, str>),
    Other(IgnoredAny),
}

impl Field<'_> {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Other(_) => None,
        }
    }
}

impl Finder {
    pub(super) fn new() -> Self {
        Self(Search::new(NAME))
    }

    /// The span that data of a record names. `None` if it names none.
    pub(super) fn find(&self, data: &[u8]) -> Option<Link> {
        let opening = data.iter().find(|byte| !byte.is_ascii_whitespace());
        // A list would be taken for an object whose fields come in order.
        let is_object = opening == Some(&b'{') && data.len() <= DATA_BYTES_MAX;
        if !is_object || self.0.find(data).is_none() {
            return None;
        }
        let carrier: Carrier<'_> = serde_json::from_slice(data).ok()?;
        let traceparent = carrier.traceparent.as_ref().and_then(Field::text);
        let tracestate = carrier.tracestate.as_ref().and_then(Field::text);
        let own = traceparent.and_then(|parent| link(parent, tracestate));
        own.or_else(|| match &carrier.datadog {
            Some(Inner::Context {
                traceparent,
                tracestate,
            }) => link(traceparent, tracestate.as_deref()),
            Some(Inner::Other(_)) | None => None,
        })
    }
}

fn link(parent: &str, state: Option<&str>) -> Option<Link> {
    let context = TraceContext::parse(parent)?;
    let state = state.filter(|state| can_be_state(state));
    Some(Link {
        context,
        state: state.map(str::to_owned),
    })
}

/// Whoever writes a record must not reach the tools that read traces with more than text: only
/// what the list of W3C Trace Context (3.3.1) is made of is passed on.
fn can_be_state(text: &str) -> bool {
    let is_of_list = |byte: u8| byte == b'\t' || byte == b' ' || byte.is_ascii_graphic();
    !text.is_empty() && text.len() <= STATE_BYTES_MAX && text.bytes().all(is_of_list)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn found(data: &str) -> Option<(String, Option<String>)> {
        let link = Finder::new().find(data.as_bytes())?;
        Some((link.context.to_string(), link.state))
    }

    #[test]
    fn a_state_of_other_signs_than_a_list_has_is_left_out_and_the_span_is_kept() {
        for state in [r"a=1\r\nX: y", r"a=\u0000", r"a=\u0007", "a=\u{e9}"] {
            let data = format!(r#"{{"traceparent": "{PARENT}", "tracestate": "{state}"}}"#);
            assert_eq!(found(&data), Some((PARENT.to_owned(), None)), "{state}");
        }
    }

    #[test]
    fn the_context_is_found_at_the_top_of_an_object_or_where_datadog_puts_it() {
        let parent = Some((PARENT.to_owned(), None));
        let own = format!(r#"{{"id": 1, "traceparent": "{PARENT}", "deep": [{{"a": "b"}}]}}"#);
        assert_eq!(found(&own), parent);
        let with_state = own.replace(r#""id": 1"#, r#""tracestate": "rojo=1""#);
        assert_eq!(
            found(&with_state),
            Some((PARENT.to_owned(), Some("rojo=1".to_owned())))
        );
        let datadog = format!(
            r#"{{"_datadog": {{"x-datadog-trace-id": "7", "traceparent": "{PARENT}"}}, "id": 2}}"#
        );
        assert_eq!(found(&datadog), parent);
        let both = format!(r#"{{"traceparent": 5, "_datadog": {{"traceparent": "{PARENT}"}}}}"#);
        assert_eq!(found(&both), parent);
    }

    #[test]
    fn what_carries_none_is_passed_over() {
        let inner = format!(r#"{{"order": {{"traceparent": "{PARENT}"}}}}"#);
        let array = format!(r#"[{{"traceparent": "{PARENT}"}}]"#);
        let in_order = format!(r#"["{PARENT}", "traceparent", null]"#);
        let cut = format!(r#"{{"traceparent": "{PARENT}""#);
        let text = format!("traceparent: {PARENT}");
        for data in [
            "",
            "{}",
            "traceparent",
            r#"{"traceparent": null}"#,
            r#"{"traceparent": "00-0-0-01"}"#,
            r#"{"traceparent": {"a": 1}, "_datadog": "x"}"#,
            &inner,
            &array,
            &in_order,
            &cut,
            &text,
        ] {
            assert_eq!(found(data), None, "{data}");
        }
        let finder = Finder::new();
        assert!(finder.find(b"\xff traceparent \xff").is_none());
        let long = format!(
            r#"{{"traceparent": "{PARENT}", "tracestate": "{}"}}"#,
            "a".repeat(600)
        );
        assert_eq!(found(&long), Some((PARENT.to_owned(), None)));
    }
}
