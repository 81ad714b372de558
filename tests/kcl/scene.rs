//! One stream, one lease table, and workers of both kinds on it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::AttributeValue;
use harness::guests::guest;
use harness::process::Host;
use harness::setting::{STREAM, Setting};
use shardmill_core::lease::{Checkpoint, Lease};
use tokio::time::{Instant, sleep};

use crate::changes::Changes;
use crate::ledger::{self, Balance, Feed, Handled, Shard};
use crate::toolchain::{APPLICATION, Kcl, RECORDS_PER_CALL};

/// How a host of ours must be set beside a KCL: its lease duration is the KCL's failover time. It
/// lists shards often, and so removes the rows of finished ones soon.
const LEASES_BESIDE_KCL: &str =
    "duration = \"3s\"\nscan-every = \"200ms\"\nshared-with-kcl = true\nshard-sync-every = \"5s\"";
/// Slow enough to be stopped in the middle.
const READS: &str = "[batch]\nrecords = 50\n[reads]\ncalls-per-second = 5.0\nrecords-per-call = \
    50\nidle-every = \"100ms\"";
/// Far more than anything takes: the KCL's own waits on an empty table are up to half a minute,
/// machines are shared.
const PATIENCE: Duration = Duration::from_mins(3);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Records put at each look while something is waited for, so that there always is something to
/// hand over.
const TRICKLE: usize = 6;
/// What another program may have written on a row.
const FOREIGN_ATTRIBUTE: &str = "costCenter";

/// By shard: who owns it, if anybody. Finished shards are left out.
pub(crate) type Owners = BTreeMap<String, Option<String>>;

pub(crate) struct Scene {
    pub(crate) setting: Setting,
    pub(crate) feed: Feed,
    pub(crate) changes: Changes,
    kcl: Kcl,
    workers: Vec<String>,
    started: Instant,
}

impl Scene {
    pub(crate) async fn new(kcl: Kcl, shards: u32) -> Self {
        // Built before the clock starts.
        let _ = harness::process::binary();
        let setting = Setting::new(shards).await;
        setting.drop_plugin(APPLICATION, &guest(APPLICATION));
        let feed = Feed::new(setting.clients.kinesis.clone());
        let changes = Changes::watch(&setting);
        Self {
            setting,
            feed,
            changes,
            kcl,
            workers: Vec::new(),
            started: Instant::now(),
        }
    }

    /// A worker of the KCL.
    pub(crate) fn kcl(&mut self, id: &str, checkpoint_batches: u64) -> Host {
        self.kcl_with(id, &[format!("checkpoint-batches={checkpoint_batches}")])
    }

    /// A worker of the KCL with settings of its own.
    pub(crate) fn kcl_with(&mut self, id: &str, settings: &[String]) -> Host {
        self.workers.push(id.to_owned());
        self.kcl.worker(&self.setting, id, settings)
    }

    /// A host of ours.
    pub(crate) fn ours(&mut self, id: &str) -> Host {
        self.ours_with(id, "")
    }

    /// A host of ours with more sections of configuration.
    pub(crate) fn ours_with(&mut self, id: &str, sections: &str) -> Host {
        self.workers.push(id.to_owned());
        self.setting
            .host_sharing(id, LEASES_BESIDE_KCL, &format!("{READS}\n{sections}"))
    }

    /// A host of ours with its own settings for reads and batches.
    pub(crate) fn ours_reading(&mut self, id: &str, reads_and_batches: &str) -> Host {
        self.workers.push(id.to_owned());
        self.setting
            .host_sharing(id, LEASES_BESIDE_KCL, reads_and_batches)
    }

    /// A host of ours that reaches DynamoDB at `endpoint`.
    pub(crate) fn ours_behind(&mut self, id: &str, endpoint: &str) -> Host {
        self.workers.push(id.to_owned());
        let leases = format!("{LEASES_BESIDE_KCL}\n[aws]\ndynamodb-endpoint = \"{endpoint}\"");
        self.setting.host_behind(id, &leases, READS)
    }

    /// What each worker handled.
    pub(crate) fn outputs(&self) -> Vec<Vec<Handled>> {
        self.workers
            .iter()
            .map(|id| ledger::read(&self.setting.output_of(id)))
            .collect()
    }

    /// What came out so far.
    pub(crate) fn balance(&self) -> Balance {
        Balance::of(&self.feed.stored, &self.outputs())
    }

    pub(crate) async fn until_handled_by(&self, id: &str, records: usize) {
        let output = self.setting.output_of(id);
        let what = format!("{id} handles {records} records");
        self.until(&what, async || ledger::read(&output).len() >= records)
            .await;
    }

    /// Waits until all that was put is handled.
    pub(crate) async fn until_all_handled(&self) {
        let put: usize = self.feed.stored.values().map(BTreeMap::len).sum();
        self.until("everything that was put is handled", async || {
            self.balance().distinct == put
        })
        .await;
    }

    /// Waits until all that was put is handled, but for what nobody is to handle.
    pub(crate) async fn until_all_handled_but(&self, history: &BTreeMap<String, Shard>) {
        let is_wanted = |shard: &str, sequence: &str| {
            history
                .get(shard)
                .is_none_or(|old| !old.contains_key(sequence))
        };
        let all_handled = || {
            let outputs = self.outputs();
            let seen: BTreeSet<_> = outputs
                .iter()
                .flatten()
                .map(|it| (it.shard.as_str(), it.sequence.as_str()))
                .collect();
            let put = self.feed.stored.iter();
            let mut put = put.flat_map(|(shard, records)| {
                records.keys().map(move |it| (shard.as_str(), it.as_str()))
            });
            put.all(|(shard, sequence)| {
                !is_wanted(shard, sequence) || seen.contains(&(shard, sequence))
            })
        };
        self.until(
            "everything that came since the start is handled",
            async || all_handled(),
        )
        .await;
    }

    /// Waits for a line of a worker's log.
    pub(crate) async fn until_log(&self, id: &str, text: &str) {
        let log = self.setting.path().join(format!("{id}.log"));
        let is_there = async || {
            std::fs::read_to_string(&log)
                .unwrap_or_default()
                .contains(text)
        };
        self.until(&format!("{id} logs {text:?}"), is_there).await;
    }

    /// Waits until the unfinished leases are owned so, with records arriving all the time.
    pub(crate) async fn until_owned(
        &mut self,
        what: &str,
        mut is_so: impl FnMut(&Owners) -> bool,
    ) -> Owners {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let owners = owners(&self.leases().await);
            if is_so(&owners) {
                self.print(what);
                return owners;
            }
            assert!(
                Instant::now() < deadline,
                "never happened: {what}\n{owners:#?}\n{}",
                self.logs()
            );
            self.trickle().await;
        }
    }

    /// Waits until the unfinished leases are owned so, while nothing is put.
    pub(crate) async fn until_owned_at_rest(&self, what: &str, is_so: impl Fn(&Owners) -> bool) {
        self.until(what, async || is_so(&owners(&self.leases().await)))
            .await;
    }

    /// Waits with records arriving.
    pub(crate) async fn while_putting_until(
        &mut self,
        what: &str,
        mut is_so: impl FnMut() -> bool,
    ) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(
                Instant::now() < deadline,
                "never happened: {what}\n{}",
                self.logs()
            );
            self.trickle().await;
        }
        self.print(what);
    }

    /// Lets time pass with records arriving.
    pub(crate) async fn for_a_while(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.trickle().await;
        }
    }

    async fn trickle(&mut self) {
        // Some are kept for the end.
        if self.feed.left() > 1_000 {
            self.feed.put(TRICKLE).await;
        }
        sleep(LOOK_EVERY).await;
    }

    /// Waits until it is so, and tells when.
    pub(crate) async fn until(&self, what: &str, mut is_so: impl AsyncFnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so().await {
            assert!(
                Instant::now() < deadline,
                "never happened: {what}\n{}",
                self.logs()
            );
            sleep(LOOK_EVERY).await;
        }
        self.print(what);
    }

    /// For whoever reads the output of a failure.
    fn print(&self, what: &str) {
        eprintln!("{:6.1} s: {what}", self.started.elapsed().as_secs_f64());
    }

    /// The ends of all logs, for whoever has to find out.
    fn logs(&self) -> String {
        let tail = |id: &String| {
            let log = std::fs::read_to_string(self.setting.path().join(format!("{id}.log")))
                .unwrap_or_default();
            let lines: Vec<_> = log
                .lines()
                .rev()
                .take(15)
                .map(|line| line.chars().take(300).collect::<String>())
                .collect();
            format!(
                "--- {id}\n{}\n",
                lines.into_iter().rev().collect::<Vec<_>>().join("\n")
            )
        };
        self.workers.iter().map(tail).collect()
    }

    pub(crate) async fn leases(&self) -> Vec<Lease> {
        self.setting.leases(APPLICATION).await
    }

    /// Splits a shard in the middle.
    pub(crate) async fn split(&self, shard: &str) {
        let lease = self
            .lease(shard)
            .await
            .expect("an unfinished shard has a row");
        let range = lease
            .hash_range
            .expect("the KCL and we both write hash keys");
        self.split_at(shard, range.start() + (range.end() - range.start()) / 2)
            .await;
    }

    /// Splits a shard before a hash key.
    pub(crate) async fn split_at(&self, shard: &str, hash_key: u128) {
        let request = self
            .setting
            .clients
            .kinesis
            .split_shard()
            .stream_name(STREAM)
            .shard_to_split(shard);
        request
            .new_starting_hash_key(hash_key.to_string())
            .send()
            .await
            .expect("the shard is split");
    }

    /// Merges the first two of the shards that are owned so, splits the third, and waits until what
    /// they became is owned.
    pub(crate) async fn merge_and_split(&mut self, owners: &Owners) {
        let parents: Vec<&String> = owners.keys().take(3).collect();
        self.merge(parents[0], parents[1]).await;
        self.split(parents[2]).await;
        let are_followed = |now: &Owners| {
            let are_finished = parents.iter().all(|parent| !now.contains_key(*parent));
            are_finished && now.len() == owners.len() && now.values().all(Option::is_some)
        };
        self.until_owned("what the shards became is owned", are_followed)
            .await;
    }

    /// Merges two neighbours.
    pub(crate) async fn merge(&self, left: &str, right: &str) {
        let request = self
            .setting
            .clients
            .kinesis
            .merge_shards()
            .stream_name(STREAM)
            .shard_to_merge(left);
        request
            .adjacent_shard_to_merge(right)
            .send()
            .await
            .expect("the shards are merged");
    }

    /// The row of a shard, unless it was deleted.
    pub(crate) async fn lease(&self, shard: &str) -> Option<Lease> {
        self.leases()
            .await
            .into_iter()
            .find(|lease| lease.key.as_str() == shard)
    }

    /// How far each shard is checkpointed; the last word of workers that have ended.
    pub(crate) async fn checkpoints(&self) -> BTreeMap<String, Checkpoint> {
        // A write of a killed process may still be on its way; nobody takes over as soon as this.
        sleep(Duration::from_millis(300)).await;
        let leases = self.leases().await;
        leases
            .into_iter()
            .map(|lease| (lease.key.as_str().to_owned(), lease.checkpoint))
            .collect()
    }

    /// Checks that `id` began each shard with the first record that `checkpoints` do not cover.
    pub(crate) fn assert_went_on(&self, id: &str, checkpoints: &BTreeMap<String, Checkpoint>) {
        let handled = ledger::read(&self.setting.output_of(id));
        assert!(!handled.is_empty(), "{id} handled nothing");
        for (shard, checkpoint) in checkpoints {
            let Some(first) = handled.iter().find(|handled| handled.shard == *shard) else {
                continue;
            };
            let covered = checkpoint
                .position()
                .map_or("", |position| position.sequence.as_str());
            let mut after = self.feed.stored[shard]
                .keys()
                .filter(|sequence| sequence.as_str() > covered);
            assert_eq!(
                Some(&first.sequence),
                after.next(),
                "{id} in {shard}, checkpointed at {covered:?}"
            );
        }
    }

    /// Puts an attribute on every row that neither the KCL nor we know.
    pub(crate) async fn write_on_every_row(&self, text: &str) {
        for lease in self.leases().await {
            let request = self
                .setting
                .clients
                .dynamodb
                .update_item()
                .table_name(APPLICATION);
            let request = request.key("leaseKey", AttributeValue::S(lease.key.as_str().to_owned()));
            let request = request.update_expression(format!("SET {FOREIGN_ATTRIBUTE} = :value"));
            let request =
                request.expression_attribute_values(":value", AttributeValue::S(text.to_owned()));
            // A finished row may have been deleted meanwhile.
            let reply = request
                .condition_expression("attribute_exists(leaseKey)")
                .send()
                .await;
            let is_gone = |error: &UpdateItemError| error.is_conditional_check_failed_exception();
            assert!(
                reply.is_ok()
                    || reply.is_err_and(|error| error.as_service_error().is_some_and(is_gone))
            );
        }
    }

    /// How many rows have it, and how many have the digest that only we write.
    pub(crate) async fn rows_with_foreign_and_own_attributes(&self) -> (usize, usize) {
        let scan = self
            .setting
            .clients
            .dynamodb
            .scan()
            .table_name(APPLICATION)
            .send()
            .await
            .expect("rows");
        let with = |name: &str| {
            scan.items()
                .iter()
                .filter(|item| item.contains_key(name))
                .count()
        };
        (with(FOREIGN_ATTRIBUTE), with("pluginDigest"))
    }

    /// How many records may come out again when a KCL worker is killed.
    pub(crate) fn repeats_max(checkpoint_batches: u64, shards: u64) -> usize {
        usize::try_from(checkpoint_batches * RECORDS_PER_CALL * shards).expect("small")
    }
}

fn owners(leases: &[Lease]) -> Owners {
    let unfinished = leases.iter().filter(|lease| !lease.is_finished());
    let owner = |lease: &Lease| lease.owner.as_ref().map(|owner| owner.as_str().to_owned());
    unfinished
        .map(|lease| (lease.key.as_str().to_owned(), owner(lease)))
        .collect()
}

/// How many of them `id` owns.
pub(crate) fn count(owners: &Owners, id: &str) -> usize {
    owners
        .values()
        .filter(|owner| owner.as_deref() == Some(id))
        .count()
}

/// Whether `id` owns all of them, and there are some.
pub(crate) fn owns_all(owners: &Owners, id: &str) -> bool {
    !owners.is_empty() && count(owners, id) == owners.len()
}
