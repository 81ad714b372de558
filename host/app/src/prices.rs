//! Prices of AWS, with their date and source, since they may change.

use std::path::Path;

use anyhow::{Context, bail};
use serde::Deserialize;

/// The prices of us-east-1, as a file for `--prices`.
const BUILT_IN: &str = include_str!("../prices/us-east-1.toml");
/// Largest file of prices; the one that is built in has a kilobyte.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// In US dollars.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Prices {
    pub(crate) as_of: String,
    pub(crate) region: String,
    pub(crate) source: String,
    pub(crate) dynamodb_million_reads: f64,
    pub(crate) dynamodb_million_writes: f64,
    pub(crate) dynamodb_read_unit_hour: f64,
    pub(crate) dynamodb_write_unit_hour: f64,
    pub(crate) kinesis_million_put_units: f64,
    pub(crate) kinesis_shard_hour: f64,
    pub(crate) kinesis_fan_out_shard_hour: f64,
    pub(crate) kinesis_fan_out_gigabyte: f64,
    pub(crate) kinesis_on_demand_stream_hour: f64,
    pub(crate) kinesis_on_demand_gigabyte_out: f64,
    pub(crate) kinesis_on_demand_fan_out_gigabyte: f64,
    pub(crate) cloudwatch_metric_month: f64,
}

impl Prices {
    /// The prices in `path`, or else the built-in ones.
    pub(crate) fn read(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else {
            return Self::parse(BUILT_IN);
        };
        let text = shardmill_config::files::read_text(path, FILE_BYTES_MAX);
        let prices = text
            .map_err(anyhow::Error::from)
            .and_then(|text| Self::parse(&text));
        prices.with_context(|| {
            let path = path.display();
            format!("cannot use the prices of {path}; docs/commands.md shows a valid file")
        })
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let prices: Self = toml::from_str(text)?;
        if let Some(price) = prices
            .all()
            .iter()
            .find(|price| !price.is_finite() || **price < 0.0)
        {
            bail!("{price} is not a price: write dollars, such as 0.015");
        }
        Ok(prices)
    }

    fn all(&self) -> [f64; 12] {
        [
            self.dynamodb_million_reads,
            self.dynamodb_million_writes,
            self.dynamodb_read_unit_hour,
            self.dynamodb_write_unit_hour,
            self.kinesis_million_put_units,
            self.kinesis_shard_hour,
            self.kinesis_fan_out_shard_hour,
            self.kinesis_fan_out_gigabyte,
            self.kinesis_on_demand_stream_hour,
            self.kinesis_on_demand_gigabyte_out,
            self.kinesis_on_demand_fan_out_gigabyte,
            self.cloudwatch_metric_month,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_may_be_ones_own_and_bad_ones_are_refused_with_the_mend() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("prices.toml");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Prices::read(Some(&path)).map_err(|error| format!("{error:#}"))
        };
        let own = BUILT_IN.replace("kinesis-shard-hour = 0.015", "kinesis-shard-hour = 0.5");
        assert!((read(&own).unwrap().kinesis_shard_hour - 0.5).abs() < f64::EPSILON);
        for (bad, told) in [
            (BUILT_IN.replace("0.625", "-1.0"), "-1 is not a price"),
            (BUILT_IN.replace("0.625", "nan"), "NaN is not a price"),
            (BUILT_IN.replace("region = ", "regio = "), "unknown field"),
            ("as-of = \"2026-01-01\"".to_owned(), "missing field"),
        ] {
            let refused = read(&bad).unwrap_err();
            assert!(
                refused.contains(told) && refused.contains("docs/commands.md"),
                "{refused}"
            );
        }
    }
}
