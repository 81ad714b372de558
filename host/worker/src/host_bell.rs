//! How a worker passes on what an operator wants of its process: the wish is in the tables of an
//! application; the configuration and the plugins folder are the process's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shardmill_core::control::{Asked, DeployAsked, ShadowVerb};
use shardmill_core::plugin::PluginDigest;
use tokio::sync::mpsc;

/// Wishes that wait: one for each application of a usual host, and SIGHUP. Each is answered, and
/// whoever finds no room asks again.
const WAITING_MAX: usize = 16;
/// A process reads its configuration again if that was asked up to this long before it started: it
/// may have read the file before it was changed. To read it once more does no harm.
const BEFORE_START: Duration = Duration::from_mins(1);

/// The kind of a wish to read the configuration again.
const RELOAD: &str = "reload";

/// Tells the process what is wanted of it. Cheap to clone.
#[derive(Clone, Default)]
pub struct HostBell(Option<Arc<Shared>>);

struct Shared {
    rings: mpsc::Sender<Ring>,
    /// In milliseconds since the Unix epoch.
    started_at_ms: u64,
    // What was wanted last, by kind and application; a worker that is restarted by a reload must
    // not ask for it again. Never held across an await.
    seen: Mutex<BTreeMap<(&'static str, String), Asked>>,
}

/// What is wanted of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// That it reads its configuration again.
    Reload,
    /// That a version in the shadow of an application's plugin is promoted or dropped.
    EndShadow {
        /// The name that its leases are kept under.
        application: String,
        /// The SHA-256 of its component; another version stays as it is.
        digest: PluginDigest,
        /// What becomes of it.
        verb: ShadowVerb,
    },
    /// That a version of an application's plugin is pulled and tried.
    Deploy {
        /// The name that its leases are kept under.
        application: String,
        /// Which version it is, and where.
        deploy: Box<DeployAsked>,
        /// The version of the row that says so: an earlier one says something else.
        control: u64,
    },
}

/// A wish, and who has it.
pub struct Ring {
    /// What the process is to do, and with which version or application.
    pub wish: Wish,
    /// Who asks, and why.
    pub asked: Asked,
    /// Is to be told what came of it.
    answer: Box<dyn FnOnce(&Outcome) + Send>,
}

/// What came of a wish, in a line; an error if it was not done, or not all of it.
pub type Outcome = Result<String, String>;

impl HostBell {
    /// The bell of a process that starts now, and where its rings arrive.
    pub fn new(wall_ms: u64) -> (Self, mpsc::Receiver<Ring>) {
        let (sender, rings) = mpsc::channel(WAITING_MAX);
        let shared = Shared {
            rings: sender,
            started_at_ms: wall_ms,
            seen: Mutex::default(),
        };
        (Self(Some(Arc::new(shared))), rings)
    }

    /// Asks; `answer` is called once with the result. If too many wait, or nobody listens any more,
    /// it is not called, and this returns false.
    pub fn ring(
        &self,
        wish: Wish,
        asked: Asked,
        answer: impl FnOnce(&Outcome) + Send + 'static,
    ) -> bool {
        let Some(shared) = &self.0 else {
            return false;
        };
        let ring = Ring {
            wish,
            asked,
            answer: Box::new(answer),
        };
        let rung = shared.rings.try_send(ring);
        if let Err(error) = &rung {
            tracing::debug!(%error, "a wish is not passed on now");
        }
        rung.is_ok()
    }

    /// Asks as the application's tables say, once for each time that somebody wants it.
    pub(crate) fn ring_once(
        &self,
        application: &str,
        wish: Wish,
        asked: Asked,
        answer: impl FnOnce(&Outcome) + Send + 'static,
    ) {
        let key = (wish.kind(), application.to_owned());
        if !self.is_news(&key, &asked) {
            return;
        }
        if self.ring(wish, asked.clone(), answer) {
            self.saw(key, asked);
        }
    }

    /// Takes note of what is wanted and is not this process's to do: it must not do it later, when
    /// it might be.
    pub(crate) fn pass_over(&self, application: &str, wish: &Wish, asked: Asked) {
        self.saw((wish.kind(), application.to_owned()), asked);
    }

    fn is_news(&self, key: &(&'static str, String), asked: &Asked) -> bool {
        let Some(shared) = &self.0 else {
            return false;
        };
        if let Some(last) = shared.seen().get(key) {
            // Clocks of operators differ: what is asked later may bear an earlier time.
            return last != asked;
        }
        let (kind, _) = key;
        let before = if *kind == RELOAD {
            BEFORE_START
        } else {
            Duration::ZERO
        };
        let before_ms = u64::try_from(before.as_millis()).unwrap_or(u64::MAX);
        asked.at_ms >= shared.started_at_ms.saturating_sub(before_ms)
    }

    fn saw(&self, key: (&'static str, String), asked: Asked) {
        if let Some(shared) = &self.0 {
            shared.seen().insert(key, asked);
        }
    }
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, BTreeMap<(&'static str, String), Asked>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wish {
    /// The application that it concerns; `None` if it concerns the whole process.
    pub fn application(&self) -> Option<&str> {
        match self {
            Self::Reload => None,
            Self::EndShadow { application, .. } | Self::Deploy { application, .. } => {
                Some(application)
            }
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Reload => RELOAD,
            Self::EndShadow { .. } => "shadow",
            Self::Deploy { .. } => "deploy",
        }
    }
}

impl Ring {
    /// Says what came of it.
    pub fn answer(self, outcome: &Outcome) {
        (self.answer)(outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(at_ms: u64) -> Asked {
        Asked {
            by: "alice".to_owned(),
            why: "new limits".to_owned(),
            at_ms,
        }
    }

    #[test]
    fn each_wish_rings_once_in_a_process_whatever_the_clocks_of_operators_say() {
        let (bell, mut rings) = HostBell::new(1_000_000);
        let mut rung = |application: &str, at_ms| {
            bell.ring_once(application, Wish::Reload, asked(at_ms), |_| {});
            rings.try_recv().is_ok()
        };
        assert!(!rung("orders", 900_000), "it was read since");
        assert!(rung("orders", 1_000_500));
        assert!(!rung("orders", 1_000_500), "a worker that was restarted");
        assert!(rung("orders", 700_000), "by somebody with a late clock");
        assert!(rung("payments", 960_000), "the start was a moment later");
    }

    #[test]
    fn a_wish_for_which_there_is_no_room_still_counts_as_new() {
        let (bell, mut rings) = HostBell::new(0);
        for n in 0..WAITING_MAX {
            assert!(bell.ring(Wish::Reload, asked(n as u64), |_| {}));
        }
        bell.ring_once("orders", Wish::Reload, asked(1_000), |_| {});
        while rings.try_recv().is_ok() {}
        bell.ring_once("orders", Wish::Reload, asked(1_000), |_| {});
        assert!(rings.try_recv().is_ok());
        bell.ring_once("orders", Wish::Reload, asked(1_000), |_| {});
        assert!(rings.try_recv().is_err(), "once");
    }

    #[test]
    fn what_was_passed_over_is_not_done_later_but_what_is_asked_anew() {
        let (bell, mut rings) = HostBell::new(0);
        bell.pass_over("orders", &Wish::Reload, asked(5));
        bell.ring_once("orders", Wish::Reload, asked(5), |_| {});
        assert!(rings.try_recv().is_err());
        bell.ring_once("orders", Wish::Reload, asked(6), |_| {});
        assert!(rings.try_recv().is_ok());
    }

    #[test]
    fn who_asked_is_told_what_came_of_it() {
        let (bell, mut rings) = HostBell::new(0);
        let (sender, told) = std::sync::mpsc::channel();
        assert!(bell.ring(Wish::Reload, asked(1), move |outcome| {
            sender.send(outcome.clone()).unwrap();
        }));
        let outcome = Ok("nothing has changed".to_owned());
        rings.try_recv().unwrap().answer(&outcome);
        assert_eq!(told.recv().unwrap(), outcome);
        let nobody = HostBell::default();
        assert!(!nobody.ring(Wish::Reload, asked(1), |_| panic!("nobody listens")));
    }
}
