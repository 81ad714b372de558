//! A figure that rises at once and falls late.

use std::collections::VecDeque;
use std::time::Duration;

use super::assess::Assessment;
use super::figure::Figure;
use super::load::{from_milli, thousandths};
use super::policy::{FULL, ScalingPolicy, TARGET};
use crate::text::shortened;
use crate::time::Moment;

/// Peaks that are kept of the time in which fewer hosts must have been enough.
const PEAKS_MAX: u32 = 32;
/// A rise this many times [`ScalingPolicy::settle`] after a fall takes the fall back: it was too
/// early.
const REGRET_WITHIN: u32 = 2;
/// Each fall that was too early makes the time before the next one so many times as long, twice: a
/// load that comes every ten minutes is not to start hosts every ten minutes.
const REGRET_FACTOR: u32 = 4;
const REGRETS_MAX: u32 = 2;
/// After so many times [`ScalingPolicy::settle`] without a fall that was too early, one of them is
/// forgotten.
const FORGET_AFTER: u32 = 48;

/// What a leader remembers between two figures.
#[derive(Debug)]
pub struct Damper {
    /// When it began to watch: a new leader waits as long as any before it lets the figure fall.
    since: Moment,
    /// Whether no leader before it published a figure.
    is_first: Option<bool>,
    /// The greatest load of each stretch of the time that counts; the oldest one first.
    peaks: VecDeque<Peak>,
    fell_at: Option<Moment>,
    regretted_at: Option<Moment>,
    regrets: u32,
}

/// The greatest load of a stretch of time, and the most hosts that were wanted in it.
#[derive(Debug, Clone, Copy)]
struct Peak {
    from: Moment,
    load: f64,
    wanted: usize,
}

/// What was published last.
#[derive(Debug, Clone, Copy)]
struct Was {
    wanted: usize,
    /// The hosts that the load fills up to the target, as last planned with.
    planned: f64,
}

/// How a figure changed, or why it did not.
enum Change {
    /// It is what the load wants.
    None,
    /// Fewer than before.
    Fell,
    /// Fewer are wanted, and this long nothing else has been.
    Waits(Duration),
    /// Nothing is known.
    Held,
}

impl Damper {
    /// A leader that begins to watch at `now`.
    pub fn new(now: Moment) -> Self {
        Self {
            since: now,
            is_first: None,
            peaks: VecDeque::new(),
            fell_at: None,
            regretted_at: None,
            regrets: 0,
        }
    }

    /// The next figure. `before` is what was published last, by this leader or one before it;
    /// without one, no fewer hosts are wanted than there are, until fewer were enough for long.
    /// `None` if nothing was published and nothing is known: an autoscaler would act on a guess.
    pub fn next(
        &mut self,
        policy: &ScalingPolicy,
        assessed: &Assessment,
        before: Option<&Figure>,
        now: Moment,
    ) -> Option<Figure> {
        let was = Was {
            wanted: self.wanted_before(policy, assessed, before, now),
            planned: before.map_or(0.0, |figure| from_milli(figure.load_milli)),
        };
        let (next, change) = match assessed.wanted {
            None if before.is_none() => return None,
            None => (was, Change::Held),
            Some(wanted) => self.damp(policy, assessed, was, wanted, now),
        };
        Some(Figure {
            wanted: assessed.within(next.wanted),
            undamped: assessed.wanted,
            load_milli: thousandths(next.planned.min(assessed.cap as f64)),
            shards: assessed.shards,
            policy: *policy,
            why: why(assessed, &change),
        })
    }

    /// What counts as wanted before. Where no leader published anything yet, hosts may just be
    /// starting, one after the other: the first of them must not have the others removed.
    fn wanted_before(
        &mut self,
        policy: &ScalingPolicy,
        assessed: &Assessment,
        before: Option<&Figure>,
        now: Moment,
    ) -> usize {
        let is_first = *self.is_first.get_or_insert(before.is_none());
        let published = before.map_or(0, |figure| figure.wanted);
        if is_first && now.since(self.since) < policy.settle {
            published.max(assessed.sums.sharing)
        } else {
            published
        }
    }

    fn damp(
        &mut self,
        policy: &ScalingPolicy,
        assessed: &Assessment,
        was: Was,
        undamped: usize,
        now: Moment,
    ) -> (Was, Change) {
        let settle = self.settle(policy, now);
        self.note(assessed.load, undamped, settle, now);
        let mut next = was;
        if assessed.load > was.planned * FULL {
            next.planned = assessed.load / TARGET;
        }
        let must_rise = assessed.would_overload(was.wanted) || was.wanted < assessed.floor;
        if must_rise && undamped > was.wanted {
            next.wanted = undamped;
            self.rose(policy, now);
            return (next, Change::None);
        }
        let watched = now.since(self.since);
        if watched < settle {
            return (
                next,
                waits(undamped < was.wanted, settle.saturating_sub(watched)),
            );
        }
        let greatest = self.peaks.iter().map(|peak| peak.load);
        let greatest = greatest.fold(0.0, f64::max) / TARGET;
        if greatest < was.planned * TARGET / FULL {
            next.planned = greatest;
        }
        let enough = self.peaks.iter().map(|peak| peak.wanted).max();
        let enough = enough.unwrap_or(undamped);
        if enough < was.wanted {
            next.wanted = enough;
            self.fell_at = Some(now);
            return (next, Change::Fell);
        }
        let left = self.falls_in(was.wanted, settle, now);
        (next, waits(undamped < was.wanted, left))
    }

    /// Takes in the load of now, and the hosts that it wants.
    fn note(&mut self, load: f64, wanted: usize, settle: Duration, now: Moment) {
        let stretch = settle / PEAKS_MAX;
        match self.peaks.back_mut() {
            Some(last) if now.since(last.from) < stretch => {
                last.load = last.load.max(load);
                last.wanted = last.wanted.max(wanted);
            }
            _ => self.peaks.push_back(Peak {
                from: now,
                load,
                wanted,
            }),
        }
        // A peak counts until its whole stretch is older than what counts.
        let from = now - settle;
        while self
            .peaks
            .front()
            .is_some_and(|peak| peak.from + stretch <= from)
        {
            self.peaks.pop_front();
        }
    }

    /// How long until no peak is left that wants as many as there are.
    fn falls_in(&self, was: usize, settle: Duration, now: Moment) -> Duration {
        let stretch = settle / PEAKS_MAX;
        let last = self.peaks.iter().rev().find(|peak| peak.wanted >= was);
        last.map_or(Duration::ZERO, |peak| {
            (peak.from + stretch + settle).since(now)
        })
    }

    /// How long fewer must have been enough.
    fn settle(&mut self, policy: &ScalingPolicy, now: Moment) -> Duration {
        let is_long_ago = self
            .regretted_at
            .is_some_and(|at| now.since(at) > policy.settle * FORGET_AFTER);
        if is_long_ago {
            self.regrets = self.regrets.saturating_sub(1);
            self.regretted_at = Some(now);
        }
        policy.settle * REGRET_FACTOR.pow(self.regrets)
    }

    fn rose(&mut self, policy: &ScalingPolicy, now: Moment) {
        let fell_at = self.fell_at.take();
        if fell_at.is_some_and(|at| now.since(at) <= policy.settle * REGRET_WITHIN) {
            self.regrets = (self.regrets + 1).min(REGRETS_MAX);
            self.regretted_at = Some(now);
        }
    }
}

fn waits(is_enough: bool, left: Duration) -> Change {
    if is_enough {
        Change::Waits(left)
    } else {
        Change::None
    }
}

/// The reason in a sentence.
fn why(assessed: &Assessment, change: &Change) -> String {
    let deciding = assessed
        .reasons
        .iter()
        .filter(|reason| !reason.is_warning());
    let deciding: Vec<String> = deciding.map(ToString::to_string).collect();
    let deciding = deciding.join("; ");
    let text = match change {
        Change::None | Change::Held => deciding,
        Change::Fell => format!("fewer were enough for long: {deciding}"),
        Change::Waits(left) => format!(
            "{} would do now, and may follow in {} s: {deciding}",
            assessed.wanted.unwrap_or_default(),
            left.as_secs()
        ),
    };
    shortened(&text, Figure::WHY_CHARS_MAX).into_owned()
}
