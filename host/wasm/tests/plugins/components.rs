//! Which bytes become a plugin, and what is said of those that do not.

use crate::support::corpus::contract::{self, place};
use crate::support::{guest, name, runtime};
use shardmill_core::plugin::GuestLimits;
use shardmill_core::ports::ProcessorFactory;
use shardmill_wasm::{BytesKind, LoadError, Runtime};

async fn refusal(runtime: &Runtime, bytes: &[u8]) -> LoadError {
    runtime
        .load(name("plugin"), bytes.to_vec().into())
        .await
        .unwrap_err()
}

#[tokio::test]
async fn the_same_bytes_are_the_same_version() {
    let runtime = runtime(GuestLimits::default());
    let first = runtime
        .load(name("one"), guest("noop").into())
        .await
        .unwrap();
    let second = runtime
        .load(name("two"), guest("noop").into())
        .await
        .unwrap();
    assert_eq!(first.digest(), second.digest());
    assert_ne!(
        first.digest(),
        runtime
            .load(name("one"), guest("echo").into())
            .await
            .unwrap()
            .digest()
    );
}

#[tokio::test]
async fn native_code_compiled_by_the_same_engine_is_never_run() {
    let engine = wasmtime::Engine::default();
    let native = engine
        .precompile_component(&wat::parse_str("(component)").unwrap())
        .unwrap();
    let error = refusal(&runtime(GuestLimits::default()), &native).await;
    assert_eq!(
        error,
        LoadError::NotAComponent {
            kind: BytesKind::Precompiled
        }
    );
}

#[tokio::test]
async fn a_later_patch_of_the_contract_is_accepted() {
    let runtime = runtime(GuestLimits::default());
    let bytes = contract::with(&[("processor/processor@0.1.0", "processor/processor@0.1.9")]);
    runtime.load(name("plugin"), bytes.into()).await.unwrap();
}

#[tokio::test]
async fn imports_that_nobody_grants_are_listed() {
    let runtime = runtime(GuestLimits::default());
    let extra = r#"(import "wasi:keyvalue/store@0.2.0-draft" (instance)) (import "acme:db/rows@1.0.0" (instance))"#;
    let bytes = contract::with(&[(place::OUTSIDE, extra)]);
    let LoadError::UnknownImports { imports } = refusal(&runtime, &bytes).await else {
        panic!("not refused as such")
    };
    assert_eq!(
        imports,
        ["wasi:keyvalue/store@0.2.0-draft", "acme:db/rows@1.0.0"]
    );

    let report = runtime.inspect(bytes.into()).await.unwrap();
    let granted: Vec<bool> = report
        .imports
        .iter()
        .map(|import| import.is_granted)
        .collect();
    assert_eq!(granted, [false, false, true]);
    assert!(report.refusal.is_some());
}

#[tokio::test]
async fn the_report_on_a_good_plugin_shows_everything() {
    let runtime = runtime(GuestLimits::default());
    let bytes = guest("echo");
    let report = runtime.inspect(bytes.clone().into()).await.unwrap();
    assert_eq!(
        (report.kind, report.size),
        (BytesKind::Component, bytes.len())
    );
    assert_eq!(report.contract.as_deref(), Some("0.1.0"));
    assert!(report.refusal.is_none() && report.compile_time.is_some());
    assert!(report.imports.iter().all(|import| import.is_granted));
    assert!(
        report
            .imports
            .iter()
            .any(|import| import.name.starts_with("shardmill:processor/emit@"))
    );
}

#[tokio::test]
async fn the_cache_serves_a_second_runtime() {
    let folder = tempfile::tempdir().unwrap();
    let options = || shardmill_wasm::RuntimeOptions {
        cache_dir: Some(folder.path().join("cache")),
        ..Default::default()
    };
    for _ in 0..2 {
        let runtime = Runtime::new(options()).unwrap();
        let plugin = runtime
            .load(name("plugin"), guest("noop").into())
            .await
            .unwrap();
        assert!(crate::support::instance(&plugin, &[]).await.is_ok());
    }
}

#[tokio::test]
async fn every_beginning_of_a_plugin_is_refused_and_looks_incomplete() {
    let runtime = runtime(GuestLimits::default());
    let bytes = guest("noop");
    for end in (0..bytes.len()).step_by(bytes.len() / 50) {
        let error = refusal(&runtime, &bytes[..end]).await;
        assert!(error.may_be_incomplete(), "{end} bytes: {error}");
    }
}
