//! Writes of batches that are traced.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use shardmill_core::trace::{
    BatchTrace, Links, Operation, Sampler, Span, SpanId, Subject, TraceId,
};

use super::*;

/// Writes the span's id before each piece that begins with a brace.
#[derive(Default)]
struct Recording {
    ids: AtomicU64,
    spans: Mutex<Vec<Span>>,
    written: AtomicU64,
}

impl Tracer for Recording {
    fn sampler(&self) -> Sampler {
        Sampler::none()
    }

    fn now_ns(&self) -> u64 {
        5
    }

    fn new_span(&self) -> SpanId {
        SpanId::of_random(100 + self.ids.fetch_add(1, Ordering::Relaxed))
    }

    fn producers(&self, _: &[Record]) -> Links {
        Links::default()
    }

    fn follows(&self, _: &[Record]) -> bool {
        false
    }

    fn carrying(&self, data: &[u8], context: TraceContext) -> Option<Bytes> {
        self.written.fetch_add(1, Ordering::Relaxed);
        let text = std::str::from_utf8(data).ok()?;
        let is_object = text.starts_with('{');
        is_object.then(|| format!("{} {text}", context.span).into())
    }

    fn ended(&self, span: Span) {
        self.spans.lock().unwrap().push(span);
    }
}

fn traced() -> Arc<Origin> {
    let context = TraceContext {
        trace: TraceId::new(7).unwrap(),
        span: SpanId::new(9).unwrap(),
        is_sampled: true,
    };
    let subject = Arc::new(Subject {
        plugin: PluginName::new("alerts").unwrap(),
        application: "alerts".to_owned(),
        stream: StreamName::new("orders").unwrap(),
        shard: ShardId::new("shardId-0").unwrap(),
    });
    Arc::new(Origin {
        trace: Some(BatchTrace { context, subject }),
        ..Origin::clone(&origin())
    })
}

#[tokio::test]
async fn each_try_at_each_sink_is_a_span_below_the_batch_and_says_how_it_failed() {
    let (first, second) = (Arc::new(Kept::default()), Arc::new(Kept::default()));
    *second.failing_writes.lock().unwrap() = 1;
    let tracer = Arc::new(Recording::default());
    let router = router(&[("first", &first), ("second", &second)]);
    let router = router.traced_by(Some(Arc::clone(&tracer) as _));
    let batch = emitted(&[("first", "1"), ("second", "2"), ("first", "3")]);
    let refused = router.write(traced(), Arc::clone(&batch)).await;
    refused.unwrap_err();
    router.write(traced(), Arc::clone(&batch)).await.unwrap();
    // Another batch, which is not traced.
    router
        .write(origin(), emitted(&[("first", "4")]))
        .await
        .unwrap();

    let spans = tracer.spans.lock().unwrap().clone();
    let shown: Vec<_> = spans
        .iter()
        .map(|span| {
            assert_eq!(span.parent, SpanId::new(9));
            assert_eq!(span.context.trace, TraceId::new(7).unwrap());
            let Operation::Send { sink, pieces, .. } = &span.operation else {
                panic!("{span:?}");
            };
            let message = span
                .failure
                .as_ref()
                .map(|failure| failure.message.as_str());
            (sink.as_str(), *pieces, message)
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("first", 2, None),
            ("second", 1, Some("as asked")),
            ("second", 1, None)
        ]
    );
    let mut ids: Vec<_> = spans.iter().map(|span| span.context.span).collect();
    ids.dedup();
    assert_eq!(ids.len(), 3);
}

#[tokio::test]
async fn what_carries_its_trace_is_the_same_in_every_try_and_nothing_else_is_touched() {
    let (wide, narrow) = (Arc::new(Kept::default()), Arc::new(Kept::default()));
    *wide.failing_writes.lock().unwrap() = 2;
    let tracer = Arc::new(Recording::default());
    let mut router = router(&[("wide", &wide)]);
    let outlet = Outlet {
        line_bytes_max: Some(15),
        ..Outlet::new(Arc::clone(&narrow) as Arc<dyn Sink>)
    };
    router.add("narrow", outlet);
    let router = router.traced_by(Some(Arc::clone(&tracer) as _));
    let batch = emitted(&[("wide", "{1}"), ("wide", "[2]"), ("narrow", "{33}")]);
    for _ in 0..2 {
        router
            .write(traced(), Arc::clone(&batch))
            .await
            .unwrap_err();
    }
    router.write(traced(), Arc::clone(&batch)).await.unwrap();
    assert_eq!(data(&wide), ["0000000000000009 {1}", "[2]"]);
    assert_eq!(data(&narrow), ["{33}"], "it might not fit any more");
    let written = tracer.written.load(Ordering::Relaxed);
    assert_eq!(
        written, 2,
        "once for each piece that has room, not in each try"
    );
}
