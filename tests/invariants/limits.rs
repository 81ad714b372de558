//! What a history is judged by.

use crate::history::{Micros, Start};
use crate::policy::Policy;

/// The parameters of the judged fleet and run.
#[derive(Debug, Clone)]
pub struct Limits {
    /// How long an observer waits without seeing a lease move before it takes it.
    pub lease_duration: Micros,
    /// How much earlier its holder stops. Half of it covers each side's clock error.
    pub margin: Micros,
    /// Whether an answered heartbeat holds its host's leases; beside a KCL only writes to their
    /// rows do.
    pub heartbeats_hold: bool,
    /// How much time may pass between a host's last look at its lease and the start of a delivery,
    /// without a pause. 0 in a simulator, where code takes no time.
    pub check_to_call: Micros,
    /// The initial positions that hosts of the run were configured with, each once. With any but
    /// the oldest record, nothing may be delivered before one was chosen
    /// ([`crate::history::What::StartChosen`]).
    pub initial_positions: Vec<InitialPosition>,
    /// How long before the first host started a start at the latest record may lie: clocks are
    /// wrong, and it is better to repeat than to skip.
    pub latest_error: Micros,
    /// Records that may be settled again after one change of owner: what may be settled without a
    /// checkpoint, and the batch in flight.
    pub repeats_max: u64,
    /// How long a shard must not have got on, its row unwritten or its records unsettled, before
    /// its lease may be given up instead of handed over. `None` is not checked.
    pub given_up_after: Option<Micros>,
    /// How long a host that is told to stop finishes what it does, before it cuts that off and gives
    /// back what it has not settled. `None` if it never cuts anything off.
    pub drained_within: Option<Micros>,
    /// What the fleet does about records that fail.
    pub policy: Policy,
    /// When the last fault was gone; `None` if the run does not heal, which turns off all that is
    /// due "in the end".
    pub healed_at: Option<Micros>,
    /// When the healed fleet had come to rest, before it was taken down: L2 is judged of the fleet
    /// as it was then. As it is at the end, if `None`.
    pub rests_at: Option<Micros>,
    /// When the run ended.
    pub end: Micros,
    /// What is due in the healed phase.
    pub bounds: Bounds,
}

/// Where a host is configured to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitialPosition {
    /// `trim-horizon`.
    Oldest,
    /// `latest`.
    Latest,
    /// At this time, by the true clock.
    At(Micros),
}

/// Bounds of liveness; `None` is not checked.
#[derive(Debug, Clone, Default)]
pub struct Bounds {
    /// L1: an orphaned lease has an owner again.
    pub retaken_within: Option<Micros>,
    /// L2: lease counts differ by at most one, and no lease changes hands any more, this long after
    /// the last disturbance.
    pub balanced_within: Option<Micros>,
    /// L3: child rows exist, this long after the parent's end was read and all its records were
    /// settled.
    pub children_within: Option<Micros>,
    /// L4: all that was produced before the run was healed is settled.
    pub caught_up_within: Option<Micros>,
    /// L5: a host that is told to stop holds nothing any more.
    pub released_within: Option<Micros>,
    /// L5: what such a host gave back has a new owner.
    pub handed_on_within: Option<Micros>,
    /// L6: a held shard with records to read, or settled ones to write down, makes progress or is
    /// shown as blocked. Also under faults: longer than any deadline after which the product says
    /// so.
    pub shown_within: Option<Micros>,
    /// S15: while it is calm, each record is settled, counted from when it was produced or from
    /// when calm came.
    pub paced_within: Option<Micros>,
    /// L8: in calm, a host reads what is its own by name, or gives it back.
    pub taken_up_within: Option<Micros>,
    /// L7: calls on lease rows once the run is healed.
    pub calls: Option<Rate>,
    /// `NoLoss`: records produced this close to the end of the run may still be on their way.
    pub settled_within: Micros,
}

/// At most so many in any window of that length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// So many.
    pub max: usize,
    /// The window.
    pub window: Micros,
    /// How long after the healing the rate must hold.
    pub after: Micros,
}

impl Limits {
    /// A run that ends at `end` without healing, with the product's margin of a tenth of
    /// `lease_duration`.
    pub fn new(lease_duration: Micros, end: Micros) -> Self {
        Self {
            lease_duration,
            margin: lease_duration / 10,
            heartbeats_hold: true,
            check_to_call: 0,
            initial_positions: vec![InitialPosition::Oldest],
            latest_error: 0,
            repeats_max: u64::MAX,
            given_up_after: None,
            drained_within: None,
            policy: Policy::default(),
            healed_at: None,
            rests_at: None,
            end,
            bounds: Bounds::default(),
        }
    }

    /// The start that needs no choosing: hosts know of no other than the oldest record.
    pub(crate) fn known_start(&self) -> Option<Start> {
        let is_only_oldest = self
            .initial_positions
            .iter()
            .all(|position| *position == InitialPosition::Oldest);
        is_only_oldest.then_some(Start::Oldest)
    }

    /// How long a holder may go on after it sent its last applied write.
    pub fn hold_for(&self) -> Micros {
        self.lease_duration.saturating_sub(self.margin)
    }

    /// How long a lease must have been unmoved, by the true clock, before anybody may take it.
    ///
    /// The taker measures a whole lease duration on its own clock, which may be fast by half the
    /// margin.
    pub fn unmoved_for(&self) -> Micros {
        self.lease_duration.saturating_sub(self.margin / 2)
    }
}
