use shardmill_processor::{Batch, Context, Error, Outcome, Processor, config, emit};

/// An instance serves one shard: keep here what must last from call to call.
struct Plugin {
    destination: String,
}

impl Processor for Plugin {
    fn init(_context: Context) -> Result<Self, Error> {
        let destination = config::get("destination").unwrap_or_else(|| "stdout".to_owned());
        refuse_unknown(&destination, config::get("shardmill.destinations"))?;
        Ok(Self { destination })
    }

    fn process(&mut self, batch: Batch) -> Result<Outcome, Error> {
        let mut outcome = Outcome::default();
        for (index, record) in batch.records.iter().enumerate() {
            match handle(record.data) {
                Ok(output) => emit(&self.destination, record.partition_key, output)?,
                Err(reason) => outcome.reject(index, reason),
            }
        }
        Ok(outcome)
    }
}

/// Refuses what names no sink of the host before the first record needs it. Only the host knows
/// them.
fn refuse_unknown(destination: &str, known: Option<String>) -> Result<(), Error> {
    match known {
        Some(known) if !known.split(',').any(|name| name == destination) => Err(Error::Misconfigured(format!(
            "`destination` is {destination:?}, which names no sink of the host; there are: {known}"
        ))),
        _ => Ok(()),
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
    fn a_destination_must_be_a_sink_of_the_host() {
        assert!(refuse_unknown("alerts", Some("alerts,stdout".to_owned())).is_ok());
        assert!(refuse_unknown("alert", Some("alerts,stdout".to_owned())).is_err());
    }

    #[test]
    fn an_empty_record_is_rejected() {
        assert!(handle(b"").is_err());
    }
}
