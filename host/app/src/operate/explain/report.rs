//! What `explain --json` prints.

use serde::Serialize;
use shardmill_core::explain::{
    Ancestor, Cause, Explanation, Holder, LeaseStatus, Listed, Opinion, Relation, Relative,
};
use shardmill_core::fleet::Incarnation;
use shardmill_core::lease::Availability;
use shardmill_core::plugin::PluginDigest;
use shardmill_core::rollout::{Untaken, untaken};

use crate::operate::reading::Reading;
use crate::output::millis;

/// The whole report.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Report<'a> {
    application: &'a str,
    shard: &'a str,
    listed: Option<&'static str>,
    why: Vec<Why>,
    #[serde(rename = "place")]
    status: Option<StatusReport<'a>>,
    waits_for: Vec<AncestorReport<'a>>,
    workers: Vec<OpinionReport<'a>>,
    relatives: Vec<RelativeReport<'a>>,
    versions_not_run: Vec<VersionReport>,
    starts_at: Option<String>,
    notes: &'a [String],
    watched_for_ms: u64,
}

/// A version that was given to the application's hosts and that they do not run.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct VersionReport {
    digest: String,
    text: String,
    mend: String,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Why {
    kind: &'static str,
    text: String,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct AncestorReport<'a> {
    shard: String,
    depth: usize,
    #[serde(rename = "place")]
    status: StatusReport<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct OpinionReport<'a> {
    worker: &'a str,
    intent: String,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct RelativeReport<'a> {
    relation: &'static str,
    shard: &'a str,
    #[serde(rename = "place")]
    status: Option<StatusReport<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct StatusReport<'a> {
    #[serde(rename = "standing")]
    availability: &'static str,
    owner: Option<OwnerReport<'a>>,
    held_for_ms: Option<u64>,
    checkpoint: String,
    has_advanced: Option<bool>,
    millis_behind_latest: Option<u64>,
    settled_arrival_ms: Option<u64>,
    bytes_per_second: Option<u64>,
    state_percent: Option<u8>,
    last_given_up: Option<&'a str>,
    plugin_digest: Option<&'a str>,
    claimed_by: Option<ClaimReport<'a>>,
    why: Vec<Why>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct OwnerReport<'a> {
    worker: &'a str,
    run: Option<&'a str>,
    life: &'static str,
    state: String,
    silent_ms: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct ClaimReport<'a> {
    worker: &'a str,
    is_fresh: bool,
}

impl<'a> Report<'a> {
    pub(super) fn of(
        explanation: &'a Explanation,
        application: &'a str,
        reading: &'a Reading,
    ) -> Self {
        let version = |version: &Untaken| VersionReport::of(version, application);
        let (lineage, opinions) = (&explanation.lineage, &explanation.opinions);
        Self {
            application,
            shard: explanation.shard.as_str(),
            listed: explanation.listed.map(listed),
            why: explanation.causes.iter().map(Why::of).collect(),
            status: explanation.status.as_ref().map(StatusReport::of),
            waits_for: lineage.iter().map(AncestorReport::of).collect(),
            workers: opinions.iter().map(OpinionReport::of).collect(),
            relatives: explanation
                .relatives
                .iter()
                .map(RelativeReport::of)
                .collect(),
            versions_not_run: untaken(&reading.fleet).iter().map(version).collect(),
            starts_at: reading.fleet.start.as_ref().map(ToString::to_string),
            notes: &reading.notes,
            watched_for_ms: millis(reading.watched_for),
        }
    }
}

fn listed(listed: Listed) -> &'static str {
    match listed {
        Listed::Open => "open",
        Listed::Closed => "closed",
        Listed::No => "not-listed",
    }
}

impl VersionReport {
    fn of(version: &Untaken, application: &str) -> Self {
        Self {
            digest: version.digest.as_str().to_owned(),
            text: version.to_string(),
            mend: version.mend(application),
        }
    }
}

impl<'a> AncestorReport<'a> {
    fn of(ancestor: &'a Ancestor) -> Self {
        Self {
            shard: ancestor.status.lease.key.shard_id().to_string(),
            depth: ancestor.depth,
            status: StatusReport::of(&ancestor.status),
        }
    }
}

impl<'a> OpinionReport<'a> {
    fn of(opinion: &'a Opinion) -> Self {
        Self {
            worker: opinion.worker.as_str(),
            intent: opinion.intent.to_string(),
        }
    }
}

impl<'a> RelativeReport<'a> {
    fn of(relative: &'a Relative) -> Self {
        Self {
            relation: relation(relative.relation),
            shard: relative.shard.as_str(),
            status: relative.status.as_ref().map(StatusReport::of),
        }
    }
}

impl Why {
    fn of(cause: &Cause) -> Self {
        Self {
            kind: cause.code(),
            text: cause.to_string(),
        }
    }
}

impl<'a> StatusReport<'a> {
    fn of(status: &'a LeaseStatus) -> Self {
        let lease = &status.lease;
        Self {
            availability: match status.availability {
                Availability::Free => "free",
                Availability::Held => "held",
                Availability::Expired => "expired",
            },
            owner: status.holder.as_ref().map(OwnerReport::of),
            held_for_ms: status.held_for.map(millis),
            checkpoint: lease.checkpoint.to_string(),
            has_advanced: status.has_advanced,
            millis_behind_latest: lease.millis_behind_latest,
            settled_arrival_ms: lease.settled_arrival_ms,
            bytes_per_second: lease.bytes_per_second,
            state_percent: lease.state_fill.map(|fill| fill.0),
            last_given_up: lease.given_up.as_deref(),
            plugin_digest: lease.plugin_digest.as_ref().map(PluginDigest::as_str),
            claimed_by: status.claim.as_ref().map(|claim| ClaimReport {
                worker: claim.by.as_str(),
                is_fresh: claim.is_fresh,
            }),
            why: status.causes.iter().map(Why::of).collect(),
        }
    }
}

impl<'a> OwnerReport<'a> {
    fn of(holder: &'a Holder) -> Self {
        Self {
            worker: holder.worker.as_str(),
            run: holder.run.as_ref().map(Incarnation::as_str),
            life: holder.pulse.code(),
            state: holder.to_string(),
            silent_ms: millis(holder.silent),
        }
    }
}

/// How a shard is related to the one that is explained, in one word.
pub(super) fn relation(relation: Relation) -> &'static str {
    match relation {
        Relation::Parent => "parent",
        Relation::Child => "child",
        Relation::SameHashKeys => "beside",
    }
}
