//! Two hosts on one table share; one goes, the other goes on.

use std::time::Duration;

use harness::flights::{self, Output};
use harness::guests::guest;
use harness::process::{Host, eventually};
use harness::setting::Setting;

#[tokio::test(flavor = "multi_thread")]
async fn two_hosts_share_and_one_goes_on_alone_at_once_without_loss_or_repeat() {
    let setting = Setting::new(4).await;
    let (a, b) = started_together(&setting).await;
    let input = flights::input();
    let put = setting.put(&input);
    let leave = async {
        let output = setting.output_of("a");
        eventually("a has output", || Output::read(&[&output]).lines > 0).await;
        assert!(a.terminate().await.success());
    };
    let (last, ()) = tokio::join!(put, leave);
    setting.until_checkpointed("flights", &last).await;
    assert!(b.terminate().await.success());
    let output = Output::read(&[&setting.output_of("a"), &setting.output_of("b")]);
    assert_eq!(output.carriers, flights::expected());
    assert_eq!(
        (output.repeats, output.disorder),
        (0, 0),
        "a planned exit repeats nothing"
    );
    setting.stop().await;
}

/// Two hosts that share the shards: whoever came first hands half over.
async fn started_together(setting: &Setting) -> (Host, Host) {
    let (a, b) = (setting.host("a"), setting.host("b"));
    setting.drop_plugin("flights", &guest("flights"));
    let deadline = tokio::time::Instant::now() + Duration::from_mins(2);
    while (count(setting, "a").await, count(setting, "b").await) != (2, 2) {
        assert!(
            tokio::time::Instant::now() < deadline,
            "two hosts never share"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    (a, b)
}

async fn count(setting: &Setting, id: &str) -> usize {
    let leases = setting.leases("flights").await;
    leases
        .iter()
        .filter(|lease| {
            lease
                .owner
                .as_ref()
                .is_some_and(|owner| owner.as_str() == id)
        })
        .count()
}
