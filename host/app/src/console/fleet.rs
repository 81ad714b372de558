//! An application as the page of the fleet shows it: `status` and `leases` in one, with a verdict
//! on each shard from the looks of the last minutes. Looks are taken only while somebody asks.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use serde::Serialize;
use shardmill_aws::AwsClients;
use shardmill_core::lease::Lease;
use shardmill_core::ports::{Clock, LeaseListing};
use shardmill_core::stream::LeaseKey;
use shardmill_core::time::Moment;
use shardmill_core::verdict::{Around, Track, Verdict, WaitsFor};
use shardmill_serve::BootClock;

use crate::operate::status::{Counts, HostStatus, ShardStatus, Summary, look};
use crate::operate::view::View;

/// Who asks sooner gets the last look: each look reads two tables.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The longest that somebody waits for a look.
const LOOK_WITHIN: Duration = Duration::from_secs(30);
/// Applications whose looks are kept; the one that was asked for longest ago goes.
const APPLICATIONS_MAX: usize = 16;

/// The applications that somebody looks at.
#[derive(Clone)]
pub(super) struct Fleets {
    clients: AwsClients,
    // Never held across an await; what is found is locked by itself.
    watched: Arc<Mutex<Vec<(String, Shared)>>>,
}

/// Locked during a look, so that looks at the same time are one.
type Shared = Arc<tokio::sync::Mutex<Watched>>;

/// An application, and what was seen of it.
struct Watched {
    view: View,
    tracks: BTreeMap<LeaseKey, Track>,
    /// When it was, and the answer, as JSON.
    last: Option<(Moment, Bytes)>,
}

/// An application at one moment.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Fleet {
    application: String,
    stream: Option<String>,
    at_ms: u64,
    /// Why all shards are paused, if they are.
    paused: Option<String>,
    counts: Counts,
    hosts: Vec<HostStatus>,
    /// Why nothing is known of hosts that there should be.
    hosts_unknown: Option<String>,
    /// Every shard, finished ones too, in the order of their ids.
    shards: Vec<ShardView>,
    /// Rows that cannot be read.
    bad_rows: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct ShardView {
    shard: String,
    owner: Option<String>,
    verdict: &'static str,
    /// Why it makes no progress, as its holder says.
    because: Option<String>,
    waits_for: Option<&'static str>,
    millis_behind_latest: Option<u64>,
    settled_arrival_ms: Option<u64>,
    bytes_per_second: Option<u64>,
    state_percent: Option<u8>,
    wanted: Vec<String>,
    checkpoint: String,
    plugin_digest: Option<String>,
    parents: Vec<String>,
    children: Vec<String>,
}

impl Fleets {
    pub(super) fn new(clients: &AwsClients) -> Self {
        Self {
            clients: clients.clone(),
            watched: Arc::default(),
        }
    }

    /// A look at the application that is at most a second old.
    pub(super) async fn look(&self, application: &str) -> anyhow::Result<Bytes> {
        let watched = self.watched(application);
        let look = async { watched.lock().await.look(application).await };
        let look = tokio::time::timeout(LOOK_WITHIN, look).await;
        look.context("the tables did not answer in time")?
    }

    fn watched(&self, application: &str) -> Shared {
        let mut all = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let at = all.iter().position(|(name, _)| name == application);
        let entry = match at {
            Some(at) => all.remove(at),
            None => (application.to_owned(), self.begin(application)),
        };
        let found = Arc::clone(&entry.1);
        all.push(entry);
        if all.len() > APPLICATIONS_MAX {
            all.remove(0);
        }
        found
    }

    fn begin(&self, application: &str) -> Shared {
        Arc::new(tokio::sync::Mutex::new(Watched {
            view: View::with(application, self.clients.clone()),
            tracks: BTreeMap::new(),
            last: None,
        }))
    }
}

impl Watched {
    async fn look(&mut self, application: &str) -> anyhow::Result<Bytes> {
        let now = BootClock.now();
        if let Some((at, fleet)) = &self.last
            && now.since(*at) < LOOK_EVERY
        {
            return Ok(fleet.clone());
        }
        let (listing, summary) = look(&mut self.view, application).await?;
        let fleet = self.judge(&listing, summary, now);
        let fleet = Bytes::from(serde_json::to_vec(&fleet)?);
        // From its end on: whoever waited for it gets it, however long it took.
        self.last = Some((BootClock.now(), fleet.clone()));
        Ok(fleet)
    }

    fn judge(&mut self, listing: &LeaseListing, summary: Summary, now: Moment) -> Fleet {
        let keys: BTreeSet<&LeaseKey> = listing.leases.iter().map(|lease| &lease.key).collect();
        self.tracks.retain(|key, _| keys.contains(key));
        let shards = self.judge_shards(&listing.leases, &summary.shards, now);
        Fleet {
            application: summary.application,
            stream: summary.stream,
            at_ms: BootClock.wall_ms(),
            paused: summary.paused,
            counts: summary.counts,
            hosts: summary.hosts,
            hosts_unknown: summary.hosts_unknown,
            shards,
            bad_rows: summary.bad_rows,
        }
    }

    /// `open`: the shards that are not finished.
    fn judge_shards(
        &mut self,
        leases: &[Lease],
        open: &[ShardStatus],
        now: Moment,
    ) -> Vec<ShardView> {
        let open: HashMap<&str, &ShardStatus> = open
            .iter()
            .map(|status| (status.shard.as_str(), status))
            .collect();
        let mut shards = Vec::with_capacity(leases.len());
        for lease in leases {
            let track = self.tracks.entry(lease.key.clone()).or_default();
            track.look(lease, now);
            let status = open.get(lease.key.as_str()).copied();
            let mut shard = ShardView::of(lease, track, status);
            let mut parents = lease.parents.iter();
            let waits_for_parent =
                shard.owner.is_none() && parents.any(|parent| open.contains_key(parent.as_str()));
            if waits_for_parent {
                shard.waits_for = Some(WaitsFor::AnotherShard.code());
            }
            shards.push(shard);
        }
        shards.sort_by(|a, b| a.shard.cmp(&b.shard));
        shards
    }
}

impl ShardView {
    /// `status` is `None` for a shard that was read to its end.
    fn of(lease: &Lease, track: &Track, status: Option<&ShardStatus>) -> Self {
        let owner = status.and_then(|status| status.owner.clone());
        let around = Around {
            is_held: owner.is_some(),
            is_paused: status.is_some_and(|status| status.is_paused),
        };
        let verdict = track.verdict(lease, around);
        let because = status.and_then(|status| status.stuck.clone());
        let waits_for = because.as_deref().and_then(WaitsFor::named_in);
        let digest = lease.plugin_digest.as_ref();
        Self {
            shard: lease.key.to_string(),
            owner,
            verdict: verdict.code(),
            waits_for: if verdict == Verdict::Paused {
                Some(WaitsFor::Operator.code())
            } else {
                waits_for.map(WaitsFor::code)
            },
            because,
            millis_behind_latest: status.and_then(|status| status.millis_behind_latest),
            settled_arrival_ms: lease.settled_arrival_ms,
            bytes_per_second: status.and_then(|status| status.bytes_per_second),
            state_percent: status.and_then(|status| status.state_percent),
            wanted: status.map_or_else(Vec::new, |status| status.wanted.clone()),
            checkpoint: lease.checkpoint.to_string(),
            plugin_digest: digest.map(|digest| digest.as_str().to_owned()),
            parents: lease.parents.iter().map(ToString::to_string).collect(),
            children: lease.children.iter().map(ToString::to_string).collect(),
        }
    }
}
