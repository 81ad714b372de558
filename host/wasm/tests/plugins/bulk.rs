//! Batches in one frame: the same comes out as of batches in lists.

use std::sync::Arc;

use crate::support::{batch, instance, plugin, record, runtime};
use shardmill_core::plugin::{GuestLimits, ProcessorError};
use shardmill_core::ports::Processed;
use shardmill_core::stream::{Batch, Record};

/// Records of every kind that a batch may have.
fn mixed() -> Batch {
    let plain = record(0, "plain");
    let in_aggregate = Record {
        explicit_hash_key: Some("340282366920938463463374607431768211455".to_owned()),
        ..record(1, "in an aggregate")
    };
    let without_a_key = Record {
        partition_key: String::new(),
        explicit_hash_key: Some(String::new()),
        ..record(2, Vec::new())
    };
    let mut again = record(3, vec![0_u8, 255, 10, 13]);
    again.position.sub_sequence = u64::MAX;
    "ключ 🔑".clone_into(&mut again.partition_key);
    let large = record(4, vec![7_u8; 100_000]);
    let records = [plain, in_aggregate, without_a_key, again, large];
    // More than the guest collects before it calls the host.
    let many = (5..3_000).map(|n| record(n, format!("data-{n}")));
    Batch {
        records: Arc::new(records.into_iter().chain(many).collect()),
        attempt: 3,
        millis_behind_latest: 12_345,
        trace: None,
    }
}

async fn processed_by(
    guest: &str,
    limits: GuestLimits,
    batch: Batch,
) -> Result<Processed, ProcessorError> {
    let runtime = runtime(limits);
    let plugin = plugin(&runtime, guest).await;
    let mut instance = instance(&plugin, &[]).await.unwrap();
    instance.process(batch).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_in_one_frame_gives_the_same_output_as_in_lists() {
    let limits = GuestLimits::default();
    let in_lists = processed_by("echo_lists", limits, mixed()).await.unwrap();
    let in_frame = processed_by("echo", limits, mixed()).await.unwrap();
    assert_eq!(in_frame.emitted.len(), 3_000);
    assert!(in_frame == in_lists, "the outputs differ");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_much_for_one_batch_is_refused_where_it_is_emitted_in_both_ways() {
    for limits in [
        GuestLimits {
            emit_bytes: 50_000,
            ..GuestLimits::default()
        },
        GuestLimits {
            emit_count: 1_000,
            ..GuestLimits::default()
        },
    ] {
        let in_lists = processed_by("echo_lists", limits, batch(3_000)).await;
        let in_frame = processed_by("echo", limits, batch(3_000)).await;
        let refused = in_frame.as_ref().unwrap_err().to_string();
        assert!(
            refused.contains("emitted too much in one call"),
            "{refused}"
        );
        assert_eq!(in_frame, in_lists);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_failed_call_had_collected_is_not_in_the_next_ones_output() {
    let runtime = runtime(GuestLimits {
        emit_count: 2,
        ..GuestLimits::default()
    });
    let plugin = plugin(&runtime, "echo").await;
    let mut echo = instance(&plugin, &[]).await.unwrap();
    assert!(echo.process(batch(3)).await.is_err());
    let processed = echo.process(batch(2)).await.unwrap();
    assert_eq!(processed.emitted.len(), 2);
}
