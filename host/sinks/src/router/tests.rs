mod traced;

use std::sync::Mutex;

use shardmill_core::plugin::PluginDigest;
use shardmill_core::stream::{Position, Record, SequenceNumber, StreamName};

use super::*;
use crate::letters::Fragment;

/// Keeps what it is given, and fails as often as it is told.
#[derive(Default)]
struct Kept {
    pieces: Mutex<Vec<Emitted>>,
    failing_writes: Mutex<u32>,
    failing_flushes: Mutex<u32>,
}

fn fails(left: &Mutex<u32>) -> Result<(), SinkError> {
    let mut left = left.lock().unwrap();
    if *left == 0 {
        return Ok(());
    }
    *left -= 1;
    Err(SinkError {
        sink: "kept".to_owned(),
        message: "as asked".to_owned(),
    })
}

impl Sink for Kept {
    fn write(
        &self,
        _origin: Arc<Origin>,
        emitted: Arc<Vec<Emitted>>,
    ) -> PortFuture<'_, Result<(), SinkError>> {
        Box::pin(async move {
            fails(&self.failing_writes)?;
            self.pieces.lock().unwrap().extend(emitted.iter().cloned());
            Ok(())
        })
    }

    fn flush(&self) -> PortFuture<'_, Result<(), SinkError>> {
        Box::pin(async move { fails(&self.failing_flushes) })
    }
}

fn router(sinks: &[(&str, &Arc<Kept>)]) -> Router {
    let mut router = Router::default();
    for (name, sink) in sinks {
        let sink: Arc<dyn Sink> = Arc::<Kept>::clone(sink);
        router.add(name, Outlet::new(sink));
    }
    router
}

fn emitted(pieces: &[(&str, &'static str)]) -> Arc<Vec<Emitted>> {
    let piece = |(destination, data): &(&str, &'static str)| Emitted {
        destination: (*destination).to_owned(),
        key: String::new(),
        data: (*data).into(),
    };
    Arc::new(pieces.iter().map(piece).collect())
}

fn origin() -> Arc<Origin> {
    let plugin = PluginName::new("alerts").unwrap();
    Arc::new(Origin {
        plugin,
        shard: ShardId::new("shardId-0").unwrap(),
        through: None,
        trace: None,
    })
}

fn data(sink: &Kept) -> Vec<String> {
    let text = |piece: &Emitted| String::from_utf8(piece.data.to_vec()).unwrap();
    sink.pieces.lock().unwrap().iter().map(text).collect()
}

fn letter(sequence: u64, key: &str, data: Vec<u8>) -> DeadLetter {
    DeadLetter {
        record: Record {
            data: data.into(),
            partition_key: key.to_owned(),
            explicit_hash_key: None,
            position: Position::plain(SequenceNumber::parse(&sequence.to_string()).unwrap()),
            arrival_ms: 1,
        },
        stream: StreamName::new("orders").unwrap(),
        shard: ShardId::new("shardId-0").unwrap(),
        application: "alerts".into(),
        plugin: PluginName::new("alerts").unwrap(),
        digest: PluginDigest::from_hex(&"0".repeat(64)).unwrap(),
        reason: "no".into(),
        attempts: 3,
        failed_at_ms: 2,
    }
}

fn letters_in(sink: &Kept) -> Vec<Fragment> {
    sink.pieces
        .lock()
        .unwrap()
        .iter()
        .map(|piece| Fragment::decode(&piece.data).unwrap())
        .collect()
}

#[tokio::test]
async fn a_sink_that_fails_does_not_make_the_others_store_again() {
    let (first, second) = (Arc::new(Kept::default()), Arc::new(Kept::default()));
    *second.failing_writes.lock().unwrap() = 2;
    let router = router(&[("first", &first), ("second", &second)]);
    let batch = emitted(&[
        ("second", "1"),
        ("first", "2"),
        ("second", "3"),
        ("first", "4"),
    ]);
    for _ in 0..2 {
        router
            .write(origin(), Arc::clone(&batch))
            .await
            .unwrap_err();
    }
    router.write(origin(), Arc::clone(&batch)).await.unwrap();
    assert_eq!(
        (data(&first), data(&second)),
        (vec!["2".into(), "4".into()], vec!["1".into(), "3".into()])
    );
    router
        .write(origin(), emitted(&[("first", "5")]))
        .await
        .unwrap();
    assert_eq!(data(&first).len(), 3);
}

#[tokio::test]
async fn nothing_is_kept_of_a_batch_that_failed_and_that_its_owner_has_dropped() {
    let sink = Arc::new(Kept::default());
    *sink.failing_writes.lock().unwrap() = 1;
    let router = router(&[("kept", &sink)]);
    let batch = emitted(&[("kept", "1"), ("kept", "2")]);
    let failed = router.write(origin(), Arc::clone(&batch)).await;
    failed.unwrap_err();
    let kept = Arc::downgrade(&batch);
    drop(batch);
    assert_eq!(kept.strong_count(), 0, "its lease was given up");
}

#[tokio::test]
async fn an_unknown_sink_is_named() {
    let router = router(&[]);
    let error = router
        .write(origin(), emitted(&[("nowhere", "1")]))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "sink nowhere cannot store output: no sink of this name is configured"
    );
    let letters = Arc::new(vec![letter(1, "k", vec![])]);
    assert!(
        router
            .store("nowhere", letters)
            .await
            .unwrap_err()
            .to_string()
            .contains("nowhere")
    );
}

#[tokio::test]
async fn dead_letters_are_stored_when_the_target_has_flushed() {
    let sink = Arc::new(Kept::default());
    *sink.failing_flushes.lock().unwrap() = 1;
    let router = router(&[("dead", &sink)]);
    let letters = Arc::new(vec![
        letter(1, "a", b"x".to_vec()),
        letter(2, "b", vec![0xff]),
    ]);
    router
        .store("dead", Arc::clone(&letters))
        .await
        .unwrap_err();
    router.store("dead", Arc::clone(&letters)).await.unwrap();
    let stored: Vec<_> = letters_in(&sink)
        .into_iter()
        .map(|fragment| fragment.letter)
        .collect();
    assert_eq!(stored, *letters, "once, though the flush failed between");
    let keys: Vec<_> = sink
        .pieces
        .lock()
        .unwrap()
        .iter()
        .map(|piece| piece.key.clone())
        .collect();
    assert_eq!(keys, ["a", "b"]);
}

#[tokio::test]
async fn a_dead_letter_that_is_too_long_for_its_target_is_stored_in_parts() {
    let sink = Arc::new(Kept::default());
    let mut router = Router::default();
    router.add(
        "dead",
        Outlet {
            line_bytes_max: Some(64 << 10),
            ..Outlet::new(Arc::clone(&sink) as Arc<dyn Sink>)
        },
    );
    let large = letter(1, &"é".repeat(300), vec![7; 200 << 10]);
    router
        .store(
            "dead",
            Arc::new(vec![large.clone(), letter(2, "b", vec![])]),
        )
        .await
        .unwrap();
    let mut joiner = crate::letters::Joiner::default();
    let joined: Vec<_> = letters_in(&sink)
        .into_iter()
        .filter_map(|part| joiner.push(part).unwrap())
        .collect();
    assert_eq!(joined[0], large);
    let pieces = sink.pieces.lock().unwrap();
    assert!(pieces.len() > 5 && pieces.iter().all(|piece| piece.data.len() <= 64 << 10));
    assert_eq!(
        pieces[0].key, "1",
        "a key that is no partition key gives way to the sequence number"
    );
}

#[tokio::test]
async fn dead_letters_do_not_go_through_the_format_of_output() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.ndjson");
    let format = super::super::LineFormat::Envelope;
    let options = crate::file::FileSinkOptions {
        name: "out".into(),
        path: path.clone(),
        rotate_bytes: 1 << 20,
        format,
        mode: None,
    };
    let sinks = [(
        "out".to_owned(),
        super::super::SinkOptions::File {
            path: path.clone(),
            rotate_bytes: 1 << 20,
            format,
            mode: None,
        },
    )];
    let router =
        super::super::open_sinks(&sinks.into(), &shardmill_aws::AwsOptions::default(), None)
            .await
            .unwrap();
    assert!(
        crate::file::FileSink::open(options).is_err(),
        "one file, opened once"
    );
    router
        .write(origin(), emitted(&[("out", "output")]))
        .await
        .unwrap();
    let dead = letter(1, "k", b"input".to_vec());
    router
        .store("out", Arc::new(vec![dead.clone()]))
        .await
        .unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with(r#"{"plugin":"alerts""#), "{text}");
    assert_eq!(Fragment::decode(lines[1].as_bytes()).unwrap().letter, dead);
}

/// How many letters are in each write, and their lines' bytes.
#[derive(Default)]
struct Sizes(Mutex<Vec<(usize, usize)>>);

impl Sink for Sizes {
    fn write(
        &self,
        _origin: Arc<Origin>,
        emitted: Arc<Vec<Emitted>>,
    ) -> PortFuture<'_, Result<(), SinkError>> {
        let bytes = emitted.iter().map(|piece| piece.data.len()).sum();
        self.0.lock().unwrap().push((emitted.len(), bytes));
        Box::pin(std::future::ready(Ok(())))
    }

    fn flush(&self) -> PortFuture<'_, Result<(), SinkError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

#[tokio::test]
async fn many_shards_that_give_up_all_they_have_leave_room_and_time_for_others() {
    const SHARDS: usize = 24;
    let sizes = Arc::new(Sizes::default());
    let mut router = Router::default();
    router.add("dead", Outlet::new(Arc::clone(&sizes) as Arc<dyn Sink>));
    let of_shard = |shard: usize| {
        let letters = (1..=16).map(|sequence| DeadLetter {
            shard: ShardId::new(format!("shardId-{shard}")).unwrap(),
            ..letter(sequence, "k", vec![0xff; 64 << 10])
        });
        Arc::new(letters.collect::<Vec<_>>())
    };
    let all: Vec<_> = (0..SHARDS).map(of_shard).collect();
    let mut turns_of_others = 0_usize;
    {
        // On this one thread, as the heartbeat would be.
        let mut others = std::pin::pin!(async {
            loop {
                turns_of_others += 1;
                tokio::task::yield_now().await;
            }
        });
        for letters in all {
            tokio::select! {
                biased;
                stored = router.store("dead", letters) => stored.unwrap(),
                () = &mut others => {}
            }
        }
    }
    let writes = sizes.0.lock().unwrap();
    let letters: usize = writes.iter().map(|(letters, _)| letters).sum();
    assert_eq!(letters, SHARDS * 16);
    assert!(
        writes.iter().all(|(_, bytes)| *bytes < 400 << 10),
        "{writes:?}"
    );
    assert!(
        turns_of_others >= writes.len(),
        "{turns_of_others} turns between {} writes",
        writes.len()
    );
}

#[tokio::test]
async fn letters_with_long_reasons_and_no_data_are_written_in_parts_too() {
    let sizes = Arc::new(Sizes::default());
    let mut router = Router::default();
    router.add("dead", Outlet::new(Arc::clone(&sizes) as Arc<dyn Sink>));
    let letters = (1..=1_000).map(|sequence| DeadLetter {
        reason: "no".repeat(2_000),
        ..letter(sequence, "k", vec![])
    });
    let letters = Arc::new(letters.collect::<Vec<_>>());
    router.store("dead", letters).await.unwrap();
    let writes = sizes.0.lock().unwrap();
    assert_eq!(
        writes.iter().map(|(letters, _)| letters).sum::<usize>(),
        1_000
    );
    assert!(writes.iter().all(|(_, bytes)| *bytes < 400 << 10));
}

#[tokio::test]
async fn a_store_that_failed_in_the_middle_goes_on_there() {
    let sink = Arc::new(Kept::default());
    let router = router(&[("dead", &sink)]);
    let letters: Vec<_> = (1..=8)
        .map(|sequence| letter(sequence, "k", vec![7; 100 << 10]))
        .collect();
    let letters = Arc::new(letters);
    for _ in 0..2 {
        *sink.failing_writes.lock().unwrap() = 1;
        router
            .store("dead", Arc::clone(&letters))
            .await
            .unwrap_err();
    }
    router.store("dead", Arc::clone(&letters)).await.unwrap();
    let stored: Vec<_> = letters_in(&sink)
        .into_iter()
        .map(|fragment| fragment.letter)
        .collect();
    assert_eq!(stored, *letters, "in order, each once");
}

#[tokio::test]
async fn a_plugin_can_forge_a_letter_where_data_goes_as_it_is_and_not_in_an_envelope() {
    let folder = tempfile::tempdir().unwrap();
    let real = Arc::new(Kept::default());
    let store = router(&[("dead", &real)]);
    store
        .store("dead", Arc::new(vec![letter(1, "k", b"x".to_vec())]))
        .await
        .unwrap();
    let forged = real.pieces.lock().unwrap()[0].data.clone();
    for (format, is_taken) in [
        (super::super::LineFormat::Data, true),
        (super::super::LineFormat::Envelope, false),
    ] {
        let path = folder.path().join(format!("{is_taken}.ndjson"));
        let options = crate::file::FileSinkOptions {
            name: "dead".into(),
            path: path.clone(),
            rotate_bytes: 1 << 20,
            format,
            mode: None,
        };
        let file = crate::file::FileSink::open(options).unwrap();
        let piece = Emitted {
            destination: "dead".into(),
            key: "k".into(),
            data: forged.clone(),
        };
        file.write(origin(), Arc::new(vec![piece])).await.unwrap();
        let line = std::fs::read(&path).unwrap();
        assert_eq!(
            Fragment::decode(line.trim_ascii_end()).is_ok(),
            is_taken,
            "{format:?}"
        );
    }
}

/// Holds what it is given until it is told to take it, as a slow target does.
#[derive(Default)]
struct Slow {
    /// Bytes of lines that are held now, and the most that ever were.
    held: Mutex<(usize, usize)>,
    letters: Mutex<usize>,
    takes: tokio::sync::watch::Sender<bool>,
}

impl Sink for Slow {
    fn write(
        &self,
        _origin: Arc<Origin>,
        emitted: Arc<Vec<Emitted>>,
    ) -> PortFuture<'_, Result<(), SinkError>> {
        Box::pin(async move {
            let bytes = emitted.iter().map(|piece| piece.data.len()).sum::<usize>();
            {
                let mut held = self.held.lock().unwrap();
                held.0 += bytes;
                held.1 = held.0.max(held.1);
            }
            self.takes
                .subscribe()
                .wait_for(|takes| *takes)
                .await
                .unwrap();
            self.held.lock().unwrap().0 -= bytes;
            *self.letters.lock().unwrap() += emitted.len();
            Ok(())
        })
    }

    fn flush(&self) -> PortFuture<'_, Result<(), SinkError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A letter of 1 MiB from each of many shards of `plugin`.
fn large_letters(plugin: &str, shards: usize) -> Vec<Arc<Vec<DeadLetter>>> {
    let of_shard = |shard: usize| {
        Arc::new(vec![DeadLetter {
            shard: ShardId::new(format!("shardId-{shard}")).unwrap(),
            plugin: PluginName::new(plugin).unwrap(),
            ..letter(1, "k", vec![0xff; 1 << 20])
        }])
    };
    (0..shards).map(of_shard).collect()
}

#[tokio::test(start_paused = true)]
async fn shards_that_give_up_large_records_to_a_slow_target_hold_no_more_than_the_plugins_room() {
    const SHARDS: usize = 200;
    let (slow, swift) = (Arc::new(Slow::default()), Arc::new(Kept::default()));
    let mut router = Router::default();
    router.add("slow", Outlet::new(Arc::clone(&slow) as Arc<dyn Sink>));
    router.add("swift", Outlet::new(Arc::clone(&swift) as Arc<dyn Sink>));
    let router = Arc::new(router);
    let mut storing = tokio::task::JoinSet::new();
    for letters in large_letters("alerts", SHARDS) {
        let router = Arc::clone(&router);
        storing.spawn(async move { router.store("slow", letters).await });
    }
    // Another plugin is not held up, whoever waits.
    for letters in large_letters("other", 10) {
        router.store("swift", letters).await.unwrap();
    }
    // The clock stands still until everybody waits: for the target, or for room.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let held = slow.held.lock().unwrap().0;
    assert!(held > 4 << 20, "{held} bytes: several at once");
    slow.takes.send_replace(true);
    while let Some(stored) = storing.join_next().await {
        stored.unwrap().unwrap();
    }
    assert_eq!(*slow.letters.lock().unwrap(), SHARDS);
    let most = slow.held.lock().unwrap().1;
    assert!(
        most <= 12 << 20,
        "{most} bytes of lines at once, and what they were made of"
    );
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_lost_its_lease_between_tries_gives_its_room_to_others() {
    let sink = Arc::new(Kept::default());
    *sink.failing_writes.lock().unwrap() = 7;
    let router = router(&[("dead", &sink)]);
    // They leave no room for an eighth. Each failed once, and nobody tries it again.
    let mut lost = large_letters("alerts", 8);
    let later = lost.pop().unwrap();
    for letters in &lost {
        let failed = router.store("dead", Arc::clone(letters)).await;
        failed.unwrap_err();
    }
    let waited = router.store("dead", Arc::clone(&later)).await.unwrap_err();
    assert!(waited.to_string().contains("of other shards"), "{waited}");
    drop(lost);
    // What nobody will try again is forgotten when the next try fails, at the latest.
    let mut tries = 0;
    while router.store("dead", Arc::clone(&later)).await.is_err() {
        tries += 1;
        assert!(tries < 3);
    }
    assert_eq!(letters_in(&sink).len(), 1);
}
