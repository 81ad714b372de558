//! What goes wrong on the network and in the cloud, and how often. Drawn by the seed; calm once
//! healed.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::network::Request;
use crate::refusal::{How, Refusal};

/// A class of faults. Each seed switches on a random subset, because all at once hide bugs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// A request or reply takes a hundred times as long.
    Slow,
    /// A request never arrives.
    LostRequest,
    /// A request is applied, its reply never arrives.
    LostReply,
    /// The connection breaks after the request was applied.
    CutReply,
    /// A request is applied again later, as by a retry whose first attempt was only slow.
    Duplicate,
    /// Refused for its rate.
    Throttle,
    /// A 5xx without effect.
    ServerError,
    /// A 5xx although the request was applied.
    ServerErrorApplied,
    /// The reply's body is cut or no JSON.
    Mangled,
    /// A read that need not be consistent is answered from the past.
    StaleRead,
    /// `ExpiredIteratorException` for a good iterator.
    ExpiredIterator,
    /// `ResourceNotFoundException` for a stream that is there.
    NotFound,
    /// `ExpiredNextTokenException` for a listing's page.
    ExpiredNextToken,
    /// Kinesis does not pace: more than five reads a second are allowed. (When off, a sixth is
    /// refused.)
    Unlimited,
    /// The plugin traps.
    Trap,
    /// The plugin returns an error.
    PluginError,
    /// The plugin reports some records as failed.
    PartialFailure,
    /// The plugin takes seconds.
    SlowPlugin,
    /// The plugin takes longer than a lease.
    StuckPlugin,
    /// The sink refuses output.
    SinkError,
    /// A query of the coordinator's table that need not be consistent is answered from the past.
    StaleQuery,
    /// The answer to a heartbeat takes as long as a lease.
    LateHeartbeat,
    /// The newest shards are not listed yet.
    StaleListing,
    /// The plugin holds records back: they are handled, but may not be checkpointed yet.
    HoldBack,
    /// The sink of dead letters refuses.
    DeadLetterError,
    /// The plugin cannot save its state, or dies of it.
    SaveFails,
    /// A subscription's connection breaks in the middle of an event.
    CutSubscription,
    /// A subscription's connection stays, but nothing comes any more.
    SilentSubscription,
    /// The answer to a take comes seconds later.
    LateTake,
    /// A call to a table is never answered, and the client does not give it up.
    Hang,
}

impl Fault {
    /// Every class, with its highest chance for one request or one call.
    pub const ALL: &[(Self, f64)] = &[
        (Self::Slow, 0.05),
        (Self::LostRequest, 0.05),
        (Self::LostReply, 0.05),
        (Self::CutReply, 0.1),
        (Self::Duplicate, 0.1),
        (Self::Throttle, 0.2),
        (Self::ServerError, 0.1),
        (Self::ServerErrorApplied, 0.1),
        (Self::Mangled, 0.05),
        (Self::StaleRead, 0.5),
        (Self::ExpiredIterator, 0.05),
        (Self::NotFound, 0.05),
        (Self::ExpiredNextToken, 0.3),
        (Self::Unlimited, 1.0),
        (Self::Trap, 0.1),
        (Self::PluginError, 0.1),
        (Self::PartialFailure, 0.2),
        (Self::SlowPlugin, 0.2),
        (Self::StuckPlugin, 0.02),
        (Self::SinkError, 0.1),
    ];

    /// Classes that were added later, drawn from dice of their own, so that earlier seeds stay what
    /// they are.
    pub const LATER: &[(Self, f64)] = &[
        (Self::StaleQuery, 0.3),
        (Self::LateHeartbeat, 0.2),
        (Self::StaleListing, 0.5),
        (Self::HoldBack, 0.5),
    ];
}

/// The two services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// Leases.
    Dynamodb,
    /// The table beside them: heartbeats, the leader, the shard list.
    Coordinator,
    /// Records.
    Kinesis,
}

/// Which half of a round trip gets lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Nothing reaches the service.
    Requests,
    /// Everything is applied, no answer comes back.
    Replies,
}

/// A broken path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Of one host, or of all.
    pub host: Option<String>,
    /// To where.
    pub service: Service,
    /// Which way.
    pub direction: Direction,
}

/// All that goes wrong at present.
#[derive(Debug, Clone, Default)]
pub struct Weather {
    /// Chance of each class for one request or one call.
    pub chances: BTreeMap<Fault, f64>,
    /// Broken paths, by number.
    pub partitions: BTreeMap<u64, Partition>,
    /// What is refused, by number.
    pub refusals: BTreeMap<u64, Refusal>,
    /// How old a stale read may be.
    pub staleness_max: Duration,
    /// Whether requests take very different times and overtake each other.
    pub reorders: bool,
}

impl Weather {
    /// A subset of the classes, each with its own chance: rare in some seeds, common in
    /// others.
    pub fn draw(dice: &mut fastrand::Rng, later: &mut fastrand::Rng) -> Self {
        let enabled = dice.f64() * 0.7;
        let mut chances = BTreeMap::new();
        for (fault, most) in Fault::ALL {
            if dice.f64() < enabled {
                chances.insert(*fault, most * 10_f64.powf(-2.0 * dice.f64()));
            }
        }
        for (fault, most) in Fault::LATER {
            if later.f64() < 0.3 {
                chances.insert(*fault, most * 10_f64.powf(-1.5 * later.f64()));
            }
        }
        Self {
            chances,
            partitions: BTreeMap::new(),
            refusals: BTreeMap::new(),
            staleness_max: Duration::from_millis(dice.u64(10..5_000)),
            reorders: dice.bool(),
        }
    }

    /// The chance of a class.
    pub fn chance(&self, fault: Fault) -> f64 {
        self.chances.get(&fault).copied().unwrap_or(0.0)
    }

    /// Whether a request is refused now.
    pub fn refuses(&self, request: &Request) -> Option<How> {
        let refusal = self
            .refusals
            .values()
            .find(|it| it.is_about(&request.path, request.service, request.action));
        refusal.map(|refusal| refusal.how)
    }

    /// Whether a path is broken now.
    pub fn is_cut(&self, host: &str, service: Service, direction: Direction) -> bool {
        self.partitions.values().any(|partition| {
            partition.host.as_deref().is_none_or(|cut| cut == host)
                && partition.service == service
                && partition.direction == direction
        })
    }
}
