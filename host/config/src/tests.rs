use std::path::Path;
use std::time::Duration;

use shardmill_core::backoff::Backoff;
use shardmill_core::pipeline::CheckpointPolicy;
use shardmill_core::plugin::PluginName;
use shardmill_core::stream::{InitialPosition, StreamRef};
use shardmill_worker::{BatchLimits, ReadLimits};

use super::*;

mod wrong_types;

fn config(text: &str) -> Config {
    Config::parse(text, Path::new("/etc/shardmill")).unwrap()
}

fn orders() -> PluginName {
    PluginName::new("orders").unwrap()
}

/// The manifest of `orders`, read from a file as the host reads it.
fn manifest(text: &str) -> Result<Manifest, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    let path = Manifest::path_in(folder.path(), &orders());
    std::fs::write(&path, text).unwrap();
    Ok(Manifest::read(&path)?.unwrap())
}

fn shown(streams: &[StreamConfig]) -> Vec<(String, &str)> {
    streams
        .iter()
        .map(|one| (one.stream.to_string(), one.application.as_str()))
        .collect()
}

#[test]
fn a_plugin_without_settings_has_the_general_ones() {
    let config =
        config("stream = \"events\"\ninitial-position = \"latest\"\n[batch]\nrecords = 7\n");
    let settings = config.of_plugin(&orders(), None).unwrap();
    assert_eq!(shown(&settings.streams), [("events".to_owned(), "orders")]);
    assert_eq!(
        settings.streams[0].initial_position,
        InitialPosition::Latest
    );
    assert_eq!(
        (settings.batches.records, settings.batches.bytes),
        (7, BatchLimits::default().bytes)
    );
    assert_eq!(
        (settings.checkpoints, settings.retry),
        (CheckpointPolicy::default(), Backoff::standard())
    );
}

#[test]
fn the_hosts_section_wins_over_the_manifest_key_by_key_and_both_over_the_general_settings() {
    let config = config(
        "stream = \"events\"\n[batch]\nrecords = 1\nbytes = \"1MiB\"\nwindow = \"1s\"\n\
         [plugin.orders]\napplication = \"orders-v2\"\nbatch.records = \
         3\n[plugin.orders.config]\nlevel = \"host\"\n",
    );
    let manifest = manifest(
        "application = \"theirs\"\n[batch]\nrecords = 2\nbytes = \"2MiB\"\n[retry]\nbase = \"1m\"\n\
         [config]\nlevel = \"theirs\"\nname = \"theirs\"\n",
    )
    .unwrap();
    let settings = config.of_plugin(&orders(), Some(&manifest)).unwrap();
    assert_eq!(
        shown(&settings.streams),
        [("events".to_owned(), "orders-v2")]
    );
    assert_eq!(
        settings.batches,
        BatchLimits {
            records: 3,
            bytes: 2 << 20,
            window: Duration::from_secs(1)
        }
    );
    assert_eq!(settings.retry.base(), Duration::from_mins(1));
    let values: Vec<_> = settings
        .config
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    assert_eq!(values, [("level", "host"), ("name", "theirs")]);
}

#[test]
fn the_stream_under_stream_keeps_the_applications_table_and_each_under_streams_has_one_of_its_own()
{
    let arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/clicks";
    let text = format!(
        "[plugin.orders]\nstream = \"events\"\ninitial-position = \"latest\"\n\
         streams = [\"returns\", {{ stream = \"{arn}\", initial-position = \
         \"2026-01-31T00:00:00Z\" }}]\n"
    );
    let settings = config(&text).of_plugin(&orders(), None).unwrap();
    let expected = [
        ("events".to_owned(), "orders"),
        ("returns".to_owned(), "orders.returns"),
        (arn.to_owned(), "orders.123456789012.clicks"),
    ];
    assert_eq!(shown(&settings.streams), expected);
    let labels: Vec<_> = settings
        .streams
        .iter()
        .map(|one| one.label.as_str())
        .collect();
    assert_eq!(
        labels,
        ["orders", "orders.returns", "orders.123456789012.clicks"]
    );
    let positions: Vec<_> = settings
        .streams
        .iter()
        .map(|one| one.initial_position)
        .collect();
    let at = InitialPosition::AtTimestamp(1_769_817_600_000);
    assert_eq!(
        positions,
        [InitialPosition::Latest, InitialPosition::Latest, at]
    );
}

#[test]
fn a_host_that_names_streams_reads_none_of_the_manifests() {
    let manifest = manifest("stream = \"theirs\"\nstreams = [\"more\"]\n").unwrap();
    let settings = config("[plugin.orders]\nstream = \"ours\"\n")
        .of_plugin(&orders(), Some(&manifest))
        .unwrap();
    assert_eq!(shown(&settings.streams), [("ours".to_owned(), "orders")]);
    let allows = "stream = \"general\"\n[ceilings]\nstreams = [\"theirs\", \"more\"]\n";
    let settings = config(allows)
        .of_plugin(&orders(), Some(&manifest))
        .unwrap();
    assert_eq!(
        shown(&settings.streams),
        [
            ("theirs".to_owned(), "orders"),
            ("more".to_owned(), "orders.more")
        ]
    );
}

#[test]
fn a_plugin_that_no_one_gave_a_stream_is_refused_with_the_mend() {
    let problem = config("").of_plugin(&orders(), None).unwrap_err();
    assert!(problem.contains("set `stream` in orders.toml"), "{problem}");
}

#[test]
fn a_section_that_cannot_work_is_refused_with_its_line() {
    for (text, named) in [
        ("[plugin.orders]\nstraem = \"s\"\n", "line 2"),
        ("[plugin.orders]\nstreams = [7]\n", "a stream's name or ARN"),
        (
            "[plugin.orders]\nstreams = [{ stream = \"s\", start = \"latest\" }]\n",
            "unknown field `start`",
        ),
        (
            "[plugin.orders]\nstreams = [\"a\", \"a\"]\n",
            "line 2: plugin.orders.streams: a is named twice",
        ),
        (
            "[plugin.orders]\nstream = \"arn:aws:sns:x\"\n",
            "line 2: plugin.orders.stream",
        ),
        (
            "[plugin.orders]\napplication = \"a b\"\n",
            "line 2: plugin.orders.application",
        ),
        (
            "[batch]\nrecords = 5\n[plugin.orders.batch]\nrecords = 0\n",
            "line 4: plugin.orders.batch.records",
        ),
        (
            "[plugin.orders]\nbatch.bytes = \"200MiB\"\n",
            "line 2: plugin.orders.batch.bytes: must be at most half",
        ),
        (
            "[plugin.orders.batch]\nwindow = \"6m\"\n",
            "line 2: plugin.orders.batch.window",
        ),
        (
            "[plugin.orders.retry]\nbase = \"0s\"\n",
            "line 2: plugin.orders.retry.base",
        ),
        (
            "[plugin.orders]\ninitial-position = \"soon\"\n",
            "line 2: plugin.orders.initial-position",
        ),
        ("[plugin.x]\n", "plugin.x: \"x\" cannot name a plugin"),
    ] {
        let problem = Config::parse(text, Path::new(".")).unwrap_err();
        assert!(problem.contains(named), "{text}: {problem}");
    }
}

#[test]
fn reads_and_leases_that_cannot_work_are_refused_with_their_line() {
    for (section, key, value) in [
        ("reads", "records-per-call", "20000"),
        ("reads", "records-per-call", "0"),
        ("reads", "calls-per-second", "0.0"),
        ("reads", "bytes-per-second", "\"0B\""),
        ("reads", "idle-every", "\"6m\""),
        ("reads", "idle-max", "\"1h\""),
        ("reads", "idle-max", "\"1ms\""),
        ("leases", "duration", "\"999ms\""),
        ("leases", "renew-every", "\"9s\""),
        ("leases", "scan-every", "\"0s\""),
        ("leases", "shard-sync-every", "\"0s\""),
        ("leases", "max", "0"),
        ("leases", "read-deadline", "\"9s\""),
    ] {
        let text = format!("stream = \"s\"\n[{section}]\n{key} = {value}\n");
        let problem = Config::parse(&text, Path::new(".")).unwrap_err();
        assert!(
            problem.starts_with(&format!("line 3: {section}.{key}: ")),
            "{problem}"
        );
    }
    let slow = config("[reads]\nidle-every = \"4m\"\n[leases]\nduration = \"30m\"\n");
    assert_eq!(
        slow.reads.idle_max,
        ReadLimits::SLOWEST,
        "the default keeps to the bound"
    );
    assert_eq!(slow.leases.read_deadline, slow.leases.duration);
}

#[test]
fn a_manifest_that_cannot_work_names_file_line_and_mend() {
    let broken = manifest("batch = \n").unwrap_err().to_string();
    assert!(broken.contains("orders.toml: line 1: batch ="), "{broken}");
    let refused = |text: &str| {
        config("stream = \"s\"\n")
            .of_plugin(&orders(), Some(&manifest(text).unwrap()))
            .unwrap_err()
    };
    for (text, named) in [
        ("batch = 7\n", "orders.toml: line 1: batch: invalid type"),
        ("failrue = 1\n", "did you mean `failure`?"),
    ] {
        let problem = refused(text);
        assert!(
            problem.contains(named) && problem.contains("orders.toml"),
            "{problem}"
        );
    }
    let bad = manifest("stream = \"s\"\n[batch]\nrecords = 0\n").unwrap();
    let problem = config("stream = \"s\"\n")
        .of_plugin(&orders(), Some(&bad))
        .unwrap_err();
    assert!(
        problem.contains("orders.toml: line 3: batch.records: must be at least 1"),
        "{problem}"
    );
    // What is over it may contradict it; then both places are named.
    let good = manifest("stream = \"s\"\nretry.base = \"1s\"\n").unwrap();
    let over =
        config("stream = \"s\"\n[plugin.orders]\nretry.cap = \"500ms\"\nretry.base = \"100ms\"\n");
    assert!(
        over.of_plugin(&orders(), Some(&good)).is_ok(),
        "the host's base wins"
    );
}

#[test]
fn a_manifest_of_things_in_things_without_end_is_refused_and_costs_no_stack() {
    for text in [
        format!("batch = {}", "[".repeat(30_000)),
        format!("batch = {}", "{ a = ".repeat(10_000)),
        format!("{}a = 1", "a.".repeat(20_000)),
        format!("[a{}]", ".a".repeat(20_000)),
    ] {
        let problem = manifest(&text).unwrap_err().to_string();
        assert!(problem.contains("orders.toml"), "{problem}");
    }
}

#[test]
fn only_a_regular_file_of_a_sane_size_is_a_manifest() {
    let folder = tempfile::tempdir().unwrap();
    let path = Manifest::path_in(folder.path(), &orders());
    assert_eq!(Manifest::read(&path).unwrap(), None, "none is fine");
    std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
    assert!(
        Manifest::read(&path)
            .unwrap_err()
            .to_string()
            .contains("symbolic link")
    );
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(
        Manifest::read(&path)
            .unwrap_err()
            .to_string()
            .contains("not a regular file")
    );
    std::fs::remove_dir(&path).unwrap();
    std::fs::write(&path, "#".repeat(70_000)).unwrap();
    assert!(
        Manifest::read(&path)
            .unwrap_err()
            .to_string()
            .contains("more than 65536 bytes")
    );
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(
        Manifest::read(&path)
            .unwrap_err()
            .to_string()
            .contains("UTF-8")
    );
}

#[test]
fn an_applications_stream_is_found_by_what_its_leases_are_kept_under() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("plugins")).unwrap();
    let manifest = "stream = \"clicks\"\ninitial-position = \"latest\"\n";
    std::fs::write(folder.path().join("plugins/web.toml"), "broken").unwrap();
    std::fs::write(folder.path().join("plugins/webshop.toml"), manifest).unwrap();
    let text = "[ceilings]\nstreams = [\"clicks\"]\n\
                [plugin.orders]\napplication = \"sales\"\nstreams = [\"returns\"]\n";
    let config = Config::parse(text, folder.path()).unwrap();
    let found = |application: &str| {
        config
            .stream_of_application(application)
            .map(|one| one.stream.to_string())
    };
    assert_eq!(found("sales.returns").as_deref(), Some("returns"));
    assert_eq!(found("webshop").as_deref(), Some("clicks"));
    assert_eq!(found("sales"), None);
    let all: Vec<_> = config
        .streams_of_plugins()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(all, ["clicks", "returns"]);
}

#[test]
fn an_arn_may_stand_wherever_a_name_may() {
    let arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/clicks";
    let config = config(&format!("stream = \"{arn}\"\n"));
    assert_eq!(config.stream, Some(StreamRef::parse(arn).unwrap()));
}

#[test]
fn a_worker_id_that_would_not_fit_into_a_row_a_log_line_or_a_table_is_refused_with_its_line() {
    for (id, expected) in [
        (r"host\u001b[2J1", "control character"),
        (r"host\n1", "control character"),
        ("host 1", "white space"),
        ("", "must not be empty"),
        (&"h".repeat(129), "129 bytes long, at most are 128"),
        (
            "env:HOSTNAME",
            "set the variable SHARDMILL_WORKER_ID to what HOSTNAME holds",
        ),
    ] {
        let told = Config::parse(
            &format!("stream = \"s\"\nworker-id = \"{id}\"\n"),
            Path::new("."),
        )
        .unwrap_err();
        assert!(
            told.contains("line 2: worker-id") && told.contains(expected),
            "{id:?}: {told}"
        );
    }
    let longest = "h".repeat(128);
    let config = Config::parse(
        &format!("stream = \"s\"\nworker-id = \"{longest}\"\n"),
        Path::new("."),
    )
    .unwrap();
    assert_eq!(config.worker_id.as_str(), longest);
}

#[test]
fn two_sinks_of_one_file_are_refused_however_its_path_is_written() {
    for (one, other) in [("o", "./o"), ("o", "o"), ("a/./o", "a/o")] {
        let sinks = format!(
            "[sinks.a]\ntype = \"file\"\npath = \"{one}\"\n[sinks.b]\ntype = \"file\"\npath = \
                \"{other}\"\n"
        );
        for folder in ["", ".", "/etc/shardmill"] {
            let told =
                Config::parse(&format!("stream = \"s\"\n{sinks}"), Path::new(folder)).unwrap_err();
            assert!(
                told.contains("is the file of sinks.a too"),
                "{one} and {other} in {folder:?}: {told}"
            );
        }
    }
}

/// The place of each problem in a message that lists several.
fn places(told: &str) -> Vec<&str> {
    let mut lines = told.lines();
    let count = lines.next().unwrap_or_default();
    let places: Vec<&str> = lines
        .map(|line| line.trim().splitn(3, ": ").take(2).last().unwrap())
        .collect();
    assert!(
        count.ends_with(&format!("{} problems:", places.len())),
        "{told}"
    );
    places
}

#[test]
fn ten_mistakes_in_a_file_are_reported_at_once_in_its_order_with_what_was_meant() {
    let text = "straem = \"orders\"\n\
        worker-id = 5\n\
        [leases]\n\
        duration = \"10 parsecs\"\n\
        max = 0\n\
        [reads]\n\
        retrieval = \"pushing\"\n\
        [sinks.out]\n\
        type = \"file\"\n\
        paht = \"out.ndjson\"\n\
        [sinks.web]\n\
        type = \"http\"\n\
        url = \"example\"\n\
        timeout = 3\n\
        [failure]\n\
        on-exhausted = \"dead-letter\"\n\
        dead-letter = \"nowhere\"\n\
        [plugin.orders.batch]\n\
        records = 0\n";
    let told = Config::parse(text, Path::new(".")).unwrap_err();
    let expected = [
        "straem",
        "worker-id",
        "leases.duration",
        "leases.max",
        "reads.retrieval",
        "sinks.out.paht",
        "sinks.web.url",
        "sinks.web.timeout",
        "failure.dead-letter",
        "plugin.orders.batch.records",
    ];
    assert_eq!(places(&told), expected, "{told}");
    for part in [
        "line 1: straem: unknown field `straem`; did you mean `stream`?",
        "line 2: worker-id: invalid type: integer `5`, expected a string; text is written in quotes",
        "line 4: leases.duration: ",
        "such as \"500ms\", \"10s\" or \"5m\"",
        "line 5: leases.max: must be at least 1",
        "line 7: reads.retrieval: unknown value `pushing`; did you mean `polling`?",
        "line 10: sinks.out.paht: unknown field `paht`; did you mean `path`?",
        "line 13: sinks.web.url: ",
        "line 14: sinks.web.timeout: ",
        "line 17: failure.dead-letter: no sink is named \"nowhere\"",
        "line 19: plugin.orders.batch.records: must be at least 1",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn what_follows_from_another_mistake_is_not_reported_beside_it() {
    for (text, expected) in [
        (
            "[sinks.out]\ntype = \"file\"\n[failure]\non-exhausted = \"dead-letter\"\n\
             dead-letter = \"out\"\n[plugin.orders]\nsinks = [\"out\"]\n",
            "line 1: sinks.out: missing field `path`",
        ),
        (
            "[failure]\non-exhausted = \"dead-letter\"\ndead-letter = 5\n",
            "line 3: failure.dead-letter: invalid type",
        ),
        (
            "[host]\nbuffer = \"much\"\n[plugin.orders.batch]\nbytes = \"200MiB\"\n",
            "line 2: host.buffer: ",
        ),
        (
            "[leases]\nduration = 60\nrenew-every = \"20s\"\n",
            "line 2: leases.duration: invalid type",
        ),
    ] {
        let told = Config::parse(&format!("stream = \"s\"\n{text}"), Path::new(".")).unwrap_err();
        let expected = expected.replacen("line ", "", 1);
        let (line, rest) = expected.split_once(": ").unwrap();
        let expected = format!("line {}: {rest}", line.parse::<u32>().unwrap() + 1);
        assert!(told.starts_with(&expected), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
}

#[test]
fn a_file_that_is_nothing_but_mistakes_is_reported_within_bounds() {
    let keys: Vec<_> = (0..500).map(|key| format!("key-{key} = 1\n")).collect();
    let keys = keys.concat();
    let told = Config::parse(&keys, Path::new(".")).unwrap_err();
    assert_eq!(
        told.lines().count(),
        22,
        "a heading, twenty, and that there are more: {told}"
    );
    assert!(told.ends_with("and more: fix these first"), "{told}");
    let broken = Config::parse("stream =\n[leases\nmax = 1\n= 5\n", Path::new(".")).unwrap_err();
    for line in ["line 1: stream =: ", "line 2: [leases: ", "line 4: = 5: "] {
        assert!(broken.contains(line), "{broken}");
    }
}

#[test]
fn all_mistakes_of_a_manifest_are_reported_at_once_be_it_key_type_value_or_ceiling() {
    let text = "straem = \"s\"\nstream = \"payroll\"\n[batch]\nrecords = 0\nwindow = 7\n\
                [limits]\nmemory = \"64GiB\"\n[config]\n\"shardmill.destinations\" = \"y\"\n[grants]\nhttp = [\"example.com\"]\n";
    let told = config("stream = \"s\"\n")
        .of_plugin(&orders(), Some(&manifest(text).unwrap()))
        .unwrap_err();
    let expected = [
        "straem",
        "stream",
        "batch.records",
        "batch.window",
        "limits.memory",
        "config.shardmill.destinations",
        "grants.http",
    ];
    assert_eq!(places(&told), expected, "{told}");
    assert!(told.contains("orders.toml: 7 problems:\n"), "{told}");
}
