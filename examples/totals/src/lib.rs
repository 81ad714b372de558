//! Counts the flights of a shard by carrier, from the shard's beginning: after each batch one JSON
//! line for each carrier in it, with the totals so far. The counts are the processor's state, which
//! the host keeps with the checkpoint, so each flight counts once, whatever happens to hosts and
//! versions.
//!
//! Configuration: `destination` (default `stdout`).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use shardmill_processor::{Batch, Context, Error, Outcome, Processor, Stateful, config, emit};

struct Totals {
    shard: String,
    destination: String,
    sums: BTreeMap<String, Sum>,
}

#[derive(Deserialize)]
struct Flight {
    carrier: String,
    /// Minutes; null for a cancelled flight.
    dep_delay: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sum {
    flights: u64,
    with_delay: u64,
    delay_minutes: i64,
}

#[derive(Serialize)]
struct Line<'a> {
    shard: &'a str,
    carrier: &'a str,
    #[serde(flatten)]
    sum: &'a Sum,
}

impl Processor for Totals {
    fn init(context: Context) -> Result<Self, Error> {
        let destination = config::get("destination").unwrap_or_else(|| "stdout".to_owned());
        Ok(Self {
            shard: context.shard,
            destination,
            sums: BTreeMap::new(),
        })
    }

    fn process(&mut self, batch: Batch) -> Result<Outcome, Error> {
        let mut outcome = Outcome::default();
        let mut changed = BTreeSet::new();
        for (index, record) in batch.records.iter().enumerate() {
            match serde_json::from_slice::<Flight>(record.data) {
                Ok(flight) => {
                    let sum = self.sums.entry(flight.carrier.clone()).or_default();
                    sum.flights += 1;
                    sum.with_delay += u64::from(flight.dep_delay.is_some());
                    sum.delay_minutes += flight.dep_delay.unwrap_or(0);
                    changed.insert(flight.carrier);
                }
                Err(reason) => outcome.reject(index, reason.to_string()),
            }
        }
        for carrier in &changed {
            let line = Line {
                shard: &self.shard,
                carrier,
                sum: &self.sums[carrier],
            };
            let line = serde_json::to_vec(&line).map_err(|error| error.to_string())?;
            emit(&self.destination, carrier, &line)?;
        }
        Ok(outcome)
    }
}

impl Stateful for Totals {
    fn save(&mut self) -> Result<Vec<u8>, Error> {
        serde_json::to_vec(&self.sums).map_err(|error| error.to_string().into())
    }

    fn load(&mut self, state: Vec<u8>) -> Result<(), Error> {
        self.sums = serde_json::from_slice(&state)
            .map_err(|error| format!("this state is not of totals: {error}"))?;
        Ok(())
    }
}

shardmill_processor::plugin!(Totals, state);

#[cfg(test)]
mod tests {
    use shardmill_processor::{Record, testing};

    use super::*;

    fn totals() -> Totals {
        Totals {
            shard: "s".to_owned(),
            destination: "out".to_owned(),
            sums: BTreeMap::new(),
        }
    }

    fn process(totals: &mut Totals, lines: &[&'static str]) -> Vec<String> {
        let record = |line: &&'static str| Record {
            data: line.as_bytes(),
            ..Record::default()
        };
        let records = lines.iter().map(record).collect();
        totals
            .process(Batch {
                records,
                attempt: 1,
                millis_behind_latest: 0,
            })
            .unwrap();
        testing::take_emitted()
            .into_iter()
            .map(|piece| String::from_utf8(piece.data).unwrap())
            .collect()
    }

    #[test]
    fn totals_go_on_where_the_saved_state_ends() {
        let mut first = totals();
        process(
            &mut first,
            &[
                r#"{"carrier":"UA","dep_delay":2}"#,
                r#"{"carrier":"AA","dep_delay":-5}"#,
            ],
        );
        let mut second = totals();
        second.load(first.save().unwrap()).unwrap();
        let lines = process(&mut second, &[r#"{"carrier":"UA","dep_delay":null}"#]);
        assert_eq!(
            lines,
            [r#"{"shard":"s","carrier":"UA","flights":2,"with_delay":1,"delay_minutes":2}"#]
        );
        assert_eq!(
            second.sums["AA"],
            Sum {
                flights: 1,
                with_delay: 1,
                delay_minutes: -5
            }
        );
    }

    #[test]
    fn a_state_of_something_else_is_refused() {
        assert!(totals().load(b"[1,2]".to_vec()).is_err());
        assert!(totals().load(br#"{"UA":{"seen":1}}"#.to_vec()).is_err());
    }
}
