//! What `check --json` prints.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use shardmill_wasm::Inspection;

/// The whole report.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Report<'a> {
    #[serde(flatten)]
    pub(super) component: ComponentReport<'a>,
    pub(super) settings: SettingsReport<'a>,
    /// Why the host would refuse it; empty if it would run.
    pub(super) problems: &'a [String],
    /// `None` unless it was asked for.
    pub(super) running: Option<RunningReport<'a>>,
}

/// What the file is.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct ComponentReport<'a> {
    kind: String,
    contract: Option<&'a str>,
    size: usize,
    digest: &'a str,
    compile_ms: Option<f64>,
    imports: Vec<ImportReport<'a>>,
    exports: &'a [String],
    saves_state: bool,
    sends_http: bool,
    refusal: Option<String>,
}

/// An interface that the component imports.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct ImportReport<'a> {
    name: &'a str,
    granted: bool,
}

/// The settings under which it would run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct SettingsReport<'a> {
    /// Whether there is a manifest.
    pub(super) manifest: bool,
    pub(super) grants_asked: &'a [String],
    /// `None` without a host's configuration, which alone decides.
    pub(super) grants_given: Option<bool>,
    #[serde(flatten)]
    pub(super) settings: Checked<'a>,
}

/// Settings, or what is wrong with them.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Checked<'a> {
    Wrong {
        problem: &'a str,
    },
    #[serde(rename_all = "kebab-case")]
    Right {
        streams: Vec<String>,
        batch_records: usize,
        #[serde(flatten)]
        applied: Applied,
        limits: BTreeMap<&'static str, String>,
    },
}

/// The other settings, by section, in a few words each.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Applied {
    /// The filter; `None` if the plugin gets all records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) filter: Option<String>,
    /// Instances for a shard; `None` if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parallelism: Option<usize>,
    pub(super) sinks: String,
    pub(super) batch: String,
    pub(super) checkpoint: String,
    pub(super) failure: String,
    pub(super) rollout: String,
}

/// The versions that run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RunningReport<'a> {
    /// The host or the table that was asked.
    pub(super) source: &'a str,
    pub(super) digests: &'a BTreeSet<String>,
    /// Whether the version that runs is this one.
    pub(super) same: bool,
    pub(super) changes: Option<&'a Changes>,
}

/// What the new version adds and removes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Changes {
    pub(super) imports_added: Vec<String>,
    pub(super) imports_removed: Vec<String>,
    pub(super) exports_added: Vec<String>,
    pub(super) exports_removed: Vec<String>,
    pub(super) size_before: usize,
}

impl<'a> ComponentReport<'a> {
    pub(super) fn of(inspection: &'a Inspection) -> Self {
        let imports = inspection.imports.iter().map(|import| ImportReport {
            name: &import.name,
            granted: import.is_granted,
        });
        Self {
            kind: inspection.kind.to_string(),
            contract: inspection.contract.as_deref(),
            size: inspection.size,
            digest: inspection.digest.as_str(),
            compile_ms: inspection.compile_time.map(|time| time.as_secs_f64() * 1e3),
            imports: imports.collect(),
            exports: &inspection.exports,
            saves_state: inspection.saves_state,
            sends_http: inspection.sends_http,
            refusal: inspection.refusal.as_ref().map(ToString::to_string),
        }
    }
}

impl Changes {
    pub(super) fn between(old: &Inspection, new: &Inspection) -> Self {
        let (old_imports, new_imports) = (imports(old), imports(new));
        let (old_exports, new_exports) = (exports(old), exports(new));
        Self {
            imports_added: without(&new_imports, &old_imports),
            imports_removed: without(&old_imports, &new_imports),
            exports_added: without(&new_exports, &old_exports),
            exports_removed: without(&old_exports, &new_exports),
            size_before: old.size,
        }
    }
}

fn imports(inspection: &Inspection) -> BTreeSet<&str> {
    let imports = inspection.imports.iter();
    imports.map(|import| import.name.as_str()).collect()
}

fn exports(inspection: &Inspection) -> BTreeSet<&str> {
    inspection.exports.iter().map(String::as_str).collect()
}

fn without(names: &BTreeSet<&str>, others: &BTreeSet<&str>) -> Vec<String> {
    names
        .difference(others)
        .map(|name| (*name).to_owned())
        .collect()
}

impl Applied {
    /// The sections with their settings.
    pub(super) fn rows(&self) -> [(&'static str, &str); 5] {
        [
            ("sinks", &self.sinks),
            ("batch", &self.batch),
            ("checkpoint", &self.checkpoint),
            ("failure", &self.failure),
            ("rollout", &self.rollout),
        ]
    }
}
