//! Records of every size that Kinesis takes, beside each other.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};

use bytes::Bytes;
use harness::embedded::take_large_records;
use harness::guests::guest;
use harness::setting::{STREAM, Setting};
use shardmill_aws::{PutEntry, StreamWriter};
use shardmill_core::stream::StreamName;

const MIB: usize = 1 << 20;
/// Empty, one byte, the usual limit, just beyond it, and the largest that a stream can be made to
/// take.
const SIZES: [usize; 5] = [0, 1, MIB, MIB + 1, 10 * MIB];
const ROUNDS: usize = 3;
const SHARDS: u32 = 4;

/// The smallest buffer that is taken: two of the largest records.
const CONFIG: &str = r#"
[reads]
calls-per-second = 50.0
bytes-per-second = "1GiB"
idle-every = "50ms"
[host]
buffer = "20MiB"
[plugin.echo.config]
destination = "out"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn records_from_nothing_to_ten_mebibytes_pass_intact_through_the_smallest_buffer() {
    let setting = Setting::new(SHARDS).await;
    let (kinesis, stream) = (
        setting.clients.kinesis.clone(),
        StreamName::new(STREAM).unwrap(),
    );
    take_large_records(&kinesis, &stream).await;
    let (mut put, mut entries) = (BTreeMap::<(usize, u8), usize>::new(), Vec::new());
    let sizes = (0..ROUNDS).flat_map(|_| SIZES);
    for (n, (size, shard)) in sizes
        .flat_map(|size| (0..SHARDS).map(move |shard| (size, shard)))
        .enumerate()
    {
        let letter = b'a' + u8::try_from(n % 26).unwrap();
        *put.entry((size, if size == 0 { 0 } else { letter }))
            .or_default() += 1;
        let hash_key = u128::MAX / u128::from(SHARDS) * u128::from(shard) + u128::MAX / 16;
        let data = Bytes::from(vec![letter; size]);
        entries.push(PutEntry {
            partition_key: n.to_string(),
            explicit_hash_key: Some(hash_key),
            data,
        });
    }
    let report = StreamWriter::new(kinesis, stream)
        .put_all(entries, |_, _| {})
        .await
        .unwrap();
    let last: Vec<_> = report
        .last_sequence
        .iter()
        .map(|(shard, last)| (shard.to_string(), last.to_string()))
        .collect();
    assert_eq!(last.len(), SHARDS as usize);
    setting.drop_plugin("echo", &guest("echo"));
    let host = setting.host_with("a", CONFIG);
    setting.until_checkpointed("echo", &last).await;
    eprintln!("{} MiB resident", host.resident_kib() >> 10);
    assert!(host.terminate().await.success());
    let mut out = BTreeMap::<(usize, u8), usize>::new();
    for line in BufReader::new(std::fs::File::open(setting.output_of("a")).unwrap()).split(b'\n') {
        let line = line.unwrap();
        let letter = line.first().copied().unwrap_or_default();
        assert!(line.iter().all(|byte| *byte == letter));
        *out.entry((line.len(), letter)).or_default() += 1;
    }
    assert_eq!(out, put);
    setting.stop().await;
}
