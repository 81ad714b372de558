//! Counts flights by hour and carrier, by the clock in the data: one JSON line for each hour of a
//! carrier, once it has closed. The open hours are the processor's state, so each flight counts
//! once, whatever happens to hosts and versions.
//!
//! Configuration: `destination` (default `stdout`) for the hours; `late` (default `destination`)
//! for flights that come after their hour has closed; `delay` (default `1day`): how much later than
//! the latest one a flight may come; `silence`: all hours close once no flight has come for so long.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use shardmill_processor::windows::{Added, Change, Closed, Windows};
use shardmill_processor::{
    Batch, CloseReason, Context, Error, HeldBack, Outcome, Processor, Stateful, Tick, Ticking,
    config, emit,
};

const HOUR: Duration = Duration::from_hours(1);
/// Flights are listed by the day, so one that left after midnight comes up to a day after those of
/// its hour.
const DELAY: &str = "1day";

struct Hours {
    flights: Windows<Sum>,
    output: Output,
}

struct Output {
    shard: String,
    hours: String,
    late: String,
}

#[derive(Deserialize)]
struct Flight {
    carrier: String,
    /// The hour that it was scheduled for.
    time_hour: String,
    /// Minutes; null for a cancelled flight.
    dep_delay: Option<i64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Sum {
    flights: u64,
    with_delay: u64,
    delay_minutes: i64,
}

#[derive(Serialize)]
struct Line<'a> {
    shard: &'a str,
    hour: String,
    carrier: &'a str,
    #[serde(flatten)]
    sum: Sum,
}

impl Processor for Hours {
    fn init(context: Context) -> Result<Self, Error> {
        let destination = config::get("destination").unwrap_or_else(|| "stdout".to_owned());
        let delay = duration("delay")?.map_or_else(|| parsed("delay", DELAY), Ok)?;
        let mut flights = Windows::tumbling(HOUR)?.delayed_by(delay);
        if let Some(silence) = duration("silence")? {
            flights = flights.closed_after_silence(silence);
        }
        Ok(Self {
            flights,
            output: Output {
                shard: context.shard,
                late: config::get("late").unwrap_or_else(|| destination.clone()),
                hours: destination,
            },
        })
    }

    fn process(&mut self, batch: Batch) -> Result<Outcome, Error> {
        let Self { flights, output } = self;
        flights.change(|flights| {
            let mut outcome = Outcome::default();
            for (index, record) in batch.records.iter().enumerate() {
                let (flight, time_ms) = match read(record.data) {
                    Ok(read) => read,
                    Err(reason) => {
                        outcome.reject(index, reason);
                        continue;
                    }
                };
                match flights.add(record, time_ms, &flight.carrier, |sum| sum.add(&flight)) {
                    Added::InWindow => {}
                    Added::Late | Added::Ahead => output.put_late(&flight.carrier, record.data)?,
                }
            }
            output.put_closed(flights)?;
            Ok(outcome)
        })
    }

    fn close(&mut self, reason: CloseReason) -> Result<(), Error> {
        let Self { flights, output } = self;
        if reason == CloseReason::ShardEnded {
            flights.change(|flights| {
                flights.close_all();
                output.put_closed(flights)
            })?;
        }
        Ok(())
    }
}

impl Ticking for Hours {
    fn tick(&mut self, tick: Tick) -> Result<HeldBack, Error> {
        let Self { flights, output } = self;
        flights.change(|flights| {
            flights.tick(&tick);
            output.put_closed(flights)
        })?;
        Ok(HeldBack::Keep)
    }
}

impl Stateful for Hours {
    fn save(&mut self) -> Result<Vec<u8>, Error> {
        self.flights.save()
    }

    fn load(&mut self, state: Vec<u8>) -> Result<(), Error> {
        self.flights.load(&state)
    }
}

impl Output {
    fn put_closed(&self, flights: &mut Change<'_, Sum>) -> Result<(), Error> {
        for Closed {
            key,
            start_ms,
            value,
            ..
        } in flights.take_closed()
        {
            let hour = SystemTime::UNIX_EPOCH + Duration::from_millis(start_ms);
            let line = Line {
                shard: &self.shard,
                hour: humantime::format_rfc3339_seconds(hour).to_string(),
                carrier: &key,
                sum: value,
            };
            let line = serde_json::to_vec(&line).map_err(|error| error.to_string())?;
            emit(&self.hours, &key, &line)?;
        }
        Ok(())
    }

    fn put_late(&self, carrier: &str, flight: &[u8]) -> Result<(), Error> {
        Ok(emit(&self.late, carrier, flight)?)
    }
}

impl Sum {
    fn add(&mut self, flight: &Flight) {
        self.flights += 1;
        self.with_delay += u64::from(flight.dep_delay.is_some());
        self.delay_minutes += flight.dep_delay.unwrap_or(0);
    }
}

/// A flight and its time, in milliseconds since the Unix epoch.
fn read(data: &[u8]) -> Result<(Flight, u64), String> {
    let flight: Flight = serde_json::from_slice(data).map_err(|error| error.to_string())?;
    let hour = humantime::parse_rfc3339(&flight.time_hour)
        .map_err(|error| format!("time_hour: {error}"))?;
    let since = hour
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_err(|_| "time_hour: before 1970".to_owned())?;
    let time_ms = u64::try_from(since.as_millis()).map_err(|error| error.to_string())?;
    Ok((flight, time_ms))
}

fn duration(key: &str) -> Result<Option<Duration>, Error> {
    config::get(key).map(|text| parsed(key, &text)).transpose()
}

fn parsed(key: &str, text: &str) -> Result<Duration, Error> {
    humantime::parse_duration(text).map_err(|error| {
        Error::Misconfigured(format!(
            "{key} is no duration, such as 90s or 1day: {error}"
        ))
    })
}

shardmill_processor::plugin!(Hours, state, ticks);

#[cfg(test)]
mod tests {
    use shardmill_processor::{Record, testing};

    use super::*;

    const ARRIVAL_MS: u64 = 1_700_000_000_000;

    fn hours() -> Hours {
        let context = Context {
            plugin: "hours".to_owned(),
            application: "hours".to_owned(),
            stream: "flights".to_owned(),
            shard: "s".to_owned(),
            worker: "host".to_owned(),
            grant_epoch: 1,
        };
        Hours::init(context).unwrap()
    }

    fn flight(carrier: &str, time_hour: &str) -> String {
        format!(r#"{{"carrier":"{carrier}","time_hour":"{time_hour}","dep_delay":2}}"#)
    }

    fn process(hours: &mut Hours, lines: &[String]) -> Outcome {
        let record = |line: &'static [u8]| Record {
            data: line,
            arrival_ms: ARRIVAL_MS,
            ..Record::default()
        };
        let lines = lines.iter().map(|line| line.clone().leak().as_bytes());
        let batch = Batch {
            records: lines.map(record).collect(),
            attempt: 1,
            millis_behind_latest: 0,
        };
        hours.process(batch).unwrap()
    }

    fn emitted() -> Vec<String> {
        let pieces = testing::take_emitted().into_iter();
        let lines = pieces.map(|piece| String::from_utf8(piece.data).unwrap());
        lines.collect()
    }

    #[test]
    fn an_hour_comes_out_once_flights_of_a_day_later_have_come() {
        testing::configure("delay", "2h");
        let mut hours = hours();
        let outcome = process(
            &mut hours,
            &[
                flight("UA", "2013-01-01T10:00:00Z"),
                "{}".to_owned(),
                flight("UA", "2013-01-01T12:00:00Z"),
                flight("UA", "2013-01-01T10:00:00Z"),
            ],
        );
        assert_eq!(outcome.failures.len(), 1);
        assert_eq!(emitted(), [""; 0]);
        let late = flight("UA", "2013-01-01T10:00:00Z");
        process(
            &mut hours,
            &[flight("AA", "2013-01-01T13:00:00Z"), late.clone()],
        );
        let hour = r#"{"shard":"s","hour":"2013-01-01T10:00:00Z","carrier":"UA","flights":2,"with_delay":2,"delay_minutes":4}"#;
        assert_eq!(emitted(), [late.as_str(), hour]);
    }

    #[test]
    fn all_hours_come_out_after_the_silence_that_was_set_and_at_the_end_of_the_shard() {
        testing::configure("silence", "1m");
        let mut hours = hours();
        process(&mut hours, &[flight("UA", "2013-01-01T10:00:00Z")]);
        let tick = |seconds: u64| Tick {
            now_ms: ARRIVAL_MS + seconds * 1_000,
            delivered_until_ms: Some(ARRIVAL_MS + seconds * 1_000),
        };
        hours.tick(tick(60)).unwrap();
        assert_eq!(emitted().len(), 0);
        hours.tick(tick(70)).unwrap();
        assert_eq!(emitted().len(), 1);
        process(&mut hours, &[flight("UA", "2013-01-02T10:00:00Z")]);
        hours.close(CloseReason::Shutdown).unwrap();
        assert_eq!(emitted().len(), 0);
        hours.close(CloseReason::ShardEnded).unwrap();
        assert_eq!(emitted().len(), 1);
    }

    #[test]
    fn open_hours_go_on_in_the_next_instance() {
        let mut first = hours();
        process(&mut first, &[flight("UA", "2013-01-01T10:00:00Z")]);
        let mut second = hours();
        second.load(first.save().unwrap()).unwrap();
        process(
            &mut second,
            &[
                flight("UA", "2013-01-01T10:00:00Z"),
                flight("UA", "2013-01-02T11:00:00Z"),
            ],
        );
        let lines = emitted();
        assert!(lines[0].contains(r#""flights":2"#), "{lines:?}");
    }
}
