//! Calls of one host to the services: over the simulated network, and tried again as the SDK does.

use std::sync::Arc;
use std::time::Duration;

use shardmill_core::ports::{ReadError, StoreError, SubscribeError};
use shardmill_invariants::history::Micros;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::network::{Fate, Reply, Request, RequestKind, fly};
use crate::refusal::How;
use crate::weather::{Fault, Service};
use crate::world::World;

/// The paths of one host.
#[derive(Clone)]
pub struct Net {
    /// The run.
    pub world: Arc<World>,
    /// Whose.
    pub host: Arc<str>,
    /// By which name the network knows its machine.
    pub path: Arc<str>,
}

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Of whom.
    pub service: Service,
    /// Which faults it may meet.
    pub kind: RequestKind,
    /// The port's operation.
    pub operation: &'static str,
    /// The action that the real adapter asks for, by its API's name.
    pub action: &'static str,
    /// About what: a row, a shard.
    pub about: &'a str,
}

/// What a service answers.
#[derive(Debug)]
pub struct Answer<T> {
    /// The outcome.
    pub result: Result<T, Failed>,
    /// The shard of which it says that it has no more records.
    pub ended_shard: Option<String>,
}

/// Why a call came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failed {
    /// Refused for its rate; not applied.
    Throttled,
    /// No answer, or one that says nothing.
    NoAnswer,
    /// A right is missing.
    Denied,
    /// Not known, it says.
    NotFound,
    /// The iterator is too old.
    ExpiredIterator,
    /// The page's token is too old.
    ExpiredNextToken,
}

/// How long a call hangs that its client does not give up: longer than a run has to settle.
const HANGS_FOR: Duration = Duration::from_mins(15);

/// How long the SDK's client of a service goes on, as `shardmill_aws` sets it.
struct Patience {
    attempts: u32,
    attempt: Duration,
    operation: Duration,
}

impl Ask<'_> {
    /// Whether it is up to the host to give the call up: it waits for as long as a table takes to
    /// be made, and asks Kinesis as long as the client does.
    fn may_hang(&self) -> bool {
        self.service != Service::Kinesis && self.action != "DescribeTable"
    }
}

impl<T> Answer<T> {
    /// A reply that ends no shard.
    pub fn of(result: Result<T, Failed>) -> Self {
        Self {
            result,
            ended_shard: None,
        }
    }
}

impl<T: Send + 'static> Reply for Answer<T> {
    fn refusal(fault: Fault, _: Service) -> Option<Self> {
        let failed = match fault {
            Fault::Throttle => Failed::Throttled,
            Fault::ServerError => Failed::NoAnswer,
            Fault::ExpiredIterator => Failed::ExpiredIterator,
            Fault::NotFound => Failed::NotFound,
            Fault::ExpiredNextToken => Failed::ExpiredNextToken,
            _ => return None,
        };
        Some(Self::of(Err(failed)))
    }

    fn refused(how: How) -> Self {
        Self::of(Err(match how {
            How::Denied => Failed::Denied,
            How::Throttled => Failed::Throttled,
            // Nobody knows what the next try meets.
            How::Conflict => Failed::NoAnswer,
        }))
    }

    fn server_error() -> Self {
        Self::of(Err(Failed::NoAnswer))
    }

    fn mangled(self) -> Self {
        Self::of(Err(Failed::NoAnswer))
    }

    fn ended_shard(&self) -> Option<&str> {
        self.ended_shard.as_deref()
    }
}

impl Failed {
    fn is_worth_another_try(self) -> bool {
        matches!(self, Self::Throttled | Self::NoAnswer)
    }
}

impl Patience {
    fn with(service: Service) -> Self {
        let seconds = Duration::from_secs;
        match service {
            Service::Dynamodb | Service::Coordinator => Self {
                attempts: 3,
                attempt: seconds(10),
                operation: seconds(15),
            },
            Service::Kinesis => Self {
                attempts: 2,
                attempt: seconds(30),
                operation: seconds(65),
            },
        }
    }
}

impl Net {
    /// When a call that is made now is sent.
    pub fn now(&self) -> Micros {
        self.world.now()
    }

    /// Asks, and asks again while that may help. `serve` is what the service does with the request,
    /// perhaps more than once.
    pub async fn call<T: Send + 'static>(
        &self,
        ask: Ask<'_>,
        serve: impl Fn() -> Answer<T> + Send + Sync + 'static,
    ) -> Result<T, Failed> {
        if ask.may_hang() && self.world.strikes(Fault::Hang) {
            tokio::time::sleep(HANGS_FOR).await;
            return Err(Failed::NoAnswer);
        }
        let patience = Patience::with(ask.service);
        let serve = Arc::new(serve);
        let tries = async {
            for attempt in 1.. {
                let answer = timeout(patience.attempt, self.attempt(ask, Arc::clone(&serve))).await;
                match answer.unwrap_or(Err(Failed::NoAnswer)) {
                    Err(failed) if failed.is_worth_another_try() && attempt < patience.attempts => {
                        let jitter = self.world.dice().f64();
                        tokio::time::sleep(Duration::from_secs(1 << (attempt - 1)).mul_f64(jitter))
                            .await;
                    }
                    answer => return answer,
                }
            }
            Err(Failed::NoAnswer)
        };
        timeout(patience.operation, tries)
            .await
            .unwrap_or(Err(Failed::NoAnswer))
    }

    async fn attempt<T: Send + 'static>(
        &self,
        ask: Ask<'_>,
        serve: Arc<impl Fn() -> Answer<T> + Send + Sync + 'static>,
    ) -> Result<T, Failed> {
        self.world
            .trace(&self.path, ask.operation, ask.about.as_bytes());
        let request = Request {
            host: Arc::clone(&self.host),
            path: Arc::clone(&self.path),
            service: ask.service,
            kind: ask.kind,
            action: ask.action,
        };
        let fate = Fate::draw(&self.world, &request);
        let (sender, reply) = oneshot::channel();
        let apply = move || std::future::ready(serve());
        // A task of the world's: what is on its way arrives, whatever becomes of the host that sent
        // it.
        let flights = self.world.flights.clone();
        flights.spawn(fly(Arc::clone(&self.world), request, fate, apply, sender));
        match reply.await {
            Ok(Some(answer)) => answer.result,
            Ok(None) => Err(Failed::NoAnswer),
            Err(_) => std::future::pending().await,
        }
    }
}

impl From<Failed> for StoreError {
    fn from(failed: Failed) -> Self {
        let message = format!("simulated: {failed:?}");
        match failed {
            Failed::Throttled => Self::Throttled { message },
            Failed::NoAnswer => Self::Unknown { message },
            Failed::Denied
            | Failed::NotFound
            | Failed::ExpiredIterator
            | Failed::ExpiredNextToken => Self::Refused { message },
        }
    }
}

impl From<Failed> for ReadError {
    fn from(failed: Failed) -> Self {
        let message = format!("simulated: {failed:?}");
        match failed {
            Failed::Throttled => Self::Throttled { message },
            Failed::NoAnswer | Failed::ExpiredNextToken => Self::Unavailable { message },
            Failed::Denied => Self::Refused { message },
            Failed::NotFound => Self::NotFound { message },
            Failed::ExpiredIterator => Self::ExpiredIterator,
        }
    }
}

impl From<Failed> for SubscribeError {
    fn from(failed: Failed) -> Self {
        let message = format!("simulated: {failed:?}");
        match failed {
            Failed::Throttled => Self::Throttled { message },
            Failed::Denied => Self::Refused { message },
            Failed::NotFound => Self::NotFound { message },
            Failed::NoAnswer | Failed::ExpiredNextToken | Failed::ExpiredIterator => {
                Self::Unavailable { message }
            }
        }
    }
}
