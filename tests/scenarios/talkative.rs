//! What a host tells that is asked to log everything, libraries included.

use std::process::Command;

use harness::guests::guest;
use harness::process::{Host, binary};
use harness::setting::Setting;

/// Of letters and digits, so that no escape hides them, and nowhere else in a log.
const SECRET_KEY: &str = "SecretKeyOfThisTest0123456789abcdefghijkl";
const SESSION_TOKEN: &str = "SessionTokenOfThisTest0123456789mnopqrstuvwxyz";

/// A host that is told of everything, with credentials as a container gets them.
fn talkative(setting: &Setting, format: &str) -> Host {
    let leases = "duration = \"3s\"\nscan-every = \"200ms\"";
    let file = setting.configure(
        format,
        leases,
        "[reads]\ncalls-per-second = 50.0\nidle-every = \"50ms\"\n",
    );
    let mut command = Command::new(binary());
    command
        .args(["--log-format", format, "run", "--config", &file])
        .args(["--kinesis-endpoint", setting.stack().kinesis_endpoint()])
        .args(["--dynamodb-endpoint", setting.stack().dynamodb_endpoint()])
        .args(["--region", "us-east-1"])
        .env("SHARDMILL_LOG", "trace")
        .env("AWS_ACCESS_KEY_ID", "AKIAOFTHISTEST")
        .env("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        .env("AWS_SESSION_TOKEN", SESSION_TOKEN)
        .env("AWS_EC2_METADATA_DISABLED", "true");
    Host::run(format, command, setting.path())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_of_everything_holds_no_secret_key_no_session_token_and_no_signature() {
    let setting = Setting::new(1).await;
    setting.drop_plugin("noop", &guest("noop"));
    let lines: Vec<_> = (0..50).map(|n| format!("{{\"flight\":{n}}}\n")).collect();
    let lines = lines.concat();
    let input = setting.path().join("lines");
    std::fs::write(&input, lines).unwrap();
    for format in ["text", "json"] {
        let host = talkative(&setting, format);
        let last = setting.put(&input).await;
        setting.until_checkpointed("noop", &last).await;
        let log_path = host.log_path().to_owned();
        assert!(host.terminate().await.success());
        let log = std::fs::read_to_string(log_path).unwrap();
        // It is as talkative as it was meant to be: requests are told as they are sent.
        assert!(log.contains("TRACE") && log.contains("transmitting request"));
        for secret in [SECRET_KEY, SESSION_TOKEN] {
            // A part of it is too much as well.
            let part = &secret[..20];
            let line = log.lines().find(|line| line.contains(part));
            assert_eq!(line, None, "{part} is told");
        }
        let signed = log.lines().find(|line| line.contains("Signature="));
        assert_eq!(signed, None, "what a request is signed with is told");
    }
    setting.stop().await;
}
