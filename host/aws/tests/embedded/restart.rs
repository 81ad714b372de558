//! What survives a restart, and what concurrency must not lose.

use super::*;

#[tokio::test]
async fn records_shards_and_sequence_numbers_survive_a_killed_process() {
    let dir = tempfile::tempdir().unwrap();
    let (stack, clients) = start(dir.path()).await;
    StreamAdmin::new(clients.kinesis.clone())
        .ensure_stream(&orders(), 2)
        .await
        .unwrap();
    put(&clients, 0..700).await;
    split(&clients, "shardId-000000000000").await;
    let first = put(&clients, 700..1_400).await;
    let before = read_all(&clients).await;
    // No stop: nothing gets the chance to write anything more.
    drop(stack);

    let (stack, clients) = start(dir.path()).await;
    assert_eq!(read_all(&clients).await, before);
    let second = put(&clients, 1_400..1_500).await;
    for (shard, last) in &second.last_sequence {
        assert!(
            first
                .last_sequence
                .get(shard)
                .is_none_or(|earlier| earlier < last),
            "{shard}"
        );
    }
    assert_eq!(
        read_all(&clients)
            .await
            .values()
            .map(Vec::len)
            .sum::<usize>(),
        1_500
    );
    stack.stop().await;

    let (stack, clients) = start(dir.path()).await;
    assert_eq!(
        read_all(&clients)
            .await
            .values()
            .map(Vec::len)
            .sum::<usize>(),
        1_500
    );
    stack.stop().await;
}

/// Not a test of its own but, where its variable is set, the process that the next one kills.
#[tokio::test]
async fn child_process() {
    let Ok(dir) = std::env::var(CHILD_DATA_DIR) else {
        return;
    };
    let (_stack, _) = start(Path::new(&dir)).await;
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_process_killed_by_sigkill_loses_nothing_it_answered() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "restart::child_process"])
        .env(CHILD_DATA_DIR, dir.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let endpoints = wait_for_endpoints(dir.path()).await;
    let clients = clients_at(&endpoints["kinesis"], &endpoints["dynamodb"]).await;
    StreamAdmin::new(clients.kinesis.clone())
        .ensure_stream(&orders(), 2)
        .await
        .unwrap();
    put(&clients, 0..900).await;
    let table = LeaseTable::new(clients.dynamodb.clone(), "app");
    table.ensure_table().await.unwrap();
    let lease = lease("shardId-000000000000");
    let Written::Applied(token) = take_fresh(&table, &lease).await else {
        panic!("a conflict")
    };
    let before = read_all(&clients).await;
    child.kill().unwrap();
    child.wait().unwrap();

    let (_stack, clients) = start(dir.path()).await;
    assert_eq!(before.values().map(Vec::len).sum::<usize>(), 900);
    assert_eq!(read_all(&clients).await, before);
    let table = LeaseTable::new(clients.dynamodb.clone(), "app");
    assert_eq!(
        table
            .get(&lease.key)
            .await
            .unwrap()
            .map(|row| row.token(token.owner.clone())),
        Some(token)
    );
}

#[tokio::test]
async fn a_journal_that_is_mostly_dead_shrinks_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let (stack, clients) = start(dir.path()).await;
    let admin = StreamAdmin::new(clients.kinesis.clone());
    let large = |_| PutEntry {
        partition_key: "k".to_owned(),
        explicit_hash_key: None,
        data: vec![0; 300_000].into(),
    };
    let old = StreamName::new("old").unwrap();
    admin.ensure_stream(&old, 1).await.unwrap();
    StreamWriter::new(clients.kinesis.clone(), old)
        .put_all((0..20).map(large), |_, _| {})
        .await
        .unwrap();
    clients
        .kinesis
        .delete_stream()
        .stream_name("old")
        .send()
        .await
        .unwrap();
    admin.ensure_stream(&orders(), 2).await.unwrap();
    put(&clients, 0..100).await;
    let before = read_all(&clients).await;
    drop(stack);
    let journal = dir.path().join("kinesis.journal");
    assert!(std::fs::metadata(&journal).unwrap().len() > 6_000_000);
    for _ in 0..2 {
        let (stack, clients) = start(dir.path()).await;
        assert!(std::fs::metadata(&journal).unwrap().len() < 100_000);
        assert_eq!(read_all(&clients).await, before);
        drop(stack);
    }
}

#[tokio::test]
async fn a_closed_shard_has_ended_for_its_readers_after_a_restart_too() {
    let dir = tempfile::tempdir().unwrap();
    let (stack, clients) = start(dir.path()).await;
    StreamAdmin::new(clients.kinesis.clone())
        .ensure_stream(&orders(), 1)
        .await
        .unwrap();
    put(&clients, 0..10).await;
    split(&clients, "shardId-000000000000").await;
    drop(stack);
    let (_stack, clients) = start(dir.path()).await;
    let reader = KinesisReader::new(clients.kinesis.clone(), orders());
    let shard = ShardId::new("shardId-000000000000").unwrap();
    let tip = reader.iterator(&shard, &ReadFrom::Latest).await.unwrap();
    let fetched = reader.fetch(&tip, 100).await.unwrap();
    assert_eq!(
        (fetched.records.len(), fetched.next, fetched.children.len()),
        (0, None, 2)
    );
    assert_eq!(read_shard(&reader, &shard).await.len(), 10);
}

#[tokio::test]
async fn a_deleted_stream_stays_deleted_and_its_name_starts_empty() {
    let dir = tempfile::tempdir().unwrap();
    let (stack, clients) = start(dir.path()).await;
    let admin = StreamAdmin::new(clients.kinesis.clone());
    admin.ensure_stream(&orders(), 1).await.unwrap();
    put(&clients, 0..10).await;
    clients
        .kinesis
        .delete_stream()
        .stream_name("orders")
        .send()
        .await
        .unwrap();
    drop(stack);
    let (_stack, clients) = start(dir.path()).await;
    let admin = StreamAdmin::new(clients.kinesis.clone());
    assert_eq!(admin.describe(&orders()).await.unwrap(), None);
    let made = admin.ensure_stream(&orders(), 3).await.unwrap();
    assert_eq!((made.status.as_str(), made.open_shards), ("ACTIVE", 3));
    assert!(read_all(&clients).await.values().all(Vec::is_empty));
}

#[tokio::test]
async fn leases_survive_a_killed_process() {
    let dir = tempfile::tempdir().unwrap();
    let (stack, clients) = start(dir.path()).await;
    let table = LeaseTable::new(clients.dynamodb.clone(), "app");
    table.ensure_table().await.unwrap();
    let lease = lease("shardId-000000000000");
    let Written::Applied(token) = take_fresh(&table, &lease).await else {
        panic!("a conflict")
    };
    drop(stack);
    let (_stack, clients) = start(dir.path()).await;
    let table = LeaseTable::new(clients.dynamodb.clone(), "app");
    table.ensure_table().await.unwrap();
    let row = table.get(&lease.key).await.unwrap().unwrap();
    assert_eq!(row.token(token.owner.clone()), token);
}

#[tokio::test]
async fn a_second_start_on_the_same_directory_is_refused_and_names_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let (stack, _) = start(dir.path()).await;
    let error = LocalStack::start(LocalOptions::kept_in(dir.path()))
        .await
        .unwrap_err();
    let pid = std::process::id();
    assert!(
        matches!(error, StartError::InUse { holder: Some(holder), .. } if holder == pid),
        "{error}"
    );
    let endpoints = std::fs::read_to_string(dir.path().join("endpoints.json")).unwrap();
    assert!(
        endpoints.contains(stack.kinesis_endpoint())
            && endpoints.contains(stack.dynamodb_endpoint())
    );
    stack.stop().await;
    assert!(!dir.path().join("endpoints.json").exists());
    start(dir.path()).await;
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let (stack, _) = in_memory().await;
    let port = stack
        .kinesis_endpoint()
        .rsplit(':')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let error = LocalStack::start(LocalOptions {
        kinesis_port: port,
        ..LocalOptions::in_memory()
    })
    .await
    .unwrap_err();
    assert!(
        matches!(error, StartError::PortTaken { service: "kinesis", port: taken } if taken == port),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reader_beside_many_writers_misses_nothing() {
    const WRITERS: usize = 6;
    const EACH: usize = 400;
    let (_stack, clients) = in_memory().await;
    StreamAdmin::new(clients.kinesis.clone())
        .ensure_stream(&orders(), 1)
        .await
        .unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let kinesis = clients.kinesis.clone();
        writers.spawn(async move {
            let entries: Vec<_> = entries(writer * EACH..(writer + 1) * EACH).collect();
            for some in entries.chunks(20) {
                let writer = StreamWriter::new(kinesis.clone(), orders());
                writer.put_all(some.to_vec(), |_, _| {}).await.unwrap();
            }
        });
    }
    let reader = KinesisReader::new(clients.kinesis.clone(), orders());
    let shard = ShardId::new("shardId-000000000000").unwrap();
    let mut next = reader
        .iterator(&shard, &ReadFrom::TrimHorizon)
        .await
        .unwrap();
    let mut found = Vec::new();
    while found.len() < WRITERS * EACH {
        let fetched = reader.fetch(&next, 37).await.unwrap();
        found.extend(fetched.records);
        next = fetched.next.unwrap();
        if fetched.millis_behind_latest == Some(0) && writers.is_empty() {
            break;
        }
        while writers.try_join_next().is_some() {}
    }
    assert_eq!(found.len(), WRITERS * EACH);
    assert!(found.is_sorted_by(|a, b| a.position < b.position));
}
