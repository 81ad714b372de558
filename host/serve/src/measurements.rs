//! Metrics to be scraped. What is measured for a histogram is kept, value by value, until it is
//! counted into its bucket: a separate thread does that, whether anything scrapes or not.

use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime};

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::sync::Mutex;

use crate::clock::wall_now;
use crate::process;

/// How often values are counted into their buckets. 1 s: some thousand values, which take a
/// millisecond.
const UPKEEP_EVERY: Duration = Duration::from_secs(1);
/// Bounds of what ends in `_seconds`: from a cheap batch to the longest deadline that is usual.
const SECONDS: [f64; 15] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];
/// Bounds of what ends in `_bytes`: powers of four, from 256 bytes to 64 MiB.
const BYTES: [f64; 10] = [
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];
/// Bounds of anything else, which only plugins measure.
const ANY: [f64; 13] = [
    0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9,
];

/// The process's metrics. Cheap to clone; values are counted until the last clone is dropped.
#[derive(Clone)]
pub struct Measurements {
    handle: PrometheusHandle,
    /// As good as the process.
    started_at: SystemTime,
    /// Held while the page is written: it is as large for one who asks as for many.
    turn: Arc<Mutex<()>>,
    _upkeep: Arc<Upkeep>,
}

impl Measurements {
    /// Installs the process's metrics recorder; `None` if there is one already, or none can be had.
    pub fn start() -> Option<Self> {
        let recorder = builder().ok()?.build_recorder();
        let handle = recorder.handle();
        metrics::set_global_recorder(recorder).ok()?;
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
        let counted = handle.clone();
        let upkeep = Upkeep::start(UPKEEP_EVERY, move || counted.run_upkeep());
        let upkeep = upkeep.inspect_err(|error| {
            tracing::warn!(
                %error,
                code = "metrics-off",
                "metrics are off: their thread does not start"
            );
        });
        Some(Self {
            handle,
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
        let (handle, started_at) = (self.handle.clone(), self.started_at);
        let write = move || {
            let _turn = turn;
            handle.render() + &process::as_metrics(started_at)
        };
        tokio::task::spawn_blocking(write).await
    }
}

/// Histograms with buckets, which can be added up over hosts; the library's default are quantiles,
/// which cannot.
fn builder() -> Result<PrometheusBuilder, BuildError> {
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_bytes".to_owned()), &BYTES)?
        .set_buckets(&ANY)
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
    fn a_histogram_has_buckets_that_fit_its_unit() {
        let recorder = builder().unwrap().build_recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            metrics::histogram!("shardmill_process_seconds", "plugin" => "a").record(0.2);
            metrics::histogram!("shardmill_state_bytes", "plugin" => "a").record(3_000.0);
            metrics::histogram!("shardmill_guest_magnitude", "plugin" => "a").record(7.0);
        });
        let page = handle.render();
        for line in [
            "# TYPE shardmill_process_seconds histogram",
            r#"shardmill_process_seconds_bucket{plugin="a",le="0.1"} 0"#,
            r#"shardmill_process_seconds_bucket{plugin="a",le="0.25"} 1"#,
            r#"shardmill_state_bytes_bucket{plugin="a",le="4096"} 1"#,
            r#"shardmill_guest_magnitude_bucket{plugin="a",le="1"} 0"#,
            r#"shardmill_guest_magnitude_bucket{plugin="a",le="10"} 1"#,
        ] {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
    }

    #[test]
    fn the_page_says_what_runs() {
        let recorder = builder().unwrap().build_recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, crate::metrics::describe);
        let (page, version) = (handle.render(), env!("CARGO_PKG_VERSION"));
        assert!(
            page.contains("shardmill_build_info{")
                && page.contains(&format!("version=\"{version}\"")),
            "{page}"
        );
    }

    #[test]
    fn counters_of_rare_events_are_there_before_the_first_one() {
        let recorder = builder().unwrap().build_recorder();
        let handle = recorder.handle();
        let plugin = PluginName::new("alerts").unwrap();
        let policy = FailurePolicy {
            then: Some(GiveUp::Skip),
            ..FailurePolicy::default()
        };
        metrics::with_local_recorder(&recorder, || {
            shardmill_worker::metrics::count_from_zero(&plugin, &policy);
            shardmill_worker::metrics::count_rollbacks_from_zero(&plugin);
        });
        let page = handle.render();
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
