//! What goes to which stream, and how it looks on a terminal.

use std::process::Stdio;

use harness::guests::guest;
use harness::process::{binary, repository, shardmill};
use tempfile::TempDir;
use tokio::process::Command;

/// Runs its arguments on a terminal.
const ON_A_TERMINAL: &str =
    "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder with a plugin that emits to standard output, and lines for it.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("plugins")).unwrap();
    let plugin = folder.path().join("plugins/earthquakes.wasm");
    std::fs::write(plugin, guest("earthquakes")).unwrap();
    let lines = repository().join("examples/earthquakes/sample.ndjson");
    std::fs::copy(lines, folder.path().join("lines")).unwrap();
    folder
}

/// Whether there is a sequence that sets how letters look.
fn is_coloured(shown: &str) -> bool {
    shown.split("\u{1b}[").skip(1).any(|after| {
        let rest = after.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
        rest.starts_with('m')
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_shows_colours_unless_its_user_wants_none() {
    for (no_color, expected) in [(None, true), (Some(""), true), (Some("1"), false)] {
        let folder = folder();
        let mut command = Command::new("python3");
        command
            .args(["-c", ON_A_TERMINAL])
            .arg(binary())
            .args(["dev", "--feed", "lines", "--until-idle"])
            .current_dir(folder.path())
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .stdin(Stdio::null());
        command.envs(no_color.map(|value| ("NO_COLOR", value)));
        let shown = command.output().await.unwrap();
        let told = text(&shown.stdout);
        assert!(shown.status.success(), "{told}");
        assert!(told.contains("embedded stack and host started"), "{told}");
        assert_eq!(
            is_coloured(&told),
            expected,
            "NO_COLOR={no_color:?}: {told:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_summary_as_json_is_the_last_line_after_what_plugins_emit() {
    let folder = folder();
    let args = ["dev", "--feed", "lines", "--until-idle", "--json"];
    let ended = shardmill(&args, folder.path()).await;
    let (out, log) = (text(&ended.stdout), text(&ended.stderr));
    assert!(ended.status.success(), "{log}");
    let (emitted, last) = out.trim_end().rsplit_once('\n').unwrap();
    assert!(emitted.lines().all(|line| line.contains("\"magnitude\"")));
    let summary: serde_json::Value = serde_json::from_str(last).unwrap();
    assert_eq!(summary["was-interrupted"], false, "{summary}");
    assert!(!log.contains("was-interrupted"), "{log}");

    // With another sink, the summary is alone.
    let folder = self::folder();
    let config = "[sinks.out]\ntype = \"file\"\npath = \"out\"\n\
        [plugin.earthquakes.config]\ndestination = \"out\"\n";
    std::fs::write(folder.path().join("c.toml"), config).unwrap();
    let args = [&args[..], &["--config", "c.toml"]].concat();
    let ended = shardmill(&args, folder.path()).await;
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    let summary: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(summary["was-interrupted"], false, "{summary}");
}
