//! When a worker looks at the leases again.

use std::collections::BTreeSet;
use std::time::Duration;

use shardmill_core::lease::WorkerId;
use shardmill_core::time::Moment;

/// Reasons to look, as they come up between two looks.
#[derive(Default)]
pub(super) struct NextLook {
    /// The next look lists the leases, whatever the bulletin says.
    must_list: bool,
    /// The next pass looks at once, though the last look was a moment ago.
    is_urgent: bool,
    /// Whether leases wait to be taken until other hosts know that this one is alive.
    do_takes_wait: bool,
    /// When the leases must be listed in any case.
    list_at: Option<Moment>,
    /// When the fleet was last looked at.
    looked_at: Option<Moment>,
    first_look: Option<Moment>,
    /// The bulletin and the late workers of the last look.
    bulletin: u64,
    late: BTreeSet<WorkerId>,
}

impl NextLook {
    /// Makes the next look list the leases.
    pub(super) fn look_soon(&mut self) {
        self.must_list = true;
    }

    /// Makes the next pass list the leases, and not only do errands.
    pub(super) fn look_at_once(&mut self) {
        self.must_list = true;
        self.is_urgent = true;
    }

    /// Makes the next pass more than one for errands; it lists the leases only for a reason.
    pub(super) fn pass_at_once(&mut self) {
        self.is_urgent = true;
    }

    /// Makes a look at or after `moment` list the leases.
    pub(super) fn list_at(&mut self, moment: Moment) {
        self.list_at = Some(moment);
    }

    /// Whether there were leases to take that this host had to leave.
    pub(super) fn takes_wait(&mut self, do_wait: bool) {
        self.do_takes_wait = do_wait;
    }

    /// This host may take leases: it looks for those that it had to leave.
    pub(super) fn may_take(&mut self) {
        self.must_list |= std::mem::take(&mut self.do_takes_wait);
    }

    /// Whether the fleet was looked at since `moment`.
    pub(super) fn has_looked_since(&self, moment: Moment) -> bool {
        self.looked_at.is_some_and(|at| at >= moment)
    }

    /// Whether it is time to look, when looks are `every` so long.
    pub(super) fn is_due(&self, every: Duration, now: Moment) -> bool {
        self.is_urgent || self.looked_at.is_none_or(|at| now.since(at) >= every)
    }

    /// How long ago this run first looked at the fleet; `None` if it never did.
    pub(super) fn since_first_look(&self, now: Moment) -> Option<Duration> {
        self.first_look.map(|at| now.since(at))
    }

    pub(super) fn must_list(&self) -> bool {
        self.must_list
    }

    /// A look showed this bulletin and these late workers: the leases are listed if either is news,
    /// or it is time to.
    pub(super) fn looked(&mut self, bulletin: u64, late: BTreeSet<WorkerId>, now: Moment) {
        let is_bulletin_new = bulletin != self.bulletin;
        let is_other_late = !late.is_subset(&self.late);
        let is_time = self.list_at.is_some_and(|at| now >= at);
        self.must_list |= is_bulletin_new || is_other_late || is_time;
        self.is_urgent = false;
        self.looked_at = Some(now);
        self.first_look.get_or_insert(now);
        self.bulletin = bulletin;
        self.late = late;
    }

    /// The leases were listed.
    pub(super) fn listed(&mut self) {
        self.must_list = false;
        self.list_at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_origin(Duration::from_secs(seconds))
    }

    /// A look that brings no news.
    fn looked(next: &mut NextLook, seconds: u64) {
        next.looked(7, BTreeSet::new(), at(seconds));
    }

    #[test]
    fn leases_that_had_to_be_left_are_listed_again_as_soon_as_they_may_be_taken_and_not_before() {
        let mut next = NextLook::default();
        looked(&mut next, 1);
        next.listed();
        next.takes_wait(true);
        looked(&mut next, 3);
        assert!(!next.must_list(), "nothing may be taken yet");
        next.may_take();
        assert!(next.must_list());
        next.listed();
        next.may_take();
        assert!(!next.must_list(), "once is enough");
        next.takes_wait(false);
        next.may_take();
        assert!(!next.must_list(), "nothing waits");
    }
}
