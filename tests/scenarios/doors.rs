//! What comes in by other doors than the plugins folder: requests to the admin pages, rows of the
//! table, files for commands. Each attack is one of many that are made of parts; the host goes on
//! delivering, and commands end.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use harness::flights::{self, Output};
use harness::guests::guest;
use harness::process::{Host, shardmill};
use harness::setting::Setting;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const CONFIG: &str =
    "[host]\nadmin = \"127.0.0.1:0\"\n[reads]\ncalls-per-second = 50.0\nidle-every = \"50ms\"";
/// How long a reply to an attack may take; most are cut off at once.
const REPLY_WITHIN: Duration = Duration::from_secs(20);

const METHODS: [&str; 9] = [
    "GET", "HEAD", "POST", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "\0",
];
const TARGETS: [&str; 11] = [
    "/status",
    "/metrics",
    "/scaling",
    "/../../../../etc/passwd",
    "/%2e%2e/%2e%2e/etc/passwd",
    "/ready?plugin=%00%1b[2J",
    "/ready?plugin=../../../etc/passwd",
    "/ready?plugin=flights&plugin=flights",
    "*",
    "http://attacker.example/status",
    "/\u{1b}]0;owned\u{7}",
];

/// What a client is told that asks for a page and waits for all of it.
pub(crate) async fn page(address: &str, path: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    reply
}

/// Raw, so that anything can be sent.
async fn reply_to(address: &str, request: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut reply = Vec::new();
    // Who is cut off while writing or reading has been answered.
    let exchange = async {
        let _ = stream.write_all(request.as_bytes()).await;
        let _ = stream.shutdown().await;
        let _ = stream.read_to_end(&mut reply).await;
    };
    tokio::time::timeout(REPLY_WITHIN, exchange)
        .await
        .expect("the connection is closed");
    String::from_utf8_lossy(&reply).into_owned()
}

async fn attack_pages(host: &Host) -> usize {
    let address = host.admin_address().await;
    let mut sent = 0;
    for (method, target) in METHODS
        .into_iter()
        .flat_map(|method| TARGETS.map(|target| (method, target)))
    {
        let request =
            format!("{method} {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        let reply = reply_to(&address, &request).await;
        assert!(
            !reply.contains("root:") && !reply.contains('\u{1b}'),
            "{request:?}: {reply}"
        );
        assert!(
            !reply.starts_with("HTTP/1.1 5") || reply.starts_with("HTTP/1.1 503"),
            "{request:?}: {reply}"
        );
        sent += 1;
    }
    sent
}

/// Requests that promise a body and hold their connection, as many as one client may have: whoever
/// asks beside them is answered.
async fn attack_lengths(host: &Host) -> usize {
    let address = host.admin_address().await;
    let mut held = Vec::new();
    for (method, length) in [
        ("GET", "1000000000000"),
        ("POST", "1000000000000"),
        ("POST", "-1"),
        ("PUT", "18446744073709551616"),
    ] {
        for _ in 0..10 {
            let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
            let request = format!(
                "{method} /status HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\n\r\nfew"
            );
            let _ = stream.write_all(request.as_bytes()).await;
            held.push(stream);
        }
        let reply = page(&address, "/live").await;
        assert!(
            reply.starts_with("HTTP/1.1 200"),
            "{method} {length}: {reply}"
        );
    }
    held.len()
}

/// Steers a terminal, and begins a line that looks like one of a log.
const STEERING: &str = "\u{1b}]0;owned\u{7}\n2026-01-01T00:00:00Z  INFO forged";
/// The same as people may see it.
const STEERING_SHOWN: &str = r"\u001b]0;owned\u0007\u000a2026-01-01T00:00:00Z  INFO forged";

/// What an attribute may be given in the place of what belongs there.
fn odd_values() -> Vec<AttributeValue> {
    let number = |text: &str| AttributeValue::N(text.to_owned());
    let text = |text: &str| AttributeValue::S(text.to_owned());
    vec![
        number("-1"),
        number("9223372036854775806"),
        number("18446744073709551615"),
        number("18446744073709551616"),
        number("9.9e125"),
        text(""),
        text(STEERING),
        text(&"9".repeat(100_000)),
        AttributeValue::B(Blob::new([0xff, 0xfe])),
        AttributeValue::Bool(true),
        AttributeValue::Null(true),
        AttributeValue::L(vec![AttributeValue::Null(true); 1_000]),
        AttributeValue::Ss(vec!["a".to_owned(), "\u{1b}[2J".to_owned()]),
    ]
}

/// All that a host reads of a row, besides its key.
const ATTRIBUTES: [&str; 19] = [
    "leaseOwner",
    "leaseCounter",
    "checkpoint",
    "checkpointSubSequenceNumber",
    "ownerSwitchesSinceCheckpoint",
    "parentShardId",
    "childShardIds",
    "startingHashKey",
    "endingHashKey",
    "checkpointOwner",
    "entityType",
    "pluginDigest",
    "millisBehindLatest",
    "claimedBy",
    "settledArrivalMillis",
    "heldSinceMillis",
    "throughputKBps",
    "stuckBecause",
    "lastGivenUp",
];
/// What a row names people by, and tells them.
const TOLD: [&str; 4] = ["leaseOwner", "claimedBy", "stuckBecause", "lastGivenUp"];

type Row = HashMap<String, AttributeValue>;

async fn rows(setting: &Setting, table: &str) -> Vec<Row> {
    let scan = setting.clients.dynamodb.scan().table_name(table);
    scan.send().await.unwrap().items.unwrap_or_default()
}

/// Whether the table takes it.
async fn put_row(setting: &Setting, table: &str, row: Row) -> bool {
    let put = setting.clients.dynamodb.put_item().table_name(table);
    put.set_item(Some(row)).send().await.is_ok()
}

/// Adds copies of a row that a host wrote, each with one attribute spoiled, for shards that there
/// are not.
async fn attack_rows(setting: &Setting, table: &str) -> usize {
    let mut good = loop {
        if let Some(row) = rows(setting, table).await.pop() {
            break row;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    // Nobody's, so that the host takes each one that it can read.
    good.remove("leaseOwner");
    let mut written = 0;
    for attribute in ATTRIBUTES {
        for value in odd_values() {
            let mut row = good.clone();
            let key = format!("shardId-{:012}", 900_000_000_000_u64 + written as u64);
            row.insert("leaseKey".to_owned(), AttributeValue::S(key));
            row.insert(attribute.to_owned(), value);
            // Some of them a table does not take.
            written += usize::from(put_row(setting, table, row).await);
        }
    }
    written
}

/// The same with the row that the host keeps of itself in the coordinator table, for workers that there
/// are not: each attribute that it has.
async fn attack_workers(setting: &Setting, table: &str) -> usize {
    const WORKER: &str = "worker#";
    let is_worker =
        |row: &Row| matches!(&row["id"], AttributeValue::S(id) if id.starts_with(WORKER));
    let good = loop {
        if let Some(row) = rows(setting, table).await.into_iter().find(is_worker) {
            break row;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let mut written = 0;
    for attribute in good
        .keys()
        .filter(|name| !["kind", "id"].contains(&name.as_str()))
    {
        for value in odd_values() {
            let mut row = good.clone();
            let id = format!("{WORKER}ghost-{written}");
            row.insert("id".to_owned(), AttributeValue::S(id));
            row.insert(attribute.clone(), value);
            written += usize::from(put_row(setting, table, row).await);
        }
    }
    written
}

/// Spoils what rows tell people; no host may be at work, which would write over it.
async fn steer_by_rows(setting: &Setting, table: &str) {
    for mut row in rows(setting, table).await {
        for attribute in TOLD {
            row.insert(attribute.to_owned(), AttributeValue::S(STEERING.to_owned()));
        }
        assert!(put_row(setting, table, row).await);
    }
}

/// Asks about the application; gives what each question was answered with.
async fn asked(setting: &Setting) -> Vec<(String, String)> {
    let mut answers = Vec::new();
    for question in [
        "leases flights",
        "leases flights --json",
        "doctor flights --watch-for 0s",
        "doctor flights --watch-for 0s --json",
        "explain flights 0 --watch-for 0s",
        "explain flights 0 --watch-for 0s --json",
        "plan --config a.toml",
        "plan --config a.toml --json",
        "status flights",
        "status flights --json",
        "plugins flights",
        "plugins flights --json",
    ] {
        let args: Vec<&str> = question.split(' ').chain(["--local"]).collect();
        let output = shardmill(&args, setting.path()).await;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(!said.contains('\u{1b}'), "{question}: {said}");
        assert!(
            !said.lines().any(|line| line.starts_with("2026-01-01")),
            "{question} shows a forged line: {said}"
        );
        answers.push((question.to_owned(), said));
    }
    answers
}

/// Files that no command should choke on; the last word of a command is one of them.
fn odd_files(setting: &Setting) -> Vec<PathBuf> {
    let write = |name: &str, bytes: &[u8]| {
        let path = setting.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let letter =
        |key: &str, value: &str| format!("{{\"shardmill-dead-letter\":1,\"{key}\":\"{value}\"}}\n");
    let record = |key: &str| {
        format!(
            "{{\"shardmill-record\":1,\"stream\":\"s\",\"shard\":\"shardId-1\",\"sequence-number\":\"1\",\
             \"partition-key\":\"{key}\",\"arrival-ms\":1,\"data\":\"x\"}}\n"
        )
    };
    let sparse = write("sparse", b"");
    std::fs::File::options()
        .write(true)
        .open(&sparse)
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    vec![
        write("empty", b""),
        write("zeros", &[0; 4_096]),
        write("not-utf8", &[0xff; 4_096]),
        write("broken.gz", &[0x1f, 0x8b, 8, 0, 0xff, 0xff]),
        write("deep.json", "[".repeat(200_000).as_bytes()),
        write("steering", "\u{1b}]0;owned\u{7}\u{202e}\n".as_bytes()),
        write(
            "letter-keys",
            letter("application", &"a".repeat(2 << 20)).as_bytes(),
        ),
        write(
            "letter-steers",
            letter("application", "\\u001b]0;owned\\u0007").as_bytes(),
        ),
        write("record-keys", record(&"k".repeat(2 << 20)).as_bytes()),
        sparse,
        setting.path().to_owned(),
        "/dev/null".into(),
        setting.path().join("nowhere"),
    ]
}

async fn attack_commands(setting: &Setting) -> usize {
    let commands: [&[&str]; 5] = [
        &["check"],
        &["test", "plugins/flights.wasm", "--input"],
        &["test", "plugins/flights.wasm", "--captured"],
        &["replay", "--list"],
        &["run", "--check", "--config"],
    ];
    let mut ended = 0;
    for file in odd_files(setting) {
        for command in commands {
            let args = [command, &[file.to_str().unwrap()]].concat();
            let output =
                tokio::time::timeout(Duration::from_mins(1), shardmill(&args, setting.path()));
            let output = output
                .await
                .unwrap_or_else(|_| panic!("{args:?} does not end"));
            let said = [output.stdout, output.stderr].concat();
            assert!(
                !said.contains(&0x1b) && said.len() < 1 << 20,
                "{args:?}: {}",
                String::from_utf8_lossy(&said)
            );
            assert!(
                output.status.code().is_some(),
                "{args:?} was ended by a signal"
            );
            ended += 1;
        }
    }
    ended
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_in_by_other_doors_costs_no_record_and_steers_no_terminal() {
    let setting = Setting::new(2).await;
    setting.drop_plugin("flights", &guest("flights"));
    let host = setting.host_with("a", CONFIG);
    let last = setting.put(&flights::input()).await;
    host.until_status("served", |status| {
        status["plugins"]["flights"]["shards"].is_object()
    })
    .await;
    let (requests, rows) = (
        attack_pages(&host).await + attack_lengths(&host).await,
        attack_rows(&setting, "flights").await
            + attack_workers(&setting, "flights-coordinator").await,
    );
    let mut commands = asked(&setting).await.len();
    if std::env::var_os("SHARDMILL_CORPUS").is_some() {
        commands += attack_commands(&setting).await;
    }
    eprintln!("{requests} requests, {rows} rows, {commands} commands");
    // docs/attacks.md has the numbers.
    assert!(
        requests >= 130 && rows >= 300,
        "{requests} requests, {rows} rows"
    );
    setting.until_checkpointed("flights", &last).await;
    assert!(!host.log().contains('\u{1b}'), "the log steers terminals");
    assert!(host.terminate().await.success());
    let output = Output::read(&[&setting.output_of("a")]);
    assert_eq!((output.carriers, output.repeats), (flights::expected(), 0));
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_rows_tell_people_is_shown_to_them_and_steers_no_terminal() {
    let setting = Setting::new(2).await;
    setting.drop_plugin("flights", &guest("flights"));
    let host = setting.host_with("a", CONFIG);
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("flights", &last).await;
    assert!(host.terminate().await.success());
    steer_by_rows(&setting, "flights").await;
    for (question, answer) in asked(&setting).await {
        // The other questions show less, or show it as JSON.
        if question == "leases flights" || question == "explain flights 0 --watch-for 0s" {
            assert!(answer.contains(STEERING_SHOWN), "{question}: {answer}");
        }
    }
    setting.stop().await;
}
