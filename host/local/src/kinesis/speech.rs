//! The two formats that clients speak. The front and the emulator work on JSON; what comes in CBOR
//! (`application/x-amz-cbor-1.1`, as the KCL speaks it) is translated on its way in and out, but
//! for records, which are written in it.

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ciborium::Value as Cbor;
use ciborium::tag::Required;
use ferrokinesis::types::ResponseRecord;
use serde::ser::{Error as _, SerializeMap};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

pub(super) const JSON_1_1: &str = "application/x-amz-json-1.1";
const CBOR_1_1: &str = "application/x-amz-cbor-1.1";
/// A time since the Unix epoch (RFC 8949, 3.4.2); in Kinesis' milliseconds, not in seconds.
const TIME: u64 = 1;

/// What a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speech {
    Json,
    Cbor,
}

/// A record as it is written in CBOR.
struct CborRecord<'a>(&'a ResponseRecord<'a>);

/// Data, from the base64 that the emulator keeps.
struct Blob<'a>(&'a str);

impl Speech {
    /// By the request's content type.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        if starts_with(headers, CBOR_1_1) {
            Self::Cbor
        } else {
            Self::Json
        }
    }

    /// What the client speaks, even if its request was translated.
    pub(super) fn of_client(request: &Request) -> Self {
        let translated = request.extensions().get::<Self>();
        translated.copied().unwrap_or(Self::Json)
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Json => JSON_1_1,
            Self::Cbor => CBOR_1_1,
        }
    }

    /// A body; `None` if it cannot be written.
    pub(super) fn write(self, body: &impl Serialize) -> Option<Vec<u8>> {
        match self {
            Self::Json => serde_json::to_vec(body).ok(),
            Self::Cbor => {
                let mut bytes = Vec::new();
                ciborium::into_writer(body, &mut bytes).ok()?;
                Some(bytes)
            }
        }
    }
}

/// Records of a reply, in the format of its body.
pub(super) fn records<S: Serializer>(
    records: &[ResponseRecord<'_>],
    speech: Speech,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match speech {
        Speech::Json => serializer.collect_seq(records),
        Speech::Cbor => serializer.collect_seq(records.iter().map(CborRecord)),
    }
}

/// The same request in JSON; `None` if its body cannot be read.
pub(super) fn request_in_json(
    mut parts: axum::http::request::Parts,
    body: &Bytes,
) -> Option<Request> {
    let read: Cbor = ciborium::from_reader(&body[..]).ok()?;
    let written = serde_json::to_vec(&json_of(&read)?).ok()?;
    parts
        .headers
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON_1_1));
    parts.headers.remove(header::CONTENT_LENGTH);
    // For handlers that write their reply in CBOR themselves.
    parts.extensions.insert(Speech::Cbor);
    Some(Request::from_parts(parts, Body::from(written)))
}

/// Whether a message is in JSON. A stream, or a reply that was written in CBOR, is not.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    starts_with(headers, JSON_1_1)
}

/// The same reply in CBOR; `None` if its body cannot be read.
pub(super) fn reply_in_cbor(
    mut parts: axum::http::response::Parts,
    body: &Bytes,
) -> Option<Response> {
    // Operations without a result have no body.
    let written = if body.is_empty() {
        Vec::new()
    } else {
        let read: Value = serde_json::from_slice(body).ok()?;
        Speech::Cbor.write(&cbor_of("", &read)?)?
    };
    parts
        .headers
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(CBOR_1_1));
    parts.headers.remove(header::CONTENT_LENGTH);
    Some(Response::from_parts(parts, Body::from(written)))
}

fn starts_with(headers: &HeaderMap, content_type: &str) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(content_type.as_bytes()))
}

fn json_of(value: &Cbor) -> Option<Value> {
    Some(match value {
        Cbor::Null => Value::Null,
        Cbor::Bool(value) => Value::Bool(*value),
        Cbor::Integer(number) => Value::from(i64::try_from(*number).ok()?),
        Cbor::Float(number) => Value::from(*number),
        Cbor::Text(text) => Value::from(text.as_str()),
        Cbor::Bytes(data) => Value::from(STANDARD.encode(data)),
        Cbor::Tag(TIME, ms) => Value::from(i64::try_from(ms.as_integer()?).ok()? as f64 / 1_000.0),
        Cbor::Array(elements) => elements.iter().map(json_of).collect::<Option<_>>()?,
        Cbor::Map(members) => Value::Object(json_members(members)?),
        _ => return None,
    })
}

fn json_members(members: &[(Cbor, Cbor)]) -> Option<Map<String, Value>> {
    let mut object = Map::new();
    for (name, value) in members {
        object.insert(name.as_text()?.to_owned(), json_of(value)?);
    }
    Some(object)
}

/// The member `name` in CBOR. Its name says what JSON does not: which text is data, and which
/// number is a time.
fn cbor_of(name: &str, value: &Value) -> Option<Cbor> {
    Some(match value {
        Value::Null => Cbor::Null,
        Value::Bool(value) => Cbor::Bool(*value),
        Value::Number(seconds) if name.ends_with("Timestamp") => {
            let ms = Cbor::Integer(whole_ms(seconds.as_f64()?).into());
            Cbor::Tag(TIME, Box::new(ms))
        }
        Value::Number(number) => match number.as_i64() {
            Some(number) => Cbor::Integer(number.into()),
            None => Cbor::Float(number.as_f64()?),
        },
        Value::String(text) if name == "Data" => Cbor::Bytes(STANDARD.decode(text).ok()?),
        Value::String(text) => Cbor::Text(text.clone()),
        Value::Array(elements) => {
            let elements = elements.iter().map(|element| cbor_of("", element));
            Cbor::Array(elements.collect::<Option<_>>()?)
        }
        Value::Object(members) => Cbor::Map(cbor_members(members)?),
    })
}

fn cbor_members(members: &Map<String, Value>) -> Option<Vec<(Cbor, Cbor)>> {
    let mut map = Vec::new();
    for (name, value) in members {
        map.push((Cbor::from(name.as_str()), cbor_of(name, value)?));
    }
    Some(map)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "times of this emulator, far below the limit"
)]
fn whole_ms(seconds: f64) -> i64 {
    (seconds * 1_000.0).round() as i64
}

impl Serialize for CborRecord<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(record) = self;
        let arrived = whole_ms(record.approximate_arrival_timestamp.0);
        let mut members = serializer.serialize_map(Some(4))?;
        members.serialize_entry("SequenceNumber", record.sequence_number)?;
        members.serialize_entry("ApproximateArrivalTimestamp", &Required::<_, TIME>(arrived))?;
        members.serialize_entry("Data", &Blob(record.data))?;
        members.serialize_entry("PartitionKey", record.partition_key)?;
        members.end()
    }
}

impl Serialize for Blob<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let data = STANDARD.decode(self.0).map_err(S::Error::custom)?;
        serializer.serialize_bytes(&data)
    }
}
