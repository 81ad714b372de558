//! Sums the flights of each batch by carrier: one JSON line for each, keyed by carrier.
//!
//! Configuration: `destination` (default `stdout`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shardmill_processor::{Batch, Context, Error, Outcome, Processor, config, emit};

struct Carriers {
    destination: String,
}

#[derive(Deserialize)]
struct Flight {
    carrier: String,
    /// Minutes; null for a cancelled flight.
    dep_delay: Option<i64>,
}

#[derive(Serialize)]
struct Line<'a> {
    carrier: &'a str,
    #[serde(flatten)]
    sum: &'a Sum,
}

#[derive(Default, Serialize)]
struct Sum {
    flights: u64,
    with_delay: u64,
    delay_minutes: i64,
}

impl Processor for Carriers {
    fn init(_context: Context) -> Result<Self, Error> {
        Ok(Self {
            destination: config::get("destination").unwrap_or_else(|| "stdout".to_owned()),
        })
    }

    fn process(&mut self, batch: Batch) -> Result<Outcome, Error> {
        let mut outcome = Outcome::default();
        let mut sums = BTreeMap::<String, Sum>::new();
        for (index, record) in batch.records.iter().enumerate() {
            match read_flight(record.data) {
                Ok(flight) => {
                    let sum = sums.entry(flight.carrier).or_default();
                    sum.flights += 1;
                    sum.with_delay += u64::from(flight.dep_delay.is_some());
                    sum.delay_minutes += flight.dep_delay.unwrap_or(0);
                }
                Err(reason) => outcome.reject(index, reason),
            }
        }
        for (carrier, sum) in &sums {
            let line =
                serde_json::to_vec(&Line { carrier, sum }).map_err(|error| error.to_string())?;
            emit(&self.destination, carrier, &line)?;
        }
        Ok(outcome)
    }
}

fn read_flight(line: &[u8]) -> Result<Flight, String> {
    // Serde takes an array for a struct, too.
    if line.trim_ascii_start().first() != Some(&b'{') {
        return Err("not a JSON object".to_owned());
    }
    serde_json::from_slice(line).map_err(|error| error.to_string())
}

shardmill_processor::plugin!(Carriers);

#[cfg(test)]
mod tests {
    use shardmill_processor::{Record, testing};

    use super::*;

    const FLIGHTS: [&str; 3] = [
        r#"{"carrier":"UA","dep_delay":2}"#,
        r#"{"carrier":"UA","dep_delay":null}"#,
        r#"{"carrier":"AA","dep_delay":-5}"#,
    ];

    fn process(lines: &[&'static str]) -> (Outcome, Vec<(String, String)>) {
        let record = |line: &&'static str| Record {
            data: line.as_bytes(),
            ..Record::default()
        };
        let batch = Batch {
            records: lines.iter().map(record).collect(),
            attempt: 1,
            millis_behind_latest: 0,
        };
        let outcome = Carriers {
            destination: "out".to_owned(),
        }
        .process(batch)
        .unwrap();
        let text = |data| String::from_utf8(data).unwrap();
        (
            outcome,
            testing::take_emitted()
                .into_iter()
                .map(|piece| (piece.key, text(piece.data)))
                .collect(),
        )
    }

    #[test]
    fn each_carrier_is_one_line() {
        let (outcome, emitted) = process(&FLIGHTS);
        assert!(outcome.failures.is_empty());
        let line = |key: &str, line: &str| (key.to_owned(), line.to_owned());
        assert_eq!(
            emitted,
            [
                line(
                    "AA",
                    r#"{"carrier":"AA","flights":1,"with_delay":1,"delay_minutes":-5}"#
                ),
                line(
                    "UA",
                    r#"{"carrier":"UA","flights":2,"with_delay":1,"delay_minutes":2}"#
                ),
            ]
        );
    }

    #[test]
    fn what_is_not_a_flight_is_rejected_and_the_rest_counts() {
        let bad = [
            "",
            r#"["UA",2]"#,
            "null",
            "{",
            "{}",
            r#"{"carrier":7}"#,
            r#"{"carrier":"UA","dep_delay":"late"}"#,
        ];
        let (outcome, emitted) = process(&[&bad[..], &FLIGHTS[..]].concat());
        assert!(
            outcome
                .failures
                .iter()
                .map(|failure| failure.index as usize)
                .eq(0..bad.len())
        );
        assert_eq!(emitted.len(), 2);
    }
}
