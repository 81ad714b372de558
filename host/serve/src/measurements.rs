//! Metrics to be scraped. What is measured for a histogram is kept, value by value, until it is
//! counted into its bucket: a separate thread does that, whether anything scrapes or not.

mod page;
mod recorders;

use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime};

use tokio::sync::Mutex;

use self::recorders::Recorders;
use crate::clock::wall_now;
use crate::process;

/// How often values are counted into their buckets. 1 s: some thousand values, which take a
/// millisecond.
const UPKEEP_EVERY: Duration = Duration::from_secs(1);

/// The process's metrics. Cheap to clone; values are counted until the last clone is dropped.
#[derive(Clone)]
pub struct Measurements {
    recorders: Recorders,
    /// As good as the process.
    started_at: SystemTime,
    /// Held while the page is written: it is as large for one who asks as for many.
    turn: Arc<Mutex<()>>,
    _upkeep: Arc<Upkeep>,
}

impl Measurements {
    /// Installs the process's metrics recorder; `None` if there is one already, or none can be had.
    pub fn start() -> Option<Self> {
        let recorders = Recorders::new();
        metrics::set_global_recorder(recorders.clone()).ok()?;
        shardmill_worker::metrics::describe();
        shardmill_wasm::metrics::describe();
        shardmill_aws::metrics::describe();
        shardmill_sinks::metrics::describe();
        crate::telemetry::metrics::describe();
        crate::metrics::describe();
        crate::recordings::describe();
        crate::emf::describe();
        crate::traces::describe();
        shardmill_wasm::describe_metrics();
        let counted = recorders.clone();
        let upkeep = Upkeep::start(UPKEEP_EVERY, move || counted.look_after());
        let upkeep = upkeep.inspect_err(|error| {
            tracing::warn!(
                %error,
                code = "metrics-off",
                "metrics are off: their thread does not start"
            );
        });
        Some(Self {
            recorders,
            turn: Arc::default(),
            started_at: wall_now(),
            _upkeep: Arc::new(upkeep.ok()?),
        })
    }

    /// The page that is scraped, written off the async threads, which renew leases; one at a time.
    ///
    /// # Errors
    ///
    /// If the thread that writes it fails.
    pub async fn page(&self) -> Result<String, tokio::task::JoinError> {
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let (recorders, started_at) = (self.recorders.clone(), self.started_at);
        let write = move || {
            let _turn = turn;
            recorders.page() + &process::as_metrics(started_at)
        };
        tokio::task::spawn_blocking(write).await
    }
}

/// A thread that does something regularly until this is dropped.
struct Upkeep {
    _stop: mpsc::Sender<()>,
}

impl Upkeep {
    fn start(every: Duration, work: impl Fn() + Send + 'static) -> std::io::Result<Self> {
        let (stop, stopped) = mpsc::channel::<()>();
        std::thread::Builder::new()
            .name("metrics-upkeep".to_owned())
            .spawn(move || {
                while stopped.recv_timeout(every) == Err(mpsc::RecvTimeoutError::Timeout) {
                    work();
                }
            })?;
        Ok(Self { _stop: stop })
    }
}

#[cfg(test)]
mod tests {
    use shardmill_core::pipeline::{FailurePolicy, GiveUp};
    use shardmill_core::plugin::PluginName;

    use super::*;

    #[test]
    fn the_page_says_what_runs() {
        let recorders = Recorders::new();
        metrics::with_local_recorder(&recorders, crate::metrics::describe);
        let (page, version) = (recorders.page(), env!("CARGO_PKG_VERSION"));
        assert!(
            page.contains("shardmill_build_info{")
                && page.contains(&format!("version=\"{version}\"")),
            "{page}"
        );
    }

    #[test]
    fn counters_of_rare_events_are_there_before_the_first_one() {
        let recorders = Recorders::new();
        let plugin = PluginName::new("alerts").unwrap();
        let policy = FailurePolicy {
            then: Some(GiveUp::Skip),
            ..FailurePolicy::default()
        };
        metrics::with_local_recorder(&recorders, || {
            shardmill_worker::metrics::count_from_zero(&plugin, &policy);
            shardmill_worker::metrics::count_rollbacks_from_zero(&plugin);
        });
        let page = recorders.page();
        for series in [
            r#"shardmill_trim_gaps_total{plugin="alerts"} 0"#,
            r#"shardmill_shards_gone_total{plugin="alerts"} 0"#,
            r#"shardmill_rollbacks_total{plugin="alerts",cause="memory"} 0"#,
            r#"shardmill_records_given_up_total{plugin="alerts",decision="skip",cause="age"} 0"#,
        ] {
            assert!(page.contains(series), "{series} is not in\n{page}");
        }
    }

    #[test]
    fn values_are_counted_again_and_again_though_nobody_asks_and_no_longer_than_the_owner_lives() {
        let (done, seen) = mpsc::channel();
        let tell = move || {
            // Nobody listens once the test is over.
            let _ = done.send(());
        };
        let upkeep = Upkeep::start(Duration::from_millis(1), tell).unwrap();
        for _ in 0..3 {
            seen.recv().unwrap();
        }
        drop(upkeep);
        // Ends when the thread has, with what it sends.
        while seen.recv().is_ok() {}
    }
}
