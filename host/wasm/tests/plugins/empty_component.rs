//! The component that `shardmill bench` measures delivering by.

use shardmill_core::plugin::GuestLimits;
use shardmill_core::ports::{CloseReason, Processed, ProcessorFactory};
use shardmill_wasm::EMPTY_COMPONENT;

use crate::support::{batch, context, name, runtime};

const TEXT: &str = include_str!("../../src/empty_component.wat");

/// Of the text, without names: `SHARDMILL_BLESS=1 cargo test --test plugins empty_component` writes
/// it.
#[test]
fn the_empty_component_is_what_its_text_says() {
    let bytes = wat::parse_str(TEXT).unwrap();
    if std::env::var_os("SHARDMILL_BLESS").is_some() {
        std::fs::write(
            concat!(env!("CARGO_MANIFEST_DIR"), "/src/empty_component.wasm"),
            &bytes,
        )
        .unwrap();
    }
    assert_eq!(bytes, EMPTY_COMPONENT);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_empty_component_takes_batches_of_any_size_and_its_memory_does_not_grow_with_their_number()
 {
    let runtime = runtime(GuestLimits::default());
    let plugin = runtime
        .load(name("empty"), EMPTY_COMPONENT.into())
        .await
        .unwrap();
    let mut empty = plugin.instantiate(context(&[]), None).await.unwrap();
    assert_eq!(
        empty.process(batch(10_000)).await.unwrap(),
        Processed::default()
    );
    let needed = empty.memory_bytes();
    assert!(needed > 64 << 10, "{needed}");
    for records in [1, 10_000, 7, 9_999] {
        assert_eq!(
            empty.process(batch(records)).await.unwrap(),
            Processed::default()
        );
    }
    assert_eq!(empty.memory_bytes(), needed);
    let last = empty.close(CloseReason::Shutdown).await.unwrap();
    assert!(last.emitted.is_empty() && last.charges.is_empty());
}
