//! `shardmill shadow`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use comfy_table::Table;
use serde::Serialize;
use shardmill_core::control::{Deed, ShadowAsked, ShadowVerb};
use shardmill_core::fleet::WorkerRow;
use shardmill_core::lease::WorkerId;
use shardmill_core::plugin::PluginDigest;
use shardmill_core::rollout::{RolloutState, VersionRow};

use super::answers::{Answers, Awaited, conclude};
use super::application::{Application, Done, asked};
use super::report::{Report, StepRow};
use super::wait::Waited;
use crate::cli::ShadowArgs;
use crate::operate::digest_prefix::{PREFIX_MIN, is_prefix};
use crate::output::{print, print_json, table};

/// What hosts say they did, or did not.
const DEEDS: [Deed; 2] = [Deed::EndedShadow, Deed::KeptShadow];
/// What each host has in the shadow, by its name.
type Shadows = BTreeMap<WorkerId, VersionRow>;

pub(crate) async fn shadow(args: &ShadowArgs) -> anyhow::Result<()> {
    let clients = crate::aws::connect_to(&args.change.connection).await?;
    let application = Application::open(&args.application, &clients).await?;
    let fleet = application.fleet().await?;
    let shadows: Shadows = fleet.workers.into_iter().filter_map(in_shadow).collect();
    match verb(args) {
        Some(verb) => end(args, &application, shadows, verb).await,
        None if args.change.apply => bail!("say what to do: --promote or --drop"),
        None => show(args, &shadows),
    }
}

fn verb(args: &ShadowArgs) -> Option<ShadowVerb> {
    match (args.promote, args.drop) {
        (true, _) => Some(ShadowVerb::Promote),
        (_, true) => Some(ShadowVerb::Drop),
        (false, false) => None,
    }
}

fn in_shadow(row: WorkerRow) -> Option<(WorkerId, VersionRow)> {
    let mut versions = row.versions.into_iter();
    let shadow = versions.find(|version| version.state == RolloutState::Shadow.code())?;
    Some((row.worker, shadow))
}

/// What `shadow --json` prints without `--promote` and `--drop`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Shown<'a> {
    application: &'a str,
    hosts: Vec<ShownHost<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct ShownHost<'a> {
    host: &'a str,
    digest: &'a str,
    since_ms: u64,
    found: &'a str,
}

fn show(args: &ShadowArgs, shadows: &Shadows) -> anyhow::Result<()> {
    let hosts = shadows.iter().map(|(host, version)| ShownHost {
        host: host.as_str(),
        digest: version.digest.as_str(),
        since_ms: version.since_ms,
        found: version.reason.as_deref().unwrap_or_default(),
    });
    let shown = Shown {
        application: &args.application,
        hosts: hosts.collect(),
    };
    if args.change.output.json {
        return print_json(&shown);
    }
    if shown.hosts.is_empty() {
        print(&format!(
            "{}: no host has a version in the shadow; put one into the plugins folder as \
                PLUGIN.shadow.wasm, where PLUGIN.wasm is the plugin's file",
            args.application
        ));
        return Ok(());
    }
    print(&as_table(shadows).to_string());
    Ok(())
}

fn as_table(shadows: &Shadows) -> Table {
    let mut table = table(["host", "version", "found"]);
    for (host, version) in shadows {
        let found = version.reason.as_deref().unwrap_or_default();
        table.add_row([host.as_str(), version.digest.short(), found]);
    }
    table
}

async fn end(
    args: &ShadowArgs,
    application: &Application,
    mut shadows: Shadows,
    verb: ShadowVerb,
) -> anyhow::Result<()> {
    let digest = wanted(args, &shadows)?;
    shadows.retain(|_, version| version.digest == digest);
    let meant: BTreeSet<WorkerId> = shadows.keys().cloned().collect();
    let mut course = Course::default();
    if args.change.apply {
        let wanted = ShadowAsked {
            asked: asked(&args.change),
            digest,
            verb,
        };
        course = apply(args, application, &wanted, &meant).await?;
    }
    let Course { answers, waited } = course;
    let report = report(args, &shadows, verb, &answers);
    let report = Report { waited, ..report };
    report.show(&args.change)?;
    let silence = "hosts that are down do nothing later: once they are back, look at what they have \
        in the shadow, and give the command again";
    conclude(report.waited.as_ref(), &answers, silence)
}

/// What came of the wish.
#[derive(Default)]
struct Course {
    answers: Answers,
    waited: Option<Waited>,
}

async fn apply(
    args: &ShadowArgs,
    application: &Application,
    wanted: &ShadowAsked,
    meant: &BTreeSet<WorkerId>,
) -> anyhow::Result<Course> {
    let awaited = Awaited::from(application, &wanted.asked, DEEDS).await?;
    want(application, wanted, meant).await?;
    let waited = awaited.wait(&args.change, meant).await?;
    let mut answers = awaited.answers().await?;
    answers.retain(|host, _| meant.iter().any(|meant| meant.as_str() == host));
    Ok(Course { answers, waited })
}

/// Writes the wish down, and has the hosts look at once.
async fn want(
    application: &Application,
    wanted: &ShadowAsked,
    meant: &BTreeSet<WorkerId>,
) -> anyhow::Result<()> {
    application
        .change_control(|control| {
            control.shadow = Some(wanted.clone());
            Ok(())
        })
        .await?;
    application.nudge_all(meant.clone()).await;
    let done = Done {
        deed: Deed::Shadow,
        shard: None,
        details: format!("{} {}", wanted.verb.code(), wanted.digest),
    };
    application.record(&wanted.asked, done).await
}

/// The version that is meant: the only one, or the one that is named.
fn wanted(args: &ShadowArgs, shadows: &Shadows) -> anyhow::Result<PluginDigest> {
    let mut digests = digests_of(shadows);
    if let Some(version) = &args.version {
        let prefix = prefix(version)?;
        digests.retain(|digest| digest.as_str().starts_with(&prefix));
    }
    match digests.as_slice() {
        [] => bail!(
            "no host of {name} has {what} in the shadow; `shardmill shadow {name}` shows what there \
                is",
            name = args.application,
            what = args.version.as_deref().unwrap_or("a version"),
        ),
        [digest] => Ok((*digest).clone()),
        several => bail!(
            "hosts have several versions in the shadow: name one with --version ({})",
            several
                .iter()
                .map(|digest| digest.short())
                .collect::<Vec<_>>()
                .join(", ")
        ),
    }
}

/// Each version once, although several hosts may have it.
fn digests_of(shadows: &Shadows) -> Vec<&PluginDigest> {
    let mut digests: Vec<&PluginDigest> = shadows.values().map(|row| &row.digest).collect();
    digests.sort_by_key(|digest| digest.as_str());
    digests.dedup();
    digests
}

fn prefix(version: &str) -> anyhow::Result<String> {
    let prefix = version.to_ascii_lowercase();
    if !is_prefix(&prefix) {
        bail!(
            "{prefix:?} is not a version: give its digest, or the first {PREFIX_MIN} digits or more"
        );
    }
    Ok(prefix)
}

fn report(args: &ShadowArgs, shadows: &Shadows, verb: ShadowVerb, answers: &Answers) -> Report {
    let then = match verb {
        ShadowVerb::Promote => "its file becomes the plugin's, and is tried as a new version",
        ShadowVerb::Drop => "runs no more; its file is put aside",
    };
    let step = |(host, version): (&WorkerId, &VersionRow)| {
        let answer = answers.get(host.as_str());
        StepRow {
            what: host.to_string(),
            now: version.reason.clone().unwrap_or_default(),
            then: answer.map_or_else(|| then.to_owned(), |answer| answer.text.clone()),
            by: Some(host.to_string()),
            refused: None,
        }
    };
    Report {
        application: args.application.clone(),
        command: "shadow",
        applied: args.change.apply,
        steps: shadows.iter().map(step).collect(),
        waited: None,
        notes: Vec::new(),
    }
}
