//! What is known of one shard: its chains, its rate, and what a caller is to do.

use std::sync::Arc;
use std::time::Duration;

use shardmill_core::pipeline::ReadRate;
use shardmill_core::ports::{Fetched, ReadError, ShardIterator};
use shardmill_core::shared_read::{Absorbed, Chain, ChainPlace};
use shardmill_core::stream::{ReadFrom, SequenceNumber};
use shardmill_core::time::Moment;
use tokio::sync::{Mutex as AsyncMutex, watch};

use super::ring::{Kept, RingBudget};

/// Chains of one shard. More plugins than this at places far from each other make each other's
/// chains short-lived, which costs an iterator each time.
const CHAINS_MAX: usize = 16;
/// A chain without reads for this long has an expired iterator (AWS: five minutes).
const UNUSED_FOR: Duration = Duration::from_mins(5);
/// How long a chain of unknown position may skip its own calls while another one finds nothing at
/// the tip.
const RIDES_FOR: Duration = Duration::from_mins(1);

/// See the module's description.
pub(super) struct SharedShard {
    chains: Vec<Flown>,
    chains_made: u64,
    rate: ReadRate,
    /// No call before this: all readers share the shard's rate.
    next_call: Moment,
    /// When records came last, by any chain.
    news_at: Option<Moment>,
    /// Held while an iterator is made, so that two callers do not make one each.
    pub(super) opening: Arc<AsyncMutex<()>>,
    /// Notified whenever a call has ended, or has replaced another chain's.
    changed: watch::Sender<u64>,
}

/// A chain, and the lock that its one call at a time is made under.
struct Flown {
    chain: Chain<Kept>,
    flight: Arc<AsyncMutex<()>>,
}

/// How long a caller waits for the next call of its chain.
///
/// The chains of a shard share its calls. Callers of several chains come back at the same moment,
/// and one of them makes a call. If the others waited for the next moment, the same caller could be
/// first each time, and the rest would read nothing. So each waits once, and then gets the next
/// free slot of the shard ([`SharedShard::take_slot`]), in the order in which they ask.
#[derive(Debug, Default)]
pub(super) struct TurnWait {
    /// The chain and its calls so far; `None` for a caller without a place.
    chain: Option<(u64, u64)>,
    /// When it could first have made a call.
    until: Option<Moment>,
}

/// A call for a chain.
pub(super) struct Call {
    pub(super) chain: u64,
    pub(super) sent_at: Moment,
}

/// Identifies a caller.
#[derive(Clone, Copy)]
pub(super) struct Caller {
    /// How many readers share the shard, this one included.
    pub(super) readers: usize,
    /// Whether a call was made for the caller just now, so that its reply is the caller's.
    pub(super) has_polled: bool,
}

/// A call to be made for a chain, unless another has been made since.
pub(super) struct Poll {
    pub(super) chain: u64,
    /// The chain's calls so far.
    pub(super) polls: u64,
    /// Held while a call is made.
    pub(super) flight: Arc<AsyncMutex<()>>,
}

/// What a caller is to do.
pub(super) enum Step {
    /// Nothing: this is the reply.
    Ready(Fetched<ChainPlace>),
    /// Make a call for the chain that leads furthest.
    Poll(Poll),
    /// Make an iterator at this record first, which the caller has: what follows it may be trimmed
    /// by now.
    OpenBehind(SequenceNumber),
    /// Make an iterator here first.
    Open(ReadFrom),
    /// Ask for another iterator.
    Expired,
}

impl Flown {
    /// Whether a caller is making a call, whose answer is there for all who wait for it.
    fn is_in_flight(&self) -> bool {
        self.flight.try_lock().is_err()
    }
}

impl TurnWait {
    /// When the next call for `chain` may be made, which now seems to be at `at`: no later than it
    /// seemed at first, unless a call was made for the chain since.
    fn until(&mut self, chain: Option<(u64, u64)>, at: Moment) -> Moment {
        let first = match self.until {
            Some(until) if self.chain == chain => until,
            Some(_) | None => at,
        };
        *self = Self {
            chain,
            until: Some(first),
        };
        first.min(at)
    }
}

impl SharedShard {
    pub(super) fn new(rate: ReadRate, now: Moment) -> Self {
        Self {
            chains: Vec::new(),
            chains_made: 0,
            rate,
            next_call: now,
            news_at: None,
            opening: Arc::default(),
            changed: watch::channel(0).0,
        }
    }

    /// Where a caller that asks for `from` can start without a new iterator.
    pub(super) fn find(&self, from: &ReadFrom) -> Option<ChainPlace> {
        let place = match from {
            ReadFrom::AfterSequenceNumber(sequence) => ChainPlace::After(sequence.clone()),
            ReadFrom::AtSequenceNumber(sequence) => ChainPlace::At(sequence.clone()),
            ReadFrom::TrimHorizon | ReadFrom::AtTimestamp(_) | ReadFrom::Latest => {
                let same = self.chains.iter().find(|flown| flown.chain.starts_at(from));
                return same.map(|flown| ChainPlace::Start(flown.chain.id()));
            }
        };
        let is_covered = self.chains.iter().any(|flown| flown.chain.covers(&place));
        is_covered.then_some(place)
    }

    /// Begins a chain with a new iterator, and says where its first reader is.
    pub(super) fn open(
        &mut self,
        from: ReadFrom,
        is_anchored: bool,
        iterator: ShardIterator,
        now: Moment,
    ) -> ChainPlace {
        if self.chains.len() >= CHAINS_MAX {
            let oldest = self
                .chains
                .iter()
                .enumerate()
                .min_by_key(|(_, flown)| flown.chain.used_at());
            if let Some((index, _)) = oldest {
                self.chains.swap_remove(index);
            }
        }
        let id = self.chains_made;
        self.chains_made += 1;
        let place = match &from {
            ReadFrom::AfterSequenceNumber(sequence) => ChainPlace::After(sequence.clone()),
            _ => ChainPlace::Start(id),
        };
        let chain = Chain::new(id, from, iterator, now);
        self.chains.push(Flown {
            chain: if is_anchored { chain.anchored() } else { chain },
            flight: Arc::default(),
        });
        place
    }

    /// The chain that leads furthest from `place`: of two that meet, both their readers go on with
    /// the same.
    fn best(&mut self, place: &ChainPlace) -> Option<&mut Flown> {
        let covering = self
            .chains
            .iter_mut()
            .filter(|flown| flown.chain.covers(place));
        covering.max_by(|a, b| (a.chain.last(), b.chain.id()).cmp(&(b.chain.last(), a.chain.id())))
    }

    /// What a caller at `place` is to do.
    pub(super) fn step(
        &mut self,
        place: &ChainPlace,
        limit: u32,
        caller: Caller,
        now: Moment,
    ) -> Step {
        let has_ridden = self.ride(place, now);
        let Some(Flown { chain, flight }) = self.best(place) else {
            return match place {
                ChainPlace::Start(_) => Step::Expired,
                ChainPlace::At(sequence) => {
                    Step::Open(ReadFrom::AtSequenceNumber(sequence.clone()))
                }
                ChainPlace::After(sequence) => Step::OpenBehind(sequence.clone()),
            };
        };
        if chain.has_news_for(place)
            || caller.has_polled
            || chain.calls().is_fresh(now)
            || has_ridden
        {
            return Step::Ready(chain.take(place, limit, caller.readers, now));
        }
        Step::Poll(Poll {
            chain: chain.id(),
            polls: chain.calls().finished(),
            flight: Arc::clone(flight),
        })
    }

    /// A chain that never saw a record cannot be joined with another, since nobody knows which of
    /// the two is ahead. But while one of them finds nothing at the tip, there is nothing for the
    /// other either: it is answered without a call. It keeps its own iterator and uses it as soon
    /// as there are records, and once a minute whatever the other says.
    fn ride(&mut self, place: &ChainPlace, now: Moment) -> bool {
        let Some(until) = self.ride_until(place, now) else {
            return false;
        };
        if let Some(Flown { chain, .. }) = self.best(place) {
            chain.calls_mut().ride(until);
        }
        // Others at this chain hear of it too, or only the one that is always first would.
        self.changed.send_modify(|version| *version += 1);
        true
    }

    /// Until when another chain's call replaces this one's, if it does.
    fn ride_until(&mut self, place: &ChainPlace, now: Moment) -> Option<Moment> {
        let (news_at, rate) = (self.news_at, self.rate);
        let own = &self.best(place)?.chain;
        let (id, calls, sent_at) = (own.id(), own.calls(), own.calls().sent_at());
        let is_quiet = calls.is_idle() && news_at.is_none_or(|at| at < sent_at);
        let is_due = calls.due() <= now && now < sent_at + RIDES_FOR;
        if !own.is_unplaced() || !is_quiet || !is_due {
            return None;
        }
        let mut due = None;
        for Flown { chain, .. } in &self.chains {
            let calls = chain.calls();
            let is_later = calls.sent_at() > sent_at;
            let is_recent = calls.sent_at() + rate.idle_max * 2 > now;
            if chain.id() != id && calls.is_idle() && is_later && is_recent {
                due = due.max(Some(calls.due()));
            }
        }
        Some(due?.max(now + rate.call_interval))
    }

    /// When a caller at `place` (or one that has none yet) should come back; `None` is now. `wait`
    /// is its wait so far.
    pub(super) fn turn_at(
        &mut self,
        place: Option<&ChainPlace>,
        wait: &mut TurnWait,
        now: Moment,
    ) -> Option<Moment> {
        let next_call = self.next_call;
        let best = place.and_then(|place| self.best(place).map(|flown| (place, flown)));
        let at = match best {
            None => wait.until(None, next_call),
            Some((place, flown)) if flown.chain.has_news_for(place) => return None,
            Some((_, flown)) => {
                let calls = flown.chain.calls();
                let at = calls.due().max(next_call);
                if flown.is_in_flight() {
                    at
                } else {
                    let first = wait.until(Some((flown.chain.id(), calls.finished())), at);
                    first.max(calls.due())
                }
            }
        };
        (at > now).then_some(at)
    }

    /// The chain and the number of the last answer that serves a caller at `place`, as long as no
    /// call is due.
    pub(super) fn fresh_answer(
        &mut self,
        place: Option<&ChainPlace>,
        now: Moment,
    ) -> Option<(u64, u64)> {
        let chain = &self.best(place?)?.chain;
        let calls = chain.calls();
        calls.is_fresh(now).then(|| (chain.id(), calls.answers()))
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(super) fn chain(&mut self, id: u64) -> Option<&mut Chain<Kept>> {
        self.chains
            .iter_mut()
            .map(|flown| &mut flown.chain)
            .find(|chain| chain.id() == id)
    }

    /// The next moment that a call may be made at; it is taken.
    pub(super) fn take_slot(&mut self, now: Moment) -> Moment {
        let slot = self.next_call.max(now);
        self.next_call = slot + self.rate.call_interval;
        slot
    }

    /// Takes in how a call for a chain ended. Gives the reply back if the chain was forgotten
    /// meanwhile, so that it cannot be kept.
    pub(super) fn polled(
        &mut self,
        call: &Call,
        reply: Result<Fetched, ReadError>,
        now: Moment,
        ring: &RingBudget,
    ) -> Result<Option<Fetched>, ReadError> {
        self.changed.send_modify(|version| *version += 1);
        let rate = self.rate;
        let Some(chain) = self.chain(call.chain) else {
            return reply.map(Some);
        };
        let outcome = reply.as_ref().map(|_| ()).map_err(Clone::clone);
        chain.calls_mut().ended(outcome, call.sent_at, &rate);
        match reply {
            Ok(reply) => self.absorb(call, reply, now, ring),
            Err(error) => {
                self.failed(call.chain, &error);
                Err(error)
            }
        }
    }

    fn absorb(
        &mut self,
        call: &Call,
        reply: Fetched,
        now: Moment,
        ring: &RingBudget,
    ) -> Result<Option<Fetched>, ReadError> {
        let rate = self.rate;
        let Some(chain) = self.chain(call.chain) else {
            return Ok(Some(reply));
        };
        let has_records = !reply.records.is_empty();
        match chain.absorb(reply, call.sent_at, now, &rate, |bytes| ring.keep(bytes)) {
            Absorbed::Good(bytes) => {
                let for_bytes = rate.for_bytes(bytes);
                self.next_call = self.next_call + for_bytes.saturating_sub(rate.call_interval);
                if has_records {
                    self.spread_news(now);
                }
                Ok(None)
            }
            Absorbed::Severed => {
                // A caller that was here asks by the record that it has itself, and so sees what is
                // missing.
                self.forget(call.chain);
                Err(ReadError::ExpiredIterator)
            }
        }
    }

    fn forget(&mut self, id: u64) {
        self.chains.retain(|flown| flown.chain.id() != id);
    }

    /// A caller that does not know its place finds out at once.
    fn spread_news(&mut self, now: Moment) {
        self.news_at = Some(now);
        for Flown { chain, .. } in &mut self.chains {
            if chain.is_unplaced() {
                chain.calls_mut().hurry(now);
            }
        }
    }

    fn failed(&mut self, id: u64, error: &ReadError) {
        match error {
            // The call changed nothing: its iterator is still valid.
            ReadError::Throttled { .. }
            | ReadError::KeyUnusable { .. }
            | ReadError::Unavailable { .. } => {}
            ReadError::ExpiredIterator => {
                if let Some(chain) = self.chain(id) {
                    chain.expired();
                }
            }
            // The stream may be another one now: nothing that was read is served any more.
            ReadError::NotFound { .. } | ReadError::Refused { .. } => self.chains.clear(),
        }
    }

    /// Forgets what serves no caller; `false` if nothing is left.
    pub(super) fn prune(&mut self, now: Moment, readers: usize) -> bool {
        self.chains
            .retain(|flown| flown.chain.used_at() + UNUSED_FOR > now);
        for Flown { chain, .. } in &mut self.chains {
            chain.trim(now, readers);
        }
        // An idle shard's rate is forgotten with it, once it is no longer owed anything.
        !self.chains.is_empty() || self.next_call > now
    }
}
