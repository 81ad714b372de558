//! What the watcher makes of what it sees: the product's own observer, built anew from what this
//! model remembers of it.

use std::collections::BTreeSet;
use std::time::Duration;

use shardmill_core::fleet::{Incarnation, WorkerRow};
use shardmill_core::lease::{Availability, LeaseObserver};
use shardmill_core::plan::Outlook;
use shardmill_core::stream::LeaseKey;
use shardmill_core::time::Moment;

use super::decided::{TICK, in_ticks, lease, worker_id};
use super::state::{LEASE_TICKS, Name, REAP_TICKS, Row, SeenLease, SeenWorker, Watcher};

/// Something that stands still for `LEASE_TICKS` has stood still for longer than a lease duration.
const LEASE_DURATION: Duration = TICK
    .saturating_mul(LEASE_TICKS as u32)
    .saturating_sub(Duration::from_millis(1));

fn ticks_ago(ticks: u8) -> Moment {
    in_ticks(0) - TICK * ticks.into()
}

fn ticks(time: Duration, max: u8) -> u8 {
    u8::try_from(time.as_secs()).unwrap_or(max).min(max)
}

fn worker_row(beat: u8) -> WorkerRow {
    WorkerRow {
        worker: worker_id(Name::Holder),
        incarnation: Incarnation::from_random(1),
        beat: beat.into(),
        lease_duration: LEASE_DURATION,
        is_draining: false,
        cannot_write: None,
        cannot_look: None,
        artifact: None,
        load: None,
        max_leases: usize::MAX,
        versions: Vec::new(),
    }
}

/// How long the holder was not seen to write, as its leases have it; `None` if it no longer counts
/// for them. It is asked of a lease that itself never moved.
fn silence_of_holder(observer: &mut LeaseObserver) -> Option<Duration> {
    let mut still = lease(Row {
        owner: Some(Name::Holder),
        counter: 0,
    });
    still.key = LeaseKey::new("never-moved").expect("valid");
    observer.observe(std::slice::from_ref(&still), Moment::default());
    let never = in_ticks(0).since(Moment::default());
    Some(observer.idle_for(&still, in_ticks(0))).filter(|silence| *silence < never)
}

impl Watcher {
    fn observer(&self) -> LeaseObserver {
        let mut observer = LeaseObserver::default();
        match self.worker {
            SeenWorker::Unknown => {}
            // This model's watcher looks at every tick.
            SeenWorker::There { beat, silent } => {
                for ago in (0..=silent).rev() {
                    observer.observe_workers(&[worker_row(beat)], ticks_ago(ago));
                }
            }
            SeenWorker::Vanished { beat, silent } => {
                observer.observe_workers(&[worker_row(beat)], ticks_ago(silent));
                observer.observe_workers(&[], ticks_ago(silent));
            }
            SeenWorker::Left { ticks } => {
                // Long silent when it was found missing.
                let found_missing = in_ticks(ticks) - LEASE_DURATION;
                for ago in (0..=REAP_TICKS).rev() {
                    observer.observe_workers(&[worker_row(0)], found_missing - TICK * ago.into());
                }
                observer.observe_workers(&[], found_missing);
            }
        }
        if let Some(seen) = self.lease {
            let since = ticks_ago(seen.idle);
            if seen.has_moved {
                let before = Row {
                    counter: seen.row.counter - 1,
                    ..seen.row
                };
                observer.observe(&[lease(before)], since);
            }
            observer.observe(&[lease(seen.row)], since);
        }
        observer
    }

    fn note_worker(&mut self, mut observer: LeaseObserver, beat: Option<u8>) {
        let holder = worker_id(Name::Holder);
        let silent = observer
            .workers(in_ticks(0))
            .find(|(row, _)| row.worker == holder)
            .map(|(_, silent)| silent);
        let counts_for_leases = silence_of_holder(&mut observer);
        self.worker = match (silent, self.worker, beat, counts_for_leases) {
            (Some(silent), _, Some(beat), _) => SeenWorker::There {
                beat,
                silent: ticks(silent, REAP_TICKS),
            },
            (
                _,
                SeenWorker::There { beat, .. } | SeenWorker::Vanished { beat, .. },
                None,
                Some(silence),
            ) => SeenWorker::Vanished {
                beat,
                silent: ticks(silence, REAP_TICKS),
            },
            _ => (0..=LEASE_TICKS)
                .rev()
                .find(|ticks| observer.has_left(&holder, in_ticks(*ticks)))
                .map_or(SeenWorker::Unknown, |ticks| SeenWorker::Left { ticks }),
        };
    }

    /// The watcher reads the workers' rows. With `forgets`, one that is gone is forgotten at once.
    pub(super) fn look_at_fleet(&mut self, beat: Option<u8>, forgets: bool) {
        let mut observer = self.observer();
        let rows: Vec<_> = beat.map(worker_row).into_iter().collect();
        observer.observe_workers(&rows, in_ticks(0));
        self.note_worker(observer, beat);
        self.has_seen_fleet = true;
        if forgets && let SeenWorker::Vanished { .. } = self.worker {
            self.worker = SeenWorker::Left { ticks: LEASE_TICKS };
        }
    }

    /// The watcher lists the leases.
    pub(super) fn look_at_leases(&mut self, row: Row) {
        let mut observer = self.observer();
        observer.observe(&[lease(row)], in_ticks(0));
        // Without an owner only the row itself counts.
        let idle = observer.idle_for(&lease(Row { owner: None, ..row }), in_ticks(0));
        let has_moved = observer.has_counter_moved(&lease(row), in_ticks(0), Duration::MAX);
        self.has_seen_fleet = false;
        self.lease = Some(SeenLease {
            row,
            idle: ticks(idle, LEASE_TICKS),
            has_moved,
        });
    }

    /// Whether the lease may be taken from an owner that is dead, as far as was seen.
    pub(super) fn is_expired(&self) -> bool {
        let availability = |seen: SeenLease| {
            self.observer()
                .availability(&lease(seen.row), in_ticks(0), LEASE_DURATION)
        };
        self.lease
            .is_some_and(|seen| availability(seen) == Availability::Expired)
    }

    /// Whether the owner's row, read just now, shows that it lives.
    pub(super) fn has_revived(&self, beat: Option<u8>) -> bool {
        let row = beat.map(worker_row);
        let shown = row.as_ref().map(|row| (&row.incarnation, row.beat));
        self.observer().has_moved(&worker_id(Name::Holder), shown)
    }

    /// Whether the owner of the lease is taken for a KCL's worker.
    pub(super) fn sees_kcl(&self) -> bool {
        let Some(seen) = self.lease else { return false };
        let (observer, me, alive) = (self.observer(), worker_id(Name::Watcher), BTreeSet::new());
        let outlook = Outlook {
            me: &me,
            observer: &observer,
            alive: &alive,
            lease_duration: LEASE_DURATION,
            now: in_ticks(0),
        };
        let registered = match self.worker {
            SeenWorker::There { beat, .. } => vec![worker_row(beat)],
            _ => Vec::new(),
        };
        outlook.foreign(&[lease(seen.row)], &registered).is_some()
    }
}
