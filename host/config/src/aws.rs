//! The section `[aws]`.

use serde::Deserialize;
use shardmill_aws::WireSetting;

use super::problem::{At, Problem};
use super::settings::AwsConfig;
use super::sinks::check_url;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct AwsFile {
    region: Option<String>,
    endpoint: Option<String>,
    kinesis_endpoint: Option<String>,
    dynamodb_endpoint: Option<String>,
    #[serde(default)]
    wire: WireFile,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum WireFile {
    #[default]
    Auto,
    Cbor,
    Json,
}

impl AwsFile {
    pub(super) fn check(self) -> Result<AwsConfig, Problem> {
        let is_word = |region: &String| {
            let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
            !region.is_empty() && region.chars().all(is_allowed)
        };
        if !self.region.as_ref().is_none_or(is_word) {
            return Err(Problem::new("region", "is written such as \"eu-west-1\""));
        }
        for (key, endpoint) in [
            ("endpoint", &self.endpoint),
            ("kinesis-endpoint", &self.kinesis_endpoint),
            ("dynamodb-endpoint", &self.dynamodb_endpoint),
        ] {
            if let Some(endpoint) = endpoint {
                check_url(endpoint).at(key)?;
            }
        }
        Ok(AwsConfig {
            region: self.region,
            kinesis_endpoint: self.kinesis_endpoint.or_else(|| self.endpoint.clone()),
            dynamodb_endpoint: self.dynamodb_endpoint.or(self.endpoint),
            wire: match self.wire {
                WireFile::Auto => WireSetting::Auto,
                WireFile::Cbor => WireSetting::Cbor,
                WireFile::Json => WireSetting::Json,
            },
            is_local: false,
        })
    }
}
