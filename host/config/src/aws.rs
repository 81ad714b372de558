//! The section `[aws]`.

use serde::Deserialize;
use shardmill_aws::WireSetting;
use shardmill_core::stream::check_region;

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

// === impl AwsFile ===

impl AwsFile {
    pub(super) fn check(self) -> Result<AwsConfig, Problem> {
        self.region
            .as_deref()
            .map_or(Ok(()), check_region)
            .at("aws.region")?;
        check_endpoint(self.endpoint.as_deref()).at("aws.endpoint")?;
        check_endpoint(self.kinesis_endpoint.as_deref()).at("aws.kinesis-endpoint")?;
        check_endpoint(self.dynamodb_endpoint.as_deref()).at("aws.dynamodb-endpoint")?;
        Ok(AwsConfig {
            region: self.region,
            kinesis_endpoint: self.kinesis_endpoint.or_else(|| self.endpoint.clone()),
            dynamodb_endpoint: self.dynamodb_endpoint.or(self.endpoint),
            wire: self.wire.into(),
            is_local: false,
        })
    }
}

fn check_endpoint(endpoint: Option<&str>) -> Result<(), String> {
    endpoint.map_or(Ok(()), |text| check_url(text).map(drop))
}

// === impl WireFile ===

impl From<WireFile> for WireSetting {
    fn from(file: WireFile) -> Self {
        match file {
            WireFile::Auto => Self::Auto,
            WireFile::Cbor => Self::Cbor,
            WireFile::Json => Self::Json,
        }
    }
}
