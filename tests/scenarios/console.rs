//! The console's API on a real host: who may do what, what it does, and what it shows.

use harness::flights;
use harness::guests::guest;
use harness::process::{Host, eventually};
use harness::setting::Setting;
use serde_json::{Value, json};

const OPEN: &str = "[batch]\nrecords = 50\n[reads]\ncalls-per-second = 20.0\nidle-every = \"50ms\"\n\
    [host]\nadmin = \"127.0.0.1:0\"\n[console]\nenabled = true\nmask = [\"carrier\"]\n\
    [console.tokens.alice]\nfile = \"alice\"\nmay = [\"operate\"]\n\
    [console.tokens.vera]\nfile = \"vera\"\nmay = [\"view-data\"]";

const ALICE: &str = "the-token-of-alice";
const VERA: &str = "the-token-of-vera";

struct Console {
    base: String,
    client: reqwest::Client,
}

impl Console {
    async fn of(host: &Host) -> Self {
        Self {
            base: format!("http://{}/api/v1", host.admin_address().await),
            client: reqwest::Client::new(),
        }
    }

    async fn get(&self, path: &str, token: &str) -> (u16, Value) {
        let request = self.client.get(format!("{}/{path}", self.base));
        self.answer(request.bearer_auth(token)).await
    }

    async fn post(&self, command: &str, token: &str, arguments: Value) -> (u16, Value) {
        let request = self
            .client
            .post(format!("{}/commands/{command}", self.base));
        let body = json!({"arguments": arguments}).to_string();
        let request = request.header("content-type", "application/json");
        self.answer(request.bearer_auth(token).body(body)).await
    }

    async fn answer(&self, request: reqwest::RequestBuilder) -> (u16, Value) {
        let reply = request.send().await.unwrap();
        let status = reply.status().as_u16();
        let text = reply.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or_default())
    }

    async fn verdicts(&self) -> Vec<String> {
        let (_, fleet) = self.get("fleet?application=flights", ALICE).await;
        let shards = fleet["shards"].as_array().cloned().unwrap_or_default();
        let verdict = |shard: &Value| shard["verdict"].as_str().unwrap().to_owned();
        shards.iter().map(verdict).collect()
    }
}

async fn started() -> (Setting, Host, Console) {
    let setting = Setting::new(2).await;
    for (name, token) in [("alice", ALICE), ("vera", VERA)] {
        std::fs::write(setting.path().join(name), token).unwrap();
    }
    setting.drop_plugin("flights", &guest("flights"));
    let host = setting.host_with("a", OPEN);
    let console = Console::of(&host).await;
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("flights", &last).await;
    (setting, host, console)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_in_the_console_is_the_command_and_the_history_says_who_made_it() {
    let (setting, host, console) = started().await;
    let pause = |apply: bool| json!({"application": "flights", "shards": ["0"], "why": "it's late", "apply": apply});
    let (status, shown) = console.post("pause", ALICE, pause(false)).await;
    assert_eq!(status, 200, "{shown}");
    assert_eq!(shown["results"][0]["applied"], false);
    assert!(!console.verdicts().await.contains(&"paused".to_owned()));
    let (status, done) = console.post("pause", ALICE, pause(true)).await;
    assert_eq!((status, &done["problem"]), (200, &Value::Null), "{done}");
    let line = done["command-line"].as_str().unwrap();
    assert!(
        line.starts_with("shardmill pause flights 0 --apply --why \"it's late\" --config="),
        "{line}"
    );
    let began = std::time::Instant::now();
    while console.verdicts().await[0] != "paused" {
        assert!(began.elapsed().as_secs() < 60, "never shown as paused");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_ne!(console.verdicts().await[1], "paused");
    let path = "commands/history?application=flights&commands=true";
    let (_, history) = console.get(path, ALICE).await;
    let entry = &history["results"][0][0];
    assert_eq!(
        (&entry["by"], &entry["why"]),
        (&"alice".into(), &"it's late".into())
    );
    let (status, refused) = console.post("pause", VERA, pause(false)).await;
    assert_eq!(status, 403, "{refused}");
    let (status, _) = console.get("session", "the-token-of-nobody").await;
    assert_eq!(status, 401);
    let unknown = json!({"application": "no-such", "why": "x", "apply": true});
    let (status, refused) = console.post("pause", ALICE, unknown).await;
    let problem = refused["problem"].as_str().unwrap();
    assert!(status == 422 && problem.contains("no-such"), "{problem}");
    assert!(host.terminate().await.success());
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tail_shows_what_goes_through_a_plugin_to_who_may_see_it_and_no_masked_field() {
    let (setting, host, console) = started().await;
    let path = "tail?application=flights&what=records,outputs";
    let (status, _) = console.get(path, ALICE).await;
    assert_eq!(status, 403, "who may operate need not see data");
    let request = console.client.get(format!("{}/{path}", console.base));
    let mut tail = request.bearer_auth(VERA).send().await.unwrap();
    let kind = tail.headers()["content-type"].to_str().unwrap().to_owned();
    assert!(kind.starts_with("text/event-stream"), "{kind}");
    setting.put(&flights::input()).await;
    let mut text = String::new();
    while !text.contains("\"what\":\"output\"") || text.matches("\"what\":\"record\"").count() < 50
    {
        let chunk = tail.chunk().await.unwrap().expect("it goes on");
        text.push_str(&String::from_utf8_lossy(&chunk));
    }
    assert!(text.contains("(masked)"), "{text}");
    let carriers = flights::expected();
    for carrier in carriers.keys() {
        let shown = format!("\\\"carrier\\\":\\\"{carrier}\\\"");
        assert!(!text.contains(&shown), "{carrier} is shown");
    }
    drop(tail);
    eventually("the host goes on", || host.log().contains("lease taken")).await;
    assert!(host.terminate().await.success());
    setting.stop().await;
}
