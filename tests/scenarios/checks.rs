//! `run --check`: what would stop a host is shown before one starts.

use harness::guests::guest;
use harness::kcl_peer::KclPeer;
use harness::process::{binary, shardmill};
use harness::registry::Registry;
use harness::setting::{STREAM, Setting};
use shardmill_local::LOCAL_REGION;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_connects_shows_all_that_is_missing_at_once_and_makes_nothing() {
    let setting = Setting::new(1).await;
    let config = "stream = \"absent\"\n[sinks.out]\ntype = \"kinesis\"\nstream = \"nowhere\"\n\
                  [sinks.hook]\ntype = \"http\"\nurl = \"http://127.0.0.1:1/in\"\n";
    std::fs::write(setting.path().join("shardmill.toml"), config).unwrap();
    let checked = shardmill(&["run", "--check", "--connect", "--local"], setting.path()).await;
    let told = text(&checked.stderr);
    assert_eq!(checked.status.code(), Some(1), "{told}");
    for expected in [
        "stream absent",
        "there is no such stream: create it",
        "sinks.hook: cannot connect to 127.0.0.1:1",
        "sinks.out: there is no stream nowhere: create it",
    ] {
        assert!(told.contains(expected), "{expected} is not in {told}");
    }
    std::fs::write(
        setting.path().join("shardmill.toml"),
        "stream = \"flights\"\n",
    )
    .unwrap();
    let checked = shardmill(&["run", "--check", "--connect", "--local"], setting.path()).await;
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    assert!(
        text(&checked.stdout).contains("can be reached"),
        "{}",
        text(&checked.stdout)
    );
    let tables = setting.clients.dynamodb.list_tables().send().await.unwrap();
    assert!(tables.table_names().is_empty(), "{tables:?}");
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_connects_asks_for_state_and_fan_out_where_a_plugin_uses_them() {
    let setting = Setting::new(1).await;
    setting.drop_plugin("totals", &guest("totals"));
    let gone = "arn:aws:kinesis:us-east-1:000000000000:stream/flights/consumer/gone:1";
    let config = |consumer: &str| {
        format!(
            "stream = \"flights\"\n[ceilings.grants]\nstate = true\n[plugin.totals]\nretrieval = \
                \"fan-out\"\nconsumer = {consumer:?}\n[plugin.totals.grants]\nstate = true\n"
        )
    };
    let check = async |consumer: &str| {
        let file = setting.path().join("shardmill.toml");
        std::fs::write(file, config(consumer)).unwrap();
        let checked = shardmill(&["run", "--check", "--connect", "--local"], setting.path()).await;
        let told = text(&checked.stderr);
        (checked.status.success(), told)
    };
    let (is_good, told) = check("ours").await;
    assert!(is_good, "hosts make both: {told}");
    let (is_good, told) = check(gone).await;
    assert!(
        !is_good && told.contains("gone:1: it does not exist"),
        "{told}"
    );
    // A table of another shape in the place of the state's.
    let other = KclPeer::new(setting.clients.dynamodb.clone(), "totals-state");
    other.create_table("anotherKey").await;
    let (is_good, told) = check("ours").await;
    assert!(!is_good && told.contains("totals-state"), "{told}");
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_connects_refuses_checkpoints_of_another_stream_as_a_host_would() {
    let setting = Setting::new(1).await;
    setting.drop_plugin("flights", &guest("flights"));
    let last = setting.put(&harness::flights::input()).await;
    let host = setting.host("a");
    setting.until_checkpointed("flights", &last).await;
    assert!(host.terminate().await.success());
    let create = setting.clients.kinesis.create_stream();
    create
        .stream_name("another")
        .shard_count(1)
        .send()
        .await
        .unwrap();
    let check = async |stream: &str| {
        let config = format!("stream = {stream:?}\n");
        std::fs::write(setting.path().join("shardmill.toml"), config).unwrap();
        let checked = shardmill(&["run", "--check", "--connect", "--local"], setting.path()).await;
        (checked.status.success(), text(&checked.stderr))
    };
    let (is_good, told) = check(STREAM).await;
    assert!(is_good, "{told}");
    let (is_good, told) = check("another").await;
    let why = format!(
        "application flights has checkpoints of stream {STREAM}, but is configured to read another"
    );
    assert!(!is_good && told.contains(&why), "{told}");
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_connects_names_the_stream_of_another_region_and_asks_nothing_about_it() {
    let setting = Setting::new(1).await;
    setting.drop_plugin("totals", &guest("totals"));
    let stack = setting.stack();
    let config = format!(
        "stream = \"arn:aws:kinesis:eu-west-1:000000000000:stream/{STREAM}\"\n[aws]\nregion = \
            {LOCAL_REGION:?}\nkinesis-endpoint = {:?}\ndynamodb-endpoint = {:?}\n",
        stack.kinesis_endpoint(),
        stack.dynamodb_endpoint()
    );
    std::fs::write(setting.path().join("shardmill.toml"), config).unwrap();
    let checked = tokio::process::Command::new(binary())
        .args(["run", "--check", "--connect"])
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .current_dir(setting.path())
        .output()
        .await
        .unwrap();
    let told = text(&checked.stderr);
    let why = format!("is in region eu-west-1, this host in {LOCAL_REGION}: run a host there");
    assert!(!checked.status.success() && told.contains(&why), "{told}");
    assert_eq!(told.matches("error: ").count(), 1, "{told}");
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_connects_asks_for_what_is_pulled_and_for_what_it_reads() {
    let setting = Setting::new(1).await;
    let registry = Registry::start().await;
    let reference = registry.reference("totals", "1");
    let config = format!("stream = \"absent\"\nplugins = [\"plugins\", {reference:?}]\n");
    std::fs::write(setting.path().join("shardmill.toml"), config).unwrap();
    let checked = shardmill(&["run", "--check", "--connect", "--local"], setting.path()).await;
    let told = text(&checked.stderr);
    for expected in ["stream absent", &format!("{reference}: there is no")] {
        assert!(told.contains(expected), "{told}");
    }
    assert_eq!(checked.status.code(), Some(1), "{told}");
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_counts_the_plugins_for_which_the_buffer_has_room() {
    let folder = tempfile::tempdir().unwrap();
    let plugins = folder.path().join("plugins");
    std::fs::create_dir(&plugins).unwrap();
    let config = "stream = \"s\"\n[host]\nbuffer = \"20MiB\"\n[batch]\nbytes = \"1MiB\"\n";
    std::fs::write(folder.path().join("shardmill.toml"), config).unwrap();
    for (count, name) in ["one", "two", "three"].into_iter().enumerate() {
        std::fs::write(plugins.join(format!("{name}.wasm")), guest("echo")).unwrap();
        let checked = shardmill(&["run", "--check"], folder.path()).await;
        let told = text(&checked.stderr);
        let has_room = count < 2;
        assert_eq!(checked.status.success(), has_room, "{told}");
        let is_named = told.contains("host.buffer of 20 MiB is too small for plugin 3");
        assert_eq!(is_named, !has_room, "{told}");
    }
    // What is pulled counts as well.
    let pulled = "stream = \"s\"\nplugins = [\"plugins\", \"oci://r.example/four:1\"]\n[host]\n";
    let config = format!("{pulled}plugins-max = 3\n");
    std::fs::write(folder.path().join("shardmill.toml"), config).unwrap();
    let told = text(&shardmill(&["run", "--check"], folder.path()).await.stderr);
    assert!(
        told.contains("4 plugins are meant to run, but host.plugins-max is 3"),
        "{told}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_refuses_a_linked_signature_as_a_host_would() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    std::fs::create_dir(here.join("plugins")).unwrap();
    std::fs::write(here.join("plugins/echo.wasm"), guest("echo")).unwrap();
    std::fs::write(here.join("mounted"), [7; 64]).unwrap();
    std::os::unix::fs::symlink("../mounted", here.join("plugins/echo.wasm.sig")).unwrap();
    let key = "MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
    let config = format!("stream = \"s\"\n[integrity]\nkeys = [{key:?}]\n");
    std::fs::write(here.join("shardmill.toml"), config).unwrap();
    let checked = shardmill(&["run", "--check"], here).await;
    let told = text(&checked.stderr);
    assert!(
        !checked.status.success() && told.contains("signature"),
        "{told}"
    );
}
