//! How a worker has its process read the configuration again: an operator's wish is in the tables
//! of an application, the configuration is the process's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shardmill_core::control::Asked;
use tokio::sync::mpsc;

/// Wishes that wait: one for each application of a usual host, and SIGHUP. Each is answered, and
/// whoever finds no room asks again.
const WAITING_MAX: usize = 16;
/// A process follows what was asked up to this long before it started: it may have read the file
/// before it was changed. To read it once more does no harm.
const BEFORE_START: Duration = Duration::from_mins(1);

/// Tells the process that it is to read its configuration again. Cheap to clone.
#[derive(Clone, Default)]
pub struct ReloadBell(Option<Arc<Shared>>);

struct Shared {
    rings: mpsc::Sender<Ring>,
    /// In milliseconds since the Unix epoch.
    started_at_ms: u64,
    // By application; a worker that is restarted by a reload must not ask for it again. Never held
    // across an await.
    seen: Mutex<BTreeMap<String, Asked>>,
}

/// A wish that the configuration is read again.
pub struct Ring {
    /// Who asks, and why.
    pub asked: Asked,
    /// Is to be told what came of it, in a line.
    answer: Box<dyn FnOnce(&str) + Send>,
}

impl ReloadBell {
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
    pub fn ring(&self, asked: Asked, answer: impl FnOnce(&str) + Send + 'static) -> bool {
        let Some(shared) = &self.0 else {
            return false;
        };
        let ring = Ring {
            asked,
            answer: Box::new(answer),
        };
        let rung = shared.rings.try_send(ring);
        if let Err(error) = &rung {
            tracing::debug!(%error, "the configuration is not read again now");
        }
        rung.is_ok()
    }

    /// Asks as the application's tables say, once for each time that somebody wants it.
    pub(crate) fn ring_once(
        &self,
        application: &str,
        asked: Asked,
        answer: impl FnOnce(&str) + Send + 'static,
    ) {
        if !self.is_news(application, &asked) {
            return;
        }
        if self.ring(asked.clone(), answer) {
            self.saw(application, asked);
        }
    }

    fn is_news(&self, application: &str, asked: &Asked) -> bool {
        let Some(shared) = &self.0 else {
            return false;
        };
        if let Some(last) = shared.seen().get(application) {
            // Clocks of operators differ: what is asked later may bear an earlier time.
            return last != asked;
        }
        let before_ms = u64::try_from(BEFORE_START.as_millis()).unwrap_or(u64::MAX);
        asked.at_ms >= shared.started_at_ms.saturating_sub(before_ms)
    }

    fn saw(&self, application: &str, asked: Asked) {
        if let Some(shared) = &self.0 {
            shared.seen().insert(application.to_owned(), asked);
        }
    }
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, BTreeMap<String, Asked>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    /// Says what came of it.
    pub fn answer(self, text: &str) {
        (self.answer)(text);
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
        let (bell, mut rings) = ReloadBell::new(1_000_000);
        let mut rung = |application: &str, at_ms| {
            bell.ring_once(application, asked(at_ms), |_| {});
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
        let (bell, mut rings) = ReloadBell::new(0);
        for n in 0..WAITING_MAX {
            assert!(bell.ring(asked(n as u64), |_| {}));
        }
        bell.ring_once("orders", asked(1_000), |_| {});
        while rings.try_recv().is_ok() {}
        bell.ring_once("orders", asked(1_000), |_| {});
        assert!(rings.try_recv().is_ok());
        bell.ring_once("orders", asked(1_000), |_| {});
        assert!(rings.try_recv().is_err(), "once");
    }

    #[test]
    fn who_asked_is_told_what_came_of_it() {
        let (bell, mut rings) = ReloadBell::new(0);
        let (sender, told) = std::sync::mpsc::channel();
        assert!(bell.ring(asked(1), move |text| sender.send(text.to_owned()).unwrap()));
        rings.try_recv().unwrap().answer("nothing has changed");
        assert_eq!(told.recv().unwrap(), "nothing has changed");
        let nobody = ReloadBell::default();
        assert!(!nobody.ring(asked(1), |_| panic!("nobody listens")));
    }
}
