//! The protocol that the SDK uses for one call.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use aws_sdk_kinesis::config;
use aws_smithy_json::protocol::aws_json_rpc::AwsJsonRpcProtocol;
use aws_smithy_runtime_api::client::orchestrator::Metadata;
use aws_smithy_runtime_api::http::{Request, Response};
use aws_smithy_schema::codec::{DynCodec, PayloadSerializer};
use aws_smithy_schema::protocol::{ClientProtocolInner, ServiceShapeName, apply_http_endpoint};
use aws_smithy_schema::serde::{SerdeError, SerializableStruct, ShapeDeserializer};
use aws_smithy_schema::{Schema, ShapeId};
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::config_bag::ConfigBag;
use aws_smithy_types::endpoint::Endpoint;
use aws_smithy_types::error::ErrorMetadata;
use aws_smithy_types::error::metadata::Builder as ErrorMetadataBuilder;
use bytes::Bytes;
use http_body::Body;
use shardmill_wire::{Format, Unreadable, read_message, read_put_results, read_reply};

use super::answer::{Answer, Decoded, Inbox, Reading, unreadable};
use super::request;
use super::speech::Wire;

/// Errors that say that the format is not known, and not that the request is wrong.
const REFUSALS: [&str; 4] = [
    "SerializationException",
    "UnknownOperationException",
    "UnsupportedMediaTypeException",
    "InvalidContentTypeException",
];

/// The configuration of one call: it is made in `format` and leaves what it decodes in `inbox`.
pub(in crate::kinesis) fn config(wire: &Wire, format: Format, inbox: &Inbox) -> config::Builder {
    let json = Arc::new(AwsJsonRpcProtocol::aws_json_1_1());
    let events = Events(Reading {
        json: Arc::clone(&json),
        wire: wire.clone(),
        inbox: inbox.clone(),
    });
    aws_sdk_kinesis::Config::builder().protocol(Protocol {
        format,
        json,
        events,
    })
}

/// Speaks for one call.
#[derive(Debug)]
struct Protocol {
    format: Format,
    json: Arc<AwsJsonRpcProtocol>,
    events: Events,
}

/// The codec of a subscription's events.
#[derive(Debug)]
struct Events(Reading);

// === impl Protocol ===

impl Protocol {
    fn wire(&self) -> &Wire {
        &self.events.0.wire
    }

    fn inbox(&self) -> &Inbox {
        &self.events.0.inbox
    }

    fn cbor_request(
        &self,
        input: &dyn SerializableStruct,
        schema: &Schema<'_>,
        cfg: &ConfigBag,
    ) -> Result<Request, SerdeError> {
        let target = target(cfg)?;
        let body = request::cbor(input, schema)?;
        let length = body.len().to_string();
        let mut request = Request::new(SdkBody::from(body));
        request
            .set_method("POST")
            .and_then(|()| request.set_uri("/"))
            .map_err(|error| SerdeError::custom(error.to_string()))?;
        let headers = request.headers_mut();
        headers.insert("Content-Type", self.format.content_type());
        headers.insert("Content-Length", length);
        headers.insert("X-Amz-Target", target);
        Ok(request)
    }

    /// A reply that we cannot read: passes it to the SDK if the SDK may be able to.
    fn leave<'a>(
        &self,
        response: &'a Response,
        schema: &Schema<'_>,
        cfg: &'a ConfigBag,
        why: &Unreadable,
    ) -> Result<Box<dyn ShapeDeserializer + 'a>, SerdeError> {
        match Format::of(body(response)) {
            Format::Json => {
                self.wire().left_to_sdk(why);
                self.json.deserialize_response(response, schema, cfg)
            }
            Format::Cbor => {
                self.wire().refused(why);
                Err(unreadable(why.clone()))
            }
        }
    }

    /// The code and message of an error in CBOR, or in JSON, which answers a request in CBOR now
    /// and then.
    fn error_metadata(
        &self,
        response: &Response,
        cfg: &ConfigBag,
    ) -> Result<ErrorMetadataBuilder, SerdeError> {
        if Format::of(body(response)) == Format::Json {
            return self.json.parse_error_metadata(response, cfg);
        }
        let error = read_message(body(response)).map_err(unreadable)?;
        let header = response.headers().get("x-amzn-errortype");
        let code = error.code.or_else(|| header.map(str::to_owned));
        Ok(metadata(code, error.message))
    }
}

impl ClientProtocolInner for Protocol {
    type Request = Request;
    type Response = Response;

    fn protocol_id(&self) -> &ShapeId<'static> {
        self.json.protocol_id()
    }

    fn serialize_request(
        &self,
        input: &dyn SerializableStruct,
        input_schema: &Schema<'_>,
        endpoint: &str,
        cfg: &ConfigBag,
    ) -> Result<Request, SerdeError> {
        match self.format {
            Format::Cbor => self.cbor_request(input, input_schema, cfg),
            Format::Json => self
                .json
                .serialize_request(input, input_schema, endpoint, cfg),
        }
    }

    fn deserialize_response<'a>(
        &self,
        response: &'a Response,
        output_schema: &Schema<'_>,
        cfg: &'a ConfigBag,
    ) -> Result<Box<dyn ShapeDeserializer + 'a>, SerdeError> {
        let Some(bytes) = kept_body(response) else {
            // The reply to a subscription: its events come later.
            return self.json.deserialize_response(response, output_schema, cfg);
        };
        let decoded = match output_schema.shape_id().shape_name() {
            "GetRecordsOutput" => read_reply(&bytes).map(Decoded::Reply),
            "PutRecordsOutput" => read_put_results(&bytes).map(Decoded::Puts),
            _ => return self.json.deserialize_response(response, output_schema, cfg),
        };
        // Discards what an earlier attempt left.
        self.inbox().put(None);
        match decoded {
            Ok(decoded) => {
                if self.format == Format::Cbor && Format::of(&bytes) == Format::Json {
                    self.wire().refused("kinesis answered in JSON");
                }
                self.inbox().put(Some(decoded));
                Ok(Box::new(Answer::Decoded))
            }
            Err(why) => self.leave(response, output_schema, cfg, &why),
        }
    }

    fn parse_error_metadata(
        &self,
        response: &Response,
        cfg: &ConfigBag,
    ) -> Result<ErrorMetadataBuilder, SerdeError> {
        let error = self.error_metadata(response, cfg);
        let error = error.map(ErrorMetadataBuilder::build);
        let code = error.as_ref().ok().and_then(ErrorMetadata::code);
        if self.format == Format::Cbor && is_refusal(response, code) {
            let (status, code) = (response.status().as_u16(), code.unwrap_or("no code"));
            self.wire().refused(format_args!("{status}, {code}"));
        }
        error.map(ErrorMetadata::into_builder)
    }

    fn deserialize_error_response<'a>(
        &self,
        response: &'a Response,
        cfg: &'a ConfigBag,
    ) -> Result<Box<dyn ShapeDeserializer + 'a>, SerdeError> {
        if Format::of(body(response)) == Format::Json {
            return self.json.deserialize_error_response(response, cfg);
        }
        let error = read_message(body(response)).map_err(unreadable)?;
        Ok(Box::new(Answer::Error(error.message)))
    }

    fn update_endpoint(
        &self,
        request: &mut Request,
        endpoint: &Endpoint,
        cfg: &ConfigBag,
    ) -> Result<(), SerdeError> {
        apply_http_endpoint(request, endpoint, cfg)
    }

    fn payload_codec(&self) -> Option<&dyn DynCodec> {
        Some(&self.events)
    }

    fn event_stream_media_type(&self) -> Option<&str> {
        Some(self.format.content_type())
    }

    fn parse_event_stream_error_metadata(
        &self,
        payload: &[u8],
    ) -> Result<ErrorMetadataBuilder, SerdeError> {
        if Format::of(payload) == Format::Json {
            return self.json.parse_event_stream_error_metadata(payload);
        }
        let error = read_message(payload).map_err(unreadable)?;
        Ok(metadata(error.code, error.message))
    }
}

// === impl Events ===

impl DynCodec for Events {
    fn create_deserializer<'a>(&self, input: &'a [u8]) -> Box<dyn ShapeDeserializer + 'a> {
        Box::new(Answer::Event(input, self.0.clone()))
    }

    fn create_serializer(&self) -> Box<dyn PayloadSerializer + '_> {
        // No client sends events to Kinesis.
        Box::new(request::Body::default())
    }
}

/// The `X-Amz-Target` of the call that `cfg` configures.
fn target(cfg: &ConfigBag) -> Result<String, SerdeError> {
    let service = cfg.load::<ServiceShapeName>();
    let operation = cfg.load::<Metadata>();
    match (service, operation) {
        (Some(service), Some(operation)) => {
            Ok(format!("{}.{}", service.as_str(), operation.name()))
        }
        _ => Err(SerdeError::custom("the operation has no name")),
    }
}

fn metadata(code: Option<String>, message: Option<String>) -> ErrorMetadataBuilder {
    let mut builder = ErrorMetadata::builder();
    if let Some(code) = code {
        builder = builder.code(code);
    }
    if let Some(message) = message {
        builder = builder.message(message);
    }
    builder
}

/// Whether an error that answers a request in CBOR means that the service does not know CBOR: it
/// says so, or it is not an error of Kinesis at all and blames the request.
fn is_refusal(response: &Response, code: Option<&str>) -> bool {
    let status = response.status().as_u16();
    let is_unsupported = status == 415;
    match code {
        Some(code) => is_unsupported || REFUSALS.contains(&code),
        None => is_unsupported || matches!(status, 400 | 404 | 405 | 406 | 501),
    }
}

/// The body of a reply that was read whole; empty for one that streams.
fn body(response: &Response) -> &[u8] {
    response.body().bytes().unwrap_or_default()
}

/// The same as bytes that can be sliced and kept. The SDK only lends the body; one that is in
/// memory comes as a single frame.
fn kept_body(response: &Response) -> Option<Bytes> {
    let mut body = response.body().try_clone()?;
    let polled = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
    match polled {
        Poll::Ready(Some(Ok(frame))) => frame.into_data().ok(),
        Poll::Ready(None) => Some(Bytes::new()),
        Poll::Ready(Some(Err(_))) | Poll::Pending => None,
    }
}
