//! `shardmill test`, as the author of a plugin uses it.

use harness::flights;
use harness::guests::guest;
use harness::process::{repository, shardmill};
use harness::setting::Setting;
use serde_json::Value;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn folder(plugin: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(format!("{plugin}.wasm")), guest(plugin)).unwrap();
    folder
}

fn args<'a>(plugin: &'a str, input: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [
        &["test", plugin, "--input", input, "--key-field", "flight"],
        more,
    ]
    .concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_out_once_comes_out_again_in_other_batches_and_over_a_swap() {
    let (folder, input) = (folder("flights"), flights::input().display().to_string());
    let first = shardmill(&args("flights.wasm", &input, &[]), folder.path()).await;
    assert!(first.status.success(), "{}", text(&first.stderr));
    let records: u64 = flights::expected().values().sum();
    assert_eq!(text(&first.stdout).lines().count() as u64, records);
    std::fs::write(folder.path().join("expected"), &first.stdout).unwrap();
    let other = [
        "--expect",
        "expected",
        "--batch-records",
        "137",
        "--reload-after",
        "3000",
        "--json",
    ];
    let second = shardmill(&args("flights.wasm", &input, &other), folder.path()).await;
    assert!(second.status.success(), "{}", text(&second.stderr));
    let report: Value = serde_json::from_slice(&second.stdout).unwrap();
    assert_eq!(report["comparison"]["missing"], 0, "{report}");
    assert_eq!(
        report["digests"].as_array().map(Vec::len),
        Some(2),
        "{report}"
    );
    assert!(
        report["batches"].as_u64().unwrap() >= records / 137,
        "{report}"
    );

    let fewer = text(&first.stdout)
        .lines()
        .skip(1)
        .collect::<Vec<_>>()
        .join("\n");
    std::fs::write(folder.path().join("expected"), fewer).unwrap();
    let differs = shardmill(
        &args("flights.wasm", &input, &["--expect", "expected"]),
        folder.path(),
    )
    .await;
    assert_eq!(differs.status.code(), Some(1));
    let told = text(&differs.stderr);
    assert!(
        told.contains("0 lines are missing, 1 were not expected\n+ 1: {"),
        "{told}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifests_batches_and_checkpoints_do_not_stand_over_what_the_test_says() {
    let (folder, input) = (folder("flights"), flights::input().display().to_string());
    let manifest = "[batch]\nrecords = 1000\nbytes = \"1MiB\"\nwindow = \
        \"5m\"\n[checkpoint]\nrecords = 1000000\nage = \"1h\"\n";
    std::fs::write(folder.path().join("flights.toml"), manifest).unwrap();
    let more = ["--batch-records", "137", "--timeout", "20s", "--json"];
    let tested = shardmill(&args("flights.wasm", &input, &more), folder.path()).await;
    assert!(tested.status.success(), "{}", text(&tested.stderr));
    let report: Value = serde_json::from_slice(&tested.stdout).unwrap();
    let records: u64 = flights::expected().values().sum();
    assert!(
        report["batches"].as_u64().unwrap() >= records / 137,
        "{report}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_asks_for_more_than_the_host_gives_is_a_wrong_configuration() {
    let folder = folder("asking");
    std::fs::write(
        folder.path().join("asking.toml"),
        "[grants]\nhttp = [\"api.example.org\"]\n",
    )
    .unwrap();
    std::fs::write(folder.path().join("input"), "{\"flight\":1}\n").unwrap();
    for command in [
        &args("asking.wasm", "input", &[])[..],
        &["bench", "asking.wasm"],
    ] {
        let refused = shardmill(command, folder.path()).await;
        assert_eq!(
            refused.status.code(),
            Some(64),
            "{command:?}: {}",
            text(&refused.stderr)
        );
        assert!(
            text(&refused.stderr).contains("error: asking.toml: line 2: grants.http: "),
            "{}",
            text(&refused.stderr)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_fail_are_reported_with_their_reason() {
    let (folder, input) = (folder("flights"), flights::input().display().to_string());
    let spoiled = shardmill(
        &args("flights.wasm", &input, &["--spoil", "3000"]),
        folder.path(),
    )
    .await;
    assert_eq!(spoiled.status.code(), Some(1));
    let told = text(&spoiled.stderr);
    assert!(
        told.contains("4 failures") && told.contains("rejected: not a departure"),
        "{told}"
    );
    let allowed = ["--spoil", "3000", "--allow-failures"];
    assert!(
        shardmill(&args("flights.wasm", &input, &allowed), folder.path())
            .await
            .status
            .success()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_traps_on_every_record_is_reported_and_not_tried_for_ever() {
    let folder = folder("evil");
    std::fs::write(
        folder.path().join("evil.toml"),
        "stream = \"real\"\n[config]\nmisbehave = \"trap\"\n",
    )
    .unwrap();
    std::fs::write(
        folder.path().join("input"),
        "{\"flight\":1}\n{\"flight\":2}\n",
    )
    .unwrap();
    let trapped = shardmill(&args("evil.wasm", "input", &[]), folder.path()).await;
    assert_eq!(trapped.status.code(), Some(1));
    let told = text(&trapped.stderr);
    assert!(
        told.contains("2 failures") && told.contains("process panics as asked"),
        "{told}"
    );

    std::fs::write(
        folder.path().join("evil.toml"),
        "[failure]\non-exhausted = \"halt\"\nattempts = 1\n[config]\nmisbehave = \"trap\"\n",
    )
    .unwrap();
    let halted = shardmill(&args("evil.wasm", "input", &[]), folder.path()).await;
    assert!(
        text(&halted.stderr).contains("failure policy stopped it"),
        "{}",
        text(&halted.stderr)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_tried_is_refused_with_the_reason() {
    let folder = folder("flights");
    std::fs::write(folder.path().join("text.wasm"), "no component").unwrap();
    std::fs::write(folder.path().join("input"), "{\"flight\":1}\n").unwrap();
    for (plugin, more, expected) in [
        ("text.wasm", &[][..], "it is not WebAssembly"),
        ("none.wasm", &[], "cannot read none.wasm"),
        ("flights.wasm", &["--expect", "none"], "cannot read none"),
        (
            "flights.wasm",
            &["--reload-after", "1", "--reload-to", "text.wasm"],
            "it is not WebAssembly",
        ),
    ] {
        let refused = shardmill(&args(plugin, "input", more), folder.path()).await;
        assert_eq!(refused.status.code(), Some(1), "{expected}");
        assert!(
            text(&refused.stderr).contains(expected),
            "{}",
            text(&refused.stderr)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_stream_holds_is_captured_and_delivered_again_where_it_lay_and_the_same_on_any_machine()
 {
    let setting = Setting::new(3).await;
    setting.put(&flights::input()).await;
    let captured = shardmill(
        &["capture", "--local", "--stream", "flights"],
        setting.path(),
    )
    .await;
    assert!(captured.status.success(), "{}", text(&captured.stderr));
    let records: u64 = flights::expected().values().sum();
    assert_eq!(text(&captured.stdout).lines().count() as u64, records);
    let first = text(&captured.stdout).lines().next().unwrap().to_owned();
    setting.stop().await;

    let folder = folder("flights");
    std::fs::write(folder.path().join("captured"), &captured.stdout).unwrap();
    let args = [
        "test",
        "flights.wasm",
        "--captured",
        "captured",
        "--deterministic",
        "--json",
        "--reload-after",
        "5000",
    ];
    let fuel_of = |output: std::process::Output| {
        assert!(output.status.success(), "{}", text(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (report["records"].as_u64(), report["output"].as_u64()),
            (Some(records), Some(records)),
            "{report}"
        );
        report["fuel-per-record"].as_u64().unwrap()
    };
    let fuel = fuel_of(shardmill(&args, folder.path()).await);
    assert!(fuel > 100, "{fuel}");
    let printed = shardmill(
        &["test", "flights.wasm", "--captured", "captured"],
        folder.path(),
    )
    .await;
    let first: Value = serde_json::from_str(&first).unwrap();
    let place = format!("\"sequence_number\":{}", first["sequence-number"]);
    let line = text(&printed.stdout)
        .lines()
        .find(|line| line.contains(&place))
        .map(str::to_owned);
    let line = line.unwrap_or_else(|| panic!("no {place} in what came out"));
    assert!(line.contains(first["shard"].as_str().unwrap()), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_takes_more_fuel_than_it_may_is_a_failure_of_its_records() {
    let folder = folder("evil");
    std::fs::write(
        folder.path().join("evil.toml"),
        "[config]\nmisbehave = \"loop\"\n",
    )
    .unwrap();
    std::fs::write(folder.path().join("input"), "{\"flight\":1}\n").unwrap();
    let more = ["--deterministic", "--fuel", "1000000", "--attempts", "1"];
    let stopped = shardmill(&args("evil.wasm", "input", &more), folder.path()).await;
    assert_eq!(stopped.status.code(), Some(1));
    assert!(
        text(&stopped.stderr).contains("limit of 1000000 on fuel in one call"),
        "{}",
        text(&stopped.stderr)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_that_no_host_would_load_is_neither_tried_nor_measured() {
    let folder = folder("echo");
    let key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    let config =
        format!("stream = \"s\"\n[integrity]\nrequire-signature = true\nkeys = [{key:?}]\n");
    std::fs::write(folder.path().join("host.toml"), config).unwrap();
    std::fs::write(folder.path().join("records"), "a record\n").unwrap();
    for command in [
        &["test", "echo.wasm", "--input", "records"][..],
        &["bench", "echo.wasm", "--rounds", "1", "--records", "10"],
    ] {
        let args = [command, &["--config", "host.toml"]].concat();
        let refused = shardmill(&args, folder.path()).await;
        let told = text(&refused.stderr);
        assert!(
            !refused.status.success() && told.contains("it is not signed"),
            "{args:?}: {told}"
        );
        let said = text(&refused.stdout);
        assert!(!said.contains("a record"), "{args:?}: it ran: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_benchmark_shows_its_figures_and_fails_if_the_plugin_does() {
    let folder = folder("noop");
    let args = |plugin: &'static str| {
        [
            "bench",
            plugin,
            "--json",
            "--rounds",
            "2",
            "--records",
            "1000",
        ]
    };
    let measured = shardmill(&args("noop.wasm"), folder.path()).await;
    assert!(measured.status.success(), "{}", text(&measured.stderr));
    let report: Value = serde_json::from_slice(&measured.stdout).unwrap();
    for figure in ["plugin", "empty-component", "native-no-op"] {
        assert!(
            report[figure]["nanos-per-record"]["median"]
                .as_f64()
                .unwrap()
                > 0.0,
            "{report}"
        );
    }
    assert!(
        report["memory-bytes"].as_u64().unwrap() >= 64 << 10
            && report["instantiate"]["min"].as_f64() > Some(0.0)
    );

    std::fs::write(folder.path().join("evil.wasm"), guest("evil")).unwrap();
    std::fs::write(
        folder.path().join("evil.toml"),
        "[config]\nmisbehave = \"trap\"\n",
    )
    .unwrap();
    let trapped = shardmill(&args("evil.wasm"), folder.path()).await;
    assert_eq!(trapped.status.code(), Some(1));
    assert!(
        text(&trapped.stderr).contains("failed in batch 1"),
        "{}",
        text(&trapped.stderr)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_which_a_record_fails_is_a_batch() {
    let folder = folder("earthquakes");
    let sample = repository().join("examples/earthquakes/sample.ndjson");
    let sample = std::fs::read_to_string(sample).unwrap();
    let good = sample.lines().next().unwrap();
    std::fs::write(folder.path().join("lines"), format!("not json\n{good}\n")).unwrap();
    let args = [
        "test",
        "earthquakes.wasm",
        "--input",
        "lines",
        "--attempts",
        "1",
        "--allow-failures",
        "--json",
    ];
    let ended = shardmill(&args, folder.path()).await;
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    let report: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(
        report["failures"].as_array().map(Vec::len),
        Some(1),
        "{report}"
    );
    assert_eq!(report["batches"], 1, "{report}");
}
