//! The network under the SDK clients: every request of every host goes through here, and may meet any fault on its way.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

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
use shardmill_invariants::history::{Micros, What};
use tokio::sync::oneshot;

use crate::events::{Connection, Push};
use crate::system::EPOCH;
use crate::weather::{Direction, Fault, Service};
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
    /// When its host sent it, by the true clock: the first attempt, if the SDK tries again by itself.
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

/// What will happen to one request.
struct Fate {
    there: Duration,
    back: Duration,
    fault: Option<Fault>,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("host", &self.host).finish_non_exhaustive()
    }
}

impl Reply {
    /// One that is there at once and ends no shard.
    pub fn plain(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, body: body.into(), events: None, ended_shard: None, is_mangled: false }
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
        Self { world, host: host.into(), first_sent: Arc::default() }
    }

    fn read(&self, request: &HttpRequest) -> Sent {
        let target = request.headers().get("x-amz-target").expect("a JSON protocol names its operation");
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
        Sent { host: Arc::clone(&self.host), service, operation: operation.to_owned(), body, at }
    }
}

impl HttpClient for Wire {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Wire {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let sent = self.read(&request);
        let world = Arc::clone(&self.world);
        world.trace(&sent.host, &sent.operation, &sent.body);
        HttpConnectorFuture::new(async move {
            let fate = Fate::draw(&world, &sent);
            let (sender, reply) = oneshot::channel();
            // A task of the world's: what is on its way arrives, whatever becomes of the host that sent it.
            let flights = world.flights.clone();
            flights.spawn(fly(Arc::clone(&world), sent.clone(), fate, sender));
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
            let (world, host, lifetime) =
                (Arc::clone(world), Arc::clone(&sent.host), world.stream.subscription_lasts());
            let push = Push { world, host, shard, is_doomed: reply.is_mangled, lifetime };
            (Connection::open(push, frames), "application/vnd.amazon.eventstream")
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
    date.fmt(DateTimeFormat::HttpDate).expect("a time of this century")
}

/// From the host to the service and back. Dropping `sender` is silence.
async fn fly(world: Arc<World>, sent: Sent, fate: Fate, sender: oneshot::Sender<Option<Reply>>) {
    tokio::time::sleep(fate.there).await;
    if world.weather().is_cut(&sent.host, sent.service, Direction::Requests) {
        return world.count("fault: partition");
    }
    if let Some(fault) = fate.fault {
        world.count(&format!("fault: {fault:?}"));
    }
    let mut reply = match fate.fault.and_then(|fault| refusal(fault, sent.service)) {
        Some(refusal) => refusal,
        None if fate.fault == Some(Fault::LostRequest) => return,
        None => apply(&world, &sent).await,
    };
    if fate.fault == Some(Fault::Duplicate) {
        let (later, world, sent) = (fate.there + fate.back, Arc::clone(&world), sent.clone());
        let flights = world.flights.clone();
        flights.spawn(async move {
            tokio::time::sleep(later * 2).await;
            apply(&world, &sent).await;
        });
    }
    tokio::time::sleep(fate.back).await;
    if world.weather().is_cut(&sent.host, sent.service, Direction::Replies) {
        return world.count("fault: partition");
    }
    match fate.fault {
        Some(Fault::LostReply) => return,
        Some(Fault::CutReply) => {
            let _gone = sender.send(None);
            return;
        }
        Some(Fault::ServerErrorApplied) => reply = Reply::error(500, "InternalServerError"),
        Some(Fault::Mangled) => {
            let half = reply.body.len() / 2;
            reply = Reply { body: reply.body.slice(..half), ended_shard: None, is_mangled: true, ..reply };
        }
        _ => {}
    }
    if let Some(shard) = reply.ended_shard.clone().filter(|_| !sender.is_closed()) {
        world.note(What::SaidEnd { host: sent.host.to_string(), shard });
    }
    let _gone = sender.send(Some(reply));
}

async fn apply(world: &Arc<World>, sent: &Sent) -> Reply {
    match sent.service {
        Service::Dynamodb | Service::Coordinator => world.tables.apply(world, sent),
        Service::Kinesis => world.stream.apply(world, sent).await,
    }
}

/// What is answered instead of applying the request.
fn refusal(fault: Fault, service: Service) -> Option<Reply> {
    Some(match (fault, service) {
        (Fault::Throttle, Service::Dynamodb | Service::Coordinator) => {
            Reply::error(400, "ProvisionedThroughputExceededException")
        }
        (Fault::Throttle, Service::Kinesis) => Reply::error(400, "LimitExceededException"),
        (Fault::ServerError, _) => Reply::error(500, "InternalServerError"),
        (Fault::ExpiredIterator, _) => Reply::error(400, "ExpiredIteratorException"),
        (Fault::NotFound, _) => Reply::error(400, "ResourceNotFoundException"),
        (Fault::ExpiredNextToken, _) => Reply::error(400, "ExpiredNextTokenException"),
        _ => return None,
    })
}

/// Classes that may befall a request; `can_meet` says which request.
const ON_THE_WIRE: [Fault; 13] = [
    Fault::LostRequest,
    Fault::LostReply,
    Fault::CutReply,
    Fault::Duplicate,
    Fault::Throttle,
    Fault::ServerError,
    Fault::ServerErrorApplied,
    Fault::Mangled,
    Fault::ExpiredIterator,
    Fault::NotFound,
    Fault::ExpiredNextToken,
    Fault::Slow,
    Fault::LateHeartbeat,
];

fn can_meet(fault: Fault, sent: &Sent) -> bool {
    match fault {
        Fault::ExpiredIterator => sent.operation == "GetRecords",
        Fault::NotFound => sent.service == Service::Kinesis,
        Fault::ExpiredNextToken => sent.operation == "ListShards" && contains(&sent.body, b"\"NextToken\""),
        Fault::Duplicate => sent.service != Service::Kinesis,
        Fault::LateHeartbeat => sent.operation == "PutItem" && contains(&sent.body, b"\"beat\""),
        _ => true,
    }
}

/// Whether `text` is part of `body`.
pub(crate) fn contains(body: &[u8], text: &[u8]) -> bool {
    body.windows(text.len()).any(|window| window == text)
}

impl Fate {
    fn draw(world: &World, sent: &Sent) -> Self {
        let weather = world.weather();
        let mut dice = world.dice();
        let mut fault = None;
        for class in ON_THE_WIRE {
            let chance = weather.chance(class);
            if chance > 0.0 && can_meet(class, sent) && dice.f64() < chance {
                fault = Some(class);
                break;
            }
        }
        let most = if weather.reorders { 150 } else { 12 };
        let mut leg = || {
            let usual = Duration::from_millis(dice.u64(1..most));
            if fault == Some(Fault::Slow) && dice.bool() { usual * 100 } else { usual }
        };
        let (there, mut back) = (leg(), leg());
        if fault == Some(Fault::LateHeartbeat) {
            back = Duration::from_millis(dice.u64(2_000..14_000));
        }
        Self { there, back, fault }
    }
}
