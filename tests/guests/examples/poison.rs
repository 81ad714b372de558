//! Emits each record's place, but fails on those whose data says how: `"bad":"trap"` and
//! `"bad":"hang"` always, `"bad":"twice"` at the first two sights of it by an instance.

use std::collections::HashMap;
use std::hint::black_box;

use shardmill_processor::{Batch, Context, Error, Outcome, Processor, Record, config, emit};

struct Poison {
    shard: String,
    destination: String,
    /// How often each record that fails twice was seen.
    seen: HashMap<String, u32>,
}

fn is_bad(record: &Record, how: &str) -> bool {
    let mark = format!(r#""bad":"{how}""#);
    record
        .data
        .windows(mark.len())
        .any(|part| part == mark.as_bytes())
}

impl Processor for Poison {
    fn init(context: Context) -> Result<Self, Error> {
        let destination = config::get("destination").unwrap_or_else(|| "stdout".to_owned());
        Ok(Self {
            shard: context.shard,
            destination,
            seen: HashMap::new(),
        })
    }

    fn process(&mut self, batch: Batch) -> Result<Outcome, Error> {
        for record in &batch.records {
            assert!(!is_bad(record, "trap"), "poison");
            if is_bad(record, "hang") {
                loop {
                    black_box(());
                }
            }
            let is_twice = is_bad(record, "twice");
            let seen = self
                .seen
                .get(record.sequence_number)
                .copied()
                .unwrap_or_default();
            if is_twice && seen < 2 {
                self.seen
                    .insert(record.sequence_number.to_owned(), seen + 1);
                return Err(Error::Unavailable("not yet".to_owned()));
            }
            let (shard, sequence) = (&self.shard, record.sequence_number);
            let kind = if is_twice { "twice" } else { "good" };
            let line = format!(
                r#"{{"shard":"{shard}","sequence_number":"{sequence}","carrier":"{kind}"}}"#
            );
            emit(&self.destination, record.partition_key, line.as_bytes())?;
        }
        Ok(Outcome::default())
    }
}

shardmill_processor::plugin!(Poison);
