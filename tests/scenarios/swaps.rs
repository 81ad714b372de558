//! The processor's file is replaced while records flow.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use harness::flights::{self, Output};
use harness::guests::versioned;
use harness::process::eventually;
use harness::setting::Setting;

use crate::setting;

#[tokio::test(flavor = "multi_thread")]
async fn swapped_again_and_again_under_load_nothing_is_lost_or_repeated_and_no_lease_moves() {
    let setting_ = Setting::new(4).await;
    let swaps = setting("SHARDMILL_SWAPS", 8);
    setting_.drop_plugin("versioned", &versioned(0));
    let config = "[batch]\nrecords = 100\n[reads]\ncalls-per-second = 50.0\nrecords-per-call = \
        200\nidle-every = \"20ms\"";
    let host = setting_.host_with("a", config);
    let input = flights::input();
    let is_swapped = AtomicBool::new(false);
    // Again and again, so that records flow for as long as files are replaced.
    let put = async {
        let (mut rounds, mut last) = (0, BTreeMap::new());
        while rounds == 0 || !is_swapped.load(Ordering::Relaxed) {
            last.extend(setting_.put(&input).await);
            rounds += 1;
        }
        (rounds, last.into_iter().collect::<Vec<_>>())
    };
    let output = setting_.output_of("a");
    let swap = async {
        let mut took = Vec::new();
        eventually("output of the first version", || {
            tail_contains(&output, "VERSION-000000")
        })
        .await;
        for version in 1..=swaps {
            if version == swaps / 2 {
                setting_.drop_plugin("versioned", b"this is not a component");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            let bytes = versioned(version);
            let dropped_at = Instant::now();
            setting_.drop_plugin("versioned", &bytes);
            let name = format!("VERSION-{version:06}");
            eventually("output of the new version", || {
                tail_contains(&output, &name)
            })
            .await;
            took.push(dropped_at.elapsed());
        }
        is_swapped.store(true, Ordering::Relaxed);
        took
    };
    let ((rounds, last), mut took) = tokio::join!(put, swap);
    setting_.until_checkpointed("versioned", &last).await;
    assert!(
        host.log()
            .contains("plugin file refused, the previous version keeps running")
    );
    assert!(host.terminate().await.success());
    took.sort();
    let (median, longest) = (took[took.len() / 2], took[took.len() - 1]);
    eprintln!(
        "file in place to first output of the new version: median {median:?}, longest {longest:?}"
    );

    let output = Output::read(&[&output]);
    let total = rounds * flights::expected().values().sum::<u64>();
    assert_eq!(
        (output.lines, output.repeats, output.disorder),
        (total, 0, 0)
    );
    assert_eq!(
        output.versions.len(),
        swaps + 1,
        "every version handled some records"
    );
    for lease in setting_.leases("versioned").await {
        assert_eq!(lease.owner_switches, 0);
    }
    setting_.stop().await;
}

/// Whether the end of the file names `version`.
fn tail_contains(path: &std::path::Path, version: &str) -> bool {
    use std::io::{Read, Seek, SeekFrom};
    const TAIL_BYTES: u64 = 64 << 10;
    let Ok(mut file) = std::fs::File::open(path) else {
        return false;
    };
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    let _ = file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)));
    let mut tail = Vec::new();
    let _ = file.read_to_end(&mut tail);
    String::from_utf8_lossy(&tail).contains(version)
}
