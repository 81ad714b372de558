//! Holds replies that we decoded, and gives the SDK an empty structure, or the message of an error,
//! in their place.

use std::sync::{Arc, Mutex, PoisonError};

use aws_smithy_json::protocol::aws_json_rpc::AwsJsonRpcProtocol;
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_schema::Schema;
use aws_smithy_schema::protocol::ClientProtocolInner;
use aws_smithy_schema::serde::{SerdeError, ShapeDeserializer};
use aws_smithy_types::{BigDecimal, BigInteger, Blob, DateTime, Document};
use shardmill_wire::{Format, PutResult, Reply, read_event, read_message};

use super::speech::Wire;

/// The one member of Kinesis' errors.
const MESSAGE: &str = "message";
/// The one event that carries records.
const RECORDS_EVENT: &str = "SubscribeToShardEvent";

/// What was decoded.
#[derive(Debug)]
pub(in crate::kinesis) enum Decoded {
    /// A reply of `GetRecords`, or an event.
    Reply(Reply),
    /// A reply of `PutRecords`.
    Puts(Vec<PutResult>),
}

/// Where a call leaves what it decoded. Holds the newest; empty if the SDK decoded it.
#[derive(Debug, Clone, Default)]
pub(in crate::kinesis) struct Inbox {
    newest: Arc<Mutex<Option<Decoded>>>,
}

/// Read by the SDK as a structure, always.
pub(super) enum Answer<'a> {
    /// Without members: they are in the inbox.
    Decoded,
    /// With the message of an error.
    Error(Option<String>),
    /// Of an event stream; what it is, the SDK says when it reads it.
    Event(&'a [u8], Reading),
}

/// How events are read, and where their records go.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    pub(super) json: Arc<AwsJsonRpcProtocol>,
    pub(super) wire: Wire,
    pub(super) inbox: Inbox,
}

impl Inbox {
    pub(super) fn put(&self, decoded: Option<Decoded>) {
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = decoded;
    }

    pub(in crate::kinesis) fn take(&self) -> Option<Decoded> {
        self.newest
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

impl Answer<'_> {
    /// Decodes an event, or leaves it to the SDK.
    fn read_event(
        &mut self,
        schema: &Schema<'_>,
        consumer: &mut dyn FnMut(&Schema<'_>, &mut dyn ShapeDeserializer) -> Result<(), SerdeError>,
    ) -> Result<(), SerdeError> {
        let Self::Event(payload, reading) = self else {
            return Ok(());
        };
        let carries_records = schema.shape_id().shape_name() == RECORDS_EVENT;
        if carries_records && reading.decode(payload)? {
            return Ok(());
        }
        if Format::of(payload) == Format::Json {
            let codec = reading.json.payload_codec();
            let codec = codec.ok_or_else(|| SerdeError::custom("JSON has no codec"))?;
            return codec
                .create_deserializer(payload)
                .read_struct(schema, consumer);
        }
        let error = read_message(payload).map_err(unreadable)?;
        Answer::Error(error.message).read_struct(schema, consumer)
    }
}

impl Reading {
    /// Puts the records of an event into the inbox; `false` leaves the event to the SDK.
    fn decode(&self, payload: &[u8]) -> Result<bool, SerdeError> {
        // Discards what an earlier event left.
        self.inbox.put(None);
        let why = match read_event(payload) {
            Ok(event) => {
                self.inbox.put(Some(Decoded::Reply(event)));
                return Ok(true);
            }
            Err(why) => why,
        };
        match Format::of(payload) {
            Format::Json => {
                self.wire.left_to_sdk(why);
                Ok(false)
            }
            Format::Cbor => {
                self.wire.refused(&why);
                Err(unreadable(why))
            }
        }
    }
}

impl ShapeDeserializer for Answer<'_> {
    fn read_struct(
        &mut self,
        schema: &Schema<'_>,
        consumer: &mut dyn FnMut(&Schema<'_>, &mut dyn ShapeDeserializer) -> Result<(), SerdeError>,
    ) -> Result<(), SerdeError> {
        match self {
            Self::Decoded | Self::Error(None) => Ok(()),
            Self::Event(..) => self.read_event(schema, consumer),
            Self::Error(Some(_)) => {
                let mut members = schema.members().iter();
                match members.find(|member| member.member_name() == Some(MESSAGE)) {
                    Some(member) => consumer(member, self),
                    None => Ok(()),
                }
            }
        }
    }

    fn read_string(&mut self, _: &Schema<'_>) -> Result<String, SerdeError> {
        match self {
            Self::Error(Some(message)) => Ok(message.clone()),
            _ => Err(not_here("text")),
        }
    }

    fn read_list(
        &mut self,
        _: &Schema<'_>,
        _: &mut dyn FnMut(&mut dyn ShapeDeserializer) -> Result<(), SerdeError>,
    ) -> Result<(), SerdeError> {
        Err(not_here("a list"))
    }

    fn read_map(
        &mut self,
        _: &Schema<'_>,
        _: &mut dyn FnMut(String, &mut dyn ShapeDeserializer) -> Result<(), SerdeError>,
    ) -> Result<(), SerdeError> {
        Err(not_here("a map"))
    }

    fn read_boolean(&mut self, _: &Schema<'_>) -> Result<bool, SerdeError> {
        Err(not_here("a boolean"))
    }

    fn read_byte(&mut self, _: &Schema<'_>) -> Result<i8, SerdeError> {
        Err(not_here("a number"))
    }

    fn read_short(&mut self, _: &Schema<'_>) -> Result<i16, SerdeError> {
        Err(not_here("a number"))
    }

    fn read_integer(&mut self, _: &Schema<'_>) -> Result<i32, SerdeError> {
        Err(not_here("a number"))
    }

    fn read_long(&mut self, _: &Schema<'_>) -> Result<i64, SerdeError> {
        Err(not_here("a number"))
    }

    fn read_float(&mut self, _: &Schema<'_>) -> Result<f32, SerdeError> {
        Err(not_here("a number"))
    }

    fn read_double(&mut self, _: &Schema<'_>) -> Result<f64, SerdeError> {
        Err(not_here("a number"))
    }

    fn read_big_integer(&mut self, _: &Schema<'_>) -> Result<BigInteger, SerdeError> {
        Err(not_here("a number"))
    }

    fn read_big_decimal(&mut self, _: &Schema<'_>) -> Result<BigDecimal, SerdeError> {
        Err(not_here("a number"))
    }

    fn read_blob(&mut self, _: &Schema<'_>) -> Result<Blob, SerdeError> {
        Err(not_here("bytes"))
    }

    fn read_timestamp(&mut self, _: &Schema<'_>) -> Result<DateTime, SerdeError> {
        Err(not_here("a time"))
    }

    fn read_document(&mut self, _: &Schema<'_>) -> Result<Document, SerdeError> {
        Err(not_here("a document"))
    }

    fn is_null(&self) -> bool {
        false
    }

    fn container_size(&self) -> Option<usize> {
        None
    }
}

fn not_here(what: &str) -> SerdeError {
    SerdeError::custom(format!("{what} in a reply that may have only a message"))
}

/// The error as the SDK wants it.
pub(super) fn unreadable(why: impl Into<BoxError>) -> SerdeError {
    SerdeError::custom(format!("unreadable reply: {}", why.into()))
}
