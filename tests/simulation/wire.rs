//! The network under the SDK clients: every request of every host goes through here, and may meet
//! any fault on its way.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::date_time::{DateTime, Format as DateTimeFormat};
use bytes::Bytes;
use shardmill_invariants::history::Micros;
use tokio::sync::oneshot;

use crate::events::Connection;
use crate::network::{self, Fate, Request, RequestKind};
use crate::refusal::How;
use crate::stream::StreamService;
use crate::system::EPOCH;
use crate::tables::Tables;
use crate::weather::{Fault, Service};
use crate::world::{World, lock};

/// The transport of one host's clients.
#[derive(Clone)]
pub struct Wire {
    world: Arc<World>,
    host: Arc<str>,
    /// When each call's first attempt was sent, by the SDK's id of the call.
    first_sent: Arc<Mutex<BTreeMap<String, Micros>>>,
}

/// A request on its way.
#[derive(Debug, Clone)]
pub struct Sent {
    /// By whom.
    pub host: Arc<str>,
    /// To where.
    pub service: Service,
    /// The operation's name, without the service's.
    pub operation: String,
    /// The JSON.
    pub body: Bytes,
    /// When its host sent it, by the true clock: the first attempt, if the SDK tries again by
    /// itself.
    pub at: Micros,
}

/// What a service answers.
#[derive(Debug)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The JSON.
    pub body: Bytes,
    /// What follows after the head of the reply, if that is a stream.
    pub events: Option<Subscribed>,
    /// The shard of which this reply says that it has no more records.
    pub ended_shard: Option<String>,
    /// Whether it broke on its way.
    pub is_mangled: bool,
}

/// The events of a subscription, as the service sends them.
#[derive(Debug)]
pub struct Subscribed {
    /// To what.
    pub shard: String,
    /// Their frames.
    pub frames: axum::body::Body,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire")
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

impl Reply {
    /// One that is there at once and ends no shard.
    pub fn plain(status: u16, body: impl Into<Bytes>) -> Self {
        Self {
            status,
            body: body.into(),
            events: None,
            ended_shard: None,
            is_mangled: false,
        }
    }

    /// An error in the wire format of both services.
    pub fn error(status: u16, code: &str) -> Self {
        let body = format!(r#"{{"__type":"{code}","message":"simulated"}}"#);
        Self::plain(status, body)
    }
}

impl Wire {
    /// The transport of `host`.
    pub fn new(world: Arc<World>, host: &str) -> Self {
        Self {
            world,
            host: host.into(),
            first_sent: Arc::default(),
        }
    }

    fn read(&self, request: &HttpRequest) -> Sent {
        let target = request
            .headers()
            .get("x-amz-target")
            .expect("a JSON protocol names its operation");
        let (service, operation) = target.split_once('.').expect("Service_Version.Operation");
        let body = request.body().bytes().expect("requests are held in memory");
        let service = match service.starts_with("Kinesis") {
            true => Service::Kinesis,
            false if contains(body, b"-coordinator\"") => Service::Coordinator,
            false => Service::Dynamodb,
        };
        let now = self.world.now();
        let at = match request.headers().get("amz-sdk-invocation-id") {
            Some(call) => *lock(&self.first_sent).entry(call.to_owned()).or_insert(now),
            None => now,
        };
        let body = Bytes::copy_from_slice(body);
        Sent {
            host: Arc::clone(&self.host),
            service,
            operation: operation.to_owned(),
            body,
            at,
        }
    }
}

impl HttpClient for Wire {
    fn http_connector(
        &self,
        _: &HttpConnectorSettings,
        _: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Wire {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let sent = self.read(&request);
        let world = Arc::clone(&self.world);
        world.trace(&sent.host, &sent.operation, &sent.body);
        HttpConnectorFuture::new(async move {
            let request = sent.request();
            let fate = Fate::draw(&world, &request);
            let (sender, reply) = oneshot::channel();
            let applied = {
                let (world, sent) = (Arc::clone(&world), sent.clone());
                move || apply(Arc::clone(&world), sent.clone())
            };
            // A task of the world's: what is on its way arrives, whatever becomes of the host that
            // sent it.
            let flights = world.flights.clone();
            flights.spawn(network::fly(
                Arc::clone(&world),
                request,
                fate,
                applied,
                sender,
            ));
            match reply.await {
                Ok(Some(reply)) => Ok(response(&world, &sent, reply)),
                Ok(None) => Err(ConnectorError::io("connection reset by peer".into())),
                Err(_) => std::future::pending().await,
            }
        })
    }
}

fn response(world: &Arc<World>, sent: &Sent, reply: Reply) -> HttpResponse {
    let status = StatusCode::try_from(reply.status).expect("a status");
    let (body, kind) = match reply.events {
        None => (SdkBody::from(reply.body), "application/x-amz-json-1.1"),
        Some(Subscribed { shard, frames }) => {
            let connection = Connection {
                world: Arc::clone(world),
                host: Arc::clone(&sent.host),
                path: Arc::clone(&sent.host),
                shard,
                is_doomed: reply.is_mangled,
                lifetime: world.stream.subscription_lasts(),
            };
            (
                connection.open(frames),
                "application/vnd.amazon.eventstream",
            )
        }
    };
    let mut response = HttpResponse::new(status, body);
    response.headers_mut().insert("content-type", kind);
    response.headers_mut().insert("date", date(world));
    response
}

/// The true time in whole seconds, as services put it on their replies.
fn date(world: &World) -> String {
    let seconds = EPOCH.as_secs() + world.now() / 1_000_000;
    let date = DateTime::from_secs(i64::try_from(seconds).expect("a time of this century"));
    date.fmt(DateTimeFormat::HttpDate)
        .expect("a time of this century")
}

async fn apply(world: Arc<World>, sent: Sent) -> Reply {
    match (sent.service, &world.tables, world.stream.service()) {
        (Service::Dynamodb | Service::Coordinator, Tables::Emulated(dynamodb), _) => {
            dynamodb.apply(&world, &sent)
        }
        (Service::Kinesis, _, StreamService::Emulated(kinesis)) => {
            kinesis.apply(&world, &sent).await
        }
        _ => unreachable!("what is sent over the wire goes to an emulator"),
    }
}

impl network::Reply for Reply {
    fn refusal(fault: Fault, service: Service) -> Option<Self> {
        Some(match (fault, service) {
            (Fault::Throttle, Service::Dynamodb | Service::Coordinator) => {
                Self::error(400, "ProvisionedThroughputExceededException")
            }
            (Fault::Throttle, Service::Kinesis) => Self::error(400, "LimitExceededException"),
            (Fault::ServerError, _) => Self::error(500, "InternalServerError"),
            (Fault::ExpiredIterator, _) => Self::error(400, "ExpiredIteratorException"),
            (Fault::NotFound, _) => Self::error(400, "ResourceNotFoundException"),
            (Fault::ExpiredNextToken, _) => Self::error(400, "ExpiredNextTokenException"),
            _ => return None,
        })
    }

    fn refused(how: How) -> Self {
        Self::error(
            400,
            match how {
                How::Denied => "AccessDeniedException",
                How::Throttled => "ThrottlingException",
                How::Conflict => "TransactionConflictException",
            },
        )
    }

    fn server_error() -> Self {
        Self::error(500, "InternalServerError")
    }

    fn mangled(self) -> Self {
        let half = self.body.len() / 2;
        Self {
            body: self.body.slice(..half),
            ended_shard: None,
            is_mangled: true,
            ..self
        }
    }

    fn ended_shard(&self) -> Option<&str> {
        self.ended_shard.as_deref()
    }
}

impl Sent {
    fn request(&self) -> Request {
        let kind = match self.operation.as_str() {
            "GetRecords" => RequestKind::Fetch,
            "ListShards" if contains(&self.body, b"\"NextToken\"") => RequestKind::NextPage,
            "PutItem" if contains(&self.body, b"\"beat\"") => RequestKind::Heartbeat,
            _ => RequestKind::Other,
        };
        // Refusals by right are drawn over the ports only.
        Request {
            host: Arc::clone(&self.host),
            path: Arc::clone(&self.host),
            service: self.service,
            kind,
            action: "",
        }
    }
}

/// Whether `text` is part of `body`.
pub(crate) fn contains(body: &[u8], text: &[u8]) -> bool {
    body.windows(text.len()).any(|window| window == text)
}
