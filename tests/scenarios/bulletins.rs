//! Rows of the coordinator table, by which hosts tell each other of leases, versions and who leads,
//! that nobody can read: a later version wrote them, or somebody by hand.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue;
use harness::flights::{self, Output};
use harness::guests::guest;
use harness::process::eventually;
use harness::setting::Setting;

const FLEET: &str = "fleet";

/// Rows of the coordinator table that no host of this version can read, by id.
fn unreadable_rows() -> BTreeMap<&'static str, AttributeValue> {
    let text = |text: &str| AttributeValue::S(text.to_owned());
    BTreeMap::from([
        ("bulletin", text("soon")),
        ("leader", AttributeValue::M([].into())),
        ("quarantine#zz", AttributeValue::Null(true)),
        ("start", AttributeValue::Bool(true)),
        ("stream", AttributeValue::N("-1".to_owned())),
        ("worker#ghost", text("\u{1b}]0;owned\u{7}")),
    ])
}

fn key(id: &str) -> [(String, AttributeValue); 2] {
    let text = |text: &str| AttributeValue::S(text.to_owned());
    [
        ("kind".to_owned(), text(FLEET)),
        ("id".to_owned(), text(id)),
    ]
}

async fn spoil(setting: &Setting, table: &str) {
    for (id, odd) in unreadable_rows() {
        let mut item = setting.clients.dynamodb.put_item().table_name(table);
        for (name, value) in key(id) {
            item = item.item(name, value);
        }
        for name in ["version", "worker", "digest", "name", "position", "beat"] {
            item = item.item(name, odd.clone());
        }
        item.send().await.unwrap();
    }
    // What a later version may keep there is nobody's mistake.
    let later = setting.clients.dynamodb.put_item().table_name(table);
    let [kind, id] = key("later");
    later
        .item(kind.0, kind.1)
        .item(id.0, id.1)
        .send()
        .await
        .unwrap();
}

/// How often the host has written its row.
async fn beat(setting: &Setting, table: &str) -> u64 {
    let [kind, id] = key("worker#a");
    let request = setting.clients.dynamodb.get_item().table_name(table);
    let request = request.key(kind.0, kind.1).key(id.0, id.1);
    let row = request.send().await.unwrap().item.unwrap();
    row["beat"].as_n().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn bulletins_that_cannot_be_read_are_reported_once_and_cost_a_host_at_work_nothing() {
    const TABLE: &str = "flights-coordinator";
    let setting = Setting::new(2).await;
    setting.drop_plugin("flights", &guest("flights"));
    let host = setting.host_with(
        "a",
        "[reads]\ncalls-per-second = 50.0\nidle-every = \"50ms\"\n",
    );
    let first = setting.put(&flights::input()).await;
    setting.until_checkpointed("flights", &first).await;
    spoil(&setting, TABLE).await;
    let told = |id: &str| {
        let log = host.log();
        let of_row = |line: &&str| {
            line.contains("a coordinator row cannot be read")
                && line.contains(&format!("id=\"{id}\""))
        };
        log.lines().filter(of_row).count()
    };
    for id in unreadable_rows().keys() {
        eventually(&format!("{id} is told"), || told(id) > 0).await;
    }
    // It reads them again and again, and writes its own row.
    let from = beat(&setting, TABLE).await;
    while beat(&setting, TABLE).await < from + 5 {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("flights", &last).await;
    for id in unreadable_rows().keys() {
        assert_eq!(told(id), 1, "{id}\n{}", host.log());
    }
    assert_eq!(told("later"), 0);
    assert!(!host.log().contains('\u{1b}'), "the log steers terminals");
    assert!(host.terminate().await.success());
    let output = Output::read(&[&setting.output_of("a")]);
    let twice = flights::expected().into_iter();
    let twice: flights::ByCarrier = twice.map(|(carrier, count)| (carrier, 2 * count)).collect();
    assert_eq!(
        (output.carriers, output.repeats, output.disorder),
        (twice, 0, 0)
    );
    setting.stop().await;
}
