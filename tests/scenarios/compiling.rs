//! Compiling in a process of its own: what it leaves to the host, and what a bomb gets.

use std::path::Path;
use std::time::Duration;

use harness::corpus::bombs::{compile_bomb, many_functions};
use harness::flights::{self, Output};
use harness::guests::{guest, marked, versioned};
use harness::process::{binary, eventually, filters_of, shardmill};
use harness::setting::Setting;
use serde_json::json;
use shardmill_core::plugin::PluginName;
use shardmill_serve::engine::COMPILE_COMMAND;
use shardmill_wasm::{
    CompileLimits, Compiler, CompilerProgram, LoadError, Runtime, RuntimeOptions,
};

/// Compiling this takes some seconds of processor time, and hundreds of mebibytes.
const FUNCTIONS: usize = 150_000;

/// A runtime whose compiler is the real binary.
fn runtime(compile_limits: CompileLimits, cache_dir: Option<&Path>) -> Runtime {
    let program = CompilerProgram {
        program: binary().to_owned(),
        args: vec![COMPILE_COMMAND.into()],
    };
    let options = RuntimeOptions {
        compiler: Compiler::Child(program),
        compile_limits,
        cache_dir: cache_dir.map(Path::to_owned),
        ..RuntimeOptions::default()
    };
    Runtime::new(options).unwrap()
}

fn name() -> PluginName {
    PluginName::new("plugin").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_host_finds_the_code_that_another_process_compiled_and_compiles_nothing_itself() {
    let folder = tempfile::tempdir().unwrap();
    let lasting = folder.path().join("cache");
    for cache in [None, Some(lasting.as_path())] {
        // The number of threads is the one setting in which both processes differ.
        for threads in [1, 3] {
            let runtime = runtime(
                CompileLimits {
                    threads,
                    ..CompileLimits::default()
                },
                cache,
            );
            runtime
                .load(name(), versioned(threads).into())
                .await
                .unwrap();
            runtime
                .load(name(), versioned(threads).into())
                .await
                .unwrap();
            assert_eq!(runtime.cache_hits_and_misses(), (2, 0), "{cache:?}");
        }
    }
}

/// Bytes of all functions that are kept beside this cache.
fn bytes_of_functions(cache: &Path) -> u64 {
    let entries = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries(&cache.with_file_name("cache.functions"))
        .flat_map(|folder| entries(&folder.path()))
        .map(|pack| pack.metadata().unwrap().len())
        .sum()
}

/// All that is below a folder.
fn listed(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut all = Vec::new();
    for entry in entries {
        let (path, found) = (entry.path(), entry.metadata());
        all.push(format!("{}: {found:?}", path.display()));
        all.extend(listed(&entry.path()));
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn the_walled_compiler_of_a_changed_plugin_finds_most_functions_of_the_version_before() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let (first, code) = (guest("flights"), cache.join("modules"));
    let runtime_of_host = runtime(CompileLimits::default(), Some(&cache));
    let plugin = runtime_of_host.load(name(), first.clone().into()).await;
    drop(plugin.unwrap());
    let kept = bytes_of_functions(&cache);
    assert!(kept > 0, "of each function: {:#?}", listed(&cache));
    // The engine writes down what it used a moment later.
    eventually("the code of whole plugins is gone", || {
        let _ = std::fs::remove_dir_all(&code);
        !code.exists()
    })
    .await;
    for version in 1..4 {
        let changed = marked(&first, version);
        let plugin = runtime_of_host.load(name(), changed.into()).await;
        drop(plugin.unwrap());
    }
    let added = bytes_of_functions(&cache).saturating_sub(kept);
    assert!(added < kept / 2, "{added} bytes added to {kept}");
    assert_eq!(runtime_of_host.cache_hits_and_misses(), (4, 0));
}

/// The engine writes down in its cache when it removed from it what it does not know, and does so
/// once an hour.
fn forget_the_last_removal(cache: &Path) {
    for entry in std::fs::read_dir(cache).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with(".cleanup") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_of_functions_outlasts_the_engines_removal_of_what_it_does_not_know() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let of_host = runtime(CompileLimits::default(), Some(&cache));
    let first = of_host.load(name(), guest("flights").into()).await;
    drop(first.unwrap());
    let kept = bytes_of_functions(&cache);
    assert!(kept > 0, "{:#?}", listed(&cache));
    let unknown = cache.join("modules/unknown");
    std::fs::write(&unknown, "").unwrap();
    forget_the_last_removal(&cache);
    // A compiler of its own may end before its engine has removed anything, and nobody removes for
    // an hour then. The engine of this process lives on.
    let of_this_process = Runtime::new(RuntimeOptions {
        cache_dir: Some(cache.clone()),
        ..RuntimeOptions::default()
    });
    let other = of_this_process
        .unwrap()
        .load(name(), versioned(1).into())
        .await;
    eventually("the engine removes what it does not know", || {
        !unknown.exists()
    })
    .await;
    drop(other.unwrap());
    let now = bytes_of_functions(&cache);
    assert!(now >= kept, "{now} of {kept} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_keep_code_by_default_and_run_the_same_on_what_they_kept() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let records = ["{}", "none", "[1]"].join("\n");
    std::fs::write(here.join("in.ndjson"), records).unwrap();
    let echo = guest("echo");
    let cache = here.join("state/shardmill/commands/cache");
    let mut output = Vec::new();
    for version in 0..3 {
        std::fs::write(here.join("echo.wasm"), marked(&echo, version)).unwrap();
        let before = bytes_of_functions(&cache);
        let tested = shardmill(&["test", "echo.wasm", "--input", "in.ndjson"], here).await;
        let said = String::from_utf8_lossy(&tested.stderr);
        assert!(tested.status.success(), "{said}");
        output.push(tested.stdout);
        // A pack that absorbs others may be smaller than they were together.
        let added = bytes_of_functions(&cache).saturating_sub(before);
        assert_eq!(version == 0, added > before, "{added} added to {before}");
    }
    assert!(!output[0].is_empty() && output[1] == output[0] && output[2] == output[0]);
    let around = std::fs::read_dir(cache.parent().unwrap()).unwrap();
    let mut around: Vec<_> = around.map(|entry| entry.unwrap().file_name()).collect();
    around.sort();
    assert_eq!(
        around,
        ["cache", "cache.functions"],
        "something was learned from a test"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn where_functions_cannot_be_kept_plugins_run_all_the_same_and_the_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    std::fs::create_dir(here.join("plugins")).unwrap();
    std::fs::write(here.join("plugins/echo.wasm"), guest("echo")).unwrap();
    std::fs::write(here.join("in.ndjson"), "{}").unwrap();
    std::fs::write(here.join("host.toml"), "[host]\ncache = \"cache\"\n").unwrap();
    std::fs::write(here.join("cache.functions"), "not a folder").unwrap();
    let args = [
        "dev",
        "--config",
        "host.toml",
        "--feed",
        "in.ndjson",
        "--until-idle",
    ];
    let ended = shardmill(&args, here).await;
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{said}");
    let is_named = said.contains("cache.functions") && said.contains("compiled whole");
    assert!(is_named, "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_keep_nothing_where_the_cache_is_off() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    std::fs::write(here.join("echo.wasm"), guest("echo")).unwrap();
    std::fs::write(here.join("in.ndjson"), "{}").unwrap();
    let config = "stream = \"s\"\n[host]\ncache = \"off\"\n";
    std::fs::write(here.join("host.toml"), config).unwrap();
    let commands: [&[&str]; 3] = [
        &["check", "echo.wasm"],
        &["test", "echo.wasm", "--input", "in.ndjson"],
        &["bench", "echo.wasm", "--records", "10", "--rounds", "1"],
    ];
    let state = here.join("state");
    for command in commands {
        let off = [command, &["--config", "host.toml"]].concat();
        let done = shardmill(&off, here).await;
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && !state.exists(), "{off:?}: {said}");
    }
    for command in commands {
        let done = shardmill(command, here).await;
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(
            done.status.success() && state.exists(),
            "{command:?}: {said}"
        );
        std::fs::remove_dir_all(&state).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compile_bomb_is_refused_by_the_limit_that_it_exceeds() {
    let limits = CompileLimits::default();
    let cases = [
        ("compile.memory", compile_bomb(20_000), limits),
        (
            "compile.cpu",
            many_functions(FUNCTIONS),
            CompileLimits {
                cpu: Duration::from_secs(1),
                ..limits
            },
        ),
        (
            "compile.wall",
            many_functions(FUNCTIONS),
            CompileLimits {
                wall: Duration::from_millis(300),
                ..limits
            },
        ),
        (
            "compile.code",
            many_functions(5_000),
            CompileLimits {
                code_bytes: 64 << 10,
                ..limits
            },
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (limit, bytes, limits) in cases {
        let runtime = runtime(limits, Some(folder.path()));
        let error = runtime.load(name(), bytes.into()).await.unwrap_err();
        assert!(
            matches!(&error, LoadError::CompileLimit { key, .. } if *key == limit),
            "{limit}: {error}"
        );
        assert!(!error.may_be_incomplete(), "{error}");
        assert_eq!(
            runtime.cache_hits_and_misses(),
            (0, 0),
            "this process compiled it after all"
        );
    }
    // The same directory, which a compiler was killed in: it serves as before.
    let runtime = runtime(limits, Some(folder.path()));
    runtime.load(name(), guest("noop").into()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_given_a_bomb_goes_on_with_the_version_it_has() {
    let setting = Setting::new(2).await;
    setting.drop_plugin("flights", &guest("flights"));
    let host = setting.host_with(
        "a",
        "[host]\nadmin = \"127.0.0.1:0\"\n[reads]\ncalls-per-second = 50.0\nidle-every = \"50ms\"",
    );
    eventually("loaded", || host.log().contains("plugin loaded")).await;
    let before = host.resident_kib();
    setting.drop_plugin("flights", &compile_bomb(20_000));
    let mut refused = String::new();
    let deadline = tokio::time::Instant::now() + Duration::from_mins(2);
    while !refused.contains("compile.memory") {
        refused = host.status().await["plugins"]["flights"]["refused-file"].to_string();
        assert!(
            tokio::time::Instant::now() < deadline,
            "not refused: {refused}\n{}",
            host.log()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let last = setting.put(&flights::input()).await;
    setting.until_checkpointed("flights", &last).await;
    let after = host.resident_kib();
    assert!(
        after < before + (256 << 10),
        "the host itself took {} MiB more",
        (after - before) >> 10
    );
    assert!(host.terminate().await.success());
    let output = Output::read(&[&setting.output_of("a")]);
    assert_eq!((output.carriers, output.repeats), (flights::expected(), 0));
    setting.stop().await;
}

/// Of the compiler's, and of its host's.
const FILTERS: [u32; 2] = [3, 2];

#[tokio::test(flavor = "multi_thread")]
async fn the_host_and_its_compiler_stand_behind_the_second_wall_unless_the_operator_wants_none() {
    let setting = Setting::new(1).await;
    // What others have put around this test is around the hosts too.
    let before = filters_of("self");
    let [of_compiler, of_host] = FILTERS.map(|count| before + count);
    setting.drop_plugin("long", &many_functions(FUNCTIONS));
    let admin = "[host]\nadmin = \"127.0.0.1:0\"";
    let walled = setting.host_with("a", admin);
    eventually("a walled compiler", || {
        walled.system_call_filters_of_children() == [of_compiler]
    })
    .await;
    assert_eq!(
        (
            walled.system_call_filters(),
            &walled.status().await["wall-lacks"]
        ),
        (of_host, &json!([]))
    );
    walled.kill();

    let open = setting.host_knowing("b", admin, &[("SHARDMILL_WALL", Path::new("off"))]);
    eventually("a compiler without a wall", || {
        open.system_call_filters_of_children() == [before]
    })
    .await;
    let told = open.status().await["wall-lacks"].to_string();
    assert!(
        told.contains("SHARDMILL_WALL=off") && open.log().contains("SHARDMILL_WALL=off"),
        "{told}"
    );
    assert_eq!(open.system_call_filters(), before);
    open.kill();
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn check_refuses_a_bomb_as_the_host_does_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("bomb.wasm"), compile_bomb(20_000)).unwrap();
    let temporary = folder.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let mut command = tokio::process::Command::new(binary());
    let checked = command
        .args(["check", "bomb.wasm"])
        .current_dir(folder.path())
        .env("TMPDIR", &temporary)
        .env("XDG_STATE_HOME", folder.path().join("state"))
        .output();
    let checked = checked.await.unwrap();
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(
        !checked.status.success() && said.contains("compile.memory"),
        "{said}"
    );
    assert_eq!(
        std::fs::read_dir(&temporary).unwrap().count(),
        0,
        "a temporary cache goes with its process"
    );
    let help = shardmill(&["--help"], folder.path()).await;
    assert!(
        !String::from_utf8_lossy(&help.stdout).contains(COMPILE_COMMAND),
        "it is not for people"
    );
}
