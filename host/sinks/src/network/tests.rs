use std::collections::{HashSet, VecDeque};
use std::thread::ThreadId;

use super::*;

/// Answers as it is told and remembers what it was sent. At most three pieces a request.
#[derive(Default)]
struct Scripted {
    answers: Mutex<VecDeque<Attempt>>,
    sent: Mutex<Vec<Vec<usize>>>,
    made: Mutex<Made>,
}

/// How requests were made.
#[derive(Default)]
struct Made {
    threads: HashSet<ThreadId>,
    /// Requests that are made and not answered.
    unanswered: usize,
    most_unanswered: usize,
}

impl Carrier for Scripted {
    type Request = Vec<usize>;

    fn request(
        &self,
        _origin: &Origin,
        pieces: &[Emitted],
        left: &BTreeSet<usize>,
    ) -> Result<(Vec<usize>, Self::Request), String> {
        let mut made = self.made.lock().unwrap();
        made.threads.insert(std::thread::current().id());
        made.unanswered += 1;
        made.most_unanswered = made.most_unanswered.max(made.unanswered);
        let indexes: Vec<usize> = left.iter().take(3).copied().collect();
        match indexes.iter().find(|index| pieces[**index].data.is_empty()) {
            Some(index) => Err(format!("piece {index} cannot be sent")),
            None => Ok((indexes.clone(), indexes)),
        }
    }

    async fn send(&self, request: &Self::Request) -> Attempt {
        self.sent.lock().unwrap().push(request.clone());
        tokio::time::sleep(Duration::from_millis(10)).await;
        self.made.lock().unwrap().unanswered -= 1;
        self.answers
            .lock()
            .unwrap()
            .pop_front()
            .unwrap_or(Attempt::Stored)
    }
}

fn sink(answers: impl IntoIterator<Item = Attempt>) -> NetworkSink<Scripted> {
    let carrier = Scripted {
        answers: Mutex::new(answers.into_iter().collect()),
        ..Scripted::default()
    };
    NetworkSink::new(
        "out",
        carrier,
        Traffic {
            requests_max: 2,
            turn_max: Duration::from_secs(1),
        },
    )
}

fn sent(sink: &NetworkSink<Scripted>) -> Vec<Vec<usize>> {
    std::mem::take(&mut sink.carrier.sent.lock().unwrap())
}

fn origin(shard: &str) -> Arc<Origin> {
    let plugin = PluginName::new("alerts").unwrap();
    Arc::new(Origin {
        plugin,
        shard: ShardId::new(shard).unwrap(),
        through: None,
        trace: None,
    })
}

fn batch(size: usize) -> Arc<Vec<Emitted>> {
    let piece = Emitted {
        destination: "out".into(),
        key: String::new(),
        data: "x".into(),
    };
    Arc::new(vec![piece; size])
}

fn partly(refused: &[usize]) -> Attempt {
    Attempt::Partly {
        refused: refused.to_vec(),
        problem: "slow down".to_owned(),
    }
}

fn throttled(wait: Option<u64>) -> Attempt {
    Attempt::Throttled {
        problem: "slow down".to_owned(),
        wait: wait.map(Duration::from_secs),
    }
}

fn failed() -> Attempt {
    Attempt::Failed {
        problem: "gone".to_owned(),
        wait: None,
    }
}

#[tokio::test(start_paused = true)]
async fn write_returns_when_all_is_acknowledged() {
    let sink = sink([]);
    sink.write(origin("a"), batch(7)).await.unwrap();
    assert_eq!(sent(&sink), [vec![0, 1, 2], vec![3, 4, 5], vec![6]]);
    sink.flush().await.unwrap();
    sink.write(origin("a"), batch(0)).await.unwrap();
    assert_eq!(sent(&sink), [[0; 0]; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_was_refused_goes_again_first_and_nothing_else_twice() {
    let sink = sink([partly(&[1]), partly(&[0, 2])]);
    sink.write(origin("a"), batch(5)).await.unwrap();
    assert_eq!(sent(&sink), [vec![0, 1, 2], vec![1, 3, 4], vec![1, 4]]);
}

#[tokio::test(start_paused = true)]
async fn a_throttled_target_that_gets_on_is_not_an_error() {
    let trouble = [
        throttled(None),
        partly(&[0, 1]),
        throttled(None),
        throttled(None),
        throttled(Some(1)),
        partly(&[1]),
    ];
    let sink = sink(trouble.into_iter().cycle().take(6));
    sink.write(origin("a"), batch(4)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_target_that_stores_nothing_is_shown_within_a_second_and_says_what_is_left() {
    let sink = sink((0..100).map(|_| throttled(None)));
    let started = Instant::now();
    let error = sink.write(origin("a"), batch(5)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "sink out cannot store output: slow down; 5 of 5 pieces are left"
    );
    assert_eq!(sent(&sink).len(), FRUITLESS_ATTEMPTS_MAX as usize);
    assert!(started.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_failure_ends_the_call_at_once_and_the_next_one_goes_on_where_it_ended() {
    let sink = sink([Attempt::Stored, failed(), failed()]);
    let batch = batch(7);
    for _ in 0..2 {
        let error = sink
            .write(origin("a"), Arc::clone(&batch))
            .await
            .unwrap_err();
        assert_eq!(error.message, "gone");
    }
    sink.write(origin("a"), batch).await.unwrap();
    assert_eq!(
        sent(&sink),
        [
            vec![0, 1, 2],
            vec![3, 4, 5],
            vec![3, 4, 5],
            vec![3, 4, 5],
            vec![6]
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn another_batch_of_the_shard_starts_at_its_own_start() {
    let sink = sink([Attempt::Stored, failed()]);
    sink.write(origin("a"), batch(4)).await.unwrap_err();
    sink.write(origin("a"), batch(2)).await.unwrap();
    assert_eq!(sent(&sink), [vec![0, 1, 2], vec![3], vec![0, 1]]);
}

#[tokio::test(start_paused = true)]
async fn a_failing_shard_does_not_hold_up_another() {
    let sink = sink([failed()]);
    let stuck = batch(1);
    sink.write(origin("a"), Arc::clone(&stuck))
        .await
        .unwrap_err();
    sink.write(origin("b"), batch(1)).await.unwrap();
    sink.flush().await.unwrap();
    sink.write(origin("a"), stuck).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_target_that_asks_to_be_left_alone_gets_no_request_until_then() {
    let sink = sink([throttled(Some(30))]);
    let batch = batch(1);
    sink.write(origin("a"), Arc::clone(&batch))
        .await
        .unwrap_err();
    assert_eq!(sent(&sink).len(), 1);
    let other = sink.with_carrier(Scripted::default());
    for sink in [&sink, &other] {
        let error = sink
            .write(origin("b"), Arc::clone(&batch))
            .await
            .unwrap_err();
        assert_eq!(
            error.message,
            "slow down; the target asked to wait 30 s more"
        );
        assert_eq!(sent(sink).len(), 0);
    }
    tokio::time::advance(Duration::from_secs(30)).await;
    sink.write(origin("a"), batch).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_target_silences_a_sink_for_longer_than_the_cap() {
    let sink = sink([Attempt::Failed {
        problem: "busy".to_owned(),
        wait: Some(Duration::from_secs(u64::MAX)),
    }]);
    sink.write(origin("a"), batch(1)).await.unwrap_err();
    tokio::time::advance(HOLD_MAX).await;
    sink.write(origin("a"), batch(1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_short_pause_that_is_asked_for_is_waited_within_the_call() {
    let sink = sink([throttled(Some(2))]);
    let started = Instant::now();
    sink.write(origin("a"), batch(1)).await.unwrap();
    assert!(started.elapsed() >= Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_piece_that_cannot_be_sent_blocks_with_its_reason() {
    let sink = sink([]);
    let mut pieces = Vec::clone(&batch(4));
    pieces[3].data = bytes::Bytes::new();
    let error = sink.write(origin("a"), Arc::new(pieces)).await.unwrap_err();
    assert_eq!(error.message, "piece 3 cannot be sent");
    assert_eq!(sent(&sink), [[0, 1, 2]]);
}

#[tokio::test(start_paused = true)]
async fn no_more_requests_are_in_flight_than_allowed_and_a_call_that_gets_no_turn_says_so() {
    let sink = sink([]);
    let _both = sink.target.turns.acquire_many(2).await.unwrap();
    let error = sink.write(origin("a"), batch(1)).await.unwrap_err();
    assert_eq!(
        error.message,
        "2 requests of other shards were in flight for 1s"
    );
    assert_eq!(sent(&sink).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn shards_that_wait_for_their_turn_hold_no_request_and_none_is_made_on_an_async_thread() {
    let sink = sink([]);
    let mut shards = tokio::task::JoinSet::new();
    let sink = Arc::new(sink);
    for shard in 0..24 {
        let sink = Arc::clone(&sink);
        shards.spawn(async move {
            let origin = origin(&format!("shardId-{shard}"));
            sink.write(origin, batch(4)).await
        });
    }
    for written in shards.join_all().await {
        written.unwrap();
    }
    assert_eq!(sent(&sink).len(), 2 * 24);
    let made = sink.carrier.made.lock().unwrap();
    assert_eq!(made.most_unanswered, 2, "as many as may be in flight");
    assert!(!made.threads.contains(&std::thread::current().id()));
}
