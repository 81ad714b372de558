//! Counts records as its state, and emits the count with each. Panics at a record whose data says
//! `"limit":N` if the count has passed that: so a record fails or does not by what came before it.
//! Tests overwrite a constant in the compiled file to have one that does not.

use std::hint::black_box;

use shardmill_processor::{Batch, Context, Error, Outcome, Processor, Stateful, config, emit, log};

/// Overwritten by tests; read through a black box, or the compiler would fold it.
static CONDUCT: &str = "CONDUCT-brittle";

struct Brittle {
    destination: String,
    count: u64,
}

/// The number behind `"limit":` in the data.
fn limit_of(data: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(data).ok()?;
    let (_, rest) = text.split_once(r#""limit":"#)?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

impl Processor for Brittle {
    fn init(_context: Context) -> Result<Self, Error> {
        Ok(Self {
            destination: config::get("destination").unwrap_or_else(|| "stdout".to_owned()),
            count: 0,
        })
    }

    fn process(&mut self, batch: Batch) -> Result<Outcome, Error> {
        for record in &batch.records {
            self.count += 1;
            if let Some(limit) = limit_of(record.data)
                && self.count > limit
            {
                log::info(format!("record {} is beyond {limit}", self.count));
                assert!(
                    black_box(CONDUCT).ends_with("mended!"),
                    "record {} is beyond the limit of {limit}",
                    self.count
                );
            }
            let count = self.count.to_string();
            emit(&self.destination, record.partition_key, count.as_bytes())?;
        }
        Ok(Outcome::default())
    }
}

impl Stateful for Brittle {
    fn save(&mut self) -> Result<Vec<u8>, Error> {
        Ok(self.count.to_string().into_bytes())
    }

    fn load(&mut self, state: Vec<u8>) -> Result<(), Error> {
        let text = String::from_utf8(state).map_err(|error| error.to_string())?;
        self.count = text.parse().map_err(|_| "not a count".to_owned())?;
        Ok(())
    }
}

shardmill_processor::plugin!(Brittle, state);
