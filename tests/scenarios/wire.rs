//! The format that Kinesis is spoken to in.

use bytes::Bytes;
use harness::guests::guest;
use harness::setting::{STREAM, Setting};
use shardmill_aws::{PutEntry, StreamWriter};
use shardmill_core::stream::StreamName;

/// All bytes, also those that are no text, in a partition of their own; and an empty record.
fn entries() -> Vec<PutEntry> {
    let payloads = [(32..127).collect::<Vec<u8>>(), b"{}".to_vec(), Vec::new()];
    let entry = |data: Vec<u8>| PutEntry {
        partition_key: "\"k\u{e9}y\"".to_owned(),
        explicit_hash_key: None,
        data: Bytes::from(data),
    };
    payloads.into_iter().map(entry).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn records_pass_intact_in_either_format_polled_or_pushed_and_the_status_says_in_which() {
    for (wire, retrieval, told) in [
        ("auto", "polling", "cbor"),
        ("json", "polling", "json"),
        ("cbor", "fan-out", "cbor"),
        ("json", "fan-out", "json"),
    ] {
        let setting = Setting::new(1).await;
        setting.drop_plugin("echo", &guest("echo"));
        let stream = StreamName::new(STREAM).unwrap();
        let writer = StreamWriter::new(setting.clients.kinesis.clone(), stream);
        let report = writer.put_all(entries(), |_, _| {}).await.unwrap();
        let last: Vec<_> = report
            .last_sequence
            .iter()
            .map(|(shard, last)| (shard.to_string(), last.to_string()))
            .collect();
        let settings = format!(
            "[aws]\nwire = \"{wire}\"\n[host]\nadmin = \"127.0.0.1:0\"\nfan-out-allowed = true\n\
             [reads]\nretrieval = \"{retrieval}\"\n[plugin.echo.config]\ndestination = \"out\""
        );
        let host = setting.host_with("a", &settings);
        setting.until_checkpointed("echo", &last).await;
        assert_eq!(host.status().await["wire"], told, "{wire}");
        assert!(host.terminate().await.success());
        let out = std::fs::read(setting.output_of("a")).unwrap();
        let expected: Vec<u8> = entries()
            .into_iter()
            .flat_map(|entry| [&entry.data[..], b"\n"].concat())
            .collect();
        assert_eq!(out, expected, "{wire}, {retrieval}");
        setting.stop().await;
    }
}
