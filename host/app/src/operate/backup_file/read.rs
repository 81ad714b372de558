//! From a file to what is in it. Anybody may have written the file.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use shardmill_config::files;
use shardmill_core::artifact::ArtifactRef;
use shardmill_core::backup::{BackedUpShard, BackedUpStream, Backup};
use shardmill_core::control::{Asked, DeployAsked, Deployed, Directives, Finding, Pause};
use shardmill_core::fleet::{ApplicationStart, StreamIdentity, StreamRow};
use shardmill_core::lease::{Checkpoint, Lease, WorkerId};
use shardmill_core::plugin::{PluginName, STATE_BYTES_MAX, StateFill};
use shardmill_core::ports::SavedState;
use shardmill_core::rollout::Quarantined;
use shardmill_core::stream::{HashKeyRange, InitialPosition, LeaseKey, Shard, ShardId, StreamName};
use shardmill_wasm::digest_of;

use super::content::{BYTES_MAX, Content, PluginFile};
use super::lines::{
    BACKUP_VERSION, DeployLine, EndLine, FileLine, FindingLine, HeadLine, Line, PauseLine,
    QuarantineLine, ShardLine, StartLine, StateLine, VersionLine,
};
use crate::operate::state_file::{checkpoint_of, digest};

/// What is in the file at `path`.
pub(crate) fn read(path: &Path) -> anyhow::Result<Content> {
    let cannot = || format!("cannot read {}", path.display());
    let bytes = files::read(path, BYTES_MAX as u64).with_context(cannot)?;
    decode(&bytes).with_context(cannot)
}

/// What is in these bytes.
pub(super) fn decode(bytes: &[u8]) -> anyhow::Result<Content> {
    let (body, end) = split_end(bytes)?;
    let mut lines = body.split_inclusive(|byte| *byte == b'\n').enumerate();
    let Some((_, first)) = lines.next() else {
        bail!("it has no first line");
    };
    let (mut backup, mut files) = (head(first).context("line 1")?, Vec::new());
    for (index, line) in lines {
        let number = index + 1;
        match serde_json::from_slice(line).with_context(|| format!("line {number}"))? {
            Line::Shard(line) => {
                let shard = shard(line).with_context(|| format!("line {number}"))?;
                backup.shards.push(shard);
            }
            Line::File(line) => {
                files.push(file(line).with_context(|| format!("line {number}"))?);
            }
            Line::Backup(_) | Line::End(_) => bail!("line {number} stands in the wrong place"),
        }
    }
    ensure!(
        backup.shards.len() == end.shards && files.len() == end.files,
        "its last line counts other lines than it has"
    );
    refuse_twice(&backup)?;
    refuse_strangers(&files)?;
    Ok(Content { backup, files })
}

/// All before the last line, which must be whole and have the digest of that.
fn split_end(bytes: &[u8]) -> anyhow::Result<(&[u8], EndLine)> {
    const TORN: &str = "it is no backup, or not all of one: its last line is missing";
    let whole = bytes.strip_suffix(b"\n").context(TORN)?;
    let at = whole.iter().rposition(|byte| *byte == b'\n');
    let (body, last) = bytes.split_at(at.context(TORN)? + 1);
    // Before anything else: a later version may end in another way.
    version(body)?;
    let Ok(Line::End(end)) = serde_json::from_slice(last) else {
        bail!(TORN);
    };
    ensure!(
        digest_of(body).as_str() == end.sha256,
        "its digest is not that of its last line: it was changed or damaged"
    );
    Ok((body, end))
}

fn version(body: &[u8]) -> anyhow::Result<()> {
    let first = body.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let found: VersionLine =
        serde_json::from_slice(first).context("it is no backup of `shardmill backup`")?;
    ensure!(
        found.line == "backup",
        "it is no backup of `shardmill backup`"
    );
    ensure!(
        found.version == BACKUP_VERSION,
        "a backup of version {}, but this shardmill reads version {BACKUP_VERSION}: use a newer one",
        found.version
    );
    Ok(())
}

fn refuse_twice(backup: &Backup) -> anyhow::Result<()> {
    let mut keys: Vec<&LeaseKey> = backup.shards.iter().map(|it| &it.lease.key).collect();
    keys.sort();
    for pair in keys.windows(2) {
        ensure!(pair[0] != pair[1], "it has {} twice", pair[0]);
    }
    Ok(())
}

/// What is written into a folder later are components, and what belongs to one of them: never a
/// host's configuration, or a plugin's settings alone.
fn refuse_strangers(files: &[PluginFile]) -> anyhow::Result<()> {
    for file in files {
        let name = &file.name;
        let endings = [".wasm.sig", ".wasm", ".toml"];
        let plugin = endings.iter().find_map(|ending| name.strip_suffix(ending));
        let component = plugin.map(|plugin| format!("{plugin}.wasm"));
        let belongs =
            component.is_some_and(|component| files.iter().any(|it| it.name == component));
        ensure!(
            belongs && plugin.is_some_and(|plugin| PluginName::new(plugin).is_ok()),
            "{name:?} belongs to no component of the backup"
        );
    }
    Ok(())
}

fn head(line: &[u8]) -> anyhow::Result<Backup> {
    let Line::Backup(head) = serde_json::from_slice(line)? else {
        bail!("it is not the first line of a backup");
    };
    let HeadLine {
        application,
        at_ms,
        stream,
        start: begun,
        pause: paused,
        deploy: deployed,
        quarantined,
        ..
    } = head;
    let identity = StreamIdentity {
        created_at_ms: stream.created_at_ms,
    };
    Ok(Backup {
        application,
        at_ms,
        stream: BackedUpStream {
            row: StreamRow {
                name: StreamName::new(&stream.name)?,
                identity,
                is_bootstrapped: stream.bootstrapped,
            },
            arn: stream.arn,
        },
        start: start(&begun)?,
        pause: paused.map(pause),
        deploy: deployed.map(deploy).transpose()?,
        quarantined: quarantined
            .into_iter()
            .map(quarantine)
            .collect::<Result<_, _>>()?,
        shards: Vec::new(),
    })
}

fn start(line: &StartLine) -> anyhow::Result<ApplicationStart> {
    let position = match (line.position.as_str(), line.at_ms) {
        ("trim-horizon", _) => InitialPosition::TrimHorizon,
        ("latest", _) => InitialPosition::Latest,
        ("at-timestamp", Some(ms)) => InitialPosition::AtTimestamp(ms),
        (other, _) => bail!("`start` has no such position: {other:?}"),
    };
    Ok(ApplicationStart {
        position,
        looked_at_ms: line.looked_at_ms,
        found_leases: line.found_leases,
    })
}

fn pause(line: PauseLine) -> Pause {
    Pause {
        asked: Asked {
            by: line.by,
            why: line.why,
            at_ms: line.at_ms,
        },
        until_ms: line.until_ms,
    }
}

fn deploy(line: DeployLine) -> anyhow::Result<DeployAsked> {
    let reference = |text: &str| {
        ArtifactRef::parse(text).map_err(|fault| anyhow::anyhow!("`deploy`: {text:?} {fault}"))
    };
    let before = match &line.before {
        None => None,
        Some(before) => Some(Deployed {
            reference: reference(before)?,
            version: line.before_version.as_deref().map(digest).transpose()?,
        }),
    };
    Ok(DeployAsked {
        reference: reference(&line.reference)?,
        version: digest(&line.version)?,
        before,
        is_in_turns: line.in_turns,
        proven: line.proven.map(finding),
        failed: line.failed.map(finding),
        asked: Asked {
            by: line.by,
            why: line.why,
            at_ms: line.at_ms,
        },
    })
}

fn finding(line: FindingLine) -> Finding {
    Finding {
        by: line.by,
        why: line.why,
        at_ms: line.at_ms,
    }
}

fn quarantine(line: QuarantineLine) -> anyhow::Result<Quarantined> {
    Ok(Quarantined {
        digest: digest(&line.digest)?,
        host: WorkerId::new(&line.host).context("`host` is empty")?,
        reason: line.reason,
        at_ms: line.at_ms,
    })
}

fn shard(line: ShardLine) -> anyhow::Result<BackedUpShard> {
    let checkpoint = checkpoint_of(&line.checkpoint, line.sub_sequence, line.sought.as_deref())?;
    let range = line.hash_keys.as_ref();
    let range = range.map(|[start, end]| HashKeyRange::parse(start, end));
    let range = range.transpose()?;
    let bare = Shard {
        id: ShardId::new(&line.shard)?,
        parents: ids(&line.parents)?,
        hash_range: range.unwrap_or(HashKeyRange::FULL),
        ending_sequence: None,
    };
    let percent = line.state.as_ref().and_then(|state| state.percent);
    let pause = line.pause.map(pause);
    let state = line.state.map(|state| saved(&state, &checkpoint));
    let lease = Lease {
        children: ids(&line.children)?,
        hash_range: range,
        plugin_digest: line.version.as_deref().map(digest).transpose()?,
        settled_arrival_ms: line.arrived_ms,
        given_up: line.given_up,
        state_fill: percent.map(StateFill),
        directives: Directives {
            version: u64::from(pause.is_some()),
            pause,
            ..Directives::default()
        },
        ..Lease::fresh(&bare, checkpoint)
    };
    Ok(BackedUpShard {
        lease,
        state: state.transpose()?,
        read_at_ms: line.read_at_ms,
    })
}

fn saved(line: &StateLine, checkpoint: &Checkpoint) -> anyhow::Result<SavedState> {
    ensure!(
        *checkpoint != Checkpoint::ShardEnd,
        "the end of a shard has no state"
    );
    let bytes = BASE64_STANDARD.decode(&line.bytes);
    let bytes = bytes.context("`state` is not base64")?;
    ensure!(
        bytes.len() <= STATE_BYTES_MAX,
        "a state has {} bytes; at most {STATE_BYTES_MAX} fit",
        bytes.len()
    );
    Ok(SavedState {
        bytes: Bytes::from(bytes),
        checkpoint: checkpoint.clone(),
        plugin_digest: line.version.as_deref().map(digest).transpose()?,
    })
}

fn ids(names: &[String]) -> anyhow::Result<Vec<ShardId>> {
    let ids = names.iter().map(|name| Ok(ShardId::new(name)?));
    ids.collect()
}

fn file(line: FileLine) -> anyhow::Result<PluginFile> {
    // It is written into a folder later: it must not name another.
    let is_plain = Path::new(&line.name).file_name() == Some(line.name.as_ref());
    ensure!(
        is_plain && !line.name.starts_with('.'),
        "{:?} is not the name of a plugin's file",
        line.name
    );
    let bytes = BASE64_STANDARD.decode(&line.content);
    Ok(PluginFile {
        bytes: bytes.context("`content` is not base64")?,
        name: line.name,
    })
}
