//! Emits one JSON line a record, naming its place and the version of the code. The version is a
//! constant that tests overwrite in the compiled file, so that fifty versions need one build.

use shardmill_processor::{Batch, Context, Error, Outcome, Processor, config, emit};

/// Overwritten by tests; read through a black box, or the compiler would fold it.
static VERSION: &str = "VERSION-000000";

struct Versioned {
    shard: String,
    destination: String,
}

impl Processor for Versioned {
    fn init(context: Context) -> Result<Self, Error> {
        let destination = config::get("destination").unwrap_or_else(|| "stdout".to_owned());
        Ok(Self {
            shard: context.shard,
            destination,
        })
    }

    fn process(&mut self, batch: Batch) -> Result<Outcome, Error> {
        let version = std::hint::black_box(VERSION);
        for record in &batch.records {
            let (shard, sequence) = (&self.shard, record.sequence_number);
            let place = format!(r#""shard":"{shard}","sequence_number":"{sequence}""#);
            let key = record.partition_key;
            let line = format!(r#"{{{place},"key":"{key}","version":"{version}"}}"#);
            emit(&self.destination, record.partition_key, line.as_bytes())?;
        }
        Ok(Outcome::default())
    }
}

shardmill_processor::plugin!(Versioned);
