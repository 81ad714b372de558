//! `shardmill iam`: the least policy that a configuration needs.

mod policy;
mod template;

use anyhow::bail;
use shardmill_aws::operations::dynamodb;
use shardmill_config::{AwsScope, Config, ConfigError, Statement};

use self::policy::{Allowed, Document, text};
use self::template::{cloudformation, terraform};
use crate::cli::{IamArgs, IamFormat};
use crate::output::{print, print_pretty_json};

/// Most characters of a managed policy, white space not counted (AWS limit).
const POLICY_CHARS_MAX: usize = 6_144;

pub(crate) fn execute(args: &IamArgs) -> anyhow::Result<()> {
    let config = Config::load(&args.config)?;
    let statements = config
        .rights()
        .map_err(|message| ConfigError::Plugin { message })?;
    let scope = scope(args, &config);
    let policy = allowed(args, &statements, &scope);
    let document = Document::of(&policy);
    let chars = serde_json::to_string(&document)?.len();
    if chars > POLICY_CHARS_MAX && args.format != IamFormat::Text {
        bail!(
            "the policy has {chars} characters, but AWS allows {POLICY_CHARS_MAX}: run some of \
                the plugins on other hosts, with their own configuration and role"
        );
    }
    match args.format {
        IamFormat::Json => print_pretty_json(&document)?,
        IamFormat::Cloudformation => print_pretty_json(&cloudformation(document))?,
        IamFormat::Terraform => print(&terraform(&policy)),
        IamFormat::Text => print(&text(&policy)),
    }
    Ok(())
}

/// Where the resources are that are given by name. A policy has no variables for that: unless they
/// are given, it covers any region and account, of which a role reaches only its own.
fn scope(args: &IamArgs, config: &Config) -> AwsScope {
    let region = args.region.clone().or_else(|| config.aws.region.clone());
    let partition = region.as_deref().map(partition_of);
    let unknown = unknown_scope(args.format);
    AwsScope {
        partition: partition.map_or(unknown.partition, str::to_owned),
        region: region.unwrap_or(unknown.region),
        account: args.account.clone().unwrap_or(unknown.account),
    }
}

/// What a policy says for the parts of the scope that are not known.
fn unknown_scope(format: IamFormat) -> AwsScope {
    let [partition, region, account] = match format {
        IamFormat::Json | IamFormat::Text => ["*", "*", "*"],
        IamFormat::Terraform => [
            template::TERRAFORM_PARTITION,
            template::TERRAFORM_REGION,
            template::TERRAFORM_ACCOUNT,
        ],
        IamFormat::Cloudformation => ["${AWS::Partition}", "${AWS::Region}", "${AWS::AccountId}"],
    };
    AwsScope {
        partition: partition.to_owned(),
        region: region.to_owned(),
        account: account.to_owned(),
    }
}

/// AWS' partitions, by the beginning of their regions' names.
fn partition_of(region: &str) -> &'static str {
    match region {
        _ if region.starts_with("cn-") => "aws-cn",
        _ if region.starts_with("us-gov-") => "aws-us-gov",
        _ => "aws",
    }
}

fn allowed(args: &IamArgs, statements: &[Statement], scope: &AwsScope) -> Vec<Allowed> {
    let mut policy = Vec::new();
    for statement in statements {
        if !args.tables_exist || !creates_tables(statement) {
            policy.push(Allowed::of(statement, scope));
        }
    }
    if !args.kms_keys.is_empty() {
        let why = "to read a stream that is encrypted with this key";
        policy.push(Allowed {
            sid: "DecryptStreams".to_owned(),
            actions: vec![("kms:Decrypt".to_owned(), why)],
            resources: args.kms_keys.clone(),
        });
    }
    policy
}

fn creates_tables(statement: &Statement) -> bool {
    let of_new_tables = [dynamodb::CREATE_TABLE, dynamodb::TAG_RESOURCE];
    let mut needs = statement.needs.iter();
    needs.any(|need| of_new_tables.contains(&need.operation))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;
    use serde_json::json;

    use super::*;
    use crate::cli::{Cli, Command, OperateCommand};

    fn args(more: &[&str]) -> IamArgs {
        let line = ["shardmill", "iam"].iter().chain(more);
        match Cli::parse_from(line).command {
            Command::Operate(OperateCommand::Iam(args)) => args,
            other => panic!("{other:?}"),
        }
    }

    fn policy(text: &str, more: &[&str]) -> Vec<Allowed> {
        let config = Config::parse(text, Path::new("nowhere")).unwrap();
        let args = args(more);
        let scope = scope(&args, &config);
        allowed(&args, &config.rights().unwrap(), &scope)
    }

    const ALERTS: &str = "stream = \"orders\"\n[plugin.alerts]\n";

    #[test]
    fn the_policy_names_region_and_account_as_far_as_they_are_known() {
        let first = |text: &str, more: &[&str]| policy(text, more)[0].resources[0].clone();
        assert_eq!(first(ALERTS, &[]), "arn:*:kinesis:*:*:stream/orders");
        let regional = format!("aws.region = \"cn-north-1\"\n{ALERTS}");
        assert_eq!(
            first(&regional, &[]),
            "arn:aws-cn:kinesis:cn-north-1:*:stream/orders"
        );
        let known = ["--region", "eu-west-1", "--account", "123456789012"];
        assert_eq!(
            first(&regional, &known),
            "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
        );
        assert_eq!(
            first(ALERTS, &["--format", "cloudformation"]),
            "arn:${AWS::Partition}:kinesis:${AWS::Region}:${AWS::AccountId}:stream/orders"
        );
    }

    #[test]
    fn the_document_is_a_policy_with_unique_ids() {
        let key = "arn:aws:kms:eu-west-1:123456789012:key/1";
        let policy = policy(ALERTS, &["--kms-key", key]);
        let document = serde_json::to_value(Document::of(&policy)).unwrap();
        assert_eq!(document["Version"], "2012-10-17");
        let statements = document["Statement"].as_array().unwrap();
        let ids: std::collections::BTreeSet<&str> = statements
            .iter()
            .map(|statement| statement["Sid"].as_str().unwrap())
            .collect();
        assert_eq!(ids.len(), statements.len());
        assert!(ids.iter().all(|id| id.chars().all(char::is_alphanumeric)));
        let last = &statements[statements.len() - 1];
        assert_eq!(
            (&last["Action"][0], &last["Resource"][0]),
            (&json!("kms:Decrypt"), &json!(key))
        );
    }

    #[test]
    fn the_permission_to_create_tables_may_be_left_out() {
        let creates = |more: &[&str]| {
            let policy = policy(ALERTS, more);
            policy
                .iter()
                .any(|one| one.actions[0].0 == "dynamodb:CreateTable")
        };
        assert!(creates(&[]));
        assert!(!creates(&["--tables-exist"]));
    }

    #[test]
    fn every_permission_is_shown_with_its_reason() {
        let policy = policy(ALERTS, &[]);
        let text = text(&policy);
        for (action, why) in policy.iter().flat_map(|one| &one.actions) {
            assert!(text.contains(&format!("{action}  {why}")), "{text}");
        }
    }
}
