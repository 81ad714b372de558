//! A filter in a manifest, on real earthquakes.

use harness::guests::guest;
use harness::process::{eventually, repository, shardmill};
use harness::setting::Setting;
use serde_json::Value;

/// Earthquakes of at least magnitude 4, as Lambda would filter them.
const MANIFEST: &str = r#"
[filter]
patterns = ['{"data": {"properties": {"type": ["earthquake"], "mag": [{"numeric": [">=", 4]}]}}}']
"#;

const READS: &str = "[host]\nadmin = \"127.0.0.1:0\"\n[plugin.echo.config]\ndestination = \"out\"\n\
    [reads]\ncalls-per-second = 50.0\nidle-every = \"50ms\"";

/// All lines of the sample, and those that the filter should pass.
fn sample() -> (Vec<String>, Vec<String>) {
    let text = std::fs::read_to_string(repository().join("examples/earthquakes/sample.ndjson"));
    let all: Vec<String> = text.unwrap().lines().map(str::to_owned).collect();
    let is_strong = |line: &&String| {
        let quake: Value = serde_json::from_str(line).unwrap();
        let properties = &quake["properties"];
        properties["type"] == "earthquake" && properties["mag"].as_f64() >= Some(4.0)
    };
    let strong = all.iter().filter(is_strong).cloned().collect();
    (all, strong)
}

#[tokio::test(flavor = "multi_thread")]
async fn only_records_that_pass_the_filter_are_processed_and_all_are_checkpointed() {
    let (all, strong) = sample();
    assert!(!strong.is_empty() && strong.len() < all.len() / 2);
    let setting = Setting::new(2).await;
    setting.drop_manifest("echo", MANIFEST);
    setting.drop_plugin("echo", &guest("echo"));
    let input = setting.path().join("input.ndjson");
    // The command takes the key from this field.
    let keyed = (0..).zip(&all).map(|(number, line): (u32, _)| {
        line.replacen('{', &format!("{{\"flight\": {number}, "), 1)
    });
    std::fs::write(&input, keyed.collect::<Vec<_>>().join("\n")).unwrap();
    let last = setting.put(&input).await;
    let host = setting.host_with("a", READS);
    eventually("the pages are served", || host.log().contains("http://")).await;
    setting.until_checkpointed("echo", &last).await;
    let filtered = "shardmill_records_filtered_total";
    let counts = [
        host.metric("shardmill_records_settled_total", "").await,
        host.metric(filtered, "no_match").await,
        host.metric(filtered, "not_json").await,
    ];
    let unmatched = all.len() - strong.len();
    let counts = counts.map(|count| count.to_string());
    let expected = [strong.len(), unmatched, 0].map(|count| count.to_string());
    assert_eq!(counts, expected);
    assert!(host.terminate().await.success());
    let output = std::fs::read_to_string(setting.output_of("a")).unwrap();
    assert_eq!(output.lines().count(), strong.len());
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn test_and_check_apply_and_show_the_filter() {
    let (all, strong) = sample();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("echo.wasm"), guest("echo")).unwrap();
    std::fs::write(folder.path().join("echo.toml"), MANIFEST).unwrap();
    std::fs::write(folder.path().join("in.ndjson"), all.join("\n")).unwrap();
    let tested = shardmill(
        &["test", "echo.wasm", "--input", "in.ndjson"],
        folder.path(),
    )
    .await;
    let told = String::from_utf8_lossy(&tested.stderr).into_owned();
    let filtered = all.len() - strong.len();
    let expected = format!("{} records ({filtered} of them filtered) in", all.len());
    assert!(told.contains(&expected), "{told}");
    let checked = shardmill(&["check", "echo.wasm"], folder.path()).await;
    let page = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(
        page.contains("\"mag\": [{\"numeric\": [\">=\", 4]}]"),
        "{page}"
    );
}
