//! What a filter costs a record, by the record's size and by where it is decided.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use shardmill_filter::Filter;

/// An object of about `bytes` bytes, with what the pattern looks at at its start and its end.
fn record(bytes: usize) -> Vec<u8> {
    let head = r#"{"kind":"quake","magnitude":5.5"#;
    let tail = r#","place":"10 km N of here"}"#;
    let mut record = head.to_owned();
    let mut number = 0;
    while record.len() + tail.len() < bytes {
        let field = format!(r#","field{number}":{{"text":"value {number}","n":{number}.5}}"#);
        if record.len() + field.len() + tail.len() > bytes {
            break;
        }
        record.push_str(&field);
        number += 1;
    }
    record.push_str(tail);
    record.into_bytes()
}

fn filter(data: &str) -> Filter {
    Filter::new(None, vec![format!(r#"{{"data": {data}}}"#)]).expect("a good pattern")
}

fn filters(c: &mut Criterion) {
    let cases = [
        ("matched_early", filter(r#"{"kind": ["quake"]}"#)),
        (
            "matched_late",
            filter(r#"{"place": [{"prefix": "10 km"}]}"#),
        ),
        (
            "never_matched",
            filter(r#"{"kind": ["blast"], "magnitude": [{"numeric": [">", 5]}]}"#),
        ),
    ];
    let mut group = c.benchmark_group("filter");
    for bytes in [100, 1 << 10, 10 << 10] {
        let record = record(bytes);
        group.throughput(Throughput::Bytes(record.len() as u64));
        for (name, filter) in &cases {
            group.bench_function(BenchmarkId::new(*name, bytes), |b| {
                b.iter(|| filter.judge(black_box("key"), black_box(&record)));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, filters);
criterion_main!(benches);
