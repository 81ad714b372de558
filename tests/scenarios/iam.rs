//! The policy that `shardmill iam` prints, before the embedded stack: hosts get through with it,
//! and use all of it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use harness::flights;
use harness::gate::Gate;
use harness::guests::guest;
use harness::process::{Host, binary, shardmill};
use harness::setting::{STREAM, Setting};
use serde_json::Value;
use shardmill_aws::StreamAdmin;
use shardmill_core::stream::StreamName;
use shardmill_local::{LOCAL_ACCOUNT, LOCAL_REGION};

const SETTINGS: &str = "\
[leases]
duration = \"3s\"
scan-every = \"200ms\"
[reads]
retrieval = \"fan-out\"
deregister-on-exit = true
[sinks.out]
type = \"kinesis\"
stream = \"copies\"
[plugin.totals]
grants.state = true
config.destination = \"out\"
";

/// What hosts need only in trouble, or long after.
const SELDOM: [(&str, &str, &str); 5] = [
    (
        "dynamodb:DeleteItem",
        "table/totals",
        "leases are removed once their shards are trimmed or read by their children",
    ),
    (
        "dynamodb:DeleteItem",
        "table/totals-state",
        "state is removed when the plugin saves none any more",
    ),
    (
        "dynamodb:GetItem",
        "table/totals",
        "a row is read again after a write without an answer, or before an expired lease is taken",
    ),
    (
        "dynamodb:GetItem",
        "table/totals-coordinator",
        "mail is read in fleets of more than three; a registration before an expired lease is taken",
    ),
    (
        "kinesis:DeregisterStreamConsumer",
        "stream/flights/consumer/totals:*",
        "hosts name the consumer; AWS does not document for which of its two names it asks",
    ),
];

async fn policy(folder: &Path, config: &str) -> Value {
    let args = [
        "iam",
        "--config",
        config,
        "--region",
        LOCAL_REGION,
        "--account",
        LOCAL_ACCOUNT,
    ];
    let output = shardmill(&args, folder).await;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

fn start(id: &str, config: &str, folder: &Path) -> Host {
    let mut command = Command::new(binary());
    command
        .args(["run", "--config", config])
        .env("SHARDMILL_WORKER_ID", id)
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .env("AWS_EC2_METADATA_DISABLED", "true");
    Host::run(id, command, folder)
}

/// A stream to read and one to write to, with the settings in `iam.toml`.
async fn with_copies(shards: u32) -> Setting {
    let setting = Setting::new(shards).await;
    let copies = StreamName::new("copies").unwrap();
    let admin = StreamAdmin::new(setting.clients.kinesis.clone());
    admin.ensure_stream(&copies, 1).await.unwrap();
    setting.drop_plugin("totals", &guest("totals"));
    let general = format!("stream = {STREAM:?}\n{SETTINGS}");
    std::fs::write(setting.path().join("iam.toml"), general).unwrap();
    setting
}

/// The same settings in `host.toml`, with these endpoints. The gate reads what is asked for in JSON
/// only.
fn place(setting: &Setting, kinesis: &str, dynamodb: &str) {
    let text = format!(
        "stream = {STREAM:?}\n{SETTINGS}[aws]\nregion = {LOCAL_REGION:?}\nkinesis-endpoint = \
            {kinesis:?}\ndynamodb-endpoint = {dynamodb:?}\nwire = \"json\"\n"
    );
    std::fs::write(setting.path().join("host.toml"), text).unwrap();
}

/// Waits until two hosts hold leases.
async fn until_shared(setting: &Setting) {
    let deadline = tokio::time::Instant::now() + Duration::from_mins(2);
    loop {
        let leases = setting.leases("totals").await;
        let owners: BTreeSet<_> = leases
            .iter()
            .filter_map(|lease| lease.owner.as_ref())
            .collect();
        if owners.len() == 2 {
            return;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "one host holds all: {owners:?}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_get_through_with_the_printed_policy_and_use_all_of_it() {
    let setting = with_copies(2).await;
    let mut gate = Gate::of(&policy(setting.path(), "iam.toml").await);
    let kinesis = gate.before(setting.stack().kinesis_endpoint()).await;
    let dynamodb = gate.before(setting.stack().dynamodb_endpoint()).await;
    place(&setting, &kinesis, &dynamodb);

    let one = start("a", "host.toml", setting.path());
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("totals", &last).await;
    // Hosts that share, and then one that leaves, use what a fleet needs.
    let other = start("b", "host.toml", setting.path());
    until_shared(&setting).await;
    assert!(one.terminate().await.success());
    assert!(other.terminate().await.success());

    assert!(
        gate.refused().is_empty(),
        "the policy lacks {:?}",
        gate.refused()
    );
    let prefix = |service: &str| format!("arn:aws:{service}:{LOCAL_REGION}:{LOCAL_ACCOUNT}:");
    let is_seldom = |action: &str, resource: &str| {
        let service = action.split(':').next().unwrap_or_default();
        SELDOM.iter().any(|(seldom, of, _)| {
            action == *seldom && resource == format!("{}{of}", prefix(service))
        })
    };
    let unused: Vec<_> = gate
        .unused()
        .into_iter()
        .filter(|(action, resource)| !is_seldom(action, resource))
        .collect();
    assert!(
        unused.is_empty(),
        "the policy has what no host used: {unused:?}"
    );
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_without_a_permission_stops_what_needs_it() {
    let setting = Setting::new(1).await;
    setting.drop_plugin("totals", &guest("totals"));
    let general = format!(
        "stream = {STREAM:?}\n{}",
        SETTINGS.replace("fan-out", "polling")
    );
    std::fs::write(setting.path().join("iam.toml"), &general).unwrap();
    let mut policy = policy(setting.path(), "iam.toml").await;
    let statements = policy["Statement"].as_array_mut().unwrap();
    statements.retain(|statement| statement["Sid"] != "ReadStreams");
    let mut gate = Gate::of(&policy);
    let kinesis = gate.before(setting.stack().kinesis_endpoint()).await;
    let endpoints = [
        ("SHARDMILL_AWS__REGION", LOCAL_REGION),
        ("SHARDMILL_AWS__KINESIS_ENDPOINT", &kinesis),
        (
            "SHARDMILL_AWS__DYNAMODB_ENDPOINT",
            setting.stack().dynamodb_endpoint(),
        ),
    ];
    let mut command = tokio::process::Command::new(binary());
    let output = command
        .args(["run", "--check", "--connect"])
        .env("SHARDMILL_CONFIG", "iam.toml")
        .envs(endpoints)
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .current_dir(setting.path())
        .output()
        .await
        .unwrap();
    assert!(!output.status.success());
    let stream = format!("arn:aws:kinesis:{LOCAL_REGION}:{LOCAL_ACCOUNT}:stream/{STREAM}");
    let refused = format!("kinesis:DescribeStreamSummary on {stream}");
    assert!(gate.refused().contains(&refused), "{:?}", gate.refused());
    setting.stop().await;
}

/// Hosts whose policy lacks an action, and what they read.
struct Lacking {
    setting: Setting,
    gate: Gate,
    host: Host,
}

impl Lacking {
    async fn of(action: &str) -> Self {
        let setting = with_copies(1).await;
        let mut policy = policy(setting.path(), "iam.toml").await;
        for statement in policy["Statement"].as_array_mut().unwrap() {
            let actions = statement["Action"].as_array_mut().unwrap();
            actions.retain(|allowed| allowed != action);
        }
        let mut gate = Gate::of(&policy);
        let kinesis = gate.before(setting.stack().kinesis_endpoint()).await;
        place(&setting, &kinesis, setting.stack().dynamodb_endpoint());
        let host = start("a", "host.toml", setting.path());
        Self {
            setting,
            gate,
            host,
        }
    }

    /// All records pass, and the log names the action.
    async fn passes_and_names(self, action: &str) {
        let last = self.setting.put(&flights::input()).await;
        self.setting.until_checkpointed("totals", &last).await;
        let log_path = self.host.log_path().to_owned();
        assert!(self.host.terminate().await.success());
        let log = std::fs::read_to_string(log_path).unwrap();
        let named = log.lines().find(|line| line.contains(action));
        assert!(named.is_some(), "{action} is not in\n{log}");
        let refused = self.gate.refused();
        let is_only_one = refused.iter().all(|line| line.starts_with(action));
        assert!(is_only_one && !refused.is_empty(), "{refused:?}");
        self.setting.stop().await;
    }
}

async fn passes_without(action: &str) {
    Lacking::of(action).await.passes_and_names(action).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permission_of_fan_out_that_is_missing_is_named_and_every_record_is_read_without_it() {
    tokio::join!(
        passes_without("kinesis:DescribeStreamConsumer"),
        passes_without("kinesis:RegisterStreamConsumer"),
        passes_without("kinesis:SubscribeToShard"),
        passes_without("kinesis:DeregisterStreamConsumer"),
    );
}
