//! The commands as a newcomer types them.

use harness::guests::guest;
use harness::process::{Host, eventually, repository, shardmill};
use harness::setting::Setting;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn folder_with_earthquakes() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("plugins")).unwrap();
    std::fs::write(
        folder.path().join("plugins/earthquakes.wasm"),
        guest("earthquakes"),
    )
    .unwrap();
    folder
}

fn sample() -> String {
    repository()
        .join("examples/earthquakes/sample.ndjson")
        .display()
        .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_feeds_prints_alerts_ends_when_idle_and_resumes_without_repeats() {
    let folder = folder_with_earthquakes();
    let sample = sample();
    let args = [
        "dev",
        "--feed",
        &sample,
        "--key-field",
        "properties.net",
        "--until-idle",
    ];
    let first = shardmill(&args, folder.path()).await;
    let (out, log) = (text(&first.stdout), text(&first.stderr));
    assert!(first.status.success(), "{log}");
    let alerts = out
        .lines()
        .filter(|line| line.contains("\"magnitude\""))
        .count();
    assert!(alerts > 2, "{out}");
    assert!(
        out.contains("earthquakes (") && out.contains("all checkpointed"),
        "{out}"
    );

    // The data directory remembers stream and checkpoints: nothing is left to do, nothing comes
    // again.
    let again = shardmill(&["dev", "--until-idle", "--json"], folder.path()).await;
    assert!(again.status.success(), "{}", text(&again.stderr));
    let summary: serde_json::Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(summary["plugins"]["earthquakes"]["records"], 0, "{summary}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_that_gave_records_up_says_how_many_and_ends_with_a_code_of_its_own() {
    let folder = folder_with_earthquakes();
    std::fs::write(
        folder.path().join("c.toml"),
        "[failure]\nattempts = 1\non-exhausted = \"skip\"\n",
    )
    .unwrap();
    let input = "not json\n".repeat(3) + &std::fs::read_to_string(sample()).unwrap();
    std::fs::write(folder.path().join("lines"), input).unwrap();
    let args = [
        "dev",
        "--config",
        "c.toml",
        "--feed",
        "lines",
        "--until-idle",
        "--json",
    ];
    let ended = shardmill(&args, folder.path()).await;
    assert_eq!(ended.status.code(), Some(65), "{}", text(&ended.stderr));
    assert!(
        text(&ended.stderr).contains("error: 3 record(s) were given up"),
        "{}",
        text(&ended.stderr)
    );
    let out = text(&ended.stdout);
    let summary: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_eq!(summary["plugins"]["earthquakes"]["skipped"], 3, "{summary}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_with_a_plugin_whose_destination_does_not_exist_ends_by_itself_and_says_why() {
    let folder = folder_with_earthquakes();
    std::fs::write(
        folder.path().join("c.toml"),
        "[plugin.earthquakes.config]\ndestination = \"nowhere\"\n",
    )
    .unwrap();
    let sample = sample();
    let args = [
        "dev",
        "--config",
        "c.toml",
        "--feed",
        &sample,
        "--key-field",
        "properties.net",
        "--until-idle",
    ];
    let ended = shardmill(&args, folder.path()).await;
    let told = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{told}");
    let last = told.lines().last().unwrap_or_default();
    assert!(
        last.contains("is held after") && last.contains("nowhere"),
        "{told}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_beside_a_file_that_is_refused_does_the_rest_and_ends_with_the_reason() {
    let folder = folder_with_earthquakes();
    std::fs::write(
        folder.path().join("plugins/earthquakes-state.wasm"),
        guest("earthquakes"),
    )
    .unwrap();
    let sample = sample();
    let args = [
        "dev",
        "--feed",
        &sample,
        "--key-field",
        "properties.net",
        "--until-idle",
    ];
    let ended = shardmill(&args, folder.path()).await;
    let told = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{told}");
    assert!(
        text(&ended.stdout).contains("\"magnitude\""),
        "the others run"
    );
    let last = told.lines().last().unwrap_or_default();
    assert!(
        last.contains("plugin earthquakes-state was refused") && last.contains("ends in"),
        "{told}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_without_a_plugin_says_so_instead_of_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let ended = shardmill(&["dev", "--until-idle"], folder.path()).await;
    assert!(!ended.status.success());
    assert!(
        text(&ended.stderr).contains("no working plugin"),
        "{}",
        text(&ended.stderr)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn check_shows_what_a_file_is_and_refuses_what_is_not_a_plugin() {
    let folder = folder_with_earthquakes();
    let good = shardmill(
        &["check", "plugins/earthquakes.wasm", "--json"],
        folder.path(),
    )
    .await;
    assert!(good.status.success(), "{}", text(&good.stderr));
    let report: serde_json::Value = serde_json::from_slice(&good.stdout).unwrap();
    assert_eq!(report["contract"], "0.1.0");
    assert!(report["refusal"].is_null() && report["compile-ms"].as_f64().unwrap() > 0.0);
    std::fs::write(folder.path().join("text.wasm"), "(module)").unwrap();
    let bad = shardmill(&["check", "text.wasm"], folder.path()).await;
    assert!(!bad.status.success());
    assert!(
        text(&bad.stderr).contains("refuse"),
        "{}",
        text(&bad.stderr)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_configuration_is_refused_with_its_line_and_exit_code_64() {
    let folder = tempfile::tempdir().unwrap();
    for (config, expected) in [
        ("stream = \"s\"\nstraem = 1\n", "line 2"),
        (
            "stream = \"s\"\n[leases]\nduration = \"10s\"\nrenew-every = \"9s\"\n",
            "line 4: leases.renew-every",
        ),
        (
            "stream = \"s\"\ninitial-position = \"yesterday\"\n",
            "line 2: initial-position",
        ),
        ("stream = \"s\"\n[limits]\nmemory = \"many\"\n", "line 3"),
        (
            "stream = \"s\"\n[failure]\nattempts = 3\n",
            "line 3: failure.attempts",
        ),
        ("stream = 7\n", "line 1"),
        ("[batch]\nrecords = -1\n", "line 2"),
        (
            "[plugin.orders]\nstream = \"two words\"\n",
            "line 2: plugin.orders.stream",
        ),
    ] {
        std::fs::write(folder.path().join("shardmill.toml"), config).unwrap();
        let ended = shardmill(&["run"], folder.path()).await;
        assert_eq!(ended.status.code(), Some(64), "{config}");
        assert!(
            text(&ended.stderr).contains(expected),
            "{config}: {}",
            text(&ended.stderr)
        );
    }
    let checked = async |config: &str| {
        std::fs::write(folder.path().join("shardmill.toml"), config).unwrap();
        let ended = shardmill(&["run", "--check", "--json"], folder.path()).await;
        let report: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
        (ended.status.code(), report)
    };
    let (code, report) = checked("straem = \"s\"\n[leases]\nmax = 0\n").await;
    assert_eq!(
        (code, &report["good"]),
        (Some(64), &false.into()),
        "{report}"
    );
    let problems = report["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 3, "{report}");
    assert!(
        problems[2].as_str().unwrap().contains("no plugins folder"),
        "{report}"
    );
    assert!(
        problems[1]
            .as_str()
            .unwrap()
            .starts_with("line 3: leases.max: "),
        "{report}"
    );
    std::fs::create_dir(folder.path().join("plugins")).unwrap();
    let (code, report) = checked("stream = \"s\"\n[plugin.ghost]\n").await;
    assert_eq!((code, &report["good"]), (Some(0), &true.into()), "{report}");
    assert_eq!(
        report["warnings"].as_array().map(Vec::len),
        Some(1),
        "{report}"
    );
    std::fs::write(folder.path().join("shardmill.toml"), [0xff, 0xfe]).unwrap();
    assert_eq!(
        shardmill(&["run"], folder.path()).await.status.code(),
        Some(64)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn put_names_the_bad_line_and_what_was_stored_before() {
    let setting = Setting::new(1).await;
    std::fs::write(
        setting.path().join("bad.ndjson"),
        "{\"flight\":1}\n{\"flight\":2}\nnonsense\n",
    )
    .unwrap();
    let args = [
        "put",
        "--local",
        "--stream",
        "flights",
        "--key-field",
        "flight",
        "bad.ndjson",
    ];
    let ended = shardmill(&args, setting.path()).await;
    assert!(!ended.status.success());
    let log = text(&ended.stderr);
    assert!(
        log.contains("stored 2 records") && log.contains("line 3"),
        "{log}"
    );
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_shows_a_row_for_each_shard() {
    let setting = Setting::new(3).await;
    setting.drop_plugin("flights", &guest("flights"));
    let host = setting.host("a");
    while setting
        .leases("flights")
        .await
        .iter()
        .filter(|lease| lease.owner.is_some())
        .count()
        < 3
    {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let shown = shardmill(&["leases", "flights", "--local"], setting.path()).await;
    let table = text(&shown.stdout);
    assert_eq!(
        table
            .lines()
            .filter(|line| line.contains("shardId-"))
            .count(),
        3,
        "{table}"
    );
    assert!(table.contains("TRIM_HORIZON"), "{table}");
    for (watch_for, life) in [("0s", "unwatched"), ("1500ms", "live")] {
        let shown = shardmill(
            &[
                "leases",
                "flights",
                "--local",
                "--watch-for",
                watch_for,
                "--json",
            ],
            setting.path(),
        )
        .await;
        let rows: Vec<serde_json::Value> = serde_json::from_slice(&shown.stdout).unwrap();
        assert!(
            rows.iter().all(|row| row["owner-life"] == life),
            "watched for {watch_for}: {rows:?}"
        );
    }
    assert!(host.terminate().await.success());
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_stack_on_the_same_data_directory_is_refused_by_name() {
    let folder = folder_with_earthquakes();
    let first = Host::start("first", &["dev"], folder.path());
    eventually("started", || {
        first.log().contains("embedded stack and host started")
    })
    .await;
    let second = shardmill(&["dev"], folder.path()).await;
    assert!(!second.status.success());
    assert!(
        text(&second.stderr).contains("data"),
        "{}",
        text(&second.stderr)
    );
    assert!(first.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn check_shows_settings_and_what_is_wrong_with_the_manifest() {
    let folder = folder_with_earthquakes();
    let manifest =
        |text: &str| std::fs::write(folder.path().join("plugins/earthquakes.toml"), text).unwrap();
    let check = async |more: &[&str]| {
        let args = [&["check", "plugins/earthquakes.wasm", "--json"], more].concat();
        let checked = shardmill(&args, folder.path()).await;
        let report: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
        (
            checked.status.success(),
            report["settings"].clone(),
            text(&checked.stderr),
        )
    };
    manifest(
        "stream = \"quakes\"\nsinks = [\"stdout\"]\n[batch]\nrecords = 7\n[checkpoint]\nage = \
            \"1m\"\n\
         [failure]\nattempts = 3\non-exhausted = \"skip\"\n[rollout]\nenabled = false\n\
         [limits]\nmemory = \"128MiB\"\nhandles = 99\n[grants]\nenv = [\"TZ\"]\n",
    );
    let (is_good, settings, log) = check(&[]).await;
    assert!(is_good, "{log}");
    assert_eq!(
        settings["streams"],
        serde_json::json!(["quakes"]),
        "{settings}"
    );
    assert_eq!(
        settings["limits"].as_object().map(serde_json::Map::len),
        Some(9),
        "all of them: {settings}"
    );
    assert_eq!(
        (
            &settings["limits"]["memory"],
            &settings["limits"]["handles"]
        ),
        (&"128.0 MiB".into(), &"99".into())
    );
    assert_eq!(settings["grants-asked"], serde_json::json!(["env TZ"]));
    for (section, told) in [
        ("sinks", "stdout"),
        ("batch", "7 records"),
        ("checkpoint", "or 1m"),
        ("failure", "skip after 3 attempts"),
        ("rollout", "off"),
    ] {
        assert!(
            settings[section].as_str().unwrap().contains(told),
            "{section}: {settings}"
        );
    }

    let ceilings = "stream = \"s\"\n[ceilings]\nstreams = [\"quakes\"]\nmemory = \"100MiB\"\n";
    std::fs::write(folder.path().join("shardmill.toml"), ceilings).unwrap();
    let (is_good, settings, log) = check(&["--config", "shardmill.toml"]).await;
    assert!(
        !is_good && log.contains("earthquakes.toml: 2 problems:\n  line 13: limits.memory"),
        "{log}"
    );
    assert_eq!(settings["manifest"], true);

    manifest("straem = \"quakes\"\n");
    let (is_good, settings, _) = check(&[]).await;
    assert!(
        !is_good && settings["problem"].as_str().unwrap().contains("straem"),
        "{settings}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn check_refuses_what_the_host_would_refuse() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["noop", "totals"] {
        std::fs::write(folder.path().join(format!("{name}.wasm")), guest(name)).unwrap();
    }
    let key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    let (signed, foreign) = (
        format!("require-signature = true\nkeys = [{key:?}]"),
        "ab".repeat(32),
    );
    let state = "[grants]\nstate = true\n";
    for (plugin, config, manifest, expected) in [
        (
            "noop",
            format!("[integrity]\n{signed}"),
            "",
            "it is not signed",
        ),
        (
            "noop",
            format!("[plugin.noop.integrity]\n{signed}"),
            "",
            "it is not signed",
        ),
        (
            "noop",
            format!("[integrity]\nallowed-digests = [{foreign:?}]"),
            "",
            "is not among integrity.allowed-digests",
        ),
        (
            "noop",
            "[host]\nplugin-bytes-max = \"1KiB\"".to_owned(),
            "",
            "more than the 1024 allowed",
        ),
        (
            "noop",
            "[compile]\ncode = \"1KiB\"".to_owned(),
            "",
            "compile.code",
        ),
        (
            "noop",
            String::new(),
            "world = \"0.1.7\"",
            "world is \"0.1.7\", and the component is built for \"0.1.0\"",
        ),
        (
            "noop",
            String::new(),
            state,
            "this version exports no save and load",
        ),
        (
            "totals",
            String::new(),
            "",
            "the plugin is not granted state",
        ),
        (
            "totals",
            "[ceilings.grants]\nstate = false".to_owned(),
            state,
            "grants.state",
        ),
    ] {
        std::fs::write(folder.path().join(format!("{plugin}.toml")), manifest).unwrap();
        std::fs::write(
            folder.path().join("host.toml"),
            format!("stream = \"s\"\n{config}\n"),
        )
        .unwrap();
        let file = format!("{plugin}.wasm");
        let with = shardmill(&["check", &file, "--config", "host.toml"], folder.path()).await;
        assert_eq!(
            with.status.code(),
            Some(1),
            "{expected}: {}",
            text(&with.stdout)
        );
        for told in [text(&with.stdout), text(&with.stderr)] {
            assert!(told.contains(expected), "{expected}: {told}");
        }
        // What a configuration forbids is not wrong in itself.
        let without = shardmill(&["check", &file], folder.path()).await;
        assert_eq!(
            without.status.success(),
            !config.is_empty(),
            "{expected}: {}",
            text(&without.stdout)
        );
    }
    std::fs::write(folder.path().join("totals.toml"), state).unwrap();
    let good = shardmill(&["check", "totals.wasm"], folder.path()).await;
    assert!(good.status.success(), "{}", text(&good.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn check_shows_what_would_change_against_the_version_that_runs() {
    let setting = Setting::new(1).await;
    setting.drop_plugin("flights", &guest("noop_lists"));
    let last = setting.put(&harness::flights::input()).await;
    let host = setting.host("a");
    setting.until_checkpointed("flights", &last).await;
    std::fs::create_dir(setting.path().join("new")).unwrap();
    std::fs::write(setting.path().join("new/flights.wasm"), guest("flights")).unwrap();
    std::fs::write(
        setting.path().join("shardmill.toml"),
        "stream = \"flights\"\nplugins = \"plugins\"\n",
    )
    .unwrap();
    let check = async |file: &str| {
        let args = [
            "check",
            file,
            "--config",
            "shardmill.toml",
            "--running",
            "--local",
            "--json",
        ];
        let checked = shardmill(&args, setting.path()).await;
        assert!(checked.status.success(), "{}", text(&checked.stderr));
        serde_json::from_slice::<serde_json::Value>(&checked.stdout).unwrap()["running"].clone()
    };
    assert_eq!(check("plugins/flights.wasm").await["same"], true);
    let running = check("new/flights.wasm").await;
    assert_eq!(running["same"], false, "{running}");
    let added = running["changes"]["imports-added"].as_array().unwrap();
    assert!(
        added.iter().any(|name| name
            .as_str()
            .unwrap()
            .starts_with("shardmill:processor/emit@")),
        "{running}"
    );
    assert!(host.terminate().await.success());
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_asks_for_the_application_first_and_says_so_to_who_asks_the_old_way() {
    let folder = tempfile::tempdir().unwrap();
    let old = shardmill(&["explain", "3", "--application", "orders"], folder.path()).await;
    assert_eq!(old.status.code(), Some(2));
    assert!(
        text(&old.stderr).contains("shardmill explain <APPLICATION> <SHARD>"),
        "{}",
        text(&old.stderr)
    );
    let swapped = shardmill(&["explain", "3", "orders"], folder.path()).await;
    assert!(
        text(&swapped.stderr).contains("shardmill explain orders 3"),
        "{}",
        text(&swapped.stderr)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_describes_itself_to_people_shells_and_man() {
    let folder = tempfile::tempdir().unwrap();
    let said = async |args: &[&str]| {
        let ended = shardmill(args, folder.path()).await;
        assert!(ended.status.success(), "{args:?}: {}", text(&ended.stderr));
        text(&ended.stdout)
    };
    let help = said(&["--help"]).await;
    assert!(
        help.contains("\nWrite a plugin:\n  dev ") && help.contains("\nOperate hosts:\n  run "),
        "{help}"
    );
    let short = said(&["version"]).await;
    assert_eq!(short, said(&["-V"]).await);
    let long: serde_json::Value =
        serde_json::from_str(&said(&["version", "--verbose", "--json"]).await).unwrap();
    let fact = |name: &str| long[name].as_str().unwrap();
    assert_eq!(
        format!(
            "shardmill {} ({}, commit {})\n",
            fact("version"),
            fact("variant"),
            fact("commit")
        ),
        short
    );
    assert!(
        long["rustc"].as_str().unwrap().starts_with("rustc "),
        "{long}"
    );
    assert!(
        said(&["completions", "bash"])
            .await
            .contains("complete -F _shardmill")
    );
    said(&["man", "--out", "pages"]).await;
    let page = std::fs::read_to_string(folder.path().join("pages/shardmill-explain.1")).unwrap();
    assert!(
        page.contains("APPLICATION") && page.contains("watch"),
        "{page}"
    );
}
