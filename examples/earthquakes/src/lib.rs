//! Reads the USGS earthquake feed, one GeoJSON feature a record, and emits one JSON line for each
//! strong earthquake.
//!
//! Configuration: `min-magnitude` (default 4.5), `destination` (default `stdout`).

use serde::{Deserialize, Serialize};
use shardmill_processor::{Batch, Context, Error, Outcome, Processor, config, emit, metrics};

/// The USGS calls earthquakes below 4.5 minor or light; above that, people far away notice.
const MIN_MAGNITUDE_DEFAULT: f64 = 4.5;

struct Earthquakes {
    min_magnitude: f64,
    destination: String,
}

#[derive(Deserialize)]
struct Feature {
    id: String,
    properties: Properties,
    geometry: Geometry,
}

#[derive(Deserialize)]
struct Properties {
    /// Null while the magnitude is not known yet.
    mag: Option<f64>,
    place: Option<String>,
    time: i64,
    url: Option<String>,
}

#[derive(Deserialize)]
struct Geometry {
    /// Longitude, latitude, depth in km.
    coordinates: (f64, f64, Option<f64>),
}

#[derive(Serialize)]
struct Alert<'a> {
    id: &'a str,
    time: i64,
    magnitude: f64,
    place: Option<&'a str>,
    longitude: f64,
    latitude: f64,
    depth_km: Option<f64>,
    url: Option<&'a str>,
}

impl Processor for Earthquakes {
    fn init(_context: Context) -> Result<Self, Error> {
        let min_magnitude = match config::get("min-magnitude") {
            None => MIN_MAGNITUDE_DEFAULT,
            Some(text) => text.parse().map_err(|_| {
                Error::Misconfigured(format!(
                    "min-magnitude must be a number such as 4.5, not {text:?}"
                ))
            })?,
        };
        let destination = config::get("destination").unwrap_or_else(|| "stdout".to_owned());
        Ok(Self {
            min_magnitude,
            destination,
        })
    }

    fn process(&mut self, batch: Batch) -> Result<Outcome, Error> {
        let mut outcome = Outcome::default();
        let mut alerts = 0;
        for (index, record) in batch.records.iter().enumerate() {
            match serde_json::from_slice::<Feature>(record.data) {
                Ok(feature) => alerts += u64::from(self.judge(&feature)?),
                Err(error) => outcome.reject(index, format!("not a GeoJSON feature: {error}")),
            }
        }
        metrics::counter("earthquake_alerts", alerts);
        Ok(outcome)
    }
}

impl Earthquakes {
    /// Emits an alert if the earthquake is strong enough; returns whether it did.
    fn judge(&self, feature: &Feature) -> Result<bool, Error> {
        let Some(magnitude) = feature
            .properties
            .mag
            .filter(|magnitude| *magnitude >= self.min_magnitude)
        else {
            return Ok(false);
        };
        let (longitude, latitude, depth_km) = feature.geometry.coordinates;
        let alert = Alert {
            id: &feature.id,
            time: feature.properties.time,
            magnitude,
            place: feature.properties.place.as_deref(),
            longitude,
            latitude,
            depth_km,
            url: feature.properties.url.as_deref(),
        };
        let line = serde_json::to_vec(&alert).map_err(|error| error.to_string())?;
        emit(&self.destination, &feature.id, &line)?;
        Ok(true)
    }
}

shardmill_processor::plugin!(Earthquakes);

#[cfg(test)]
mod tests {
    use shardmill_processor::{Record, testing};

    use super::*;

    fn context() -> Context {
        Context {
            plugin: "earthquakes".to_owned(),
            application: "earthquakes".to_owned(),
            stream: "quakes".to_owned(),
            shard: "shardId-000000000000".to_owned(),
            worker: "test".to_owned(),
            grant_epoch: 1,
        }
    }

    fn batch<'a>(lines: &[&'a str]) -> Batch<'a> {
        let record = |line: &&'a str| Record {
            data: line.as_bytes(),
            partition_key: "key",
            ..Record::default()
        };
        Batch {
            records: lines.iter().map(record).collect(),
            attempt: 1,
            millis_behind_latest: 0,
        }
    }

    fn sample() -> Vec<&'static str> {
        include_str!("../sample.ndjson").lines().collect()
    }

    #[test]
    fn only_strong_earthquakes_are_emitted() {
        let mut earthquakes = Earthquakes::init(context()).unwrap();
        let outcome = earthquakes.process(batch(&sample())).unwrap();
        assert_eq!(outcome, Outcome::default());
        let alerts: Vec<serde_json::Value> = testing::take_emitted()
            .iter()
            .map(|piece| serde_json::from_slice(&piece.data).unwrap())
            .collect();
        assert!(alerts.len() > 5 && alerts.len() < sample().len());
        assert!(
            alerts
                .iter()
                .all(|alert| alert["magnitude"].as_f64().unwrap() >= MIN_MAGNITUDE_DEFAULT)
        );
    }

    #[test]
    fn the_threshold_is_configurable_and_checked_at_init() {
        testing::configure("min-magnitude", "-5");
        let mut earthquakes = Earthquakes::init(context()).unwrap();
        earthquakes.process(batch(&sample())).unwrap();
        assert!(testing::take_emitted().len() > sample().len() / 2);
        testing::configure("min-magnitude", "strong");
        assert!(matches!(
            Earthquakes::init(context()),
            Err(Error::Misconfigured(_))
        ));
    }

    #[test]
    fn a_record_that_is_not_a_feature_is_rejected_alone() {
        let mut earthquakes = Earthquakes::init(context()).unwrap();
        let outcome = earthquakes
            .process(batch(&[sample()[0], "not json", sample()[1]]))
            .unwrap();
        let failed: Vec<u32> = outcome
            .failures
            .iter()
            .map(|failure| failure.index)
            .collect();
        assert_eq!(failed, [1]);
    }
}
