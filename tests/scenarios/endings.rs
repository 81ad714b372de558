//! How commands end: with which code, with which words, and after having done what.

use std::process::{Output, Stdio};
use std::time::Duration;

use harness::flights;
use harness::gate::Gate;
use harness::guests::guest;
use harness::process::{Host, binary, eventually, shardmill};
use harness::setting::{STREAM, Setting};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A command whose standard input and output are this test's.
pub(crate) fn piped(args: &[&str], setting: &Setting) -> Child {
    Command::new(binary())
        .args(args)
        .current_dir(setting.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

pub(crate) fn interrupt(child: &Child) {
    let id = i32::try_from(child.id().unwrap()).unwrap();
    kill_process(Pid::from_raw(id).unwrap(), Signal::INT).unwrap();
}

/// The records of the stream.
async fn captured(setting: &Setting) -> Vec<serde_json::Value> {
    let args = ["capture", "--local", "--stream", STREAM];
    let output = shardmill(&args, setting.path()).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn put_stores_each_line_of_a_pipe_as_it_comes_and_ends_with_130_when_it_is_interrupted() {
    let setting = Setting::new(1).await;
    let mut put = piped(&["put", "--local", "--stream", STREAM, "-"], &setting);
    let mut input = put.stdin.take().unwrap();
    input.write_all(b"the first line\n").await.unwrap();
    input.flush().await.unwrap();
    // The pipe stays open: who waited for more would store nothing.
    while captured(&setting).await.is_empty() {}
    interrupt(&put);
    let ended = put.wait_with_output().await.unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", text(&ended.stderr));
    let told = text(&ended.stderr);
    assert!(
        told.contains("interrupted: 1 records were put, the rest of the input was not"),
        "{told}"
    );
    drop(input);
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn put_gives_every_record_the_key_and_the_shard_that_are_asked_for() {
    let setting = Setting::new(2).await;
    std::fs::write(setting.path().join("lines"), "one\ntwo\n").unwrap();
    let last = u128::MAX.to_string();
    let args = [
        "put",
        "--stream",
        STREAM,
        "--key",
        "all",
        "--explicit-hash-key",
        &last,
        // Takes no value but one with a `=`.
        "--local",
        "lines",
    ];
    let put = shardmill(&args, setting.path()).await;
    assert!(put.status.success(), "{}", text(&put.stderr));
    let records = captured(&setting).await;
    assert_eq!(records.len(), 2, "{records:?}");
    for record in records {
        assert_eq!(record["partition-key"], "all", "{record}");
        assert_eq!(record["shard"], "shardId-000000000001", "{record}");
    }
    setting.stop().await;
}

async fn put_with_credentials(args: &[&str], setting: &Setting) -> Output {
    Command::new(binary())
        .arg("put")
        .args(args)
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .current_dir(setting.path())
        .output()
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn put_does_not_try_again_what_trying_cannot_help() {
    let setting = Setting::new(1).await;
    std::fs::write(setting.path().join("lines"), "one\n").unwrap();
    let args = ["put", "--local", "--stream", "nowhere", "lines"];
    let missing = shardmill(&args, setting.path()).await;
    let told = text(&missing.stderr);
    assert_eq!(missing.status.code(), Some(1), "{told}");
    assert!(
        told.contains("there is no stream nowhere: create it"),
        "{told}"
    );
    assert!(!told.contains("trying again"), "{told}");

    let nobody = "http://127.0.0.1:9";
    let args = ["--region", "us-east-1", "--endpoint", nobody, "lines"];
    let dead = put_with_credentials(&args, &setting).await;
    let told = text(&dead.stderr);
    assert_eq!(dead.status.code(), Some(1), "{told}");
    let error = told.lines().last().unwrap_or_default();
    let expected = format!(
        "error: gave up after 4 attempts that stored nothing: kinesis is unavailable: kinesis: \
            cannot be reached: Connection refused (os error 111) at {nobody}; nothing listens \
            there: check the endpoint, or start what serves it"
    );
    assert_eq!(error, expected);

    // Nothing is allowed.
    let mut gate = Gate::of(&serde_json::json!({ "Statement": [] }));
    let endpoint = gate.before(setting.stack().kinesis_endpoint()).await;
    let place = format!(
        "stream = \"s\"\n[aws]\nregion = \"us-east-1\"\nwire = \"json\"\nkinesis-endpoint = {endpoint:?}\n"
    );
    std::fs::write(setting.path().join("gate.toml"), place).unwrap();
    let args = ["--config", "gate.toml", "--stream", STREAM, "lines"];
    let denied = put_with_credentials(&args, &setting).await;
    let told = text(&denied.stderr);
    assert_eq!(denied.status.code(), Some(1), "{told}");
    assert!(told.contains("AccessDenied"), "{told}");
    assert!(!told.contains("trying again"), "{told}");
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn capture_ends_with_141_when_its_reader_has_enough_and_with_130_when_it_is_interrupted() {
    let setting = Setting::new(1).await;
    // More than a pipe holds.
    setting.put(&flights::input()).await;
    let args = ["capture", "--local", "--stream", STREAM];

    let mut head = piped(&args, &setting);
    let mut lines = BufReader::new(head.stdout.take().unwrap()).lines();
    assert!(lines.next_line().await.unwrap().is_some());
    drop(lines);
    let ended = head.wait_with_output().await.unwrap();
    assert_eq!(ended.status.code(), Some(141), "{}", text(&ended.stderr));
    assert_eq!(text(&ended.stderr), "", "there is nothing to tell");

    let mut capture = piped(&args, &setting);
    let mut output = BufReader::new(capture.stdout.take().unwrap());
    let mut line = String::new();
    assert!(output.read_line(&mut line).await.unwrap() > 0);
    // It cannot be done: nobody reads the rest yet.
    interrupt(&capture);
    let mut rest = Vec::new();
    output.read_to_end(&mut rest).await.unwrap();
    let ended = capture.wait_with_output().await.unwrap();
    let told = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(130), "{told}");
    assert!(
        told.contains("interrupted: the capture is incomplete"),
        "{told}"
    );
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_that_is_interrupted_before_all_is_done_ends_with_130_and_says_what_is_left() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("plugins")).unwrap();
    std::fs::write(folder.path().join("plugins/noop.wasm"), guest("noop")).unwrap();
    // No batch is full within the test.
    let waits = "[batch]\nwindow = \"5m\"\n";
    std::fs::write(folder.path().join("c.toml"), waits).unwrap();
    std::fs::write(folder.path().join("lines"), "one\ntwo\n").unwrap();
    let args = [
        "dev",
        "--config",
        "c.toml",
        "--feed",
        "lines",
        "--until-idle",
    ];
    let dev = Host::start("dev", &args, folder.path());
    eventually("started", || {
        dev.log().contains("embedded stack and host started")
    })
    .await;
    dev.signal(Signal::INT);
    let log = dev.log_path().to_owned();
    let ended = dev.ended().await;
    let told = std::fs::read_to_string(log).unwrap();
    assert_eq!(ended.code(), Some(130), "{told}");
    assert!(told.contains("interrupted"), "{told}");
    assert!(!told.contains("all checkpointed"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_whose_terminal_is_closed_hands_its_leases_over_as_on_sigterm() {
    /// Runs its arguments on a terminal, and closes that when its own input ends.
    const ON_A_TERMINAL: &str = "import os, pty, sys\n\
        pid, terminal = pty.fork()\n\
        if pid == 0:\n    os.execvp(sys.argv[1], sys.argv[1:])\n\
        sys.stdin.read()\n\
        os.close(terminal)\n\
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))";
    let setting = Setting::new(1).await;
    setting.drop_plugin("flights", &guest("flights"));
    let last = setting.put(&flights::input()).await;
    let file = setting.configure("a", "duration = \"3s\"\nscan-every = \"200ms\"", "");
    let mut command = std::process::Command::new("python3");
    command.args(["-c", ON_A_TERMINAL]).arg(binary());
    command.args(["run", "--config", &file, "--local"]);
    command.current_dir(setting.path()).stdin(Stdio::piped());
    let mut session = command.spawn().unwrap();
    setting.until_checkpointed("flights", &last).await;
    drop(session.stdin.take());
    let ended = tokio::task::spawn_blocking(move || session.wait().unwrap());
    assert!(ended.await.unwrap().success());
    let leases = setting.leases("flights").await;
    assert!(
        leases.iter().all(|lease| lease.owner.is_none()),
        "{leases:?}"
    );
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_whose_worker_id_another_one_took_ends_with_69_and_the_mend() {
    let setting = Setting::new(1).await;
    setting.drop_plugin("flights", &guest("flights"));
    let first = setting.host("a");
    eventually("it serves", || first.log().contains("lease taken")).await;
    // Another file for its output, which has one writer.
    let file = setting.configure("b", "duration = \"3s\"\nscan-every = \"200ms\"", "");
    let config = std::fs::read_to_string(setting.path().join(&file)).unwrap();
    let taken = config.replace("worker-id = \"b\"", "worker-id = \"a\"");
    std::fs::write(setting.path().join(&file), taken).unwrap();
    let args = ["run", "--config", &file, "--local"];
    let second = Host::start("second", &args, setting.path());
    let log = first.log_path().to_owned();
    let ended = first.ended().await;
    let told = std::fs::read_to_string(log).unwrap();
    assert_eq!(ended.code(), Some(69), "{told}");
    assert!(told.contains("worker-id"), "{told}");
    assert!(second.terminate().await.success());
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn test_does_not_wait_for_a_plugin_that_may_keep_no_state_or_refuses_its_configuration() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["totals", "evil"] {
        std::fs::write(folder.path().join(format!("{name}.wasm")), guest(name)).unwrap();
    }
    let refuses = "stream = \"s\"\n[plugin.evil.config]\nmisbehave = \"error-in-init\"\n";
    std::fs::write(folder.path().join("c.toml"), refuses).unwrap();
    std::fs::write(folder.path().join("lines"), "{}\n").unwrap();
    for (plugin, expected) in [
        (
            "totals.wasm",
            "the plugin is not granted state: set state = true",
        ),
        (
            "evil.wasm",
            "no record can be settled: cannot create an instance: ",
        ),
        ("evil.wasm", "misconfigured: init fails as asked"),
    ] {
        let args = ["test", plugin, "--input", "lines", "--config", "c.toml"];
        let ended = shardmill(&args, folder.path()).await;
        let told = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{told}");
        assert!(told.contains(expected), "{expected}: {told}");
        // That is what it says when it waited.
        assert!(!told.contains("nothing was settled for"), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn test_and_bench_end_when_they_are_interrupted_though_the_plugin_never_returns() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("evil.wasm"), guest("evil")).unwrap();
    let endless = "stream = \"s\"\n[plugin.evil.config]\nmisbehave = \"loop\"\n\
        [limits]\nprocess-deadline = \"1h\"\n";
    std::fs::write(folder.path().join("c.toml"), endless).unwrap();
    std::fs::write(folder.path().join("lines"), "{}\n").unwrap();
    for command in ["test", "bench"] {
        let args = [
            command,
            "evil.wasm",
            "--input",
            "lines",
            "--config",
            "c.toml",
        ];
        let host = Host::start(command, &args, folder.path());
        eventually("looping", || host.cpu_ticks() > 100).await;
        host.signal(Signal::INT);
        let ended = tokio::time::timeout(Duration::from_mins(2), host.ended()).await;
        assert_eq!(ended.unwrap().code(), Some(130), "{command}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_file_sizes_is_an_error_as_a_full_disk_and_kills_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("{}\n", "x".repeat(10_000));
    std::fs::write(folder.path().join("lines"), line.repeat(500)).unwrap();
    std::fs::create_dir(folder.path().join("plugins")).unwrap();
    std::fs::write(folder.path().join("plugins/flights.wasm"), guest("flights")).unwrap();
    // In units of 512 or 1024 bytes: far less than the lines.
    let limited = "ulimit -f 2000; exec \"$0\" dev --feed lines";
    let mut host = Command::new("sh")
        .args(["-c", limited])
        .arg(binary())
        .env("HOME", folder.path())
        .current_dir(folder.path())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut log = BufReader::new(host.stderr.take().unwrap()).lines();
    // More than once: it tries again.
    let mut refused = 0;
    while refused < 3 {
        let line = log.next_line().await.unwrap();
        let line = line.expect("it goes on");
        refused += usize::from(line.contains("kinesis.journal: File too large"));
    }
    assert_eq!(host.try_wait().unwrap(), None);
}

/// As on a full disk: what a command wrote is not there.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_whose_output_cannot_be_written_fails_and_one_whose_reader_is_gone_ends() {
    let setting = Setting::new(1).await;
    setting.drop_plugin("flights", &guest("flights"));
    let last = setting.put(&flights::input()).await;
    let host = setting.host_with("a", "");
    setting.until_checkpointed("flights", &last).await;
    for args in [
        &["leases", "flights", "--local", "--json"][..],
        &["completions", "bash"],
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let mut command = Command::new(binary());
        command.args(args).current_dir(setting.path());
        command.stdout(full.unwrap()).stderr(Stdio::piped());
        let ended = command.spawn().unwrap().wait_with_output();
        let ended = ended.await.unwrap();
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains("cannot write to standard output"), "{said}");
    }
    for args in [
        &["leases", "flights", "--local", "--watch", "1s"][..],
        &["top", "flights", "--local", "--interval", "1s"],
    ] {
        let mut watching = piped(args, &setting);
        let mut read = BufReader::new(watching.stdout.take().unwrap());
        let mut line = String::new();
        read.read_line(&mut line).await.unwrap();
        drop(read);
        let ended = watching.wait_with_output().await.unwrap();
        assert_eq!(ended.status.code(), Some(141), "{args:?}");
        assert_eq!(text(&ended.stderr), "");
    }
    assert!(host.terminate().await.success());
    setting.stop().await;
}
