//! Reads departures, one JSON object a record, and emits one JSON line for each, with the place in
//! the shard that it came from: a consumer can tell from the output what was delivered, how often
//! and in which order.
//!
//! Configuration: `destination` (default `stdout`).

use serde::{Deserialize, Serialize};
use shardmill_processor::{
    Batch, Context, Error, Outcome, Processor, Record, config, emit, metrics,
};

struct Flights {
    shard: String,
    destination: String,
}

#[derive(Deserialize)]
struct Departure<'a> {
    carrier: &'a str,
    flight: u32,
    origin: &'a str,
    dest: &'a str,
    /// Minutes; null for a cancelled flight.
    dep_delay: Option<f64>,
}

#[derive(Serialize)]
struct Line<'a> {
    carrier: &'a str,
    flight: u32,
    origin: &'a str,
    dest: &'a str,
    dep_delay: Option<f64>,
    shard: &'a str,
    sequence_number: &'a str,
    sub_sequence_number: u64,
}

impl Processor for Flights {
    fn init(context: Context) -> Result<Self, Error> {
        let destination = config::get("destination").unwrap_or_else(|| "stdout".to_owned());
        Ok(Self {
            shard: context.shard,
            destination,
        })
    }

    fn process(&mut self, batch: Batch) -> Result<Outcome, Error> {
        let mut outcome = Outcome::default();
        for (index, record) in batch.records.iter().enumerate() {
            match serde_json::from_slice::<Departure>(record.data) {
                Ok(departure) => self.put(record, &departure)?,
                Err(error) => outcome.reject(index, format!("not a departure: {error}")),
            }
        }
        metrics::counter(
            "flights",
            (batch.records.len() - outcome.failures.len()) as u64,
        );
        Ok(outcome)
    }
}

impl Flights {
    fn put(&self, record: &Record, departure: &Departure) -> Result<(), Error> {
        let line = Line {
            carrier: departure.carrier,
            flight: departure.flight,
            origin: departure.origin,
            dest: departure.dest,
            dep_delay: departure.dep_delay,
            shard: &self.shard,
            sequence_number: record.sequence_number,
            sub_sequence_number: record.sub_sequence_number,
        };
        let line = serde_json::to_vec(&line).map_err(|error| error.to_string())?;
        emit(&self.destination, record.partition_key, &line)?;
        Ok(())
    }
}

shardmill_processor::plugin!(Flights);

#[cfg(test)]
mod tests {
    use shardmill_processor::testing;

    use super::*;

    const DEPARTURE: &str = r#"{"year":2013,"dep_delay":2,"carrier":"UA","flight":1545,"origin":"EWR","dest":"IAH","distance":1400}"#;
    const CANCELLED: &str = r#"{"year":2013,"dep_delay":null,"carrier":"AA","flight":1791,"origin":"LGA","dest":"DFW","distance":1389}"#;

    #[test]
    fn each_departure_is_one_line_that_names_its_place_in_the_shard() {
        let mut flights = Flights {
            shard: "shardId-000000000001".to_owned(),
            destination: "out".to_owned(),
        };
        let record = |(data, sequence_number): (&'static str, &'static str)| Record {
            data: data.as_bytes(),
            partition_key: "UA",
            sequence_number,
            sub_sequence_number: 7,
            ..Record::default()
        };
        let records = [(DEPARTURE, "0"), ("{}", "1"), (CANCELLED, "2")]
            .map(record)
            .into();
        let outcome = flights
            .process(Batch {
                records,
                attempt: 1,
                millis_behind_latest: 0,
            })
            .unwrap();
        assert_eq!(
            outcome
                .failures
                .iter()
                .map(|failure| failure.index)
                .collect::<Vec<_>>(),
            [1]
        );

        let emitted = testing::take_emitted();
        assert_eq!(emitted.len(), 2);
        assert_eq!(emitted[0].destination, "out");
        let line: serde_json::Value = serde_json::from_slice(&emitted[0].data).unwrap();
        assert_eq!(line["carrier"], "UA");
        assert_eq!(line["shard"], "shardId-000000000001");
        assert_eq!(line["sequence_number"], "0");
        assert_eq!(line["sub_sequence_number"], 7);
    }
}
