use shardmill_processor::{Batch, Context, Error, Outcome, Processor, Stateful, config, emit};

/// An instance serves one shard. The count is its state.
struct Counter {
    destination: String,
    count: u64,
    failed: u64,
}

impl Processor for Counter {
    fn init(_context: Context) -> Result<Self, Error> {
        let destination = config::get("destination").unwrap_or_else(|| "stdout".to_owned());
        Ok(Self { destination, count: 0, failed: 0 })
    }

    fn process(&mut self, batch: Batch) -> Result<Outcome, Error> {
        for record in &batch.records {
            let output = self.handle(&String::from_utf8_lossy(record.data))?;
            emit(&self.destination, record.partition_key, output.as_bytes())?;
        }
        Ok(Outcome::default())
    }
}

impl Stateful for Counter {
    fn save(&mut self) -> Result<Vec<u8>, Error> {
        Ok(self.count.to_string().into_bytes())
    }

    fn load(&mut self, state: Vec<u8>) -> Result<(), Error> {
        self.count = String::from_utf8_lossy(&state).parse().map_err(|error| format!("no count was saved: {error}"))?;
        Ok(())
    }
}

impl Counter {
    fn handle(&mut self, text: &str) -> Result<String, Error> {
        if text == "fail" {
            self.failed += 1;
            return Err(format!("on purpose, {} times", self.failed).into());
        }
        if text == "die" {
            panic!("on purpose");
        }
        if let Some(url) = text.strip_prefix("ask ") {
            return ask(url);
        }
        self.count += 1;
        Ok(format!("{text} {}", self.count))
    }
}

fn ask(url: &str) -> Result<String, Error> {
    let response = waki::Client::new().get(url).send().map_err(|error| error.to_string())?;
    let status = response.status_code();
    let body = response.body().map_err(|error| error.to_string())?;
    Ok(format!("{status} {}", String::from_utf8_lossy(&body)))
}

shardmill_processor::plugin!(Counter, state);
