use shardmill_processor::{Batch, Context, Error, Outcome, Processor, config, emit};

/// An instance serves one shard: keep here what must last from call to call.
struct Plugin {
    destination: String,
}

impl Processor for Plugin {
    fn init(_context: Context) -> Result<Self, Error> {
        Ok(Self { destination: config::get("destination").unwrap_or_else(|| "stdout".to_owned()) })
    }

    fn process(&mut self, batch: Batch) -> Result<Outcome, Error> {
        let mut outcome = Outcome::default();
        for (index, record) in batch.records.iter().enumerate() {
            match handle(&record.data) {
                Ok(output) => emit(&self.destination, &record.partition_key, output)?,
                Err(reason) => outcome.reject(index, reason),
            }
        }
        Ok(outcome)
    }
}

/// Turns one record's data into output. An error rejects the record.
fn handle(data: &[u8]) -> Result<&[u8], String> {
    if data.is_empty() {
        return Err("the record is empty".to_owned());
    }
    // Your logic goes here.
    Ok(data)
}

shardmill_processor::plugin!(Plugin);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_out_as_it_came() {
        assert_eq!(handle(b"hello"), Ok(&b"hello"[..]));
    }

    #[test]
    fn an_empty_record_is_rejected() {
        assert!(handle(b"").is_err());
    }
}
