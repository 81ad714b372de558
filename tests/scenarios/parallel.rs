//! Parallel keys with the real binary: all flights, a swap, a kill -9 and a hand-over.

use std::collections::BTreeMap;

use harness::flights::{self, Output};
use harness::guests::versioned;
use harness::process::eventually;
use harness::setting::Setting;

const MANIFEST: &str = "parallelism = 4\n[failure]\norder = \"key\"\n";
const READS: &str = "[batch]\nrecords = 20\n[reads]\ncalls-per-second = 50.0\nrecords-per-call = \
    200\nidle-every = \"20ms\"";

#[tokio::test(flavor = "multi_thread")]
async fn a_swap_of_a_plugin_with_parallel_keys_repeats_nothing_and_a_kill_loses_nothing() {
    let setting = Setting::new(2).await;
    setting.drop_manifest("versioned", MANIFEST);
    setting.drop_plugin("versioned", &versioned(0));
    let host = setting.host_with("a", READS);
    let input = flights::input();
    let output = setting.output_of("a");
    // While nobody dies, each record comes out once, in order by key, also through a swap.
    let first = setting.put(&input).await;
    eventually("the first version is at work", || {
        Output::read(&[&output]).lines > 0
    })
    .await;
    setting.drop_plugin("versioned", &versioned(1));
    let mut last: BTreeMap<_, _> = first.into_iter().collect();
    last.extend(setting.put(&input).await);
    let all: Vec<_> = last.clone().into_iter().collect();
    setting.until_checkpointed("versioned", &all).await;
    let flights = flights::expected().values().sum::<u64>();
    let so_far = Output::read(&[&output]);
    assert_eq!((so_far.lines, so_far.repeats), (2 * flights, 0));
    assert_eq!(so_far.disorder_by_key, 0);
    assert!(so_far.disorder > 0, "keys overtake each other");
    assert_eq!(so_far.versions.len(), 2);
    // A host that is killed repeats what was not checkpointed, and another goes on there.
    last.extend(setting.put(&input).await);
    eventually("it is in the middle of it", || {
        Output::read(&[&output]).lines > 2 * flights + flights / 10
    })
    .await;
    host.kill();
    let next = setting.host_with("b", READS);
    let all: Vec<_> = last.into_iter().collect();
    setting.until_checkpointed("versioned", &all).await;
    // The first host may have been done already: then the next one is still starting, and a signal
    // would end it.
    eventually("the next host is up", || !next.log().is_empty()).await;
    let ended = next.terminate().await;
    assert!(ended.success(), "{ended}");
    let outputs = [output, setting.output_of("b")];
    let outputs = outputs.each_ref().map(std::path::PathBuf::as_path);
    let whole = Output::read(&outputs);
    assert_eq!(whole.lines - whole.repeats, 3 * flights, "none is lost");
    // In each host's output on its own.
    assert_eq!(whole.disorder_by_key, 0);
    setting.stop().await;
}
