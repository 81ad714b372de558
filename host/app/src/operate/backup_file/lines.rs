//! The lines of a backup, and what they are made of. Times are in milliseconds since the Unix
//! epoch.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use shardmill_core::backup::{BackedUpShard, Backup};
use shardmill_core::control::{Asked, DeployAsked, Deployed, Finding, Pause};
use shardmill_core::fleet::ApplicationStart;
use shardmill_core::lease::Sought;
use shardmill_core::plugin::PluginDigest;
use shardmill_core::rollout::Quarantined;
use shardmill_core::stream::{InitialPosition, ShardId};

/// The version that is written. A version that only adds what an earlier shardmill may pass over
/// keeps the number.
pub(crate) const BACKUP_VERSION: u32 = 1;
/// A line, by what it is of.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
pub(super) enum Line {
    Backup(HeadLine),
    Shard(ShardLine),
    File(FileLine),
    End(EndLine),
}

/// What is read of the first line before anything else.
#[derive(Debug, Deserialize)]
pub(super) struct VersionLine {
    pub(super) line: String,
    pub(super) version: u32,
}

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct HeadLine {
    pub(super) version: u32,
    /// The shardmill that wrote it, for people.
    #[serde(default)]
    pub(super) by: String,
    pub(super) application: String,
    pub(super) at_ms: u64,
    pub(super) stream: StreamLine,
    pub(super) start: StartLine,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pause: Option<PauseLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) deploy: Option<DeployLine>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) quarantined: Vec<QuarantineLine>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct StreamLine {
    pub(super) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) arn: Option<String>,
    pub(super) created_at_ms: u64,
    pub(super) bootstrapped: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct StartLine {
    /// `trim-horizon`, `latest` or `at-timestamp`.
    pub(super) position: String,
    /// Of `at-timestamp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) at_ms: Option<u64>,
    pub(super) looked_at_ms: u64,
    pub(super) found_leases: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct PauseLine {
    pub(super) by: String,
    pub(super) why: String,
    pub(super) at_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) until_ms: Option<u64>,
}

/// The version that the fleet is to run.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct DeployLine {
    pub(super) by: String,
    pub(super) why: String,
    pub(super) at_ms: u64,
    /// Where it is, with its digest.
    pub(super) reference: String,
    /// The digest of its component.
    pub(super) version: String,
    /// Where the version is that hosts go back to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) before: Option<String>,
    /// The digest of its component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) before_version: Option<String>,
    pub(super) in_turns: bool,
    /// Who found that it does well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) proven: Option<FindingLine>,
    /// Who found that it is bad.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) failed: Option<FindingLine>,
}

/// What somebody found out about a version that was deployed.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct FindingLine {
    pub(super) by: String,
    pub(super) why: String,
    pub(super) at_ms: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct QuarantineLine {
    pub(super) digest: String,
    pub(super) host: String,
    pub(super) reason: String,
    pub(super) at_ms: u64,
}

/// A shard: its row, as the lease table names it, and its state.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct ShardLine {
    pub(super) shard: String,
    pub(super) read_at_ms: u64,
    pub(super) checkpoint: String,
    #[serde(default)]
    pub(super) sub_sequence: u64,
    /// Where an operator sent the shard, if nothing was settled since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sought: Option<String>,
    /// When the record of the checkpoint arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) arrived_ms: Option<u64>,
    #[serde(default)]
    pub(super) parents: Vec<String>,
    #[serde(default)]
    pub(super) children: Vec<String>,
    /// The lowest and the highest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) hash_keys: Option<[String; 2]>,
    /// The digest of the component that settled what the checkpoint covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    /// The last record that was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) given_up: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pause: Option<PauseLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<StateLine>,
}

/// The state that belongs to the checkpoint.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct StateLine {
    /// The digest of the component that saved it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    /// Of the limit, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) percent: Option<u8>,
    /// In base64.
    pub(super) bytes: String,
}

/// A file of the plugins folder.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct FileLine {
    pub(super) name: String,
    /// In base64.
    pub(super) content: String,
}

/// The last line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct EndLine {
    pub(super) shards: usize,
    pub(super) files: usize,
    /// Of all bytes before this line, in hexadecimal digits.
    pub(super) sha256: String,
}

pub(super) fn head(backup: &Backup) -> HeadLine {
    let stream = &backup.stream;
    HeadLine {
        version: BACKUP_VERSION,
        by: format!("shardmill {}", env!("CARGO_PKG_VERSION")),
        application: backup.application.clone(),
        at_ms: backup.at_ms,
        stream: StreamLine {
            name: stream.row.name.to_string(),
            arn: stream.arn.clone(),
            created_at_ms: stream.row.identity.created_at_ms,
            bootstrapped: stream.row.is_bootstrapped,
        },
        start: start(&backup.start),
        pause: backup.pause.as_ref().map(pause),
        deploy: backup.deploy.as_ref().map(deploy),
        quarantined: backup.quarantined.iter().map(quarantine).collect(),
    }
}

fn start(start: &ApplicationStart) -> StartLine {
    let (position, at_ms) = match start.position {
        InitialPosition::TrimHorizon => ("trim-horizon", None),
        InitialPosition::Latest => ("latest", None),
        InitialPosition::AtTimestamp(ms) => ("at-timestamp", Some(ms)),
    };
    StartLine {
        position: position.to_owned(),
        at_ms,
        looked_at_ms: start.looked_at_ms,
        found_leases: start.found_leases,
    }
}

fn pause(pause: &Pause) -> PauseLine {
    let Asked { by, why, at_ms } = pause.asked.clone();
    PauseLine {
        by,
        why,
        at_ms,
        until_ms: pause.until_ms,
    }
}

fn deploy(deploy: &DeployAsked) -> DeployLine {
    let Asked { by, why, at_ms } = deploy.asked.clone();
    DeployLine {
        by,
        why,
        at_ms,
        reference: deploy.reference.as_text(),
        version: deploy.version.as_str().to_owned(),
        before: deploy.before.as_ref().map(|one| one.reference.as_text()),
        before_version: deploy.before.as_ref().and_then(version_of),
        in_turns: deploy.is_in_turns,
        proven: deploy.proven.as_ref().map(finding),
        failed: deploy.failed.as_ref().map(finding),
    }
}

fn version_of(deployed: &Deployed) -> Option<String> {
    let version = deployed.version.as_ref();
    version.map(|version| version.as_str().to_owned())
}

fn finding(finding: &Finding) -> FindingLine {
    FindingLine {
        by: finding.by.clone(),
        why: finding.why.clone(),
        at_ms: finding.at_ms,
    }
}

fn quarantine(entry: &Quarantined) -> QuarantineLine {
    QuarantineLine {
        digest: entry.digest.as_str().to_owned(),
        host: entry.host.as_str().to_owned(),
        reason: entry.reason.clone(),
        at_ms: entry.at_ms,
    }
}

pub(super) fn shard(shard: &BackedUpShard) -> ShardLine {
    let lease = &shard.lease;
    let range = lease.hash_range;
    ShardLine {
        shard: lease.key.as_str().to_owned(),
        read_at_ms: shard.read_at_ms,
        checkpoint: lease.checkpoint.text().to_owned(),
        sub_sequence: lease.checkpoint.sub_sequence(),
        sought: lease.checkpoint.sought().map(Sought::text),
        arrived_ms: lease.settled_arrival_ms,
        parents: ids(&lease.parents),
        children: ids(&lease.children),
        hash_keys: range.map(|range| [range.start().to_string(), range.end().to_string()]),
        version: lease.plugin_digest.as_ref().map(digest),
        given_up: lease.given_up.clone(),
        pause: lease.directives.pause.as_ref().map(pause),
        state: state(shard),
    }
}

fn state(shard: &BackedUpShard) -> Option<StateLine> {
    let state = shard.state.as_ref()?;
    Some(StateLine {
        version: state.plugin_digest.as_ref().map(digest),
        percent: shard.lease.state_fill.map(|fill| fill.0),
        bytes: BASE64_STANDARD.encode(&state.bytes),
    })
}

fn digest(digest: &PluginDigest) -> String {
    digest.as_str().to_owned()
}

fn ids(ids: &[ShardId]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}
