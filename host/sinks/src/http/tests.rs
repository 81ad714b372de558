//! Against a server in this process that answers as it is told.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body as AxumBody;
use axum::extract::{Request, State};
use axum::response::Response as Answer;
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{Sink, SinkError};
use shardmill_core::stream::ShardId;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;

/// What the server does with a request.
#[derive(Debug, Clone)]
enum Turn {
    Answer(u16, Option<&'static str>, &'static str),
    /// An answer whose body is packed as this says.
    Packed(u16, &'static str, Vec<u8>),
    /// Never.
    Silence,
}

/// A server that takes turns, then answers 204.
struct Server {
    address: String,
    turns: Arc<Mutex<Vec<Turn>>>,
    requests: Arc<Mutex<Vec<(HeaderMap, String)>>>,
    _serving: JoinSet<()>,
}

type Shared = (Arc<Mutex<Vec<Turn>>>, Arc<Mutex<Vec<(HeaderMap, String)>>>);

async fn answer(State((turns, requests)): State<Shared>, request: Request) -> Answer<AxumBody> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    requests
        .lock()
        .unwrap()
        .push((parts.headers, String::from_utf8(body.to_vec()).unwrap()));
    let turn = { turns.lock().unwrap().pop() };
    match turn {
        None => Answer::builder()
            .status(204)
            .body(AxumBody::empty())
            .unwrap(),
        Some(Turn::Silence) => std::future::pending().await,
        Some(Turn::Packed(status, how, body)) => Answer::builder()
            .status(status)
            .header("content-encoding", how)
            .body(AxumBody::from(body))
            .unwrap(),
        Some(Turn::Answer(status, wait, text)) => {
            let mut answer = Answer::builder().status(status);
            if let Some(wait) = wait {
                answer = answer.header("retry-after", wait);
            }
            answer.body(AxumBody::from(text)).unwrap()
        }
    }
}

impl Server {
    async fn start(turns: impl IntoIterator<Item = Turn>) -> Self {
        let mut turns: Vec<_> = turns.into_iter().collect();
        turns.reverse();
        let (turns, requests) = (Arc::new(Mutex::new(turns)), Arc::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let app = Router::new()
            .fallback(answer)
            .with_state((Arc::clone(&turns), Arc::clone(&requests)));
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            address,
            turns,
            requests,
            _serving: serving,
        }
    }

    fn sink(&self) -> NetworkSink<HttpCarrier> {
        sink(&options(&self.address))
    }

    fn bodies(&self) -> Vec<String> {
        self.requests
            .lock()
            .unwrap()
            .iter()
            .map(|(_, body)| body.clone())
            .collect()
    }
}

fn options(address: &str) -> HttpSinkOptions {
    HttpSinkOptions {
        url: Url::parse(&format!("http://{address}/in?token=hush")).unwrap(),
        headers: BTreeMap::new(),
        format: LineFormat::Data,
        body: BodyFormat::Ndjson,
        records: 2,
        request_bytes: 64 << 10,
        connect_timeout: Duration::from_secs(3),
        timeout: Duration::from_secs(20),
        concurrency: 4,
    }
}

fn sink(options: &HttpSinkOptions) -> NetworkSink<HttpCarrier> {
    HttpCarrier::new("hook", options).unwrap().into_sink("hook")
}

fn batch(data: &[&str]) -> Arc<Vec<Emitted>> {
    let piece = |data: &&str| Emitted {
        destination: "hook".into(),
        key: String::new(),
        data: data.as_bytes().to_vec().into(),
    };
    Arc::new(data.iter().map(piece).collect())
}

async fn write(
    sink: &NetworkSink<HttpCarrier>,
    batch: &Arc<Vec<Emitted>>,
) -> Result<(), SinkError> {
    let plugin = PluginName::new("alerts").unwrap();
    let origin = Arc::new(Origin {
        plugin,
        shard: ShardId::new("shardId-0").unwrap(),
        through: None,
        trace: None,
    });
    sink.write(origin, Arc::clone(batch)).await
}

async fn failure(sink: &NetworkSink<HttpCarrier>, batch: &Arc<Vec<Emitted>>) -> String {
    let message = write(sink, batch).await.unwrap_err().message;
    assert!(
        !message.contains("hush"),
        "an address may hold a token: {message}"
    );
    message
}

#[tokio::test]
async fn pieces_are_posted_in_order_a_few_a_request_with_headers() {
    let server = Server::start([]).await;
    let mut options = options(&server.address);
    options
        .headers
        .insert("x-team".into(), "sea".to_owned().into());
    options.headers.insert(
        "authorization".into(),
        "env:CARGO_PKG_NAME".to_owned().into(),
    );
    write(&sink(&options), &batch(&["1", "2", "3"]))
        .await
        .unwrap();
    assert_eq!(server.bodies(), ["1\n2\n", "3\n"]);
    let requests = server.requests.lock().unwrap();
    let header = |name: &str| requests[0].0[name].to_str().unwrap().to_owned();
    assert_eq!(
        (header("x-team"), header("authorization")),
        ("sea".into(), env!("CARGO_PKG_NAME").into())
    );
    assert_eq!(header("content-type"), "application/x-ndjson");
}

#[tokio::test]
async fn an_array_is_posted_as_json() {
    let server = Server::start([]).await;
    let options = HttpSinkOptions {
        body: BodyFormat::Json,
        ..options(&server.address)
    };
    write(&sink(&options), &batch(&["{\"a\":1}", "text"]))
        .await
        .unwrap();
    assert_eq!(server.bodies(), ["[{\"a\":1},\"text\"]"]);
    assert_eq!(
        server.requests.lock().unwrap()[0].0["content-type"],
        "application/json"
    );
}

#[tokio::test]
async fn a_server_error_is_shown_and_the_next_call_goes_on_where_it_ended() {
    let server = Server::start([
        Turn::Answer(204, None, ""),
        Turn::Answer(500, None, "out of\n cheese"),
    ])
    .await;
    let (sink, batch) = (server.sink(), batch(&["1", "2", "3"]));
    assert_eq!(
        failure(&sink, &batch).await,
        "500 Internal Server Error: out of cheese"
    );
    write(&sink, &batch).await.unwrap();
    assert_eq!(server.bodies(), ["1\n2\n", "3\n", "3\n"]);
}

#[tokio::test]
async fn a_429_with_a_short_retry_after_is_waited_for_and_with_a_long_one_left_alone() {
    let server = Server::start([Turn::Answer(429, Some("0"), "")]).await;
    write(&server.sink(), &batch(&["1"])).await.unwrap();
    assert_eq!(server.bodies().len(), 2);

    server
        .turns
        .lock()
        .unwrap()
        .push(Turn::Answer(503, Some("120"), "maintenance"));
    let sink = server.sink();
    assert_eq!(
        failure(&sink, &batch(&["1"])).await,
        "503 Service Unavailable: maintenance"
    );
    let error = failure(&sink, &batch(&["1"])).await;
    assert!(
        error.contains("maintenance; the target asked to wait"),
        "{error}"
    );
    assert_eq!(
        server.bodies().len(),
        3,
        "no request while it is to be left alone"
    );
}

#[tokio::test]
async fn what_the_endpoint_refuses_blocks_with_the_mend_and_loses_nothing() {
    for (status, mend) in [
        (400, "fix the endpoint"),
        (401, "the headers"),
        (413, "lower request-bytes"),
        (302, "the url"),
    ] {
        let server = Server::start([Turn::Answer(status, None, "no")]).await;
        let (sink, batch) = (server.sink(), batch(&["1"]));
        let error = failure(&sink, &batch).await;
        assert!(
            error.starts_with(&status.to_string()) && error.contains(mend),
            "{error}"
        );
        write(&sink, &batch).await.unwrap();
        assert_eq!(server.bodies(), ["1\n", "1\n"]);
    }
}

#[tokio::test]
async fn an_endpoint_that_never_answers_is_given_up_in_time() {
    let server = Server::start([Turn::Silence]).await;
    let options = HttpSinkOptions {
        timeout: Duration::from_millis(200),
        ..options(&server.address)
    };
    let error = failure(&sink(&options), &batch(&["1"])).await;
    assert!(error.starts_with("no answer in time"), "{error}");
}

#[tokio::test]
async fn a_connection_that_is_refused_or_cut_is_an_error_and_the_next_call_sends_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let sink = sink(&options(&address));
    let batch = batch(&["1"]);
    let cut = async {
        // A reset in the middle of the request.
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 10]).await;
        stream.set_zero_linger().unwrap();
    };
    let (error, ()) = tokio::join!(failure(&sink, &batch), cut);
    assert!(error.starts_with("the request failed"), "{error}");
    drop(listener);
    let error = failure(&sink, &batch).await;
    assert!(error.starts_with("cannot connect"), "{error}");
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off() {
    let long = Box::leak("talk ".repeat(100_000).into_boxed_str());
    let server = Server::start([Turn::Answer(500, None, long)]).await;
    let error = failure(&server.sink(), &batch(&["1"])).await;
    assert!(error.len() < 400, "{}", error.len());
}

/// Zeros, packed a thousand times: 64 MiB of them.
fn bomb() -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..64 {
        std::io::Write::write_all(&mut packer, &vec![b'0'; 1 << 20]).unwrap();
    }
    packer.finish().unwrap()
}

#[tokio::test]
async fn nothing_that_an_endpoint_packed_is_unpacked_and_none_is_asked_to_pack() {
    let bomb = bomb();
    assert!(bomb.len() < 100 << 10, "{} bytes are sent", bomb.len());
    for how in ["gzip", "deflate", "br", "zstd", "gzip, gzip"] {
        let server = Server::start([
            Turn::Packed(500, how, bomb.clone()),
            Turn::Packed(200, how, bomb.clone()),
        ])
        .await;
        let (sink, batch) = (server.sink(), batch(&["1"]));
        let error = failure(&sink, &batch).await;
        assert!(
            error.starts_with("500") && !error.contains("000000000"),
            "{how}: {error}"
        );
        // What says that it is stored is believed, whatever comes after it.
        write(&sink, &batch).await.unwrap();
        let requests = server.requests.lock().unwrap();
        assert!(
            requests
                .iter()
                .all(|(headers, _)| !headers.contains_key("accept-encoding")),
            "{how}"
        );
    }
}

#[tokio::test]
async fn a_piece_that_no_request_holds_blocks_with_the_mend() {
    let server = Server::start([]).await;
    let large = "x".repeat(65 << 10);
    let error = failure(&server.sink(), &batch(&["1", &large])).await;
    assert!(
        error.contains("piece 1 of the batch is 66561 bytes")
            && error.contains("raise request-bytes"),
        "{error}"
    );
    assert_eq!(server.bodies(), ["1\n"]);
}

#[test]
fn a_header_without_its_variable_stops_the_start_with_its_name() {
    let mut options = options("localhost:1");
    options.headers.insert(
        "authorization".into(),
        "env:SHARDMILL_NOT_SET_ANYWHERE".to_owned().into(),
    );
    let error = HttpCarrier::new("hook", &options)
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("sinks.hook.headers: authorization") && error.contains("SHARDMILL_NOT_SET"),
        "{error}"
    );
}
