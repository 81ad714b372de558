//! `shardmill push`.

use serde::Serialize;
use shardmill_config::Config;

use super::artifact::Registries;
use crate::cli::PushArgs;
use crate::output::{print, print_json};

/// What `push --json` prints.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Report {
    reference: String,
    /// The same version, whatever becomes of its tag.
    pinned: String,
    /// The SHA-256 of the component.
    version: String,
    has_manifest: bool,
    has_signature: bool,
}

pub(crate) async fn execute(args: &PushArgs) -> anyhow::Result<()> {
    let config = args.config.as_deref().map(Config::load).transpose()?;
    let registries = Registries::of(config.as_ref())?;
    let files = registries.files(&args.file, args.manifest.as_deref())?;
    let pushed = registries.sources.push(&args.reference, &files).await?;
    let report = Report {
        reference: args.reference.to_string(),
        pinned: pushed.reference.to_string(),
        version: pushed.component.hex().to_owned(),
        has_manifest: files.settings.is_some(),
        has_signature: files.signature.is_some(),
    };
    if args.output.json {
        return print_json(&report);
    }
    print(&report.as_text());
    Ok(())
}

impl Report {
    fn as_text(&self) -> String {
        let with = match (self.has_manifest, self.has_signature) {
            (true, true) => " with its manifest and its signature",
            (true, false) => " with its manifest, without a signature",
            (false, true) => " with its signature",
            (false, false) => "",
        };
        let Self {
            reference,
            pinned,
            version,
            ..
        } = self;
        format!(
            "pushed {reference}{with}\nversion {version}\n\nto have exactly this version:\nplugins = \
                [\"{pinned}\"]"
        )
    }
}
