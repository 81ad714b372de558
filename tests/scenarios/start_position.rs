//! An application that begins at `latest`, or at a time, skips nothing that arrives after it has
//! begun, whatever happens before its first checkpoint.
//!
//! `SHARDMILL_STARTS=200` plays that many random rounds.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use aws_sdk_kinesis::primitives::Blob;
use harness::embedded::machine_now_ms;
use harness::flights::Output;
use harness::guests::conduct;
use harness::process::Host;
use harness::setting::{STREAM, Setting};
use shardmill_aws::CoordinatorTable;
use shardmill_core::lease::Checkpoint;
use shardmill_core::ports::Coordinator;
use shardmill_core::stream::Utc;

use crate::setting as number;

const SHARDS: u32 = 2;
const HOSTS: [&str; 2] = ["a", "b"];
/// Hosts are killed within a minute of their start, and no plugin is blamed for that.
const CONFIG: &str = "[host]\nadmin = \"127.0.0.1:0\"\ncache = \"off\"\n[retry]\ncap = \
    \"200ms\"\n[reads]\ncalls-per-second = 50.0\n\
    idle-every = \"50ms\"";

/// Shard and sequence number of a record.
type Place = (String, String);

/// A stream, the application `conduct`, and what was put to it.
struct Scene {
    setting: Setting,
    hosts: Vec<(&'static str, Host)>,
    /// Put before the application began: not to come out.
    history: BTreeSet<Place>,
    /// Put since.
    wanted: BTreeSet<Place>,
    versions: usize,
}

/// What may happen before the first checkpoint.
#[derive(Debug, Clone, Copy)]
enum Event {
    Put,
    Kill,
    Terminate,
    Join,
    SwapToOneThatHoldsBack,
    SwapToOneThatTraps,
    Split,
}

impl Event {
    const ALL: [Self; 7] = [
        Self::Put,
        Self::Kill,
        Self::Terminate,
        Self::Join,
        Self::SwapToOneThatHoldsBack,
        Self::SwapToOneThatTraps,
        Self::Split,
    ];
}

impl Scene {
    /// A stream with a history; the application begins once a host is started.
    async fn new(is_at_latest: bool, how: &str) -> Self {
        let setting = Setting::new(SHARDS).await;
        let mut scene = Self {
            setting,
            hosts: Vec::new(),
            history: BTreeSet::new(),
            wanted: BTreeSet::new(),
            versions: 0,
        };
        scene.history = scene.put(4).await;
        // Times are whole seconds here, of arrival and of the beginning.
        tokio::time::sleep(Duration::from_millis(2_100)).await;
        let position = if is_at_latest {
            "latest".to_owned()
        } else {
            Utc(machine_now_ms() / 1_000 * 1_000).to_string()
        };
        let manifest =
            format!("initial-position = \"{position}\"\n[config]\ndestination = \"out\"\n");
        scene.setting.drop_manifest("conduct", &manifest);
        scene.swap(how);
        scene
    }

    fn swap(&mut self, how: &str) {
        self.versions += 1;
        self.setting
            .drop_plugin("conduct", &conduct(self.versions, how));
    }

    fn start(&mut self, id: &'static str) {
        self.hosts.push((id, self.setting.host_with(id, CONFIG)));
    }

    /// Waits until it is written down where the application begins, and a host has every lease.
    async fn until_begun(&self) {
        let table = CoordinatorTable::new(self.setting.clients.dynamodb.clone(), "conduct");
        let deadline = tokio::time::Instant::now() + Duration::from_mins(2);
        loop {
            let has_begun = table.fleet().await.is_ok_and(|fleet| fleet.start.is_some());
            let leases = self.setting.leases("conduct").await;
            if has_begun
                && leases.len() == SHARDS as usize
                && leases.iter().all(|lease| lease.owner.is_some())
            {
                return;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "never begun: {}",
                self.logs()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Puts so many records to each of the first shards' hash keys.
    async fn put(&self, each: usize) -> BTreeSet<Place> {
        let width = u128::MAX / u128::from(SHARDS);
        let mut put = BTreeSet::new();
        for n in 0..each {
            for shard in 0..SHARDS {
                let hash_key = u128::from(shard) * width + width / 2;
                let request = self
                    .setting
                    .clients
                    .kinesis
                    .put_record()
                    .stream_name(STREAM)
                    .partition_key("key");
                let request = request
                    .explicit_hash_key(hash_key.to_string())
                    .data(Blob::new(format!("{n}")));
                let reply = request.send().await.expect("the record is stored");
                put.insert((reply.shard_id, reply.sequence_number));
            }
        }
        put
    }

    async fn happen(&mut self, event: Event, random: &mut fastrand::Rng) {
        match event {
            Event::Put => {
                let put = self.put(random.usize(1..5)).await;
                self.wanted.extend(put);
            }
            Event::Kill => {
                let (id, host) = self.hosts.remove(0);
                host.kill();
                self.start(id);
            }
            Event::Terminate => {
                let (id, host) = self.hosts.remove(0);
                // A process that has just started may not listen for the signal yet, and ends by
                // it.
                host.terminate().await;
                // While nobody reads, too.
                let put = self.put(1).await;
                self.wanted.extend(put);
                self.start(id);
            }
            Event::Join => {
                let free = HOSTS
                    .iter()
                    .find(|id| self.hosts.iter().all(|(running, _)| running != *id));
                if let Some(id) = free {
                    self.start(id);
                }
            }
            Event::SwapToOneThatHoldsBack => self.swap("hold"),
            Event::SwapToOneThatTraps => self.swap("trap"),
            Event::Split => self.split(random).await,
        }
        tokio::time::sleep(Duration::from_millis(random.u64(0..1_500))).await;
    }

    async fn split(&self, random: &mut fastrand::Rng) {
        let kinesis = &self.setting.clients.kinesis;
        let listed = kinesis
            .list_shards()
            .stream_name(STREAM)
            .send()
            .await
            .expect("a listing");
        let open: Vec<_> = listed
            .shards()
            .iter()
            .filter(|shard| {
                shard
                    .sequence_number_range()
                    .is_some_and(|range| range.ending_sequence_number().is_none())
            })
            .collect();
        let shard = open[random.usize(..open.len())];
        let range = shard.hash_key_range().expect("hash keys");
        let [start, end]: [u128; 2] = [range.starting_hash_key(), range.ending_hash_key()]
            .map(|key| key.parse().expect("a number"));
        let at = start + (end - start) / 2;
        let request = kinesis
            .split_shard()
            .stream_name(STREAM)
            .shard_to_split(shard.shard_id());
        // The stream may be busy with the last one.
        let _ = request.new_starting_hash_key(at.to_string()).send().await;
    }

    fn output(&self) -> BTreeSet<Place> {
        let paths = HOSTS.map(|id| self.setting.output_of(id));
        let output = Output::read(&paths.each_ref().map(|path| path.as_path() as &Path));
        output
            .seen
            .into_keys()
            .map(|(shard, sequence, _)| (shard, sequence))
            .collect()
    }

    fn logs(&self) -> String {
        self.hosts.iter().map(|(_, host)| host.log()).collect()
    }

    /// Mends the plugin, and waits until all is out.
    async fn mend(&mut self) {
        self.swap("good");
        let mut missing = self.wanted.clone();
        let deadline = tokio::time::Instant::now() + Duration::from_mins(2);
        while !missing.is_empty() {
            assert!(
                tokio::time::Instant::now() < deadline,
                "lost: {missing:?}\n{}",
                self.logs()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
            let output = self.output();
            missing.retain(|place| !output.contains(place));
        }
        assert!(
            self.output().is_disjoint(&self.history),
            "what came before is delivered"
        );
    }

    async fn end(self) {
        for (_, host) in self.hosts {
            assert!(host.terminate().await.success());
        }
        self.setting.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_joins_while_poison_blocks_every_shard_from_the_start_costs_no_record() {
    let mut scene = Scene::new(true, "trap").await;
    scene.start("a");
    scene.until_begun().await;
    scene.wanted = scene.put(50).await;
    let first = &scene.hosts[0].1;
    let is_blocked = |status: &serde_json::Value| {
        let shards = status["plugins"]["conduct"]["shards"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        shards.len() == SHARDS as usize && shards.values().all(|shard| !shard["blocked"].is_null())
    };
    first
        .until_status("both shards are blocked", is_blocked)
        .await;
    scene.start("b");
    let deadline = tokio::time::Instant::now() + Duration::from_mins(2);
    loop {
        let leases = scene.setting.leases("conduct").await;
        assert!(
            leases
                .iter()
                .all(|lease| lease.checkpoint == Checkpoint::Latest),
            "nothing is checkpointed"
        );
        let has_one = |id| {
            leases.iter().any(|lease| {
                lease
                    .owner
                    .as_ref()
                    .is_some_and(|owner| owner.as_str() == id)
            })
        };
        if has_one("a") && has_one("b") {
            break;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "never shared: {leases:#?}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    scene.mend().await;
    assert_eq!(scene.output().len(), 100);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_happens_before_the_first_checkpoint_nothing_that_came_since_the_start_is_skipped()
{
    let rounds = number("SHARDMILL_STARTS", 2);
    let seed = number(
        "SHARDMILL_STARTS_SEED",
        usize::try_from(machine_now_ms()).unwrap_or_default(),
    );
    for round in 0..rounds {
        let mut random = fastrand::Rng::with_seed((seed + round) as u64);
        let (is_at_latest, how) = (
            round % 2 == 0,
            *random.choice(["hold", "trap"].iter()).unwrap(),
        );
        let mut scene = Scene::new(is_at_latest, how).await;
        scene.start("a");
        scene.until_begun().await;
        scene.wanted = scene.put(1).await;
        let events: Vec<Event> = (0..random.usize(3..7))
            .map(|_| Event::ALL[random.usize(..Event::ALL.len())])
            .collect();
        eprintln!(
            "round {round}, seed {}: latest {is_at_latest}, begins with {how}: {events:?}",
            seed + round
        );
        for event in events {
            scene.happen(event, &mut random).await;
        }
        let put = scene.put(2).await;
        scene.wanted.extend(put);
        scene.mend().await;
        scene.end().await;
    }
}
