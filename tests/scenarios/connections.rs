//! Where streams and tables are: by a stream's ARN, by a configuration alone, and without credentials
//! for them.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use harness::guests::guest;
use harness::process::{Host, binary, eventually, shardmill};
use harness::setting::Setting;
use tokio::process::Command;

use crate::doors::page;
use crate::sinks::{letter, write_letters};

/// Names the embedded stack as a file names AWS.
const HOSTS_FILE: &str = "hosts.toml";
/// Of the embedded stack.
const ARN: &str = "arn:aws:kinesis:us-east-1:000000000000:stream/flights";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A command that knows the tables by its configuration and credentials by its environment.
async fn connected(setting: &Setting, typed: &str) -> Output {
    let (kinesis, dynamodb) = (
        setting.stack().kinesis_endpoint(),
        setting.stack().dynamodb_endpoint(),
    );
    let settings = format!(
        "stream = \"s\"\n[aws]\nregion = \"us-east-1\"\nkinesis-endpoint = {kinesis:?}\n\
         dynamodb-endpoint = {dynamodb:?}\n"
    );
    std::fs::write(setting.path().join(HOSTS_FILE), settings).unwrap();
    let output = Command::new(binary())
        .args(typed.split(' '))
        .current_dir(setting.path())
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{typed}: {}", text(&output.stderr));
    output
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_captured_and_letters_go_back_into_it_by_its_arn() {
    let setting = Setting::new(1).await;
    write_letters(
        &setting.path().join("dead.ndjson"),
        &[letter("echo", 1, "one")],
    );
    connected(
        &setting,
        &format!("replay --config {HOSTS_FILE} --to-stream {ARN} dead.ndjson"),
    )
    .await;
    let captured = connected(
        &setting,
        &format!("capture --config {HOSTS_FILE} --stream {ARN}"),
    )
    .await;
    let lines = text(&captured.stdout);
    assert_eq!(lines.lines().count(), 1, "{lines}");
    let record: serde_json::Value = serde_json::from_str(&lines).unwrap();
    assert_eq!(
        (&record["partition-key"], &record["data"]),
        (&"key-1".into(), &"one".into())
    );
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_look_find_streams_and_tables_by_the_configuration_alone() {
    let setting = Setting::new(1).await;
    setting.drop_manifest("totals", "[grants]\nstate = true\n");
    setting.drop_plugin("totals", &guest("totals"));
    std::fs::write(
        setting.path().join("lines"),
        "{\"carrier\":\"UA\",\"flight\":1,\"dep_delay\":1}\n",
    )
    .unwrap();
    let host = setting.host("a");
    let last = setting.put(&setting.path().join("lines")).await;
    setting.until_checkpointed("totals", &last).await;
    assert!(host.terminate().await.success());
    let looks = [
        ("leases totals --config hosts.toml", "shardId-000000000000"),
        (
            "doctor totals --stream flights --watch-for 0s --config hosts.toml",
            "flights, ACTIVE",
        ),
        ("consumers flights --config hosts.toml", "consumer"),
        (
            "state totals --shard shardId-000000000000 --config hosts.toml",
            "UA",
        ),
    ];
    for (typed, expected) in looks {
        let output = connected(&setting, typed).await;
        let told = text(&output.stdout);
        assert!(told.contains(expected), "{typed}: {told}");
    }
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn check_without_a_configuration_grants_no_plugin_the_hosts_credentials() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("flights.wasm"), guest("flights")).unwrap();
    for variable in [
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    ] {
        let asked = format!("[grants]\nenv = [\"{variable}\"]\n");
        std::fs::write(at("flights.toml"), asked).unwrap();
        let checked = shardmill(&["check", "flights.wasm"], folder.path()).await;
        let told = text(&checked.stderr);
        assert_eq!(checked.status.code(), Some(1), "{told}");
        let expected = format!("{variable:?} holds the host's own AWS credentials");
        assert!(told.contains(&expected), "{told}");
    }
    std::fs::write(at("flights.toml"), "[grants]\nenv = [\"AWS_REGION\"]\n").unwrap();
    let checked = shardmill(&["check", "flights.wasm"], folder.path()).await;
    assert!(checked.status.success(), "{}", text(&checked.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_of_a_host_refuses_the_files_that_the_host_would_refuse_in_the_words_of_check() {
    let folder = tempfile::tempdir().unwrap();
    let plugins = folder.path().join("plugins");
    std::fs::create_dir_all(plugins.join("folder.wasm")).unwrap();
    std::fs::write(folder.path().join("there.wasm"), guest("flights")).unwrap();
    std::os::unix::fs::symlink("../there.wasm", plugins.join("linked.wasm")).unwrap();
    let config = "stream = \"orders\"\n[host]\nplugin-bytes-max = 1000\n";
    std::fs::write(folder.path().join("shardmill.toml"), config).unwrap();
    std::fs::write(plugins.join("large.wasm"), guest("flights")).unwrap();

    let checked = shardmill(&["run", "--check"], folder.path()).await;
    let told = text(&checked.stderr);
    assert_eq!(checked.status.code(), Some(64), "{told}");
    for (file, why) in [
        ("linked.wasm", "it is a symbolic link; put a regular file"),
        ("folder.wasm", "it is a directory; put a regular file"),
        (
            "large.wasm",
            "allowed; make it smaller, or raise host.plugin-bytes-max",
        ),
    ] {
        let line = told.lines().find(|line| line.contains(file));
        let line = line.unwrap_or_else(|| panic!("{file}: {told}"));
        assert!(line.contains(why), "{line}");
        if file == "linked.wasm" {
            let alone = shardmill(&["check", "plugins/linked.wasm"], folder.path()).await;
            let alone = text(&alone.stderr);
            let said = line.trim_start_matches("error: ");
            let said = said.replace(&format!("{}/", folder.path().display()), "");
            assert!(alone.contains(&said), "{alone}: {said}");
        }
    }
    let listed = shardmill(&["run", "--check", "--json"], folder.path()).await;
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(listed["problems"].as_array().unwrap().len(), 3, "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stands_in_place_of_a_stacks_addresses_blocks_no_command() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let file = data.join("endpoints.json");
    let refused = async |what: &str| {
        let leases = shardmill(&["leases", "flights", "--local"], folder.path()).await;
        let told = text(&leases.stderr);
        assert_eq!(leases.status.code(), Some(1), "{what}: {told}");
        assert!(
            told.contains("cannot read data/endpoints.json"),
            "{what}: {told}"
        );
    };
    let made = std::process::Command::new("mkfifo").arg(&file).status();
    assert!(made.unwrap().success());
    refused("a pipe that nobody writes to").await;
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
    refused("a file without end").await;
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    refused("a folder").await;
    std::fs::remove_dir(&file).unwrap();
    std::fs::write(&file, "").unwrap();
    refused("nothing").await;
    std::fs::write(&file, r#"{"kinesis":"http://127.0.0.1:9","dynamodb":""}"#).unwrap();
    refused("an address that is none").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_is_no_url_is_refused_on_the_command_line_as_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    for flag in ["--endpoint", "--kinesis-endpoint", "--dynamodb-endpoint"] {
        for (url, why) in [
            ("", "not a URL such as"),
            ("127.0.0.1:4566", "not a URL such as"),
            ("localhost:4566", "must start with http:// or https://"),
            (
                "http://me:secret@localhost",
                "must not contain a user and password",
            ),
        ] {
            let args = ["leases", "flights", "--region", "eu-west-1", flag, url];
            let leases = shardmill(&args, folder.path()).await;
            let told = text(&leases.stderr);
            assert_eq!(leases.status.code(), Some(2), "{flag} {url}: {told}");
            assert!(told.contains(why), "{flag} {url}: {told}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_region_that_cannot_be_is_refused_before_a_request_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let refused = "\"us east\" is not a region, which is written such as eu-west-1";
    std::fs::write(folder.path().join("lines"), "{}\n").unwrap();
    let put = shardmill(&["put", "lines", "--region", "us east"], folder.path()).await;
    let told = text(&put.stderr);
    assert_eq!(put.status.code(), Some(2), "{told}");
    assert!(told.contains(refused), "{told}");

    for (file, variables, told) in [
        (
            "",
            [("AWS_REGION", "us east")],
            "fix AWS_REGION or the AWS profile",
        ),
        (
            "aws.region = \"us east\"\n",
            [("A", "b")],
            "line 2: aws.region",
        ),
        (
            "[sinks.out]\ntype = \"kinesis\"\nstream = \"out\"\nregion = \"us east\"\n",
            [("A", "b")],
            "sinks.out.region",
        ),
    ] {
        let config = format!("stream = \"orders\"\n{file}");
        let host = host_with(folder.path(), &config, &variables);
        let log = host.log_path().to_owned();
        assert_ne!(host.ended().await.code(), Some(0), "{file}");
        let log = std::fs::read_to_string(log).unwrap();
        assert!(log.contains(refused) && log.contains(told), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_sdk_would_panic_at_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let nothing_listens = "nothing listens there";
    for (name, value, told) in [
        (
            "AWS_ACCESS_KEY_ID",
            "AKID\n",
            "the access key id has a line break",
        ),
        (
            "AWS_SESSION_TOKEN",
            "a\nb",
            "the session token has a line break",
        ),
        ("AWS_MAX_ATTEMPTS", "0", nothing_listens),
        ("AWS_RETRY_MODE", "x", nothing_listens),
    ] {
        let leases = std::process::Command::new(binary())
            .args(["leases", "orders", "--region", "eu-west-1"])
            .args(["--endpoint", "http://127.0.0.1:9"])
            .current_dir(folder.path())
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .env(name, value)
            .output()
            .unwrap();
        let error = text(&leases.stderr);
        assert_eq!(leases.status.code(), Some(1), "{name}: {error}");
        assert!(error.contains(told), "{name}: {error}");
        assert!(!error.contains("panicked"), "{name}: {error}");
    }
}

/// What `shardmill` with these words, variables and home says within a moment, and its exit code;
/// `None` if it still runs then.
async fn said_at_once(
    typed: &str,
    variables: &[(&str, &str)],
    folder: &Path,
) -> Option<(Option<i32>, String)> {
    let command = Command::new(binary())
        .args(typed.split(' '))
        .current_dir(folder)
        .env_clear()
        .env("HOME", folder)
        .env("TMPDIR", folder)
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .envs(variables.iter().copied())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(20), command).await;
    let output = output.ok()?.unwrap();
    Some((output.status.code(), text(&output.stderr)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_the_aws_chain_that_has_no_end_is_refused_by_all_that_ask_aws() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let made = std::process::Command::new("mkfifo")
        .arg(path.join("pipe"))
        .status();
    assert!(made.unwrap().success());
    std::fs::create_dir_all(path.join("plugins")).unwrap();
    std::fs::write(path.join("lines"), "{}\n").unwrap();
    let settings = "stream = \"s\"\naws.region = \"eu-west-1\"\n";
    std::fs::write(path.join("shardmill.toml"), settings).unwrap();
    let commands = [
        "run",
        "run --check --connect",
        "dev --data data",
        "leases orders --config shardmill.toml",
        "put lines --config shardmill.toml",
        "capture --config shardmill.toml",
    ];
    for typed in commands {
        let said = said_at_once(typed, &[("AWS_CONFIG_FILE", "pipe")], path).await;
        let (code, error) = said.unwrap_or_else(|| panic!("{typed} waits for the pipe"));
        assert_ne!(code, Some(0), "{typed}: {error}");
        let told = "\"pipe\" is a pipe, but the AWS chain would read all of it";
        assert!(error.contains(told), "{typed}: {error}");
    }

    let looks = "leases orders --region eu-west-1 --endpoint http://127.0.0.1:9";
    for (variable, value, told) in [
        ("AWS_SHARED_CREDENTIALS_FILE", "~/pipe", "is a pipe"),
        ("AWS_CONFIG_FILE", "/dev/zero", "is a device"),
        ("AWS_CONFIG_FILE", "plugins", "is a folder"),
        ("AWS_CONFIG_FILE", "/dev/null", "nothing listens there"),
        ("AWS_CONFIG_FILE", "none", "nothing listens there"),
    ] {
        let said = said_at_once(looks, &[(variable, value)], path).await;
        let (code, error) = said.unwrap_or_else(|| panic!("{value} is read without end"));
        assert_eq!(code, Some(1), "{value}: {error}");
        assert!(error.contains(told), "{value}: {error}");
    }

    std::fs::create_dir(path.join(".aws")).unwrap();
    std::fs::rename(path.join("pipe"), path.join(".aws/config")).unwrap();
    let said = said_at_once(looks, &[], path).await;
    let (_, error) = said.expect("the default is looked at too");
    assert!(error.contains(".aws/config\" is a pipe"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duration_of_a_flag_has_the_bounds_of_the_files_and_its_own_floor() {
    let folder = tempfile::tempdir().unwrap();
    for (command, flag, floor) in [
        (
            "leases a",
            "--watch",
            "at least 100ms: each look reads the whole table",
        ),
        ("leases a", "--watch-for", ""),
        ("explain a 0", "--watch-for", ""),
        ("doctor a", "--failover-time", "at least 100ms"),
        (
            "import a --to b --stream s",
            "--failover-time",
            "at least 100ms",
        ),
        ("test a.wasm --input lines", "--timeout", "at least 100ms"),
    ] {
        for (value, told) in [
            ("101years", "at most 100 years"),
            ("18446744073709551615s", "at most 100 years"),
            ("1ns", "at least 1ms"),
            ("99ms", floor),
            ("0s", floor),
        ] {
            if told.is_empty() {
                continue;
            }
            let args: Vec<_> = command.split(' ').chain([flag, value]).collect();
            let refused = shardmill(&args, folder.path()).await;
            let error = text(&refused.stderr);
            assert_eq!(refused.status.code(), Some(2), "{args:?}: {error}");
            assert!(error.contains(told), "{args:?}: {error}");
        }
    }
}

/// A host that knows nothing but its file.
fn host_of_file(folder: &Path, config: &str) -> Host {
    host_with(folder, config, &[])
}

/// A host that knows its file and these variables.
fn host_with(folder: &Path, config: &str, variables: &[(&str, &str)]) -> Host {
    std::fs::create_dir_all(folder.join("plugins")).unwrap();
    std::fs::write(folder.join("shardmill.toml"), config).unwrap();
    let mut command = std::process::Command::new(binary());
    command
        .arg("run")
        .env_clear()
        .env("HOME", folder)
        .env("TMPDIR", folder)
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .envs(variables.iter().copied());
    Host::run("host", command, folder)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_without_credentials_says_so_at_its_start_waits_and_ends_as_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let host = host_of_file(
        folder.path(),
        "stream = \"orders\"\n[aws]\nregion = \"eu-west-1\"\n",
    );
    // The host looks while it starts, so either line may be the first.
    eventually("it started and says what is missing", || {
        let log = host.log();
        log.contains("host started")
            && log.lines().any(|line| {
                line.contains("something is missing, waiting for it")
                    && line.contains("credentials: there are none")
                    && line.contains("set AWS_PROFILE to a profile that has them")
            })
    })
    .await;
    assert_eq!(host.terminate().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_asks_for_its_stream_at_its_start_says_what_is_missing_and_goes_on() {
    let setting = Setting::new(1).await;
    let settings = format!(
        "stream = \"nowhere\"\n[host]\nadmin = \"127.0.0.1:0\"\n[aws]\nregion = \"us-east-1\"\n\
         kinesis-endpoint = {:?}\ndynamodb-endpoint = \"http://127.0.0.1:9\"\n",
        setting.stack().kinesis_endpoint()
    );
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("plugins")).unwrap();
    std::fs::write(folder.path().join("plugins/flights.wasm"), guest("flights")).unwrap();
    let credentials = [
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
    ];
    let host = host_with(folder.path(), &settings, &credentials);
    for expected in [
        "there is no such stream: create it, or fix `stream` or the region",
        "Connection refused (os error 111) at http://127.0.0.1:9; nothing listens there",
        "the most memory that this host may take",
    ] {
        eventually(expected, || host.log().contains(expected)).await;
    }
    // It goes on: its pages answer, and it ends as any other.
    let ready = page(&host.admin_address().await, "/ready").await;
    assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
    assert!(host.terminate().await.success());
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_without_a_region_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let host = host_of_file(folder.path(), "stream = \"orders\"\n");
    let log = host.log_path().to_owned();
    assert_eq!(host.ended().await.code(), Some(1));
    let told = std::fs::read_to_string(log).unwrap();
    assert!(told.contains("error: no AWS region: set one"), "{told}");
}
