//! States of shards in a file: one JSON object in each line.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, bail};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use shardmill_core::lease::{Checkpoint, Sought};
use shardmill_core::plugin::PluginDigest;
use shardmill_core::ports::SavedState;
use shardmill_core::stream::ShardId;

/// The largest state takes 507 KiB in base64; the rest is names, numbers and a digest.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// All of them are in memory at once. 1 GiB: a thousand shards with the largest states.
const BYTES_MAX: usize = 1 << 30;

/// A line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Line {
    application: String,
    shard: String,
    /// As the lease table has it.
    checkpoint: String,
    #[serde(default)]
    sub_sequence: u64,
    /// Where an operator sent the shard, if nothing was settled since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sought: Option<String>,
    /// The digest of the component that saved it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// In base64.
    state: String,
}

/// The state of a shard, as it is in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShardState {
    pub(super) application: String,
    pub(super) shard: ShardId,
    pub(super) saved: SavedState,
}

/// The line of a state, with its end.
pub(super) fn encode(state: &ShardState) -> anyhow::Result<String> {
    let saved = &state.saved;
    let digest = saved.plugin_digest.as_ref();
    let line = Line {
        application: state.application.clone(),
        shard: state.shard.to_string(),
        checkpoint: saved.checkpoint.text().to_owned(),
        sub_sequence: saved.checkpoint.sub_sequence(),
        sought: saved.checkpoint.sought().map(Sought::text),
        version: digest.map(|digest| digest.as_str().to_owned()),
        state: BASE64_STANDARD.encode(&saved.bytes),
    };
    Ok(serde_json::to_string(&line)? + "\n")
}

/// All states of a file.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<ShardState>> {
    let name = path.display();
    let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
    read_from(BufReader::new(file)).with_context(|| format!("cannot read {name}"))
}

fn read_from(mut file: impl BufRead) -> anyhow::Result<Vec<ShardState>> {
    let (mut states, mut bytes) = (Vec::new(), 0_usize);
    for number in 1_u64.. {
        let mut line = Vec::new();
        let mut limited = file.by_ref().take(LINE_BYTES_MAX);
        if limited.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let state = decode(&line).with_context(|| format!("line {number}"))?;
        bytes = bytes.saturating_add(state.saved.bytes.len());
        if bytes > BYTES_MAX {
            bail!("it has more than {BYTES_MAX} bytes of states: split it");
        }
        states.push(state);
    }
    if states.is_empty() {
        bail!("it has no state");
    }
    Ok(states)
}

fn decode(line: &[u8]) -> anyhow::Result<ShardState> {
    if !line.ends_with(b"\n") && line.len() as u64 >= LINE_BYTES_MAX {
        bail!("it has more than {LINE_BYTES_MAX} bytes: no state is that large");
    }
    let line: Line = serde_json::from_slice(line)?;
    let checkpoint = checkpoint(&line)?;
    let bytes = BASE64_STANDARD.decode(&line.state);
    let bytes = bytes.context("`state` is not base64")?;
    let digest = line.version.as_deref().map(digest).transpose()?;
    Ok(ShardState {
        shard: ShardId::new(&line.shard)?,
        application: line.application,
        saved: SavedState {
            bytes: Bytes::from(bytes),
            checkpoint,
            plugin_digest: digest,
        },
    })
}

fn checkpoint(line: &Line) -> anyhow::Result<Checkpoint> {
    let sought = line.sought.as_deref();
    match checkpoint_of(&line.checkpoint, line.sub_sequence, sought)? {
        Checkpoint::ShardEnd => bail!("the end of a shard has no state"),
        checkpoint => Ok(checkpoint),
    }
}

/// A checkpoint as files have it, in the three attributes of a row.
pub(super) fn checkpoint_of(
    text: &str,
    sub_sequence: u64,
    sought: Option<&str>,
) -> anyhow::Result<Checkpoint> {
    if let Some(sought) = sought {
        let sought = Sought::parse(sought).map(Checkpoint::Sought);
        return sought.context("`sought` is not a place");
    }
    let checkpoint = Checkpoint::parse(text, sub_sequence);
    checkpoint.with_context(|| {
        format!("`checkpoint` {text:?} is neither a sequence number nor a sentinel")
    })
}

pub(super) fn digest(hex: &str) -> anyhow::Result<PluginDigest> {
    PluginDigest::from_hex(hex).context("`version` is not a digest of 64 hexadecimal digits")
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardmill_core::stream::{Position, SequenceNumber};

    fn state(checkpoint: Checkpoint, bytes: &[u8]) -> ShardState {
        ShardState {
            application: "totals".to_owned(),
            shard: ShardId::new("shardId-000000000003").unwrap(),
            saved: SavedState {
                bytes: Bytes::copy_from_slice(bytes),
                checkpoint,
                plugin_digest: PluginDigest::from_hex(&"ab".repeat(32)),
            },
        }
    }

    #[test]
    fn every_state_survives_a_round_trip_to_the_last_bit() {
        let number = SequenceNumber::parse("49590338271490256608559692538361571095").unwrap();
        let at = Checkpoint::At(Position {
            sequence: number.clone(),
            sub_sequence: 7,
        });
        let states = [
            state(at, &[0, 255, b'\n', b'"']),
            state(Checkpoint::Sought(Sought::Sequence(number)), b""),
            state(Checkpoint::Sought(Sought::Horizon), b"x"),
            state(Checkpoint::TrimHorizon, b"x"),
        ];
        let lines = states.iter().map(|state| encode(state).unwrap());
        let file: String = lines.collect::<Vec<_>>().join("\n");
        assert_eq!(read_from(file.as_bytes()).unwrap(), states);
    }

    #[test]
    fn a_line_that_is_no_state_is_refused_with_its_number() {
        let good = encode(&state(Checkpoint::TrimHorizon, b"x")).unwrap();
        let long = good.replace("\"eA==\"", &format!("\"{}\"", "A".repeat(1 << 20)));
        for (bad, word) in [
            ("{".to_owned(), "EOF"),
            (good.replace("TRIM_HORIZON", "SHARD_END"), "no state"),
            (good.replace("TRIM_HORIZON", "here"), "neither"),
            (good.replace("eA==", "?"), "base64"),
            (good.replace("abab", "xyxy"), "digest"),
            (good.replace("shardId", "shard id"), "shard id"),
            (good.replace("sub-sequence", "surprise"), "surprise"),
            (long, "no state is that large"),
        ] {
            let file = format!("{good}{bad}");
            let told = format!("{:#}", read_from(file.as_bytes()).unwrap_err());
            assert!(told.contains("line 2") && told.contains(word), "{told}");
        }
        let told = format!("{:#}", read_from(&b"\n\n"[..]).unwrap_err());
        assert!(told.contains("no state"), "{told}");
    }
}
