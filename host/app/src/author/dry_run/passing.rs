//! Lets time pass in a dry run, and ends its shards.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail};
use shardmill_aws::{KinesisReader, LeaseTable};
use shardmill_core::ports::{LeaseStore, StreamReader};
use shardmill_core::stream::{LeaseKey, Shard};
use shardmill_serve::HostStatus;
use shardmill_worker::{ShardState, Why};
use tokio::time::Instant;

use super::input::DryRunInput;
use super::scene::{LOOK_EVERY, Scene};

/// Ticks that a dry run waits for: each takes some milliseconds.
const TICKS_MAX: u128 = 10_000;

impl Scene {
    /// Lets `time` pass for the plugin: it is called as often as it is in so much time, at once.
    pub(super) async fn let_pass(&self, status: &HostStatus, time: Duration) -> anyhow::Result<()> {
        let ticks = time.as_nanos().div_ceil(self.tick_every.as_nanos().max(1));
        if ticks > TICKS_MAX {
            bail!(
                "--clock: {time:?} is more than {TICKS_MAX} times tick.every, {:?}: let less time \
                    pass, or give the manifest a longer interval",
                self.tick_every
            );
        }
        for _ in 0..ticks {
            let before = self.ticks(status)?;
            self.clock.advance(self.tick_every);
            self.until_ticked(status, &before).await?;
        }
        Ok(())
    }

    /// Waits until each shard has ticked since.
    async fn until_ticked(
        &self,
        status: &HostStatus,
        before: &BTreeMap<String, u64>,
    ) -> anyhow::Result<()> {
        let asked_at = Instant::now();
        loop {
            let now = self.ticks(status)?;
            if before
                .iter()
                .all(|(shard, ticks)| now.get(shard) != Some(ticks))
            {
                return Ok(());
            }
            if asked_at.elapsed() > self.timeout {
                bail!(
                    "--clock: no tick came within {:?}: a component is called only if it exports \
                        ticker, which `shardmill check` shows",
                    self.timeout
                );
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Ticks so far of each shard that is served. An error if one failed.
    fn ticks(&self, status: &HostStatus) -> anyhow::Result<BTreeMap<String, u64>> {
        let Some(plugin) = self.plugin(status)? else {
            return Ok(BTreeMap::new());
        };
        let mut ticks = BTreeMap::new();
        for (id, shard) in plugin.worker.shards {
            let failed = shard.blocked.filter(|blocked| blocked.why == Why::Tick);
            if let Some(failed) = failed {
                bail!("shard {id}: {}", failed.reason);
            }
            if shard.state == ShardState::Processing {
                ticks.insert(id, shard.ticks);
            }
        }
        Ok(ticks)
    }

    /// Ends all shards that are open, and waits until the plugin has closed them.
    pub(super) async fn end_shards(&mut self, status: &HostStatus) -> anyhow::Result<()> {
        let ending = match &self.input {
            DryRunInput::Put(_) => self.split_all().await?,
            DryRunInput::Captured(stream) => {
                stream.end();
                stream.list_shards().await?
            }
        };
        let table = LeaseTable::new(self.clients.dynamodb.clone(), self.application.as_str());
        let asked_at = Instant::now();
        loop {
            let leases = table.list().await?.leases;
            // A row that is gone was finished: its leader removes it some time later.
            let is_open = |shard: &Shard| {
                let key = LeaseKey::of_shard(&shard.id);
                leases
                    .iter()
                    .any(|lease| lease.key == key && !lease.is_finished())
            };
            let Some(open) = ending.iter().find(|shard| is_open(shard)) else {
                return Ok(());
            };
            if asked_at.elapsed() > self.timeout {
                let plugin = self.plugin(status)?;
                let shard = plugin
                    .and_then(|mut plugin| plugin.worker.shards.remove(open.id.as_str()))
                    .and_then(|shard| shard.blocked);
                let why = shard.map_or_else(String::new, |blocked| format!(": {}", blocked.reason));
                bail!(
                    "--end-shard: {} did not end within {:?}{why}",
                    open.id,
                    self.timeout
                );
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Splits each shard of the embedded stream in two, which ends it.
    async fn split_all(&self) -> anyhow::Result<Vec<Shard>> {
        let kinesis = &self.clients.kinesis;
        let reader = KinesisReader::new(kinesis.clone(), &self.stream);
        let shards = reader.list_shards().await?;
        for shard in &shards {
            let (start, end) = (shard.hash_range.start(), shard.hash_range.end());
            let middle = start + (end - start) / 2 + 1;
            let split = kinesis
                .split_shard()
                .stream_name(self.stream.as_str())
                .shard_to_split(shard.id.as_str())
                .new_starting_hash_key(middle.to_string());
            split
                .send()
                .await
                .context("cannot end a shard of the test")?;
        }
        Ok(shards)
    }
}
