//! The section `[aws]`.

use serde::Deserialize;
use shardmill_aws::{ServiceAccess, WireSetting};
use shardmill_core::stream::check_region;

use super::problem::{At, Problem};
use super::role::check_role;
use super::settings::AwsConfig;
use super::sinks::check_url;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct AwsFile {
    region: Option<String>,
    endpoint: Option<String>,
    kinesis_endpoint: Option<String>,
    dynamodb_endpoint: Option<String>,
    role: Option<String>,
    external_id: Option<String>,
    kinesis_region: Option<String>,
    kinesis_role: Option<String>,
    kinesis_external_id: Option<String>,
    dynamodb_region: Option<String>,
    dynamodb_role: Option<String>,
    dynamodb_external_id: Option<String>,
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
        self.check_regions()?;
        self.check_endpoints()?;
        Ok(AwsConfig {
            region: self.region,
            kinesis_endpoint: self.kinesis_endpoint.or_else(|| self.endpoint.clone()),
            dynamodb_endpoint: self.dynamodb_endpoint.or(self.endpoint),
            role: check_role(self.role, self.external_id, "aws.")?,
            kinesis: ServiceAccess {
                region: self.kinesis_region,
                role: check_role(self.kinesis_role, self.kinesis_external_id, "aws.kinesis-")?,
            },
            dynamodb: ServiceAccess {
                region: self.dynamodb_region,
                role: check_role(
                    self.dynamodb_role,
                    self.dynamodb_external_id,
                    "aws.dynamodb-",
                )?,
            },
            wire: self.wire.into(),
            is_local: false,
        })
    }

    fn check_regions(&self) -> Result<(), Problem> {
        for (region, key) in [
            (&self.region, "aws.region"),
            (&self.kinesis_region, "aws.kinesis-region"),
            (&self.dynamodb_region, "aws.dynamodb-region"),
        ] {
            region.as_deref().map_or(Ok(()), check_region).at(key)?;
        }
        Ok(())
    }

    fn check_endpoints(&self) -> Result<(), Problem> {
        check_endpoint(self.endpoint.as_deref()).at("aws.endpoint")?;
        check_endpoint(self.kinesis_endpoint.as_deref()).at("aws.kinesis-endpoint")?;
        check_endpoint(self.dynamodb_endpoint.as_deref()).at("aws.dynamodb-endpoint")
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use shardmill_aws::Role;

    use super::*;
    use crate::Config;

    fn aws(section: &str) -> Result<AwsConfig, String> {
        Ok(Config::parse(&format!("[aws]\n{section}"), Path::new("."))?.aws)
    }

    #[test]
    fn each_service_may_have_a_region_and_a_role_of_its_own() {
        let aws = aws(
            "role = \"arn:aws:iam::123456789012:role/a\"\nexternal-id = \"id-1\"\n\
             dynamodb-region = \"eu-north-1\"\n\
             dynamodb-role = \"arn:aws-cn:iam::123456789012:role/path/b\"",
        )
        .unwrap();
        let role = |arn: &str, id: Option<&str>| {
            Some(Role {
                arn: arn.to_owned(),
                external_id: id.map(str::to_owned),
            })
        };
        assert_eq!(
            aws.role,
            role("arn:aws:iam::123456789012:role/a", Some("id-1"))
        );
        assert_eq!(aws.kinesis, ServiceAccess::default());
        let tables = ServiceAccess {
            region: Some("eu-north-1".to_owned()),
            role: role("arn:aws-cn:iam::123456789012:role/path/b", None),
        };
        assert_eq!(aws.dynamodb, tables);
        assert_eq!(aws.options().dynamodb, tables);
    }

    #[test]
    fn a_role_that_nobody_can_assume_is_refused_with_its_key() {
        for (section, expected) in [
            ("role = \"admin\"", "line 2: aws.role: is the ARN of a role"),
            (
                "kinesis-role = \"arn:aws:iam::12345:role/a\"",
                "line 2: aws.kinesis-role: is the ARN",
            ),
            (
                "role = \"arn:aws:iam::123456789012:user/a\"",
                "aws.role: is the ARN",
            ),
            (
                "external-id = \"id\"",
                "line 2: aws.external-id: needs aws.role",
            ),
            (
                "role = \"arn:aws:iam::123456789012:role/a\"\nexternal-id = \"a b\"",
                "line 3: aws.external-id: has 2 to 1224",
            ),
            (
                "dynamodb-region = \"eu west\"",
                "line 2: aws.dynamodb-region",
            ),
        ] {
            let error = aws(section).unwrap_err();
            assert!(error.contains(expected), "{section}: {error}");
        }
    }
}
