//! Owners that hold leases and are not registered: a KCL's workers, or hosts whose row was removed.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::lease::WorkerId;
use crate::time::Moment;

/// Owners that rows name and that are not registered, as seen by this host.
#[derive(Debug, Default)]
pub(super) struct Strangers(BTreeMap<WorkerId, Stranger>);

#[derive(Debug, Clone, Copy)]
struct Stranger {
    /// When it was first seen to hold a lease while unregistered.
    since: Moment,
    /// When one of its rows was last seen to move.
    wrote_at: Option<Moment>,
}

/// An unregistered owner, as one of its rows shows it.
pub(super) struct SeenByRow<'a> {
    pub(super) owner: &'a WorkerId,
    /// When the row was last seen to move under this owner; `None` if it never was.
    pub(super) wrote_at: Option<Moment>,
}

impl Strangers {
    /// Takes in one listing, read at `read_at`: the rows of all owners that are not registered.
    /// Owners without a row are forgotten.
    pub(super) fn observe(&mut self, rows: Vec<SeenByRow<'_>>, read_at: Moment) {
        let mut seen = BTreeMap::new();
        for SeenByRow { owner, wrote_at } in rows {
            let since = self.0.get(owner).map_or(read_at, |earlier| earlier.since);
            let stranger = seen.entry(owner.clone()).or_insert(Stranger {
                since,
                wrote_at: None,
            });
            stranger.wrote_at = stranger.wrote_at.max(wrote_at);
        }
        self.0 = seen;
    }

    /// `worker` is registered. If its registration disappears later, it counts as a new stranger.
    pub(super) fn forget(&mut self, worker: &WorkerId) {
        self.0.remove(worker);
    }

    /// Whether `owner` wrote to its rows though it had not been registered for `lease_duration`.
    ///
    /// Only a KCL's worker does that. A host whose row was removed registers again with its next
    /// heartbeat; if it cannot, it writes nothing after its leases have expired.
    pub(super) fn writes_unregistered(&self, owner: &WorkerId, lease_duration: Duration) -> bool {
        self.0.get(owner).is_some_and(|stranger| {
            stranger
                .wrote_at
                .is_some_and(|wrote_at| wrote_at.since(stranger.since) >= lease_duration)
        })
    }
}
