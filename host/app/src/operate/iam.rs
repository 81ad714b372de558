//! `shardmill iam`: the least policy that a configuration needs.

mod policy;
mod template;

use std::collections::BTreeSet;

use anyhow::bail;
use shardmill_aws::operations::{dynamodb, kms};
use shardmill_config::{AwsScope, Caller, Config, ConfigError, Need, Statement, USE_TABLE_KEY};

use self::policy::{Allowed, Document, actions, text};
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
    let statements = of_identity(args.identity.as_deref(), statements)?;
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

/// What one identity needs; all, if none is named.
fn of_identity(
    identity: Option<&str>,
    statements: Vec<Statement>,
) -> Result<Vec<Statement>, ConfigError> {
    let by = match identity {
        None => return Ok(statements),
        Some("host") => Caller::Host,
        Some(arn) => Caller::Role(arn.to_owned()),
    };
    let (own, others): (Vec<_>, Vec<_>) = statements.into_iter().partition(|one| one.by == by);
    if !own.is_empty() {
        return Ok(own);
    }
    let others: BTreeSet<String> = others.iter().map(|one| name_of(&one.by)).collect();
    let others: Vec<String> = others.into_iter().collect();
    Err(ConfigError::Plugin {
        message: format!(
            "the configuration has nothing for {} to do: choose from {}",
            name_of(&by),
            others.join(", ")
        ),
    })
}

fn name_of(caller: &Caller) -> String {
    match caller {
        Caller::Host => "host".to_owned(),
        Caller::Role(arn) => arn.clone(),
    }
}

fn allowed(args: &IamArgs, statements: &[Statement], scope: &AwsScope) -> Vec<Allowed> {
    let mut policy: Vec<Allowed> = Vec::new();
    for statement in statements {
        if args.tables_exist && creates_tables(statement) {
            continue;
        }
        let allowed = Allowed::of(statement, scope);
        // Several identities may do the same, and an id is unique in a policy.
        match policy.iter_mut().find(|one| one.sid == allowed.sid) {
            Some(same) => same.extend(allowed),
            None => policy.push(allowed),
        }
    }
    for key_use in key_uses(args) {
        let is_needed = policy.iter().any(|one| one.sid == key_use.with);
        if is_needed && !key_use.keys.is_empty() {
            policy.push(key_use.allowed());
        }
    }
    policy
}

/// What keys are needed for that the configuration does not name: those of streams, and those of
/// tables that somebody else made.
struct KeyUse<'a> {
    sid: &'static str,
    /// The statement for whose resources the keys are: who does not have that needs no key.
    with: &'static str,
    needs: &'static [Need],
    keys: &'a [String],
}

const DECRYPT: [Need; 1] = [Need {
    operation: kms::DECRYPT,
    why: "to read a stream that is encrypted with this key",
}];
const ENCRYPT: [Need; 1] = [Need {
    operation: kms::GENERATE_STREAM_KEY,
    why: "to write to a stream that is encrypted with this key",
}];

fn key_uses(args: &IamArgs) -> [KeyUse<'_>; 3] {
    [
        KeyUse {
            sid: "DecryptStreams",
            with: "ReadStreams",
            needs: &DECRYPT,
            keys: &args.kms_keys,
        },
        KeyUse {
            sid: "EncryptOutput",
            with: "PutOutput",
            needs: &ENCRYPT,
            keys: &args.sink_kms_keys,
        },
        KeyUse {
            sid: "UseTableKeys",
            with: "Coordination",
            needs: &USE_TABLE_KEY,
            keys: &args.table_kms_keys,
        },
    ]
}

impl KeyUse<'_> {
    fn allowed(&self) -> Allowed {
        Allowed {
            sid: self.sid.to_owned(),
            actions: actions(self.needs),
            resources: self.keys.to_vec(),
        }
    }
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
        let keys = [
            "--kms-key",
            key,
            "--table-kms-key",
            key,
            "--sink-kms-key",
            key,
        ];
        let policy = policy(ALERTS, &keys);
        let document = serde_json::to_value(Document::of(&policy)).unwrap();
        assert_eq!(document["Version"], "2012-10-17");
        let statements = document["Statement"].as_array().unwrap();
        let ids: std::collections::BTreeSet<&str> = statements
            .iter()
            .map(|statement| statement["Sid"].as_str().unwrap())
            .collect();
        assert_eq!(ids.len(), statements.len());
        assert!(ids.iter().all(|id| id.chars().all(char::is_alphanumeric)));
        let of_keys: Vec<_> = statements
            .iter()
            .filter(|statement| statement["Resource"] == json!([key]))
            .map(|statement| statement["Sid"].as_str().unwrap())
            .collect();
        assert_eq!(
            of_keys,
            ["DecryptStreams", "UseTableKeys"],
            "no sink needs one"
        );
    }

    const ROLES: &str = "[aws]\nkinesis-role = \"arn:aws:iam::111111111111:role/reader\"\n\
                         [sinks.out]\ntype = \"kinesis\"\nstream = \"copies\"\n\
                         role = \"arn:aws:iam::222222222222:role/writer\"\n";

    fn policy_of(identity: &str, more: &[&str]) -> Result<Vec<Allowed>, ConfigError> {
        let config = Config::parse(&format!("{ALERTS}{ROLES}"), Path::new("nowhere")).unwrap();
        let args = args(&[&["--identity", identity], more].concat());
        let own = of_identity(args.identity.as_deref(), config.rights().unwrap())?;
        Ok(allowed(&args, &own, &scope(&args, &config)))
    }

    #[test]
    fn each_identity_gets_its_own_policy_with_the_account_of_its_role() {
        let key = ["--sink-kms-key", "arn:aws:kms:eu-west-1:222222222222:key/1"];
        let sids = |identity: &str| -> Vec<String> {
            let policy = policy_of(identity, &key).unwrap();
            policy.into_iter().map(|one| one.sid).collect()
        };
        let tables = ["Leases", "Coordination", "CreateTables", "AssumeRoles"];
        assert_eq!(sids("host"), tables);
        let reader = "arn:aws:iam::111111111111:role/reader";
        assert_eq!(sids(reader), ["ReadStreams"]);
        let writer = "arn:aws:iam::222222222222:role/writer";
        assert_eq!(sids(writer), ["PutOutput", "EncryptOutput"]);
        let written = policy_of(writer, &[]).unwrap();
        assert_eq!(
            written[0].resources,
            ["arn:*:kinesis:*:222222222222:stream/copies"]
        );
    }

    #[test]
    fn an_identity_that_the_configuration_does_not_name_is_refused_with_those_that_it_does() {
        let told = policy_of("arn:aws:iam::111111111111:role/redaer", &[]);
        let told = told.unwrap_err().to_string();
        for name in ["redaer", ":role/reader, ", ":role/writer, ", "host"] {
            assert!(told.contains(name), "{told}");
        }
    }

    #[test]
    fn together_two_roles_that_write_have_one_statement_with_the_streams_of_both() {
        let more = "[sinks.more]\ntype = \"kinesis\"\nstream = \"more\"\n";
        let all = policy(&format!("{ALERTS}{ROLES}{more}"), &[]);
        let puts: Vec<_> = all.iter().filter(|one| one.sid == "PutOutput").collect();
        let [put] = puts[..] else {
            panic!("one: {puts:?}");
        };
        let accounts = [
            "arn:*:kinesis:*:111111111111:",
            "arn:*:kinesis:*:222222222222:",
        ];
        for account in accounts {
            let is_its = |arn: &String| arn.starts_with(account);
            assert_eq!(put.resources.iter().filter(|arn| is_its(arn)).count(), 1);
        }
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
