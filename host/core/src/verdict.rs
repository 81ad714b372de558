//! How a shard does, judged from several looks at its row and without thresholds: a lag of an hour
//! that shrinks is better than one of a minute that grows.

use std::collections::VecDeque;
use std::time::Duration;

use crate::lease::Lease;
use crate::time::Moment;

/// How long looks count. Holders write a row every few seconds, so that two looks this far apart
/// show whether a lag grows.
const WINDOW: Duration = Duration::from_mins(2);
/// A shard at its tip counts as silent if its row shows nothing new for so long. Holders write what
/// they settled every few seconds.
const SILENT_FROM: Duration = Duration::from_secs(15);
/// Looks that are kept of one shard; more in the same time show nothing new.
const LOOKS_MAX: usize = 60;

/// How a shard does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Its holder says that it makes no progress.
    Stuck,
    /// Nobody holds it.
    Unheld,
    /// It is behind, and farther at each look.
    FallingBehind,
    /// An operator paused it.
    Paused,
    /// It is behind, and less at each look.
    CatchingUp,
    /// Its records are processed as they come.
    Moving,
    /// It is at the tip, and no record comes.
    Silent,
    /// It was read to its end.
    Finished,
}

/// What a shard that makes no progress waits for, as far as its row tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitsFor {
    /// Replies of the stream.
    Kinesis,
    /// The plugin, or what it waits for itself.
    Plugin,
    /// A sink that takes long or refuses.
    Sink,
    /// Shards that must be finished before.
    AnotherShard,
    /// Room in the host's buffer.
    Memory,
    /// Whoever paused it.
    Operator,
    /// The lease table.
    Table,
}

/// What earlier looks at a shard's row showed.
#[derive(Debug, Clone, Default)]
pub struct Track {
    /// The oldest one first.
    looks: VecDeque<Look>,
}

/// What a row said at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Look {
    at: Moment,
    lag_ms: Option<u64>,
    settled_ms: Option<u64>,
}

/// What the row alone does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Around {
    /// Whether it has an owner that may live.
    pub is_held: bool,
    /// Whether it is paused, alone or with all others.
    pub is_paused: bool,
}

impl Verdict {
    /// The word that programs are shown.
    pub fn code(self) -> &'static str {
        match self {
            Self::Stuck => "stuck",
            Self::Unheld => "unheld",
            Self::FallingBehind => "falling-behind",
            Self::Paused => "paused",
            Self::CatchingUp => "catching-up",
            Self::Moving => "moving",
            Self::Silent => "silent",
            Self::Finished => "finished",
        }
    }
}

impl WaitsFor {
    /// The word that programs are shown.
    pub fn code(self) -> &'static str {
        match self {
            Self::Kinesis => "kinesis",
            Self::Plugin => "plugin",
            Self::Sink => "sink",
            Self::AnotherShard => "another-shard",
            Self::Memory => "memory",
            Self::Operator => "operator",
            Self::Table => "table",
        }
    }

    /// What the holder's report begins with; `None` if that is nothing of these. A report is
    /// written for people; what follows its beginning may be a plugin's own words.
    pub fn named_in(report: &str) -> Option<Self> {
        const BEGINNINGS: [(&str, WaitsFor); 12] = [
            ("paused", WaitsFor::Operator),
            ("sink ", WaitsFor::Sink),
            ("storing ", WaitsFor::Sink),
            ("kinesis ", WaitsFor::Kinesis),
            ("no answer from kinesis", WaitsFor::Kinesis),
            ("cannot be read", WaitsFor::Kinesis),
            ("waits for room in host.buffer", WaitsFor::Memory),
            ("checkpointing", WaitsFor::Table),
            ("cannot write", WaitsFor::Table),
            ("in the plugin", WaitsFor::Plugin),
            ("creating an instance", WaitsFor::Plugin),
            ("the plugin ", WaitsFor::Plugin),
        ];
        // "2 record(s) are waiting to be stored as dead letters in sink audit"
        if report.contains("waiting to be stored as dead letters in sink ") {
            return Some(Self::Sink);
        }
        let (reason, is_attempt) = match report.strip_prefix("attempt ") {
            Some(attempt) => (attempt.split_once(" failed: ")?.1, true),
            None => (report, false),
        };
        let found = BEGINNINGS
            .iter()
            .find(|(beginning, _)| reason.starts_with(beginning));
        let named = found.map(|(_, what)| *what);
        // What is tried again and is nothing else's failure is the plugin's.
        named.or(is_attempt.then_some(Self::Plugin))
    }
}

impl Track {
    /// Keeps what the row says at `now`.
    pub fn look(&mut self, lease: &Lease, now: Moment) {
        let is_old = |look: &Look| now.since(look.at) > WINDOW;
        while self.looks.len() >= LOOKS_MAX || self.looks.front().is_some_and(is_old) {
            self.looks.pop_front();
        }
        self.looks.push_back(Look {
            at: now,
            lag_ms: lease.millis_behind_latest,
            settled_ms: lease.settled_arrival_ms,
        });
    }

    /// What the looks show, the last of which saw this row.
    pub fn verdict(&self, lease: &Lease, around: Around) -> Verdict {
        if lease.is_finished() {
            Verdict::Finished
        } else if around.is_paused {
            Verdict::Paused
        } else if !around.is_held {
            Verdict::Unheld
        } else if lease.stuck.is_some() {
            Verdict::Stuck
        } else {
            self.progress(lease)
        }
    }

    /// Of a shard that is held and may move.
    fn progress(&self, lease: &Lease) -> Verdict {
        let Some(lag_ms) = lease.millis_behind_latest else {
            return Verdict::Moving;
        };
        if lag_ms == 0 {
            return if self.shows_silence() {
                Verdict::Silent
            } else {
                Verdict::Moving
            };
        }
        // One that reaches the tip now and then keeps up, whatever the last look shows.
        if self.looks.iter().any(|look| look.lag_ms == Some(0)) {
            return Verdict::Moving;
        }
        let first_ms = self.looks.iter().find_map(|look| look.lag_ms);
        match first_ms.unwrap_or(lag_ms).cmp(&lag_ms) {
            std::cmp::Ordering::Less => Verdict::FallingBehind,
            std::cmp::Ordering::Greater => Verdict::CatchingUp,
            std::cmp::Ordering::Equal => Verdict::Moving,
        }
    }

    /// Whether nothing was settled for longer than a holder takes to write that something was. The
    /// rate in the row says nothing of it: it is that of the last records.
    fn shows_silence(&self) -> bool {
        let (Some(first), Some(last)) = (self.looks.front(), self.looks.back()) else {
            return false;
        };
        let settled_before = self.looks.iter().rev();
        let mut same = settled_before.take_while(|look| look.settled_ms == last.settled_ms);
        let since = same.by_ref().last().unwrap_or(first).at;
        last.at.since(since) >= SILENT_FROM
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Checkpoint;
    use crate::stream::{HashKeyRange, Shard, ShardId};

    const HELD: Around = Around {
        is_held: true,
        is_paused: false,
    };

    fn lease(lag_ms: u64) -> Lease {
        let shard = Shard {
            id: ShardId::new("shardId-000000000000").unwrap(),
            parents: Vec::new(),
            hash_range: HashKeyRange::FULL,
            ending_sequence: None,
        };
        let mut lease = Lease::fresh(&shard, Checkpoint::TrimHorizon);
        lease.millis_behind_latest = Some(lag_ms);
        lease
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_origin(Duration::from_secs(seconds))
    }

    /// After looks two seconds apart that saw these lags.
    fn judged(lags_ms: &[u64]) -> Verdict {
        let mut track = Track::default();
        for (n, lag_ms) in (0..).zip(lags_ms) {
            track.look(&lease(*lag_ms), at(2 * n));
        }
        track.verdict(&lease(*lags_ms.last().unwrap()), HELD)
    }

    #[test]
    fn a_lag_is_judged_by_whether_it_grows_and_never_by_its_size() {
        let hour = 3_600_000;
        assert_eq!(judged(&[hour, hour - 1]), Verdict::CatchingUp);
        assert_eq!(judged(&[1_000, 1_001]), Verdict::FallingBehind);
        assert_eq!(judged(&[hour, hour]), Verdict::Moving, "it keeps up");
        assert_eq!(judged(&[hour]), Verdict::Moving, "one look shows nothing");
        assert_eq!(
            judged(&[5, 0, 90_000]),
            Verdict::Moving,
            "it was at the tip"
        );
    }

    #[test]
    fn a_shard_at_the_tip_is_silent_unless_records_come() {
        assert_eq!(judged(&[0, 0]), Verdict::Moving, "not known yet");
        assert_eq!(judged(&[0; 20]), Verdict::Silent);
        let mut track = Track::default();
        let mut fed = lease(0);
        track.look(&fed, at(0));
        fed.settled_arrival_ms = Some(7);
        track.look(&fed, at(2));
        assert_eq!(track.verdict(&fed, HELD), Verdict::Moving);
        let mut busy = lease(0);
        busy.bytes_per_second = Some(1);
        let mut track = Track::default();
        track.look(&busy, at(0));
        track.look(&busy, at(60));
        assert_eq!(track.verdict(&busy, HELD), Verdict::Silent, "its last rate");
    }

    /// Programs and the console compare with these words.
    #[test]
    fn each_verdict_keeps_its_word() {
        let words = [
            (Verdict::Stuck, "stuck"),
            (Verdict::Unheld, "unheld"),
            (Verdict::FallingBehind, "falling-behind"),
            (Verdict::Paused, "paused"),
            (Verdict::CatchingUp, "catching-up"),
            (Verdict::Moving, "moving"),
            (Verdict::Silent, "silent"),
            (Verdict::Finished, "finished"),
        ];
        for (verdict, word) in words {
            assert_eq!(verdict.code(), word);
        }
    }

    #[test]
    fn looks_count_for_two_minutes_and_a_bounded_number_is_kept() {
        let mut track = Track::default();
        track.look(&lease(0), at(0));
        for n in 1..1_000 {
            track.look(&lease(1_000 + n), at(n));
        }
        assert!(track.looks.len() <= LOOKS_MAX);
        assert_eq!(track.verdict(&lease(2_000), HELD), Verdict::FallingBehind);
    }

    #[test]
    fn a_report_names_what_it_begins_with_and_not_what_a_plugin_says_in_it() {
        for (report, expected) in [
            (
                "paused by ops at 2026-01-01T00:00:00Z: a test",
                Some(WaitsFor::Operator),
            ),
            (
                "attempt 4 failed: sink out cannot store output: refused",
                Some(WaitsFor::Sink),
            ),
            (
                "storing output in out has taken more than 5s",
                Some(WaitsFor::Sink),
            ),
            (
                "2 record(s) are waiting to be stored as dead letters in sink audit",
                Some(WaitsFor::Sink),
            ),
            (
                "attempt 3 failed: kinesis is unavailable: timeout",
                Some(WaitsFor::Kinesis),
            ),
            (
                "no answer from kinesis for more than 10s",
                Some(WaitsFor::Kinesis),
            ),
            (
                "waits for room in host.buffer: the plugin's",
                Some(WaitsFor::Memory),
            ),
            (
                "checkpointing has taken more than 5s",
                Some(WaitsFor::Table),
            ),
            (
                "the plugin holds back at least 4 record(s), so the checkpoint waits",
                Some(WaitsFor::Plugin),
            ),
            (
                "in the plugin has taken more than 5s",
                Some(WaitsFor::Plugin),
            ),
            (
                "attempt 3 failed: 1 record(s) failed, the first at 7: no checkpoint in my sink",
                Some(WaitsFor::Plugin),
            ),
            ("halted", None),
        ] {
            assert_eq!(WaitsFor::named_in(report), expected, "{report}");
        }
    }

    #[test]
    fn what_stops_a_shard_is_named_before_how_it_moves() {
        let mut lease = lease(1);
        lease.stuck = Some("attempt 3".to_owned());
        let track = Track::default();
        assert_eq!(track.verdict(&lease, HELD), Verdict::Stuck);
        let unheld = Around {
            is_held: false,
            ..HELD
        };
        assert_eq!(track.verdict(&lease, unheld), Verdict::Unheld);
        let paused = Around {
            is_paused: true,
            ..unheld
        };
        assert_eq!(track.verdict(&lease, paused), Verdict::Paused);
        lease.checkpoint = Checkpoint::ShardEnd;
        assert_eq!(track.verdict(&lease, paused), Verdict::Finished);
    }
}
