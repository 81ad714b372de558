//! `shardmill plugins PLUGIN --pin`, `--rollback`, `--unpin`: which version a host runs, even if
//! its folder has another. Files next to the host's cache store this, so it applies to the hosts
//! with that cache, and no table is read.

use std::path::PathBuf;

use anyhow::{Context, anyhow, bail};
use shardmill_config::Config;
use shardmill_core::plugin::{PluginDigest, PluginName};
use shardmill_serve::component::Found;
use shardmill_serve::kept::{Kept, KeptVersion};
use shardmill_wasm::folder::FolderOptions;

use crate::cli::PluginsArgs;
use crate::operate::digest_prefix::{PREFIX_MIN, is_prefix};
use crate::output::{age, print};

/// What `--pin` accepts instead of a digest.
const LAST_GOOD: &str = "last-good";

/// What to do.
enum Wish<'a> {
    Pin(&'a str),
    RollBack,
    Unpin,
}

/// What is known of the plugin on this host.
struct Here {
    kept: Kept,
    name: PluginName,
    versions: Vec<KeptVersion>,
    /// The version of its file in the folder, if there is one.
    in_folder: Option<PluginDigest>,
}

/// Carries out what the arguments ask of a host's files; false if they ask nothing of the kind.
pub(crate) fn execute(args: &PluginsArgs) -> anyhow::Result<bool> {
    let wish = match &args.pin {
        Some(digest) => Wish::Pin(digest),
        None if args.rollback => Wish::RollBack,
        None if args.unpin => Wish::Unpin,
        None => return Ok(false),
    };
    let here = Here::find(args)?;
    match wish {
        Wish::Pin(wanted) => here.pin(here.wanted(wanted)?)?,
        Wish::RollBack => here.pin(here.before()?)?,
        Wish::Unpin => here.unpin()?,
    }
    Ok(true)
}

impl Here {
    fn find(args: &PluginsArgs) -> anyhow::Result<Self> {
        let name = PluginName::new(args.application.as_deref().unwrap_or_default())?;
        let (cache, folder, bytes_max) = folders(args)?;
        let kept = Kept::beside(&cache, bytes_max);
        let file = folder.join(format!("{name}.wasm"));
        let in_folder = Found::read(&file, bytes_max).ok().map(|found| found.digest);
        Ok(Self {
            versions: kept.versions(&name),
            kept,
            name,
            in_folder,
        })
    }

    /// The version that the operator names.
    fn wanted(&self, wanted: &str) -> anyhow::Result<&KeptVersion> {
        if wanted == LAST_GOOD {
            let newest = self
                .versions
                .iter()
                .find(|version| self.kept.is_whole(version));
            return newest.with_context(|| self.nothing_like("that worked well"));
        }
        let wanted = wanted.to_ascii_lowercase();
        if !is_prefix(&wanted) {
            bail!(
                "{wanted:?} is not a version: give its digest, or the first {PREFIX_MIN} digits \
                    or more, or {LAST_GOOD}"
            );
        }
        let mut found = self
            .versions
            .iter()
            .filter(|version| version.digest.as_str().starts_with(&wanted));
        match (found.next(), found.next()) {
            (Some(version), None) => Ok(version),
            (Some(_), Some(_)) => {
                bail!("more than one version begins with {wanted}: give more digits")
            }
            (None, _) => bail!(
                "{}",
                self.nothing_like(&format!("that begins with {wanted}"))
            ),
        }
    }

    /// The newest version that worked well, except the one that should run now.
    fn before(&self) -> anyhow::Result<&KeptVersion> {
        let now = self
            .kept
            .pinned(&self.name)?
            .or_else(|| self.in_folder.clone());
        let before = self
            .versions
            .iter()
            .find(|version| Some(&version.digest) != now.as_ref());
        before.with_context(|| self.nothing_like("other than the one that should run now"))
    }

    fn pin(&self, version: &KeptVersion) -> anyhow::Result<()> {
        let (name, digest) = (&self.name, &version.digest);
        if !self.kept.is_whole(version) {
            bail!(
                "{} is damaged: it cannot be run; {}",
                version.path.display(),
                self.kept_here()
            );
        }
        self.kept.pin(name, digest).context("cannot pin it")?;
        print(&format!(
            "pinned {name} to {digest} for hosts with this cache, also after a restart: running \
                hosts switch to it within seconds; `--unpin` ends it"
        ));
        Ok(())
    }

    fn unpin(&self) -> anyhow::Result<()> {
        let name = &self.name;
        if !self.kept.unpin(name).context("cannot unpin it")? {
            bail!("no version of {name} is pinned here");
        }
        print(&format!(
            "unpinned {name}: hosts try the file in the folder within seconds"
        ));
        Ok(())
    }

    fn nothing_like(&self, what: &str) -> String {
        let name = &self.name;
        format!(
            "no version of {name} is kept in {} {what}; {}. `shardmill plugins {name}` shows what \
                other hosts run: copy its file into the folder to run it here",
            self.kept.folder().display(),
            self.kept_here()
        )
    }

    fn kept_here(&self) -> String {
        if self.versions.is_empty() {
            return "no version is kept".to_owned();
        }
        let versions: Vec<String> = self.versions.iter().map(with_age).collect();
        format!("kept: {}", versions.join(", "))
    }
}

fn with_age(version: &KeptVersion) -> String {
    match version.at.elapsed() {
        Ok(time) => format!("{} (worked well {} ago)", version.digest, age(time)),
        Err(_) => format!("{} (worked well just now)", version.digest),
    }
}

/// The cache of the host, its folder of plugins, and how large a plugin may be.
fn folders(args: &PluginsArgs) -> anyhow::Result<(PathBuf, PathBuf, u64)> {
    if let Some(path) = &args.connection.config {
        let config = Config::load(path)?;
        let cache = config
            .cache_of_host(path)
            .map_err(|why| anyhow!("no version is kept: {why}"))?;
        return Ok((cache, config.plugins, config.host.plugin_bytes_max));
    }
    let Some(data) = &args.connection.aws.local else {
        bail!("versions are kept next to the host's cache: name its configuration with --config");
    };
    // As `shardmill dev` has it.
    let defaults = FolderOptions::new("plugins");
    Ok((
        data.join("compiled"),
        defaults.path,
        defaults.file_bytes_max,
    ))
}
