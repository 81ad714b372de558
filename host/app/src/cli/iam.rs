//! `shardmill iam`.

use std::path::PathBuf;

use clap::Args;

use super::values;

/// Arguments of `iam`.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  shardmill iam --region eu-west-1 --account 123456789012
  shardmill iam --config shardmill.toml --format terraform > shardmill.tf
  shardmill iam --format text            # each permission with its reason
  shardmill iam --identity host          # for who starts the host, where [aws] names roles")]
pub(crate) struct IamArgs {
    /// The hosts' configuration file.
    #[arg(
        long,
        value_name = "FILE",
        env = "SHARDMILL_CONFIG",
        default_value = "shardmill.toml"
    )]
    pub(crate) config: PathBuf,
    /// How to print the policy.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: IamFormat,
    /// The region of the tables, and of streams that are given by name; by default that of the
    /// configuration, else the region of the stack for templates and any region for the others.
    #[arg(long, value_parser = values::region)]
    pub(crate) region: Option<String>,
    /// The twelve digits of the account; by default that of the stack for templates, any for the
    /// others.
    #[arg(long, value_parser = values::account)]
    pub(crate) account: Option<String>,
    /// Only what this identity needs: `host`, with which the host starts, or the ARN of a role that
    /// the configuration names. By default all together.
    #[arg(long, value_name = "host|ROLE-ARN")]
    pub(crate) identity: Option<String>,
    /// The ARN of a key that encrypts a stream that plugins read; repeat it for more.
    #[arg(long = "kms-key", value_name = "ARN", value_parser = values::arn)]
    pub(crate) kms_keys: Vec<String>,
    /// The ARN of a key that encrypts the stream of a sink; repeat it for more.
    #[arg(long = "sink-kms-key", value_name = "ARN", value_parser = values::arn)]
    pub(crate) sink_kms_keys: Vec<String>,
    /// The ARN of a key that encrypts tables which somebody else made with it; repeat it for more.
    #[arg(long = "table-kms-key", value_name = "ARN", value_parser = values::arn)]
    pub(crate) table_kms_keys: Vec<String>,
    /// Leave out the permission to create tables, for when all exist.
    #[arg(long)]
    pub(crate) tables_exist: bool,
}

/// How a policy is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum IamFormat {
    /// The policy document
    #[default]
    Json,
    /// A managed policy for Terraform
    Terraform,
    /// A template with a managed policy for CloudFormation
    Cloudformation,
    /// Each permission with its reason, for people
    Text,
}
