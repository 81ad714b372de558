//! Components that were built for a contract of the past, and are kept as they were: whatever is
//! built today must run them as they ran. They are never built again.

use std::io::Read;

use flate2::read::GzDecoder;
use harness::flights;
use harness::setting::Setting;

use super::backups::counted;

/// `examples/totals`, as it was built for contract 0.1.0 in November 2026: it has a state, and emits.
const TOTALS: &[u8] = include_bytes!("../versions/components/totals-0.1.0.wasm.gz");

#[tokio::test(flavor = "multi_thread")]
async fn a_component_that_was_built_once_for_contract_0_1_runs_as_it_did() {
    let mut totals = Vec::new();
    GzDecoder::new(TOTALS).read_to_end(&mut totals).unwrap();
    let setting = Setting::new(2).await;
    let manifest = "[grants]\nstate = true\n[config]\ndestination = \"out\"";
    setting.drop_manifest("totals", manifest);
    setting.drop_plugin("totals", &totals);
    let last = setting.put(&flights::input()).await;
    let leases = "duration = \"2s\"\nscan-every = \"100ms\"";
    let host = setting.host_sharing("a", leases, "");
    setting.until_checkpointed("totals", &last).await;
    assert!(host.terminate().await.success());
    assert_eq!(counted(&setting).await, flights::expected());
    setting.stop().await;
}
