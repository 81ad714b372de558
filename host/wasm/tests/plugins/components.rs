//! Which bytes become a plugin, and what is said of those that do not.

use crate::support::{CONTRACT_IN_TEXT, guest, name, runtime};
use proptest::prelude::*;
use shardmill_core::plugin::GuestLimits;
use shardmill_core::ports::ProcessorFactory;
use shardmill_wasm::{BytesKind, LoadError, Runtime};

async fn refusal(runtime: &Runtime, bytes: &[u8]) -> LoadError {
    runtime.load(name("plugin"), bytes.to_vec().into()).await.unwrap_err()
}

fn contract_with(from: &str, to: &str) -> Vec<u8> {
    assert!(CONTRACT_IN_TEXT.contains(from));
    wat::parse_str(CONTRACT_IN_TEXT.replace(from, to)).unwrap()
}

#[tokio::test]
async fn the_same_bytes_are_the_same_version() {
    let runtime = runtime(GuestLimits::default());
    let first = runtime.load(name("one"), guest("noop").into()).await.unwrap();
    let second = runtime.load(name("two"), guest("noop").into()).await.unwrap();
    assert_eq!(first.digest(), second.digest());
    assert_ne!(first.digest(), runtime.load(name("one"), guest("echo").into()).await.unwrap().digest());
}

#[tokio::test]
async fn what_is_no_component_is_refused_by_what_it_is() {
    let runtime = runtime(GuestLimits::default());
    let module = wat::parse_str("(module)").unwrap();
    let wasip1 = wat::parse_str(r#"(module (import "wasi_snapshot_preview1" "fd_write" (func)))"#).unwrap();
    let cases: [(&[u8], BytesKind); 6] = [
        (b"", BytesKind::Empty),
        (&module, BytesKind::CoreModule),
        (&wasip1, BytesKind::Wasip1Module),
        (CONTRACT_IN_TEXT.as_bytes(), BytesKind::WebAssemblyText),
        (b"\x7fELF\x02\x01\x01\0", BytesKind::NativeBinary),
        (b"hello", BytesKind::Unknown),
    ];
    for (bytes, kind) in cases {
        assert_eq!(refusal(&runtime, bytes).await, LoadError::NotAComponent { kind });
    }
}

#[tokio::test]
async fn native_code_compiled_by_the_same_engine_is_never_run() {
    let engine = wasmtime::Engine::default();
    let native = engine.precompile_component(&wat::parse_str("(component)").unwrap()).unwrap();
    let error = refusal(&runtime(GuestLimits::default()), &native).await;
    assert_eq!(error, LoadError::NotAComponent { kind: BytesKind::Precompiled });
}

#[tokio::test]
async fn a_component_that_is_no_processor_is_told_what_it_lacks() {
    let runtime = runtime(GuestLimits::default());
    let error = refusal(&runtime, &wat::parse_str("(component)").unwrap()).await;
    assert!(matches!(&error, LoadError::NoProcessor { exports, .. } if exports.is_empty()), "{error}");
    assert!(error.to_string().contains("shardmill:processor/plugin"), "{error}");
}

#[tokio::test]
async fn another_version_of_the_contract_is_named() {
    let runtime = runtime(GuestLimits::default());
    let bytes = contract_with("shardmill:processor/processor@0.1.0", "shardmill:processor/processor@0.2.0");
    let LoadError::WrongVersion { found, .. } = refusal(&runtime, &bytes).await else { panic!("not refused as such") };
    assert_eq!(found, "shardmill:processor/processor@0.2.0");
}

#[tokio::test]
async fn a_later_patch_of_the_contract_is_accepted() {
    let runtime = runtime(GuestLimits::default());
    let bytes = contract_with("shardmill:processor/processor@0.1.0", "shardmill:processor/processor@0.1.9");
    runtime.load(name("plugin"), bytes.into()).await.unwrap();
}

#[tokio::test]
async fn imports_that_nobody_grants_are_listed() {
    let runtime = runtime(GuestLimits::default());
    let extra = r#"(import "wasi:keyvalue/store@0.2.0-draft" (instance)) (import "acme:db/rows@1.0.0" (instance))
      (core instance $i (instantiate $m))"#;
    let bytes = contract_with("(core instance $i (instantiate $m))", extra);
    let LoadError::UnknownImports { imports } = refusal(&runtime, &bytes).await else { panic!("not refused as such") };
    assert_eq!(imports, ["wasi:keyvalue/store@0.2.0-draft", "acme:db/rows@1.0.0"]);

    let report = runtime.inspect(bytes.into()).await.unwrap();
    let granted: Vec<bool> = report.imports.iter().map(|import| import.is_granted).collect();
    assert_eq!(granted, [false, false, true]);
    assert!(report.refusal.is_some());
}

#[tokio::test]
async fn the_right_names_with_the_wrong_types_are_refused() {
    let runtime = runtime(GuestLimits::default());
    let bytes = contract_with(r#"(case "through" u32)"#, r#"(case "through" s32)"#);
    let error = refusal(&runtime, &bytes).await;
    assert!(matches!(error, LoadError::Mismatch { .. }), "{error}");
}

#[tokio::test]
async fn an_async_component_is_refused_as_such() {
    let runtime = runtime(GuestLimits::default());
    let bytes = contract_with(
        r#"(func $close (param "reason" $close-reason)"#,
        r#"(func $close async (param "reason" $close-reason)"#,
    );
    let error = refusal(&runtime, &bytes).await;
    assert!(matches!(error, LoadError::Async { .. }), "{error}");
}

#[tokio::test]
async fn the_report_on_a_good_plugin_tells_everything() {
    let runtime = runtime(GuestLimits::default());
    let bytes = guest("echo");
    let report = runtime.inspect(bytes.clone().into()).await.unwrap();
    assert_eq!((report.kind, report.size), (BytesKind::Component, bytes.len()));
    assert_eq!(report.contract.as_deref(), Some("0.1.0"));
    assert!(report.refusal.is_none() && report.compile_time.is_some());
    assert!(report.imports.iter().all(|import| import.is_granted));
    assert!(report.imports.iter().any(|import| import.name.starts_with("shardmill:processor/emit@")));
}

#[tokio::test]
async fn the_cache_serves_a_second_runtime() {
    let folder = tempfile::tempdir().unwrap();
    let options =
        || shardmill_wasm::RuntimeOptions { cache_dir: Some(folder.path().join("cache")), ..Default::default() };
    for _ in 0..2 {
        let runtime = Runtime::new(options()).unwrap();
        let plugin = runtime.load(name("plugin"), guest("noop").into()).await.unwrap();
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn flipped_bits_and_random_bytes_never_bring_the_host_down(seed in any::<u64>(), junk in prop::collection::vec(any::<u8>(), 0..64)) {
        let runtime = runtime(GuestLimits::default());
        let mut bytes = guest("noop");
        let bits = bytes.len() * 8;
        let bit = usize::try_from(seed % bits as u64).unwrap();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
        // Refused or, where the bit does not matter, accepted; never a panic.
        let _ = tokio.block_on(runtime.load(name("plugin"), bytes.into()));
        prop_assert!(tokio.block_on(runtime.load(name("plugin"), junk.into())).is_err());
    }
}
