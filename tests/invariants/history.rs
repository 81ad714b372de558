//! The vocabulary of a history. The store's word is the truth; a host's word is its belief.

mod delivery;
mod place;
mod wanted;

use std::collections::BTreeSet;

pub use delivery::{Delivery, GivenUp, Outcome, Output};
pub use place::{Place, Sequence};
pub use wanted::{FleetWanted, Pause, Seek, Skip, Wanted};

/// Microseconds since the run began, by the one true clock of the run.
pub type Micros = u64;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When, by the true clock.
    pub at: Micros,
    /// What.
    pub what: What,
}

/// One thing that happened in a fleet of several plugins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginEvent {
    /// Whom it concerns: each plugin has a lease table, tenures, outputs, calm and a stream of its
    /// own, and signs off for itself. What happens to a stream is told once for each plugin that
    /// reads it. `None` concerns all: a host that starts, is asked to stop, stops, crashes or is
    /// paused.
    pub plugin: Option<String>,
    /// What happened.
    pub event: Event,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(
    clippy::large_enum_variant,
    reason = "a history is short-lived, and events are easier to write without boxes"
)]
pub enum What {
    /// A record is in the stream (whether or not its producer got the answer).
    Produced {
        /// The shard it went to.
        shard: String,
        /// Where in it.
        at: Place,
        /// Its partition key.
        key: String,
        /// When it arrived, as Kinesis tells its readers: in whole milliseconds, but on the true
        /// clock.
        arrived_at: Micros,
    },
    /// The stream's shards changed.
    Topology(Topology),
    /// It was written down where the application begins to read: reported when that write is
    /// applied, by whomever, and again only if another write names another start. Not needed where
    /// hosts know of nothing but `trim-horizon`.
    StartChosen(Start),
    /// A write to the lease table was applied; in the order of application.
    Written(Write),
    /// A host got, or gave up waiting for, the answer to a call on one lease row.
    Called(Call),
    /// A host got, or gave up waiting for, the answer to its heartbeat: one write that holds all
    /// its leases.
    Heartbeat(Heartbeat),
    /// Kinesis told a host that a shard has no more records: a reply without a next iterator.
    SaidEnd {
        /// To whom.
        host: String,
        /// Which.
        shard: String,
    },
    /// A batch was handed to a plugin.
    DeliveryStarted(Delivery),
    /// A plugin is called because time has passed.
    Ticks {
        /// Where it runs.
        host: String,
        /// Of which shard.
        shard: String,
        /// Under which tenure.
        epoch: u64,
    },
    /// The plugin came back, or never will.
    DeliveryEnded {
        /// The `id` of its start.
        id: u64,
        /// How.
        outcome: Outcome,
        /// Which records it reported as failed; they are not settled.
        failed: Vec<Place>,
    },
    /// The plugin's outcome lets the host commit less than all of a batch: the records after
    /// `through` are handled but not settled, until a later outcome of the tenure commits them.
    /// Comes right before the delivery's `DeliveryEnded`; without it an outcome commits everything.
    /// Also what a host says of an outcome whose outputs it could not store.
    HeldBack {
        /// The `id` of the delivery.
        id: u64,
        /// The furthest place that may be committed; `None` for nothing of the batch.
        through: Option<Place>,
    },
    /// The plugin said that these records of a delivery will never work. Comes right before the
    /// delivery's `DeliveryEnded`, whose `failed` names them too.
    Rejected {
        /// The `id` of the delivery.
        id: u64,
        /// Which.
        places: Vec<Place>,
    },
    /// A sink has stored a record as a dead letter.
    DeadLettered {
        /// The shard it came from.
        shard: String,
        /// Where in it.
        at: Place,
    },
    /// A host says that it gave a record up: from here on it counts as settled.
    GivenUp(GivenUp),
    /// A plugin emitted this in a call that succeeded, and its host took it in; what a failed call
    /// emitted is dropped and not reported. Comes right before the `DeliveryEnded` of its delivery,
    /// or when `close` or a tick has returned.
    Emitted {
        /// Where it runs.
        host: String,
        /// Of which shard.
        shard: String,
        /// Under which tenure.
        epoch: u64,
        /// What; all of the call at once.
        outputs: Vec<Output>,
    },
    /// The sink has stored an output: from here on it outlives its host. Also if the host never
    /// hears of it.
    Stored {
        /// The `id` of the output.
        output: u64,
    },
    /// A host tells (in its log, where a person sees it) that records left the stream before they
    /// could be read.
    GapTold {
        /// Which.
        host: String,
        /// Of which shard.
        shard: String,
        /// The last record before the gap, which is gone itself.
        after: Place,
    },
    /// What a host shows of a shard that it holds (`blocked` of its status page) changed.
    Shown {
        /// Which.
        host: String,
        /// The shard.
        shard: String,
        /// Why it makes no progress; `None` if nothing is shown any more. A new tenure shows
        /// nothing until it says so.
        why: Option<String>,
    },
    /// From here on nothing is wrong that this plugin could feel but what other plugins on its
    /// hosts do: no fault of the network, the tables, the stream, the hosts, the sink or the plugin
    /// itself, no reshard, and nothing of it that still has effects. Or: from here on something may
    /// be. A history begins without calm.
    Calm(bool),
    /// An instance has saved its state: what this tenure handled so far is in it, and settled by it.
    StateSaved {
        /// Where it runs.
        host: String,
        /// Of which shard.
        shard: String,
        /// Under which tenure.
        epoch: u64,
        /// Which instance, numbered as in deliveries.
        instance: u64,
    },
    /// An instance starts from this state.
    StateLoaded {
        /// Where it runs.
        host: String,
        /// The shard.
        shard: String,
        /// The tenure.
        epoch: u64,
        /// What counts in it, as often as it does.
        counted: Vec<Place>,
    },
    /// Something happened to a host.
    Host {
        /// Which.
        host: String,
        /// What.
        change: HostChange,
    },
    /// A new version of the plugin was offered to a host.
    Offered {
        /// To whom.
        host: String,
        /// The version.
        digest: String,
        /// Whether it can start; a version that cannot must never get a record.
        is_good: bool,
    },
    /// What operators want of a shard, as its lease's row says from here on. Comes right after the
    /// write that changed it.
    Wanted {
        /// Which.
        shard: String,
        /// What.
        wanted: Wanted,
    },
    /// What operators want of all shards and hosts, as the coordinator table says from here on.
    FleetWanted(FleetWanted),
    /// A host shows that it delivers nothing of a shard, since that is paused; or not any more.
    Stands {
        /// Which.
        host: String,
        /// The shard.
        shard: String,
        /// Under which tenure.
        epoch: u64,
        /// The pause by its number.
        pause: Option<u64>,
    },
    /// A host shows that it knows that it is to be drained; or not any more.
    Drained {
        /// Which.
        host: String,
        /// Whether it is.
        is_drained: bool,
    },
}

/// Where an application begins to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With the oldest record of each shard.
    Oldest,
    /// With what arrived then or later, in all shards, by the stream's own clock.
    At(Micros),
}

/// A change of the stream's shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Topology {
    /// Shards at creation, all without parents; also those of a stream recreated under the same
    /// name.
    Created {
        /// The stream's creation time, its identity.
        identity: u64,
        /// Its shards.
        shards: Vec<ShardInfo>,
    },
    /// One parent closed, two children opened.
    Split {
        /// The closed shard.
        parent: String,
        /// The new ones.
        children: Vec<ShardInfo>,
    },
    /// Two parents closed, one child opened.
    Merged {
        /// The closed shards.
        parents: Vec<String>,
        /// The new one.
        child: ShardInfo,
    },
    /// Records up to and including `through` are gone from the shard; all of them if `None`, and
    /// the shard is not listed any more.
    Trimmed {
        /// Which.
        shard: String,
        /// Through where.
        through: Option<Place>,
    },
    /// The stream is gone.
    Deleted,
}

/// A shard and its part of the hash key space, both bounds inclusive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardInfo {
    /// Its id.
    pub id: String,
    /// Lowest and highest hash key.
    pub range: (u128, u128),
}

/// How far a lease row says that its shard is settled, in order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Checkpoint {
    /// One of the sentinels `TRIM_HORIZON`, `LATEST`, `AT_TIMESTAMP`.
    Initial,
    /// Up to and including.
    At(Place),
    /// `SHARD_END`.
    End,
}

impl Checkpoint {
    /// Whether `place` is settled by it.
    pub fn covers(&self, place: &Place) -> bool {
        match self {
            Self::Initial => false,
            Self::At(through) => place <= through,
            Self::End => true,
        }
    }
}

/// A lease row, as far as invariants speak of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// `leaseOwner`.
    pub owner: Option<String>,
    /// `leaseCounter`.
    pub counter: u64,
    /// `checkpoint`.
    pub checkpoint: Checkpoint,
    /// `parentShardId`.
    pub parents: BTreeSet<String>,
    /// `childShardIds`.
    pub children: BTreeSet<String>,
    /// `startingHashKey`, `endingHashKey`.
    pub range: Option<(u128, u128)>,
    /// Who asked the owner to hand the lease over.
    pub claimant: Option<String>,
}

/// An applied write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The row's key: the shard's id.
    pub key: String,
    /// The writing host; `None` for an operator.
    pub by: Option<String>,
    /// What it was meant to be.
    pub kind: WriteKind,
    /// The row before; `None` if there was none.
    pub before: Option<Row>,
    /// The row after; `None` if it was deleted.
    pub after: Option<Row>,
    /// When the host sent it, by the true clock.
    pub sent_at: Micros,
}

/// What a write to a lease row is meant to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WriteKind {
    /// A fresh row.
    Create,
    /// Becoming the owner.
    Take {
        /// The counter that the taker saw.
        seen: u64,
    },
    /// Raising the counter.
    Renew,
    /// Moving the checkpoint.
    Checkpoint,
    /// Writing `SHARD_END`.
    End,
    /// Giving the lease back in good order.
    Release,
    /// Giving the lease up because the shard makes no progress on this host, or its row could not
    /// be written: what is settled may not be checkpointed. The row says why.
    GiveUp,
    /// Asking the owner for the lease; does not raise the counter, changes nothing but the
    /// claimant.
    Claim,
    /// Changing what operators want; does not raise the counter, and changes nothing else.
    Direct,
    /// Doing what operators want: may move the checkpoint anywhere.
    Obey,
    /// Removing the row.
    Delete,
    /// Anything an operator does.
    Admin,
}

/// A call of a host on one lease row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Who.
    pub host: String,
    /// The row's key.
    pub key: String,
    /// What; `None` for a consistent read.
    pub kind: Option<WriteKind>,
    /// How it went, as the host sees it.
    pub result: CallResult,
    /// When it was sent, by the true clock.
    pub sent_at: Micros,
    /// When it was sent, by the host's own suspend-aware clock.
    pub local_sent_at: Micros,
    /// When the host got the answer, by its own clock.
    pub local_at: Micros,
}

/// A heartbeat of a host, as the host sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// Who.
    pub host: String,
    /// Whether it writes a row that was not there: the host starts, or its row was removed.
    pub is_registration: bool,
    /// How it went.
    pub result: CallResult,
    /// When it was sent, by the true clock.
    pub sent_at: Micros,
    /// When it was sent, by the host's own suspend-aware clock.
    pub local_sent_at: Micros,
    /// When the host got the answer, by its own clock.
    pub local_at: Micros,
}

/// How a call went, as its host sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallResult {
    /// Applied, or read.
    Ok,
    /// The condition did not hold.
    Conflict,
    /// Refused before it was applied.
    NotApplied,
    /// No answer, or one that says nothing.
    Unknown,
}

/// What happened to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostChange {
    /// A process started.
    Started,
    /// It was asked to stop.
    Stopping,
    /// It took its own registration away: it holds nothing any more, whatever rows name it their
    /// owner.
    SignedOff,
    /// It ended by itself.
    Stopped,
    /// It was killed.
    Crashed,
    /// It runs no code from here on.
    Paused,
    /// It runs again.
    Resumed,
}
