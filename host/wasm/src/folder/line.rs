//! The line before the compiler. [`shardmill_core::turns`] decides which plugin is next.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use shardmill_core::plugin::PluginName;
use shardmill_core::turns::Turns;
use tokio::sync::oneshot;

/// One is served at a time. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Line(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    is_taken: bool,
    turns: Turns,
    waiting: HashMap<u64, (PluginName, oneshot::Sender<Turn>)>,
}

/// The right to be served; the next one has it when this is dropped.
pub(super) struct Turn {
    line: Line,
    name: PluginName,
    since: Instant,
}

impl Line {
    /// A turn, if no other task has it: then none waits either.
    pub(super) fn try_take(&self, name: &PluginName) -> Option<Turn> {
        let mut state = self.lock();
        (!std::mem::replace(&mut state.is_taken, true)).then(|| self.turn(name.clone()))
    }

    /// Waits for a turn. None if there is no line any more.
    pub(super) async fn take(&self, name: &PluginName) -> Option<Turn> {
        let called = {
            let mut state = self.lock();
            if !std::mem::replace(&mut state.is_taken, true) {
                return Some(self.turn(name.clone()));
            }
            let (call, called) = oneshot::channel();
            let arrival = state.turns.arrive(name);
            state.waiting.insert(arrival, (name.clone(), call));
            called
        };
        called.await.ok()
    }

    fn turn(&self, name: PluginName) -> Turn {
        Turn {
            line: self.clone(),
            name,
            since: Instant::now(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.line.lock();
        state.turns.served(&self.name, self.since.elapsed());
        let next = state.turns.call();
        let Some((name, call)) = next.and_then(|arrival| state.waiting.remove(&arrival)) else {
            state.is_taken = false;
            return;
        };
        let refused = call.send(self.line.turn(name)).err();
        // A receiver that is gone passes the turn on, and needs the lock for that.
        drop(state);
        drop(refused);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::Poll;
    use std::time::Duration;

    use super::*;

    type Waiting = Pin<Box<dyn Future<Output = Option<Turn>>>>;

    fn plugin(name: &str) -> PluginName {
        PluginName::new(name).unwrap()
    }

    /// Stands in line from the first poll on.
    async fn stands(line: &Line, name: &str) -> Waiting {
        let (line, name) = (line.clone(), plugin(name));
        let mut waiting: Waiting = Box::pin(async move { line.take(&name).await });
        assert!(is_waiting(&mut waiting).await);
        waiting
    }

    async fn is_waiting(waiting: &mut Waiting) -> bool {
        std::future::poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context).is_pending()))
            .await
    }

    #[tokio::test]
    async fn one_at_a_time_and_who_left_the_line_takes_no_turn() {
        let line = Line::default();
        let first = line.try_take(&plugin("first")).unwrap();
        assert!(line.try_take(&plugin("second")).is_none());
        let left = stands(&line, "left").await;
        let mut second = stands(&line, "second").await;
        let mut third = stands(&line, "third").await;
        drop(left);
        drop(first);
        let turn = second.as_mut().await.unwrap();
        assert!(is_waiting(&mut third).await);
        // It was called, and never came.
        drop(turn);
        drop(third);
        let name = plugin("fourth");
        assert!(line.try_take(&name).is_some() && line.take(&name).await.is_some());
    }

    #[tokio::test]
    async fn who_had_little_time_goes_before_who_had_much() {
        let line = Line::default();
        let slow = plugin("slow");
        line.lock().turns.served(&slow, Duration::from_mins(1));
        let busy = line.try_take(&plugin("busy")).unwrap();
        let mut of_slow = stands(&line, "slow").await;
        let of_quick = stands(&line, "quick").await;
        drop(busy);
        let turn = of_quick.await.unwrap();
        assert!(is_waiting(&mut of_slow).await);
        drop(turn);
        assert!(of_slow.await.is_some());
    }
}
