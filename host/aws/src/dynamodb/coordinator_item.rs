//! The coordinator table's small rows as DynamoDB items. All are in one partition, so that one
//! query reads them.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use shardmill_core::fleet::{
    ApplicationStart, FleetRows, LeaderRow, Service, StandaloneHost, StreamIdentity, StreamRow,
    WorkerRow,
};
use shardmill_core::lease::{Checkpoint, LEASE_DURATION_MAX, WorkerId};
use shardmill_core::stream::{InitialPosition, StreamName};
use shardmill_core::text::shortened;

use super::attributes::{Item, number, text};
use super::directive_item::{self, CONTROL};
use super::load_item;
use super::row::{
    FLEET, ID, INCARNATION, WORKER, for_people, incarnation, key, string, unsigned, worker,
};
use super::version_item;

pub(super) const LEADER: &str = "leader";
pub(super) const BULLETIN: &str = "bulletin";
pub(super) const STREAM: &str = "stream";
pub(super) const START: &str = "start";
/// Before a worker's id, so that no worker can be named like another row.
pub(super) const WORKER_PREFIX: &str = "worker#";

/// Before the name of a stream that has rows of its own in the tables of several.
const STREAM_PREFIX: &str = "of-stream#";
/// Before the id of a standalone host, in the list of them.
const STANDALONE_PREFIX: &str = "standalone#";

pub(super) const BEAT: &str = "beat";
pub(super) const VERSION: &str = "version";
pub(super) const NAME: &str = "name";
pub(super) const CREATED_AT: &str = "createdAtMillis";
pub(super) const BOOTSTRAPPED: &str = "bootstrapped";
/// `TRIM_HORIZON`, `LATEST` or `AT_TIMESTAMP`, as in a lease row.
const POSITION: &str = "position";
const AT: &str = "atMillis";
const LOOKED_AT: &str = "lookedAtMillis";
const FOUND_LEASES: &str = "foundLeases";
const LEASE_DURATION: &str = "leaseDurationMillis";
const DRAINING: &str = "draining";
const MAX_LEASES: &str = "maxLeases";
const VERSIONS: &str = "versions";
const ARTIFACT: &str = "artifact";
const CANNOT_WRITE: &str = "cannotWrite";
const CANNOT_LOOK: &str = "cannotLook";
/// A map, absent from the row of a host that does not measure its load.
const LOAD: &str = "load";
/// Enough for the name of a right or a table.
const REASON_CHARS_MAX: usize = 200;
/// How the leader serves the fleet: a map, absent from the row of a leader of an older version.
const SERVICE: &str = "service";
const DEPUTIES: &str = "deputies";
const HOSTS: &str = "hosts";
const LEASES: &str = "leases";
const BESIDE_KCL: &str = "besideKcl";
/// A map, absent where the leader does not scale.
const HOSTS_WANTED: &str = "hostsWanted";
const SEEN: &str = "seenMillis";
pub(super) const GOING: &str = "going";
const KEEPS_STATE: &str = "keepsState";
const FORGET_AFTER: &str = "forgetAfterMillis";
/// What the keys of a stream's leases begin with.
pub(super) const PREFIX: &str = "prefix";

/// The sort key of a worker's row.
pub(super) fn worker_id(worker: &WorkerId) -> String {
    format!("{WORKER_PREFIX}{worker}")
}

/// Says that a stream has rows of its own here.
pub(super) fn encode_own_stream(name: &str, prefix: &str) -> Item {
    let mut item = own_stream_key(name);
    item.insert(NAME.to_owned(), text(name));
    item.insert(PREFIX.to_owned(), text(prefix));
    item
}

pub(super) fn own_stream_key(name: &str) -> Item {
    key(FLEET, &format!("{STREAM_PREFIX}{name}"))
}

/// The sort key of a standalone host's entry.
pub(super) fn standalone_id(host: &WorkerId) -> String {
    format!("{STANDALONE_PREFIX}{host}")
}

pub(super) fn encode_standalone(entry: &StandaloneHost) -> Item {
    let forget_after = u64::try_from(entry.forget_after.as_millis()).unwrap_or(u64::MAX);
    let mut item = key(FLEET, &standalone_id(&entry.id));
    item.extend([
        (WORKER.to_owned(), text(entry.id.as_str())),
        (BEAT.to_owned(), number(entry.beat)),
        (SEEN.to_owned(), number(entry.seen_ms)),
        (GOING.to_owned(), AttributeValue::Bool(entry.is_going)),
        (
            KEEPS_STATE.to_owned(),
            AttributeValue::Bool(entry.keeps_state),
        ),
        (FORGET_AFTER.to_owned(), number(forget_after)),
    ]);
    item
}

pub(super) fn encode_worker(row: &WorkerRow) -> Item {
    let lease_millis = u64::try_from(row.lease_duration.as_millis()).unwrap_or(u64::MAX);
    let mut item = key(FLEET, &worker_id(&row.worker));
    item.extend([
        (WORKER.to_owned(), text(row.worker.as_str())),
        (INCARNATION.to_owned(), text(row.incarnation.as_str())),
        (BEAT.to_owned(), number(row.beat)),
        (LEASE_DURATION.to_owned(), number(lease_millis)),
        (DRAINING.to_owned(), AttributeValue::Bool(row.is_draining)),
    ]);
    if row.max_leases < usize::MAX {
        item.insert(MAX_LEASES.to_owned(), number(row.max_leases as u64));
    }
    if let Some(reason) = &row.cannot_write {
        item.insert(CANNOT_WRITE.to_owned(), short(reason));
    }
    if let Some(reason) = &row.cannot_look {
        item.insert(CANNOT_LOOK.to_owned(), short(reason));
    }
    if let Some(load) = &row.load {
        item.insert(LOAD.to_owned(), load_item::encode_load(load));
    }
    if !row.versions.is_empty() {
        item.insert(VERSIONS.to_owned(), version_item::encode_all(&row.versions));
    }
    if let Some(artifact) = &row.artifact {
        item.insert(ARTIFACT.to_owned(), text(artifact));
    }
    item
}

/// A reason in short. Every host reads it each second, so it need not say everything.
fn short(reason: &str) -> AttributeValue {
    text(&shortened(reason, REASON_CHARS_MAX))
}

pub(super) fn encode_leader(row: &LeaderRow) -> Item {
    let mut item = key(FLEET, LEADER);
    item.insert(VERSION.to_owned(), number(row.version));
    if let Some((worker, incarnation)) = &row.holder {
        item.insert(WORKER.to_owned(), text(worker.as_str()));
        item.insert(INCARNATION.to_owned(), text(incarnation.as_str()));
    }
    if let Some(service) = &row.service {
        item.insert(SERVICE.to_owned(), encode_service(service));
    }
    item
}

fn encode_service(service: &Service) -> AttributeValue {
    let deputies = service
        .deputies
        .iter()
        .map(|id| text(id.as_str()))
        .collect();
    let mut item = Item::from([
        (DEPUTIES.to_owned(), AttributeValue::L(deputies)),
        (HOSTS.to_owned(), number(service.hosts as u64)),
        (LEASES.to_owned(), number(service.leases as u64)),
        (
            BESIDE_KCL.to_owned(),
            AttributeValue::Bool(service.is_beside_kcl),
        ),
    ]);
    if let Some(figure) = &service.hosts_wanted {
        item.insert(HOSTS_WANTED.to_owned(), load_item::encode_figure(figure));
    }
    AttributeValue::M(item)
}

/// One that cannot be read counts as absent: then every host watches.
fn decode_service(item: &Item) -> Option<Service> {
    let service = item.get(SERVICE)?.as_m().ok()?;
    let ids = service.get(DEPUTIES)?.as_l().ok()?;
    Some(Service {
        deputies: ids
            .iter()
            .map(|id| WorkerId::new(id.as_s().ok()?))
            .collect::<Option<_>>()?,
        hosts: count(service, HOSTS)?,
        leases: count(service, LEASES)?,
        is_beside_kcl: boolean(service, BESIDE_KCL),
        hosts_wanted: service.get(HOSTS_WANTED).and_then(load_item::decode_figure),
    })
}

fn count(service: &Item, name: &str) -> Option<usize> {
    usize::try_from(unsigned(service, name).ok()?).ok()
}

pub(super) fn encode_stream(row: &StreamRow) -> Item {
    let mut item = key(FLEET, STREAM);
    item.extend([
        (NAME.to_owned(), text(row.name.as_str())),
        (CREATED_AT.to_owned(), number(row.identity.created_at_ms)),
        (
            BOOTSTRAPPED.to_owned(),
            AttributeValue::Bool(row.is_bootstrapped),
        ),
    ]);
    item
}

pub(super) fn encode_start(start: &ApplicationStart) -> Item {
    let mut item = key(FLEET, START);
    item.extend([
        (
            POSITION.to_owned(),
            text(Checkpoint::initial(start.position).text()),
        ),
        (LOOKED_AT.to_owned(), number(start.looked_at_ms)),
        (
            FOUND_LEASES.to_owned(),
            AttributeValue::Bool(start.found_leases),
        ),
    ]);
    if let InitialPosition::AtTimestamp(ms) = start.position {
        item.insert(AT.to_owned(), number(ms));
    }
    item
}

/// Adds one item of the partition to `rows`, or says what is wrong with it. Leaves an unknown row
/// alone: a later version may keep it there.
pub(super) fn collect(item: &Item, rows: &mut FleetRows) -> Result<(), String> {
    match string(item, ID)? {
        LEADER => rows.leader = Some(decode_leader(item)?),
        BULLETIN => rows.bulletin = unsigned(item, VERSION)?,
        STREAM => rows.stream = Some(decode_stream(item)?),
        START => rows.start = Some(decode_start(item)?),
        CONTROL => rows.control = directive_item::decode_control(item)?,
        id if id.starts_with(WORKER_PREFIX) => rows.workers.push(decode_worker(item)?),
        id if id.starts_with(version_item::QUARANTINE_PREFIX) => {
            rows.quarantined
                .push(version_item::decode_quarantined(item)?);
        }
        id if id.starts_with(STREAM_PREFIX) => rows.streams.push(string(item, NAME)?.to_owned()),
        id if id.starts_with(STANDALONE_PREFIX) => rows.standalone.push(decode_standalone(item)?),
        _ => {}
    }
    Ok(())
}

pub(super) fn decode_standalone(item: &Item) -> Result<StandaloneHost, String> {
    Ok(StandaloneHost {
        id: worker(item)?,
        beat: unsigned(item, BEAT)?,
        seen_ms: unsigned(item, SEEN)?,
        is_going: boolean(item, GOING),
        forget_after: Duration::from_millis(unsigned(item, FORGET_AFTER)?),
        keeps_state: boolean(item, KEEPS_STATE),
    })
}

pub(super) fn decode_worker(item: &Item) -> Result<WorkerRow, String> {
    Ok(WorkerRow {
        worker: worker(item)?,
        incarnation: incarnation(item)?,
        beat: unsigned(item, BEAT)?,
        lease_duration: Duration::from_millis(unsigned(item, LEASE_DURATION)?)
            .min(LEASE_DURATION_MAX),
        is_draining: boolean(item, DRAINING),
        max_leases: unsigned(item, MAX_LEASES)
            .ok()
            .and_then(|max| usize::try_from(max).ok())
            .unwrap_or(usize::MAX),
        versions: item
            .get(VERSIONS)
            .map(version_item::decode_all)
            .unwrap_or_default(),
        artifact: for_people(item, ARTIFACT).ok(),
        cannot_write: for_people(item, CANNOT_WRITE).ok(),
        cannot_look: for_people(item, CANNOT_LOOK).ok(),
        load: item.get(LOAD).and_then(load_item::decode_load),
    })
}

fn decode_leader(item: &Item) -> Result<LeaderRow, String> {
    let holder = match item.get(WORKER) {
        Some(_) => Some((worker(item)?, incarnation(item)?)),
        None => None,
    };
    Ok(LeaderRow {
        holder,
        version: unsigned(item, VERSION)?,
        service: decode_service(item),
    })
}

fn decode_stream(item: &Item) -> Result<StreamRow, String> {
    Ok(StreamRow {
        name: StreamName::new(string(item, NAME)?).map_err(|error| error.to_string())?,
        identity: StreamIdentity {
            created_at_ms: unsigned(item, CREATED_AT)?,
        },
        is_bootstrapped: boolean(item, BOOTSTRAPPED),
    })
}

fn decode_start(item: &Item) -> Result<ApplicationStart, String> {
    let position = match string(item, POSITION)? {
        "TRIM_HORIZON" => InitialPosition::TrimHorizon,
        "LATEST" => InitialPosition::Latest,
        "AT_TIMESTAMP" => InitialPosition::AtTimestamp(unsigned(item, AT)?),
        other => {
            return Err(format!(
                "{POSITION} {other} is not TRIM_HORIZON, LATEST or AT_TIMESTAMP"
            ));
        }
    };
    Ok(ApplicationStart {
        position,
        looked_at_ms: unsigned(item, LOOKED_AT)?,
        found_leases: boolean(item, FOUND_LEASES),
    })
}

fn boolean(item: &Item, name: &str) -> bool {
    item.get(name)
        .and_then(|value| value.as_bool().ok())
        .copied()
        .unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use shardmill_core::fleet::Incarnation;
    use shardmill_core::plugin::PluginDigest;
    use shardmill_core::rollout::{Quarantined, VersionRow};
    use shardmill_core::scaling::{Figure, HostLoad, ScalingPolicy};

    use super::*;

    #[test]
    fn rows_survive_a_round_trip_and_unknown_ones_are_left_alone() {
        let (worker, incarnation) = (
            WorkerId::new("a").unwrap(),
            Incarnation::new("run").unwrap(),
        );
        let digest = PluginDigest::from_hex(&"ab".repeat(32)).unwrap();
        let bad = Quarantined {
            digest: digest.clone(),
            host: worker.clone(),
            reason: "leaks".into(),
            at_ms: 9,
        };
        let row = WorkerRow {
            worker: worker.clone(),
            incarnation: incarnation.clone(),
            beat: 7,
            lease_duration: Duration::from_secs(10),
            is_draining: true,
            max_leases: 3,
            versions: vec![
                VersionRow {
                    digest: digest.clone(),
                    state: "active".into(),
                    since_ms: 5,
                    reason: None,
                },
                VersionRow {
                    digest: digest.clone(),
                    state: "odd(later)".into(),
                    since_ms: 6,
                    reason: Some("why".into()),
                },
            ],
            artifact: Some("oci://r.example/alerts:1".into()),
            cannot_write: Some("denied".into()),
            cannot_look: Some("refused".into()),
            load: Some(HostLoad {
                shards: 2,
                needed_milli: 1_500,
                ..HostLoad::default()
            }),
        };
        let service = Service {
            deputies: vec![worker.clone()],
            hosts: 3,
            leases: 40,
            is_beside_kcl: true,
            hosts_wanted: Some(Figure {
                wanted: 3,
                undamped: None,
                load_milli: 2_500,
                shards: 40,
                policy: ScalingPolicy::default(),
                why: "what arrives needs so many".into(),
            }),
        };
        let leader = LeaderRow {
            holder: Some((worker, incarnation)),
            version: 4,
            service: Some(service),
        };
        let released = LeaderRow {
            holder: None,
            version: 5,
            service: None,
        };
        let stream = StreamRow {
            name: StreamName::new("orders").unwrap(),
            identity: StreamIdentity { created_at_ms: 12 },
            is_bootstrapped: true,
        };
        let mut rows = FleetRows::default();
        let quarantined = version_item::encode_quarantined(&bad);
        for item in [
            encode_worker(&row),
            encode_leader(&leader),
            encode_stream(&stream),
            quarantined,
            key(FLEET, "later"),
        ] {
            collect(&item, &mut rows).unwrap();
        }
        assert_eq!(rows.quarantined, [bad]);
        assert_eq!(
            (&rows.workers[..], &rows.leader, &rows.stream),
            (&[row][..], &Some(leader), &Some(stream))
        );
        collect(&encode_leader(&released), &mut rows).unwrap();
        assert_eq!(rows.leader, Some(released));
    }

    #[test]
    fn every_start_survives_a_round_trip_and_one_that_cannot_be_read_is_named() {
        for position in [
            InitialPosition::TrimHorizon,
            InitialPosition::Latest,
            InitialPosition::AtTimestamp(3),
        ] {
            let start = ApplicationStart {
                position,
                looked_at_ms: 7,
                found_leases: position == InitialPosition::Latest,
            };
            let mut rows = FleetRows::default();
            collect(&encode_start(&start), &mut rows).unwrap();
            assert_eq!(rows.start, Some(start));
        }
        let problem = collect(&key(FLEET, START), &mut FleetRows::default()).unwrap_err();
        assert_eq!(problem, "position is missing");
    }

    #[test]
    fn a_row_of_an_older_host_shows_no_versions_and_one_of_a_newer_host_those_that_can_be_read() {
        let mut item = encode_worker(&WorkerRow {
            worker: WorkerId::new("a").unwrap(),
            incarnation: Incarnation::new("run").unwrap(),
            beat: 7,
            lease_duration: Duration::from_secs(10),
            is_draining: false,
            max_leases: usize::MAX,
            versions: Vec::new(),
            artifact: None,
            cannot_write: None,
            cannot_look: None,
            load: None,
        });
        assert!(!item.contains_key(VERSIONS));
        assert!(decode_worker(&item).unwrap().versions.is_empty());
        let odd = vec![AttributeValue::Bool(true), AttributeValue::M(Item::new())];
        item.insert(VERSIONS.to_owned(), AttributeValue::L(odd));
        assert!(
            decode_worker(&item).unwrap().versions.is_empty(),
            "and the row counts all the same"
        );
        assert_eq!(decode_worker(&item).unwrap().load, None);
        item.insert(LOAD.to_owned(), text("much"));
        assert_eq!(decode_worker(&item).unwrap().load, None);
    }

    #[test]
    fn a_worker_that_claims_to_live_for_ever_is_believed_no_longer_than_any_may() {
        let mut item = key(FLEET, "worker#a");
        item.extend([
            (WORKER.to_owned(), text("a")),
            (INCARNATION.to_owned(), text("run")),
            (BEAT.to_owned(), number(u64::MAX)),
        ]);
        for claimed in [u64::MAX, u64::MAX - 1, 1 << 63] {
            item.insert(LEASE_DURATION.to_owned(), number(claimed));
            let row = decode_worker(&item).unwrap();
            assert_eq!(row.lease_duration, LEASE_DURATION_MAX);
        }
        item.insert(LEASE_DURATION.to_owned(), AttributeValue::N("1e400".into()));
        assert!(decode_worker(&item).is_err());
    }

    #[test]
    fn a_row_that_cannot_be_read_is_named() {
        let problem = collect(&key(FLEET, "worker#a"), &mut FleetRows::default()).unwrap_err();
        assert_eq!(problem, "worker is missing");
    }
}
