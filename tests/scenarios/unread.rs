//! Streams of the process that nobody reads: a log collector that hangs, a terminal that is
//! stopped.

use std::io::{PipeReader, PipeWriter, Write};
use std::process::{Command, Stdio};

use harness::flights;
use harness::guests::guest;
use harness::process::{Host, binary};
use harness::setting::Setting;

/// A pipe without room; nobody reads it while the other end is kept.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let blocking = rustix::fs::fcntl_getfl(&writer).unwrap();
    rustix::fs::fcntl_setfl(&writer, blocking | rustix::fs::OFlags::NONBLOCK).unwrap();
    while writer.write(b"x").is_ok() {}
    rustix::fs::fcntl_setfl(&writer, blocking).unwrap();
    (reader, writer)
}

fn run(setting: &Setting, config: &str) -> Command {
    let file = setting.configure("a", "duration = \"3s\"\nscan-every = \"200ms\"", config);
    let mut command = Command::new(binary());
    command
        .args(["run", "--config", &file, "--local"])
        .current_dir(setting.path())
        .stdin(Stdio::null());
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_whose_log_nobody_reads_delivers_and_ends_when_it_is_told_to() {
    let setting = Setting::new(1).await;
    setting.drop_plugin("talker", &guest("evil"));
    let last = setting.put(&flights::input()).await;
    let (_reader, writer) = full_pipe();
    let mut command = run(
        &setting,
        "[plugin.talker.config]\nmisbehave = \"log-flood\"",
    );
    command.stdout(Stdio::null()).stderr(writer);
    let host = Host::spawn("a", command, setting.path());
    setting.until_checkpointed("talker", &last).await;
    assert!(host.terminate().await.success());
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn standard_output_that_nobody_reads_stops_who_emits_to_it_and_nobody_else_and_not_the_end() {
    let setting = Setting::new(1).await;
    setting.drop_plugin("echo", &guest("echo"));
    setting.drop_plugin("flights", &guest("flights"));
    let (_reader, writer) = full_pipe();
    let config = "[host]\nadmin = \"127.0.0.1:0\"\ndrain-limit = \
        \"1s\"\n[plugin.echo.config]\ndestination = \"stdout\"";
    let mut command = run(&setting, config);
    command
        .stdout(writer)
        .stderr(std::fs::File::create(setting.path().join("a.log")).unwrap());
    let host = Host::spawn("a", command, setting.path());
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("flights", &last).await;
    host.until_status("told", |status| {
        status["plugins"]["echo"]
            .to_string()
            .contains("storing output in stdout")
    })
    .await;
    host.signal(rustix::process::Signal::TERM);
    host.ended().await;
    setting.stop().await;
}
