//! How fast the stack is.

use std::time::Instant;

use super::*;

/// Not a promise but a measurement: `cargo test -p shardmill-aws --test embedded -- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes some seconds"]
async fn how_fast_the_stack_is() {
    let dir = tempfile::tempdir().unwrap();
    let (stack, clients) = start(dir.path()).await;
    StreamAdmin::new(clients.kinesis.clone()).ensure_stream(&orders(), 4).await.unwrap();
    let records = 336_776;
    let entries = (0..records).map(|index| PutEntry {
        partition_key: format!("key-{}", index % 4_000),
        explicit_hash_key: None,
        data: vec![b'a' + u8::try_from(index % 26).unwrap(); 310].into(),
    });
    let began = Instant::now();
    let writer = StreamWriter::new(clients.kinesis.clone(), orders());
    let report = writer.put_all(entries, |_, _| {}).await.unwrap();
    let put = began.elapsed();
    println!("put {} records in {put:?}: {:.0}/s", report.records, f64::from(records) / put.as_secs_f64());
    let began = Instant::now();
    let read: usize = read_all(&clients).await.values().map(Vec::len).sum();
    let took = began.elapsed();
    println!("read {read} records in {took:?}: {:.0}/s", f64::from(records) / took.as_secs_f64());
    drop(stack);
    let began = Instant::now();
    let (_stack, _) = start(dir.path()).await;
    println!("restart in {:?}", began.elapsed());
}
