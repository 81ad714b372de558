//! Emits one JSON line a record, as `versioned` does, and behaves well or badly as a second
//! constant says, which tests overwrite in the compiled file, too: `good`; `trap` at the first
//! batch; `slow`, ten times; `leak`; `rare`, which rejects about one record in a thousand; `hold`,
//! which holds all back until the shard ends.

use std::hint::black_box;

use shardmill_processor::{
    Batch, CloseReason, Commit, Context, Error, Outcome, Processor, config, emit,
};

/// Overwritten by tests; read through a black box, or the compiler would fold them.
static VERSION: &str = "VERSION-000000";
static CONDUCT: &str = "CONDUCT-good";

/// Steps that a record costs a good version, tens of microseconds, and how many times that a slow
/// one. Work and not time, so that a busy machine slows down both alike.
const STEPS: u32 = 40_000;
const SLOWER: u32 = 10;
/// What a leaking version keeps of each batch.
const LEAK_BYTES: usize = 4 << 20;

struct Conduct {
    shard: String,
    destination: String,
    leaked: Vec<Vec<u8>>,
    /// Keys and lines.
    held: Vec<(String, String)>,
}

/// FNV-1a.
fn hash(data: &[u8]) -> u64 {
    data.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl Processor for Conduct {
    fn init(context: Context) -> Result<Self, Error> {
        let destination = config::get("destination").unwrap_or_else(|| "stdout".to_owned());
        Ok(Self {
            shard: context.shard,
            destination,
            leaked: Vec::new(),
            held: Vec::new(),
        })
    }

    fn process(&mut self, batch: Batch) -> Result<Outcome, Error> {
        let (version, conduct) = (black_box(VERSION), black_box(CONDUCT));
        assert!(!conduct.ends_with("trap"), "as told");
        if conduct.ends_with("leak") {
            self.leaked.push(vec![1; LEAK_BYTES]);
        }
        let times = if conduct.ends_with("slow") { SLOWER } else { 1 };
        let mut outcome = Outcome::default();
        for (index, record) in batch.records.iter().enumerate() {
            if conduct.ends_with("rare") && hash(record.data) % 1_000 == 7 {
                outcome.reject(index, "one in a thousand");
                continue;
            }
            let (shard, sequence) = (&self.shard, record.sequence_number);
            let line = format!(
                r#"{{"shard":"{shard}","sequence_number":"{sequence}","version":"{version}"}}"#
            );
            if conduct.ends_with("hold") {
                self.held.push((record.partition_key.to_owned(), line));
                continue;
            }
            emit(&self.destination, record.partition_key, line.as_bytes())?;
        }
        if !self.held.is_empty() {
            outcome.commit = Commit::Nothing;
        }
        for _ in &batch.records {
            (0..STEPS * times).for_each(|step| _ = black_box(step));
        }
        Ok(outcome)
    }

    fn close(&mut self, reason: CloseReason) -> Result<(), Error> {
        if matches!(reason, CloseReason::ShardEnded) {
            self.held
                .iter()
                .try_for_each(|(key, line)| emit(&self.destination, key, line.as_bytes()))?;
        }
        Ok(())
    }
}

shardmill_processor::plugin!(Conduct);
