//! Whether a shard's reader makes progress.

use std::time::Duration;

use crate::time::Moment;

/// What is known of a reader that should hear of Kinesis now and then.
#[derive(Debug)]
pub struct ReadWatch {
    /// When the reader last had nothing to wait for but Kinesis.
    free_since: Moment,
    /// When it was replaced because it heard nothing.
    replaced_at: Option<Moment>,
    /// When the plugin last handled something of what was read.
    handled_at: Moment,
}

/// What to do about a reader that may have stalled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadStall {
    /// Nothing.
    GoOn,
    /// Replace it once, which also makes a new iterator.
    Replace,
    /// Release the lease: another host may reach what this one cannot.
    GiveUp,
}

impl ReadWatch {
    /// A reader that starts at `now`.
    pub fn new(now: Moment) -> Self {
        Self {
            free_since: now,
            replaced_at: None,
            handled_at: now,
        }
    }

    /// Until `now` the reader waited for something other than Kinesis, or needed not read.
    pub fn free(&mut self, now: Moment) {
        self.free_since = now;
    }

    /// The plugin handled something at `now`.
    pub fn handled(&mut self, now: Moment) {
        self.handled_at = now;
    }

    /// How long until nothing was heard for a whole `deadline`, if Kinesis was last heard at
    /// `heard_at`.
    pub fn stalled_in(&self, heard_at: Moment, deadline: Duration, now: Moment) -> Duration {
        (heard_at.max(self.free_since) + deadline).since(now)
    }

    /// What to do at `now`. A reader is not given up while the plugin still works off what was read
    /// before: that would be delivered again on another host.
    pub fn judge(&mut self, heard_at: Moment, deadline: Duration, now: Moment) -> ReadStall {
        if !self.stalled_in(heard_at, deadline, now).is_zero() {
            return ReadStall::GoOn;
        }
        if self.replaced_at.is_none_or(|at| at < heard_at) {
            self.replaced_at = Some(now);
            self.free_since = now;
            return ReadStall::Replace;
        }
        if now.since(self.handled_at) < deadline {
            self.free_since = self.handled_at;
            return ReadStall::GoOn;
        }
        ReadStall::GiveUp
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_mins(1);

    fn at(seconds: u64) -> Moment {
        Moment::from_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn a_reader_that_hears_nothing_is_replaced_once_and_given_up_after_as_long_again() {
        let mut watch = ReadWatch::new(at(0));
        assert_eq!(watch.judge(at(0), DEADLINE, at(59)), ReadStall::GoOn);
        assert_eq!(watch.judge(at(0), DEADLINE, at(60)), ReadStall::Replace);
        assert_eq!(watch.judge(at(0), DEADLINE, at(119)), ReadStall::GoOn);
        assert_eq!(watch.judge(at(0), DEADLINE, at(120)), ReadStall::GiveUp);
    }

    #[test]
    fn a_reader_that_heard_something_since_it_was_replaced_is_replaced_again() {
        let mut watch = ReadWatch::new(at(0));
        assert_eq!(watch.judge(at(0), DEADLINE, at(60)), ReadStall::Replace);
        assert_eq!(watch.judge(at(70), DEADLINE, at(130)), ReadStall::Replace);
    }

    #[test]
    fn a_reader_is_not_given_up_while_the_plugin_handles_what_was_read() {
        let mut watch = ReadWatch::new(at(0));
        watch.judge(at(0), DEADLINE, at(60));
        watch.handled(at(100));
        assert_eq!(watch.judge(at(0), DEADLINE, at(120)), ReadStall::GoOn);
        assert_eq!(
            watch.stalled_in(at(0), DEADLINE, at(120)),
            Duration::from_secs(40)
        );
        assert_eq!(watch.judge(at(0), DEADLINE, at(160)), ReadStall::GiveUp);
    }

    #[test]
    fn the_deadline_begins_again_when_the_reader_waited_for_its_host() {
        let mut watch = ReadWatch::new(at(0));
        watch.free(at(50));
        assert_eq!(
            watch.stalled_in(at(10), DEADLINE, at(60)),
            Duration::from_secs(50)
        );
    }
}
