//! A backup as a file: one JSON object in each line, the first with the version of the format, the
//! last with the digest of all before it.

mod content;
mod lines;
mod read;

use anyhow::bail;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use shardmill_wasm::digest_of;

use self::content::BYTES_MAX;
pub(super) use self::content::{Content, PluginFile};
pub(crate) use self::lines::BACKUP_VERSION;
use self::lines::{EndLine, FileLine, Line};
pub(super) use self::read::read;

/// The whole file.
pub(super) fn encode(content: &Content) -> anyhow::Result<Vec<u8>> {
    let mut text = Vec::new();
    add(&mut text, &Line::Backup(lines::head(&content.backup)))?;
    for shard in &content.backup.shards {
        add(&mut text, &Line::Shard(lines::shard(shard)))?;
    }
    for file in &content.files {
        let line = FileLine {
            name: file.name.clone(),
            content: BASE64_STANDARD.encode(&file.bytes),
        };
        add(&mut text, &Line::File(line))?;
    }
    let end = EndLine {
        shards: content.backup.shards.len(),
        files: content.files.len(),
        sha256: digest_of(&text).as_str().to_owned(),
    };
    add(&mut text, &Line::End(end))?;
    Ok(text)
}

fn add(text: &mut Vec<u8>, line: &Line) -> anyhow::Result<()> {
    serde_json::to_writer(&mut *text, line)?;
    text.push(b'\n');
    if text.len() > BYTES_MAX {
        bail!("the backup has more than {BYTES_MAX} bytes; leave the plugins out of it");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
