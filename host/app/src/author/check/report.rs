//! What `check --json` prints.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use shardmill_wasm::Inspection;

/// All of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Report<'a> {
    #[serde(flatten)]
    pub(super) component: ComponentReport<'a>,
    pub(super) settings: SettingsReport<'a>,
    /// Why the host would refuse it; nothing if it would run.
    pub(super) problems: &'a [String],
    /// Only if it was asked for.
    pub(super) running: Option<RunningReport<'a>>,
}

/// The file.
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

/// An interface that it imports.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct ImportReport<'a> {
    name: &'a str,
    granted: bool,
}

/// What it would be run with.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct SettingsReport<'a> {
    /// Whether there is one.
    pub(super) manifest: bool,
    pub(super) grants_asked: &'a [String],
    /// Only a host's configuration decides.
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

/// What else applies, by section, as briefly as it can be said.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Applied {
    pub(super) sinks: String,
    pub(super) batch: String,
    pub(super) checkpoint: String,
    pub(super) failure: String,
    pub(super) rollout: String,
}

/// The versions at work.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RunningReport<'a> {
    /// Who was asked.
    pub(super) source: &'a str,
    pub(super) digests: &'a BTreeSet<String>,
    /// Whether the one at work is this one.
    pub(super) same: bool,
    pub(super) changes: Option<&'a Changes>,
}

/// What comes and goes.
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

impl Applied {
    /// Each with its section, for people.
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
