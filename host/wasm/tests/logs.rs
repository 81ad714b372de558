//! What a guest prints and logs: lines with the plugin's name and the shard, within the plugin's
//! budget.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "plugins/support.rs"]
mod support;

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shardmill_core::plugin::{GuestLimits, Permissions, SecretSource};
use shardmill_core::ports::ProcessorFactory;
use support::{ask, asking, batch, context, instance, plugin, runtime};

#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Captured {
    fn lines(&self) -> Vec<String> {
        String::from_utf8(self.0.lock().unwrap().clone())
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect()
    }
}

/// One test for all, because a subscriber that sees blocking threads must be the process's own.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_guest_logs_is_cut_counted_made_safe_and_free_of_secrets() {
    let captured = Captured::default();
    let writer = captured.clone();
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .init();
    let limits = GuestLimits {
        log_burst: 50,
        log_lines_per_second: 1,
        log_line_bytes: 1_000,
        process_deadline: Duration::from_mins(2),
        ..GuestLimits::default()
    };

    for how in ["log-flood", "stdout-flood"] {
        captured.0.lock().unwrap().clear();
        let runtime = runtime(limits);
        let plugin = plugin(&runtime, "evil").await;
        let config = [("misbehave", how)];
        let (one, two) = tokio::join!(instance(&plugin, &config), instance(&plugin, &config));
        let (mut one, mut two) = (one.unwrap(), two.unwrap());
        let (one, two) = tokio::join!(one.process(batch(1)), two.process(batch(1)));
        one.unwrap();
        two.unwrap();
        let lines = captured.lines();
        let written = lines.iter().filter(|line| line.contains("line ")).count();
        // The budget is the plugin's, not the instance's; the run itself may take seconds, each
        // worth one line.
        assert!((50..150).contains(&written), "{how}: {written} lines");
        assert!(
            lines.iter().any(|line| line.contains("dropped=")),
            "{how}: drops are told"
        );
        assert!(
            !lines
                .iter()
                .any(|line| line.contains("source= ") || line.contains("source=\"\"")),
            "{how}: a field without a value"
        );
        let is_named = |line: &&String| line.contains(" shardmill::guest: [plugin-under-test] ");
        let said = lines.iter().filter(|line| line.contains("line "));
        assert!(
            said.clone().all(|line| is_named(&line)),
            "{how}: who speaks stands in front"
        );
        assert!(
            lines[0].contains("plugin-under-test") && lines[0].contains("shardId-000000000000"),
            "{}",
            lines[0]
        );
    }

    captured.0.lock().unwrap().clear();
    let runtime = runtime(limits);
    let plugin = plugin(&runtime, "evil").await;
    let mut evil = plugin
        .instantiate(context(&[("misbehave", "long-line")]), None)
        .await
        .unwrap();
    evil.process(batch(1)).await.unwrap();
    let lines = captured.lines();
    assert_eq!(lines.len(), 1);
    assert!(
        lines[0].len() < 1_500 && !lines[0].contains('\u{1b}'),
        "{}",
        lines[0].len()
    );
    no_secret_is_logged(&captured).await;
}

/// Also where a line is cut in the middle of one, and in the reason for a trap.
async fn no_secret_is_logged(captured: &Captured) {
    const SECRET: &str = "hush-hush-4711";
    const LINE_BYTES: usize = 200;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("api");
    std::fs::write(&path, SECRET).unwrap();
    let secrets = BTreeMap::from([("api".to_owned(), SecretSource::File(path))]);
    let runtime = runtime(GuestLimits {
        log_line_bytes: LINE_BYTES,
        ..GuestLimits::default()
    });
    let mut guest = asking(
        &runtime,
        Permissions {
            secrets,
            ..Permissions::default()
        },
        &[],
    )
    .await
    .unwrap();
    captured.0.lock().unwrap().clear();
    ask(&mut *guest, "log secret.api").await.unwrap();
    for padding in 0..LINE_BYTES + 2 {
        ask(&mut *guest, &format!("print {padding} secret.api"))
            .await
            .unwrap();
    }
    ask(&mut *guest, "http GET http://hush-hush-4711.example.org/")
        .await
        .unwrap();
    ask(&mut *guest, "panic secret.api").await.unwrap_err();
    let lines = captured.lines();
    assert!(
        lines
            .iter()
            .any(|line| line.contains("logged in with [secret] today")),
        "{lines:?}"
    );
    assert!(
        lines.iter().any(|line| line.contains("xx[secret]")),
        "{lines:?}"
    );
    assert!(
        lines.iter().any(
            |line| line.contains("https://[secret].example.org is denied")
                || line.contains("http://[secret].example.org is denied")
        ),
        "{lines:?}"
    );
    let told: Vec<_> = lines
        .iter()
        .filter(|line| line.contains(&SECRET[..5]))
        .collect();
    assert!(told.is_empty(), "{told:?}");
}
