//! The network between hosts and services: what becomes of one request on its way there and back.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::refusal::How;
use crate::weather::{Direction, Fault, Service};
use crate::world::World;

/// A request, as far as the network cares.
#[derive(Debug, Clone)]
pub struct Request {
    /// By whom.
    pub host: Arc<str>,
    /// By which name the network knows the machine that it comes from.
    pub path: Arc<str>,
    /// To where.
    pub service: Service,
    /// Which faults it may meet.
    pub kind: RequestKind,
    /// The action, by its API's name; a right to it may be missing.
    pub action: &'static str,
}

/// Requests that meet faults of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    /// A worker's row, written again.
    Heartbeat,
    /// Records, by an iterator.
    Fetch,
    /// A further page of the shard list.
    NextPage,
    /// A lease, taken.
    Take,
    /// Anything else.
    Other,
}

/// What a service answers, as far as the network changes it.
pub trait Reply: Send + Sized + 'static {
    /// What is answered instead of applying the request; `None` if this fault lets it be applied.
    fn refusal(fault: Fault, service: Service) -> Option<Self>;

    /// What is answered to a request that is refused.
    fn refused(how: How) -> Self;

    /// A 5xx, whatever was done.
    fn server_error() -> Self;

    /// Broken on its way.
    fn mangled(self) -> Self;

    /// The shard of which it says that it has no more records.
    fn ended_shard(&self) -> Option<&str>;
}

/// What will happen to one request.
#[derive(Debug, Clone, Copy)]
pub struct Fate {
    there: Duration,
    back: Duration,
    fault: Option<Fault>,
}

/// Classes that may befall a request; `can_meet` says which request.
const ON_THE_WAY: [Fault; 14] = [
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
    Fault::LateTake,
];

fn can_meet(fault: Fault, request: &Request) -> bool {
    match fault {
        Fault::ExpiredIterator => request.kind == RequestKind::Fetch,
        Fault::NotFound => request.service == Service::Kinesis,
        Fault::ExpiredNextToken => request.kind == RequestKind::NextPage,
        Fault::Duplicate => request.service != Service::Kinesis,
        Fault::LateHeartbeat => request.kind == RequestKind::Heartbeat,
        Fault::LateTake => request.kind == RequestKind::Take,
        _ => true,
    }
}

impl Fate {
    /// Draws what will happen to `request`.
    pub fn draw(world: &World, request: &Request) -> Self {
        let weather = world.weather();
        let mut dice = world.dice();
        let mut fault = None;
        for class in ON_THE_WAY {
            let chance = weather.chance(class);
            if chance > 0.0 && can_meet(class, request) && dice.f64() < chance {
                fault = Some(class);
                break;
            }
        }
        let most = if weather.reorders { 150 } else { 12 };
        let mut leg = || {
            let usual = Duration::from_millis(dice.u64(1..most));
            if fault == Some(Fault::Slow) && dice.bool() {
                usual * 100
            } else {
                usual
            }
        };
        let (there, mut back) = (leg(), leg());
        match fault {
            Some(Fault::LateHeartbeat) => back = Duration::from_millis(dice.u64(2_000..14_000)),
            // A host waits for a third of a lease's time.
            Some(Fault::LateTake) => back = Duration::from_millis(dice.u64(500..4_000)),
            _ => {}
        }
        Self { there, back, fault }
    }
}

/// From the host to the service, which does `apply`, and back. Dropping `sender` is silence; `None`
/// is a broken connection.
pub async fn fly<R, F>(
    world: Arc<World>,
    request: Request,
    fate: Fate,
    apply: impl Fn() -> F + Send + Sync + 'static,
    sender: oneshot::Sender<Option<R>>,
) where
    R: Reply,
    F: Future<Output = R> + Send + 'static,
{
    tokio::time::sleep(fate.there).await;
    if world
        .weather()
        .is_cut(&request.path, request.service, Direction::Requests)
    {
        return world.count("fault: partition");
    }
    if let Some(fault) = fate.fault {
        world.count_fault(fault);
    }
    let refused = world.weather().refuses(&request);
    if let Some(how) = refused {
        world.count(&format!("fault: refused ({how:?})"));
        tokio::time::sleep(fate.back).await;
        let _gone = sender.send(Some(R::refused(how)));
        return;
    }
    let mut reply = match fate
        .fault
        .and_then(|fault| R::refusal(fault, request.service))
    {
        Some(refusal) => refusal,
        None if fate.fault == Some(Fault::LostRequest) => return,
        None => apply().await,
    };
    if fate.fault == Some(Fault::Duplicate) {
        let later = fate.there + fate.back;
        let flights = world.flights.clone();
        flights.spawn(async move {
            tokio::time::sleep(later * 2).await;
            apply().await;
        });
    }
    tokio::time::sleep(fate.back).await;
    if world
        .weather()
        .is_cut(&request.path, request.service, Direction::Replies)
    {
        return world.count("fault: partition");
    }
    match fate.fault {
        Some(Fault::LostReply) => return,
        Some(Fault::CutReply) => {
            let _gone = sender.send(None);
            return;
        }
        Some(Fault::ServerErrorApplied) => reply = R::server_error(),
        Some(Fault::Mangled) => reply = reply.mangled(),
        _ => {}
    }
    if let Some(shard) = reply.ended_shard().filter(|_| !sender.is_closed()) {
        world.stream.said_end(&request.host, shard);
    }
    let _gone = sender.send(Some(reply));
}
