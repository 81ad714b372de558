//! Keeps a stream of a plugin served: restarts a worker that panics or ends by itself.

use std::time::Duration;

use shardmill_core::backoff::Backoff;
use shardmill_worker::{WorkerError, metrics};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The first wait. Short, since the cause may be over at once and the leases are waiting.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait. A worker that ends at each start needs somebody to fix the cause, who should
/// not have to wait for long afterwards.
const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// A worker that served for so long did not end for the reason that ended the one before it.
const SERVED_WELL: Duration = Duration::from_mins(10);

/// Hears what happens to a stream that is kept served.
pub(super) trait Listener {
    /// The stream's worker failed, for this reason; it may be started again.
    fn not_served(&self, reason: &str);
}

/// Why a stream is no longer served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It was asked to stop.
    Stopped,
    /// Starting it again would do harm.
    Fallen,
}

/// Runs what `start` makes, again and again, until it ends as it should, or must not run again.
pub(super) async fn keep_serving<Run>(
    label: &str,
    listener: &impl Listener,
    stop: &CancellationToken,
    mut start: impl FnMut() -> Run,
) -> End
where
    Run: Future<Output = Result<(), WorkerError>> + Send + 'static,
{
    let mut falls = 0;
    loop {
        let started_at = Instant::now();
        let Err(fall) = run(start()).await else {
            return End::Stopped;
        };
        listener.not_served(&fall.reason);
        if fall.is_final {
            tracing::error!(
                plugin = label,
                reason = fall.reason,
                code = "plugin-ended",
                "the plugin is no longer served"
            );
            return End::Fallen;
        }
        if started_at.elapsed() >= SERVED_WELL {
            falls = 0;
        }
        falls += 1;
        let wait = wait_after(falls);
        let reason = fall.reason;
        tracing::error!(
            plugin = label,
            reason,
            falls,
            ?wait,
            code = "plugin-failed",
            "cannot serve the plugin, trying again"
        );
        ::metrics::counter!(metrics::RESTARTS, "plugin" => label.to_owned()).increment(1);
        let waiting = stop.run_until_cancelled(tokio::time::sleep(wait));
        if waiting.await.is_none() {
            return End::Stopped;
        }
    }
}

/// How long to wait after so many falls in a row.
fn wait_after(falls: u32) -> Duration {
    let backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
    let backoff = backoff.unwrap_or(Backoff::standard());
    backoff.delay(falls, fastrand::f64())
}

/// Why a worker ended without being asked to.
struct Fall {
    reason: String,
    /// Whether it would do harm to start it again.
    is_final: bool,
}

/// Runs it as a separate task, so that a panic ends nothing else.
async fn run(
    worker: impl Future<Output = Result<(), WorkerError>> + Send + 'static,
) -> Result<(), Fall> {
    let mut task = JoinSet::new();
    task.spawn(worker);
    match task.join_next().await {
        None | Some(Ok(Ok(()))) => Ok(()),
        Some(Ok(Err(error))) => {
            // Two processes with one name would replace each other for ever.
            Err(Fall {
                reason: error.to_string(),
                is_final: matches!(error, WorkerError::Replaced { .. }),
            })
        }
        Some(Err(panic)) => Err(Fall {
            reason: format!("its worker panicked: {panic}"),
            is_final: false,
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[derive(Default)]
    struct Heard(RefCell<Vec<String>>);

    impl Listener for Heard {
        fn not_served(&self, reason: &str) {
            self.0.borrow_mut().push(reason.to_owned());
        }
    }

    fn replaced() -> WorkerError {
        WorkerError::Replaced {
            worker: "a".to_owned(),
        }
    }

    fn recreated() -> WorkerError {
        let stream = shardmill_core::stream::StreamName::new("stream").unwrap();
        WorkerError::StreamRecreated {
            application: "plugin".to_owned(),
            stream,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_panics_or_ends_is_started_again_until_it_stays_up() {
        let (heard, starts, stop) = (
            Heard::default(),
            Arc::new(AtomicU32::new(0)),
            CancellationToken::new(),
        );
        let end = keep_serving("plugin", &heard, &stop, || {
            let start = starts.fetch_add(1, Ordering::Relaxed);
            async move {
                match start {
                    0 => panic!("a bug"),
                    1 => Err(recreated()),
                    _ => Ok(()),
                }
            }
        })
        .await;
        assert_eq!((starts.load(Ordering::Relaxed), end), (3, End::Stopped));
        let told = heard.0.into_inner();
        assert!(
            told[0].contains("a bug") && told[1].contains("created again"),
            "{told:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_falls_at_each_start_is_started_ever_less_often_and_no_more_after_a_stop()
    {
        let (heard, starts, stop) = (
            Heard::default(),
            Arc::new(AtomicU32::new(0)),
            CancellationToken::new(),
        );
        let stopped = stop.clone();
        let until_stopped = async move {
            tokio::time::sleep(Duration::from_hours(1)).await;
            stopped.cancel();
        };
        let serving = keep_serving("plugin", &heard, &stop, || {
            starts.fetch_add(1, Ordering::Relaxed);
            async { panic!("a bug") }
        });
        tokio::join!(serving, until_stopped);
        let starts = starts.load(Ordering::Relaxed);
        assert!(
            (60..=130).contains(&starts),
            "{starts} starts in an hour: once in half a minute to a minute"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_whose_name_another_process_took_is_not_started_again() {
        let (heard, starts, stop) = (
            Heard::default(),
            Arc::new(AtomicU32::new(0)),
            CancellationToken::new(),
        );
        let end = keep_serving("plugin", &heard, &stop, || {
            starts.fetch_add(1, Ordering::Relaxed);
            async { Err(replaced()) }
        })
        .await;
        assert_eq!(
            (
                starts.load(Ordering::Relaxed),
                heard.0.into_inner().len(),
                end
            ),
            (1, 1, End::Fallen)
        );
    }
}
