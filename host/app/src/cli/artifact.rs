//! `shardmill push` and `shardmill deploy`.

use std::path::PathBuf;

use clap::Args;
use shardmill_core::artifact::ArtifactRef;

use super::{ChangeArgs, OutputArgs, values};

/// Arguments of `push`.
#[derive(Debug, Args)]
#[command(
    after_help = "The signature goes along if it lies beside the file, as FILE.sig. Who we are to \
        the registry comes from [pull.registries] of --config, or else from what docker knows \
        (~/.docker/config.json, or $DOCKER_CONFIG). The same files are the same artifact, however \
        often they are pushed.\n\nExamples:\n  \
    shardmill push alerts.wasm oci://registry.example.org/team/alerts:1.4\n  \
    shardmill push alerts.wasm oci://localhost:5000/alerts:1.4 --manifest alerts.toml"
)]
pub(crate) struct PushArgs {
    /// The component's file.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Where it goes, with a tag.
    #[arg(value_name = "REFERENCE", value_parser = values::reference)]
    pub(crate) reference: ArtifactRef,
    /// A manifest, NAME.toml, that goes along. Hosts put it beside the component.
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest: Option<PathBuf>,
    /// The hosts' configuration: logins, and how large a component may be.
    #[arg(long, value_name = "FILE", env = "SHARDMILL_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// How to print.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Arguments of `deploy`.
#[derive(Debug, Args)]
#[command(
    after_help = "Hosts pull the version from the place that their `plugins` names, and from no other. \
        One host tries it first, on one shard, then on all of its shards; once it runs there as \
        active, the others try it. A version that does worse than the one before is rolled back and \
        quarantined, and all hosts go back to what was deployed before it. Without a version, shows \
        what is deployed and its history.\n\nExit code: 0 if all hosts run it as active, or would \
        try it; 1 if it was rolled back, or is not there yet after --wait.\n\nExamples:\n  \
    shardmill deploy --application alerts\n  \
    shardmill deploy alerts.wasm --application alerts --config shardmill.toml --why 'faster' --apply\n  \
    shardmill deploy oci://registry.example.org/team/alerts:1.5 --application alerts --why '1.5' --apply",
    mut_arg("wait", |arg| arg.default_value("30m"))
)]
pub(crate) struct DeployArgs {
    /// A component's file, which is pushed first, or the reference of a version that was pushed.
    #[arg(value_name = "FILE|REFERENCE")]
    pub(crate) version: Option<String>,
    /// The application.
    #[arg(long, value_parser = values::application)]
    pub(crate) application: String,
    /// Where a file is pushed to, with a tag. Default: the place that --config names for the
    /// plugin, with the version's digest as the tag.
    #[arg(long, value_name = "REFERENCE", value_parser = values::reference)]
    pub(crate) to: Option<ArtifactRef>,
    /// A manifest, NAME.toml, that is pushed with a file.
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest: Option<PathBuf>,
    /// Have all hosts try it at the same time, as rollout.share of their configuration says.
    #[arg(long, requires = "version")]
    pub(crate) at_once: bool,
    /// End what was deployed: hosts go back to what their configuration says.
    #[arg(long, conflicts_with = "version")]
    pub(crate) end: bool,
    /// Who makes the change, and why.
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}
