//! What `/ready` is answered from. Probes may ask without a token, and as often as they like, so
//! the host is not looked at anew for each of them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::host_status::{HostSnapshot, HostStatus};
use crate::readiness;

/// For how long a look is good: far less than between two probes of an orchestrator, and more than
/// a look at a host of many shards takes.
const GOOD_FOR: Duration = Duration::from_millis(250);

/// The last look at a host, shared by all connections.
#[derive(Clone)]
pub(super) struct LastLook {
    status: HostStatus,
    last: Arc<Mutex<Last>>,
}

/// When the last look was over, and what it showed; `None` before the first.
type Last = Option<(Instant, Arc<Look>)>;

/// What was seen then.
pub(super) struct Look {
    pub(super) host: HostSnapshot,
    /// Why the host is not ready, if it is not.
    pub(super) missing: Vec<String>,
}

impl LastLook {
    pub(super) fn new(status: HostStatus) -> Self {
        Self {
            status,
            last: Arc::default(),
        }
    }

    /// The last look, if it is good; else a new one.
    pub(super) fn look(&self) -> Arc<Look> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, look)) = &*last
            && at.elapsed() < GOOD_FOR
        {
            return Arc::clone(look);
        }
        let host = self.status.snapshot();
        let missing = readiness::missing(&host, &BTreeSet::new());
        let look = Arc::new(Look { host, missing });
        // Counted from its end, however long it took.
        *last = Some((Instant::now(), Arc::clone(&look)));
        look
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_in_a_loop_makes_the_host_look_at_itself_a_few_times_a_second() {
        let looks = LastLook::new(HostStatus::new("a"));
        let began = Instant::now();
        let seen: Vec<Arc<Look>> = (0..1_000).map(|_| looks.look()).collect();
        let pairs = seen.windows(2);
        let changes = pairs
            .filter(|pair| !Arc::ptr_eq(&pair[0], &pair[1]))
            .count();
        let most = began.elapsed().as_millis() / GOOD_FOR.as_millis();
        assert!(changes as u128 <= most, "{changes} of {most}");
        let at = Instant::now().checked_sub(GOOD_FOR).unwrap();
        let old = looks.look();
        *looks.last.lock().unwrap() = Some((at, Arc::clone(&old)));
        assert!(!Arc::ptr_eq(&looks.look(), &old), "an old one is not shown");
    }
}
