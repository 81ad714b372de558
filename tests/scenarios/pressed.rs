//! The admin pages, as probes and collectors ask for them, beside plugins that spin and measure
//! without end.

use harness::flights;
use harness::guests::guest;
use harness::process::eventually;
use harness::setting::Setting;

use crate::doors::page;

const PAGES: &str = "[host]\nadmin = \"127.0.0.1:0\"\ndrain-limit = \"1s\"\n\
                     [reads]\ncalls-per-second = 50.0\nidle-every = \"50ms\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn live_is_answered_while_plugins_spin_on_every_core() {
    let cores = std::thread::available_parallelism().unwrap().get();
    let shards = u32::try_from((2 * cores).min(32)).unwrap();
    let setting = Setting::new(shards).await;
    setting.drop_plugin("spinner", &guest("evil"));
    let host = setting.host_with(
        "a",
        &format!(
            "{PAGES}[plugin.spinner.limits]\nprocess-deadline = \"30s\"\n\
             [plugin.spinner.config]\nmisbehave = \"loop\"\n"
        ),
    );
    setting.put(&flights::input()).await;
    host.until_status("every shard spins", |status| {
        let held = status["plugins"]["spinner"]["shards"].as_object();
        held.is_some_and(|held| {
            held.len() == shards as usize
                && held
                    .values()
                    .all(|shard| shard.to_string().contains("in the plugin"))
        })
    })
    .await;
    let (address, before) = (host.admin_address().await, host.cpu_ticks());
    for asked in 0..100 {
        let reply = page(&address, "/live").await;
        assert!(reply.starts_with("HTTP/1.1 200"), "{asked}: {reply}");
    }
    eventually("they go on spinning", || host.cpu_ticks() > before + 10).await;
    host.kill();
    setting.stop().await;
}

/// The names of histograms of the plugin that are on the page.
fn histograms(page: &str) -> usize {
    let counts = page.lines().filter(|line| {
        line.contains("aaaaaaaa") && line.contains("_count{") && line.contains("filler")
    });
    counts.count()
}

#[tokio::test(flavor = "multi_thread")]
async fn scrapes_at_once_of_histograms_filled_to_their_limits_are_bounded_and_leave_live_alone() {
    /// 64 names with some 16 lines each, and all that the host measures itself.
    const PAGE_BYTES_MAX: usize = 1 << 20;
    /// A page for each scrape, values that wait to be counted, and what instances do meanwhile.
    const MORE_KIB_MAX: u64 = 128 << 10;

    let setting = Setting::new(4).await;
    setting.drop_plugin("filler", &guest("evil"));
    let host = setting.host_with(
        "a",
        &format!(
            "{PAGES}[batch]\nrecords = 10\n[plugin.filler.config]\nmisbehave = \"histograms-flood\"\n"
        ),
    );
    setting.put(&flights::input()).await;
    let address = host.admin_address().await;
    loop {
        let names = histograms(&page(&address, "/metrics").await);
        assert!(names <= 64, "{names} names of one plugin");
        if names == 64 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let before = host.resident_kib();
    for _ in 0..20 {
        let (one, two, three, live) = tokio::join!(
            page(&address, "/metrics"),
            page(&address, "/metrics"),
            page(&address, "/metrics"),
            page(&address, "/live"),
        );
        assert!(live.starts_with("HTTP/1.1 200"), "{live}");
        for scrape in [one, two, three] {
            assert!(scrape.starts_with("HTTP/1.1 200"), "{scrape:.200}");
            assert!(scrape.len() < PAGE_BYTES_MAX, "{} bytes", scrape.len());
            assert_eq!(histograms(&scrape), 64);
        }
    }
    let after = host.resident_kib();
    assert!(after < before + MORE_KIB_MAX, "{before} KiB, then {after}");
    assert!(
        host.metric("shardmill_plugin_measurements_dropped_total", "filler")
            .await
            > 0.0
    );
    host.kill();
    setting.stop().await;
}
