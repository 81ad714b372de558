//! The section `[tables]`: how hosts make the tables that are missing.

use std::collections::BTreeMap;

use serde::Deserialize;
use shardmill_aws::{Billing, Creation, TableOptions};

use super::problem::Problem;

/// What an account may have for one table without asking (AWS limit).
const UNITS_MAX: u32 = 40_000;
/// Tags of one resource, and the lengths of their keys and values in characters (AWS limits).
const TAGS_MAX: usize = 50;
const TAG_KEY_MAX: usize = 128;
const TAG_VALUE_MAX: usize = 256;
/// AWS keeps it for its own tags.
const TAG_KEY_RESERVED: &str = "aws:";
/// What a tag may have besides letters, digits and spaces (AWS limit).
const TAG_SIGNS: &str = "_.:/=+-@";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct TablesFile {
    create: Option<CreateFile>,
    billing: Option<BillingFile>,
    tags: Option<BTreeMap<String, String>>,
    point_in_time_recovery: Option<bool>,
    deletion_protection: Option<bool>,
    encryption_key: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum CreateFile {
    IfMissing,
    Never,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(
    untagged,
    expecting = "write \"on-demand\", or { read-units = 10, write-units = 10 }"
)]
enum BillingFile {
    Word(BillingWord),
    Units(UnitsFile),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum BillingWord {
    OnDemand,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct UnitsFile {
    read_units: u32,
    write_units: u32,
}

// === impl TablesFile ===

impl TablesFile {
    pub(super) fn check(self, region: Option<&str>) -> Result<TableOptions, Problem> {
        if self.create == Some(CreateFile::Never)
            && let Some(key) = self.first_of_new_tables()
        {
            let message = "says how hosts make tables, and with tables.create = \"never\" they \
                make none: remove one of the two";
            return Err(Problem::new(format!("tables.{key}"), message));
        }
        let tags = self.tags.unwrap_or_default();
        check_tags(&tags)?;
        if let Some(key) = &self.encryption_key {
            check_key(key, region)?;
        }
        Ok(TableOptions {
            creation: match self.create {
                Some(CreateFile::Never) => Creation::Never,
                Some(CreateFile::IfMissing) | None => Creation::IfMissing,
            },
            billing: self.billing.map_or(Ok(Billing::default()), check_billing)?,
            tags,
            has_recovery: self.point_in_time_recovery.unwrap_or(false),
            is_protected: self.deletion_protection.unwrap_or(false),
            encryption_key: self.encryption_key,
        })
    }

    fn first_of_new_tables(&self) -> Option<&'static str> {
        let set = [
            ("billing", self.billing.is_some()),
            ("tags", self.tags.is_some()),
            (
                "point-in-time-recovery",
                self.point_in_time_recovery.is_some(),
            ),
            ("deletion-protection", self.deletion_protection.is_some()),
            ("encryption-key", self.encryption_key.is_some()),
        ];
        set.into_iter()
            .find_map(|(key, is_set)| is_set.then_some(key))
    }
}

fn check_billing(billing: BillingFile) -> Result<Billing, Problem> {
    let BillingFile::Units(UnitsFile {
        read_units,
        write_units,
    }) = billing
    else {
        return Ok(Billing::OnDemand);
    };
    for units in [read_units, write_units] {
        if !(1..=UNITS_MAX).contains(&units) {
            let message = format!("units must be from 1 to {UNITS_MAX}, for each table");
            return Err(Problem::new("tables.billing", message));
        }
    }
    Ok(Billing::Provisioned {
        read_units,
        write_units,
    })
}

fn check_tags(tags: &BTreeMap<String, String>) -> Result<(), Problem> {
    let refuse = |message: String| Err(Problem::new("tables.tags", message));
    if tags.len() > TAGS_MAX {
        return refuse(format!("has {} tags, and AWS takes {TAGS_MAX}", tags.len()));
    }
    for (key, value) in tags {
        if key.is_empty() || key.chars().count() > TAG_KEY_MAX {
            return refuse(format!("a tag's key has 1 to {TAG_KEY_MAX} characters"));
        }
        if key.to_ascii_lowercase().starts_with(TAG_KEY_RESERVED) {
            return refuse(format!(
                "{key:?}: AWS keeps keys that begin with aws: for itself"
            ));
        }
        if value.chars().count() > TAG_VALUE_MAX {
            return refuse(format!(
                "the value of {key:?} is longer than {TAG_VALUE_MAX} characters"
            ));
        }
        if let Some(text) = [key, value].into_iter().find(|text| !may_be_in_a_tag(text)) {
            return refuse(format!(
                "{text:?}: a tag has letters, digits, spaces and {TAG_SIGNS} only"
            ));
        }
    }
    Ok(())
}

fn may_be_in_a_tag(text: &str) -> bool {
    text.chars()
        .all(|char| char.is_alphanumeric() || char == ' ' || TAG_SIGNS.contains(char))
}

/// Only an ARN names the same key in a policy as in a request. DynamoDB takes keys of its own
/// region only, if that is known here.
fn check_key(key: &str, region: Option<&str>) -> Result<(), Problem> {
    let of_key = region_of_key(key)?;
    match region.filter(|region| *region != of_key) {
        None => Ok(()),
        Some(region) => {
            let message = format!(
                "is a key of {of_key}, and the tables are in {region}: name a key of their region"
            );
            Err(Problem::new("tables.encryption-key", message))
        }
    }
}

fn region_of_key(key: &str) -> Result<&str, Problem> {
    let parts: Vec<&str> = key.split(':').collect();
    if let ["arn", partition, "kms", region, account, resource] = parts[..] {
        let id = resource.strip_prefix("key/").unwrap_or_default();
        let is_key = [partition, region, account, id].iter().all(|part| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        });
        if is_key {
            return Ok(region);
        }
    }
    let message = "is the ARN of a KMS key, such as \
        arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab";
    Err(Problem::new("tables.encryption-key", message))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Config;

    fn options(section: &str) -> Result<TableOptions, String> {
        Ok(Config::parse(&format!("[tables]\n{section}"), Path::new("."))?.tables)
    }

    #[test]
    fn tables_are_made_on_demand_unless_something_else_is_said() {
        assert_eq!(options("").unwrap(), TableOptions::default());
        let all = "billing = { read-units = 5, write-units = 10 }\ntags = { team = \"a b\" }\n\
            point-in-time-recovery = true\ndeletion-protection = true\n\
            encryption-key = \"arn:aws:kms:eu-west-1:123456789012:key/12ab-34cd\"";
        let expected = TableOptions {
            creation: Creation::IfMissing,
            billing: Billing::Provisioned {
                read_units: 5,
                write_units: 10,
            },
            tags: BTreeMap::from([("team".to_owned(), "a b".to_owned())]),
            has_recovery: true,
            is_protected: true,
            encryption_key: Some("arn:aws:kms:eu-west-1:123456789012:key/12ab-34cd".to_owned()),
        };
        assert_eq!(options(all).unwrap(), expected);
    }

    #[test]
    fn what_aws_would_refuse_and_what_has_no_effect_is_refused_with_its_place() {
        for (section, expected) in [
            (
                "create = \"never\"\ndeletion-protection = true",
                "line 3: tables.deletion-protection: says how hosts make tables",
            ),
            ("create = \"maybe\"", "line 2"),
            ("billing = \"provisioned\"", "write \"on-demand\""),
            (
                "billing = { read-units = 0, write-units = 1 }",
                "line 2: tables.billing: units must be from 1 to 40000",
            ),
            ("tags = { \"aws:x\" = \"y\" }", "for itself"),
            ("tags = { \"\" = \"y\" }", "1 to 128 characters"),
            ("tags = { x = \"a;b\" }", "letters, digits"),
            (
                "encryption-key = \"alias/tables\"",
                "line 2: tables.encryption-key: is the ARN of a KMS key",
            ),
            ("prefix = \"x\"", "unknown field `prefix`"),
        ] {
            let error = options(section).unwrap_err();
            assert!(error.contains(expected), "{section}: {error}");
        }
    }

    #[test]
    fn a_key_of_another_region_than_the_tables_is_refused_before_a_table_is_made() {
        let key = "encryption-key = \"arn:aws:kms:eu-west-1:123456789012:key/12ab\"";
        for (aws, is_taken) in [
            ("region = \"eu-west-1\"", true),
            ("region = \"us-east-1\"", false),
            (
                "region = \"us-east-1\"\ndynamodb-region = \"eu-west-1\"",
                true,
            ),
            (
                "region = \"eu-west-1\"\ndynamodb-region = \"us-east-1\"",
                false,
            ),
        ] {
            match options(&format!("{key}\n[aws]\n{aws}")) {
                Ok(_) => assert!(is_taken, "{aws}"),
                Err(error) => {
                    assert!(!is_taken, "{aws}: {error}");
                    let expected = "is a key of eu-west-1, and the tables are in us-east-1";
                    assert!(error.contains(expected), "{error}");
                }
            }
        }
    }
}
