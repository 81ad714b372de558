//! What happens to hosts, paths and shards while faults are on.

use std::sync::Arc;
use std::time::Duration;

use shardmill_invariants::history::What;

use crate::driver::{Driver, Slot};
use crate::plugin::{HOPELESS_FROM, HOPELESS_VERSIONS};
use crate::producer::Producer;
use crate::refusal::Refusal;
use crate::stream::{Stream, neighbours};
use crate::verdict;
use crate::weather::{Direction, Partition, Service};

/// Something on the agenda.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    Put,
    Crash,
    Stop,
    Restart(usize),
    Scale,
    Partition,
    Mend(u64),
    Outage,
    Reshard,
    Version,
    WallClock,
    Pause,
    Resume(usize),
    Deregister,
    Intrude,
    Refuse,
    Allow(u64),
    LongCut,
    RemoveWorker,
    Trim,
    Suspend,
    EditRow,
    DeleteRow,
    Join,
    Calm,
    Twin,
    Command,
    Write(u64),
}

impl Driver {
    /// Puts the first event of each kind on the agenda.
    pub(crate) fn plan_storms(&mut self) {
        self.plan(Duration::from_millis(1), Event::Put);
        self.plan(Duration::from_secs(10), Event::WallClock);
        let events = [
            Event::Crash,
            Event::Stop,
            Event::Scale,
            Event::Partition,
            Event::Outage,
            Event::Reshard,
            Event::Version,
            Event::Pause,
            Event::Deregister,
            Event::Intrude,
        ];
        for event in events {
            self.plan_next(event);
        }
        if self.schedule.backlog_bytes > 0 {
            self.plan(verdict::SLOW_START, Event::Calm);
        } else if self.schedule.producer.failing_keys > 0 {
            // Until then each of these keys has failed once, in a batch with others.
            let each_once = Duration::from_secs(20) * self.schedule.producer.failing_keys;
            self.plan(verdict::SLOW_START + each_once, Event::Calm);
        }
        let later = [
            Event::Refuse,
            Event::LongCut,
            Event::RemoveWorker,
            Event::Trim,
            Event::Suspend,
            Event::EditRow,
        ];
        let last = [Event::DeleteRow, Event::Twin, Event::Command];
        for event in later.into_iter().chain(last) {
            self.plan_next(event);
        }
    }

    fn plan_next(&mut self, event: Event) {
        let storms = &self.schedule.storms;
        let mean = match event {
            Event::Crash => storms.crashes,
            Event::Stop => storms.stops,
            Event::Scale => storms.scaling,
            Event::Partition => storms.partitions,
            Event::Outage => storms.outages,
            Event::Reshard => storms.reshards,
            Event::Version => storms.versions,
            Event::Pause => storms.pauses,
            Event::Deregister => storms.deregistrations,
            Event::Intrude => storms.intruders,
            Event::Refuse => storms.refusals,
            Event::LongCut => storms.long_cuts,
            Event::RemoveWorker => storms.removals,
            Event::Trim => storms.trims,
            Event::Suspend => storms.suspensions,
            Event::EditRow => storms.edits,
            Event::DeleteRow => storms.deletions,
            Event::Twin => storms.twins,
            Event::Command => storms.commands,
            Event::Put
            | Event::Restart(_)
            | Event::Mend(_)
            | Event::WallClock
            | Event::Resume(_)
            | Event::Allow(_)
            | Event::Join
            | Event::Write(_)
            | Event::Calm => None,
        };
        let Some(mean) = mean else { return };
        let after = mean.mul_f64(0.2 + 1.6 * self.dice.f64());
        self.plan(after, event);
    }

    /// Lets an event happen.
    pub(crate) async fn perform(&mut self, event: Event) {
        match event {
            Event::Put => {
                self.put().await;
                let most =
                    u64::try_from(self.schedule.put_every_max.as_millis()).unwrap_or(u64::MAX);
                let after = Duration::from_millis(self.dice.u64(20..most));
                self.plan(after, Event::Put);
            }
            Event::Crash => self.crash().await,
            Event::Stop => self.stop(),
            Event::Restart(slot) => self.restart(slot),
            Event::Scale => self.scale(),
            Event::Partition => self.cut(),
            Event::Mend(number) => drop(self.run.weather().partitions.remove(&number)),
            Event::Outage => self.outage(),
            Event::Reshard => self.reshard().await,
            Event::Version => self.offer(),
            Event::WallClock => self.move_wall_clock(),
            Event::Pause => self.pause(),
            Event::Resume(slot) => self.resume(slot),
            Event::Deregister => self.streams[0].deregister().await,
            Event::Intrude => self.intrude().await,
            Event::Refuse => self.refuse(),
            Event::Allow(number) => drop(self.run.weather().refusals.remove(&number)),
            Event::LongCut => self.cut_off_coordinator(),
            Event::RemoveWorker => self.remove_worker(),
            Event::Trim => self.trim(),
            Event::Suspend => self.suspend(),
            Event::EditRow => self.edit_row(),
            Event::DeleteRow => self.delete_row(),
            Event::Join => self.join(),
            Event::Twin => self.start_twin(),
            Event::Calm => self.note(&What::Calm(true)),
            Event::Command => self.command(),
            Event::Write(number) => self.write_command(number),
        }
        self.plan_next(event);
    }

    /// Puts a few records into each stream.
    pub(crate) async fn put(&mut self) {
        for stream in self.streams.clone() {
            self.put_into(&stream).await;
        }
    }

    async fn put_into(&mut self, stream: &Stream) {
        let count = self.dice.u64(1..6);
        let keys: Vec<String> = (0..count)
            .map(|_| format!("key-{}", self.dice.u32(0..40)))
            .collect();
        self.keys_made += count;
        let Self {
            schedule, contents, ..
        } = self;
        let records: Vec<_> = keys
            .into_iter()
            .map(|key| schedule.producer.next(key, contents))
            .collect();
        stream.put(&records).await;
    }

    /// Puts more into each stream than a host has room for.
    pub(crate) async fn put_backlog(&mut self) {
        let producer = Producer::of_large_records();
        for stream in &self.streams {
            let mut left = self.schedule.backlog_bytes;
            let mut number = 0;
            while left > 0 {
                let record = producer.next(format!("key-{number}"), &mut self.contents);
                left = left.saturating_sub(record.data.len());
                number += 1;
                stream.put(&[record]).await;
            }
        }
    }

    fn any_host(&mut self) -> Option<usize> {
        let up: Vec<_> = (0..self.slots.len())
            .filter(|slot| self.slots[*slot].host.is_some())
            .collect();
        (!up.is_empty()).then(|| up[self.dice.usize(..up.len())])
    }

    fn plan_restart(&mut self, slot: usize) {
        if self.dice.u32(0..3) == 0 {
            self.slots[slot].name = self.fresh_name();
        }
        // Soon after, or after a lease has surely expired.
        let after = if self.dice.bool() {
            self.dice.u64(50..3_000)
        } else {
            self.dice.u64(3_000..30_000)
        };
        self.plan(Duration::from_millis(after), Event::Restart(slot));
    }

    async fn crash(&mut self) {
        let Some(slot) = self.any_host() else { return };
        self.run.count("fault: crash");
        if let Some(host) = self.slots[slot].host.take() {
            host.crash().await;
        }
        self.plan_restart(slot);
    }

    fn stop(&mut self) {
        let Some(slot) = self.any_host() else { return };
        self.run.count("fault: stop");
        if let Some(host) = self.slots[slot].host.take() {
            self.stopping.spawn(host.stop());
        }
        self.plan_restart(slot);
    }

    fn scale(&mut self) {
        let wanted = self.slots.iter().filter(|slot| slot.is_wanted).count();
        if self.slots.len() < self.schedule.hosts_max && (wanted < 2 || self.dice.bool()) {
            self.run.count("fault: host joins");
            return self.add_host();
        }
        let Some(slot) = self.any_host() else { return };
        if wanted > 1 {
            self.run.count("fault: host leaves");
            let Slot {
                host, is_wanted, ..
            } = &mut self.slots[slot];
            *is_wanted = false;
            if let Some(host) = host.take() {
                self.stopping.spawn(host.stop());
            }
        }
    }

    fn join(&mut self) {
        if self.slots.len() < self.schedule.hosts_max {
            self.run.count("fault: host joins");
            self.add_host();
        }
    }

    /// Somebody starts another process under the name of one that runs, and that one cannot reach
    /// the tables for a while in half of the cases: as where it was taken for dead.
    fn start_twin(&mut self) {
        if self.slots.len() >= self.schedule.hosts_max {
            return;
        }
        let Some(slot) = self.any_host() else { return };
        self.run.count("fault: twin");
        if self.whose.bool() {
            let duration = self.schedule.options.leases.duration;
            let lasts = duration.mul_f64(2.0 * self.whose.f64());
            for service in [Service::Dynamodb, Service::Coordinator] {
                let host = Some(self.slots[slot].path());
                let direction = Direction::Requests;
                self.break_path(
                    Partition {
                        host,
                        service,
                        direction,
                    },
                    lasts,
                );
            }
        }
        self.add_twin(self.slots[slot].name.clone());
    }

    fn cut(&mut self) {
        let Some(slot) = self.any_host() else { return };
        let host = Some(self.slots[slot].path());
        let services: &[Service] = match self.dice.u32(0..7) {
            0..2 => &[Service::Dynamodb, Service::Coordinator],
            2 => &[Service::Dynamodb],
            3 => &[Service::Coordinator],
            4..6 => &[Service::Kinesis],
            _ => &[Service::Dynamodb, Service::Coordinator, Service::Kinesis],
        };
        let direction = if self.dice.bool() {
            Direction::Requests
        } else {
            Direction::Replies
        };
        let lasts = Duration::from_millis(self.dice.u64(500..30_000));
        for service in services {
            self.break_path(
                Partition {
                    host: host.clone(),
                    service: *service,
                    direction,
                },
                lasts,
            );
        }
    }

    fn outage(&mut self) {
        self.run.count("fault: outage");
        let lasts = self.schedule.storms.outage_lasts;
        // An outage of hours must fit into the run.
        self.schedule.faults_for = self.schedule.faults_for.max(lasts);
        let services: &[Service] = match self.dice.u32(0..4) {
            0 => &[Service::Dynamodb],
            1 => &[Service::Coordinator],
            _ => &[Service::Dynamodb, Service::Coordinator],
        };
        for service in services {
            let partition = Partition {
                host: None,
                service: *service,
                direction: Direction::Requests,
            };
            self.break_path(partition, lasts);
        }
    }

    fn break_path(&mut self, partition: Partition, lasts: Duration) {
        self.partitions_made += 1;
        let number = self.partitions_made;
        self.run.weather().partitions.insert(number, partition);
        self.plan(lasts, Event::Mend(number));
    }

    /// Some requests are refused for a while: to one host in three cases of four.
    fn refuse(&mut self) {
        let Some(slot) = self.any_host() else { return };
        let host = (self.dice.u32(0..4) > 0).then(|| self.slots[slot].path());
        let refusal = Refusal::draw(&mut self.dice, host);
        let most = u64::try_from(self.schedule.refusal_lasts_max.as_millis()).unwrap_or(u64::MAX);
        let lasts = Duration::from_millis(self.dice.u64(500..most.max(1_000)));
        self.partitions_made += 1;
        let number = self.partitions_made;
        self.run.weather().refusals.insert(number, refusal);
        self.plan(lasts, Event::Allow(number));
    }

    /// One host cannot reach the coordinator table for so long that its registration is removed,
    /// while it writes lease rows.
    fn cut_off_coordinator(&mut self) {
        let Some(slot) = self.any_host() else { return };
        self.run.count("fault: long cut of a coordinator path");
        let host = Some(self.slots[slot].path());
        let direction = if self.dice.bool() {
            Direction::Requests
        } else {
            Direction::Replies
        };
        let lasts = self
            .schedule
            .options
            .leases
            .duration
            .mul_f64(6.0 + 8.0 * self.dice.f64());
        // Who comes when the registration is gone knows nothing of the host that is cut off.
        self.plan(lasts.mul_f64(0.9), Event::Join);
        self.break_path(
            Partition {
                host,
                service: Service::Coordinator,
                direction,
            },
            lasts,
        );
    }

    /// Somebody removes a worker's row.
    fn remove_worker(&mut self) {
        let Some(slot) = self.any_host() else { return };
        let world = self.any_world();
        let name = &self.slots[slot].name;
        if world.tables.remove_worker(&world, name) {
            self.run.count("fault: worker's row removed by hand");
        }
    }

    pub(crate) async fn reshard(&mut self) {
        let stream = self.any_stream();
        if stream.shards().len() >= self.schedule.shards_max {
            return;
        }
        let open = stream.open_shards();
        let start = self.dice.usize(..64);
        let pair = neighbours(&stream.shards(), start);
        match pair {
            Some([left, right]) if self.dice.bool() => stream.merge([&left, &right]).await,
            _ => stream.split(&open[start % open.len()]).await,
        }
    }

    async fn intrude(&mut self) {
        let stream = Arc::clone(&self.streams[0]);
        let shards: Vec<String> = stream.shards().keys().cloned().collect();
        let shard = &shards[self.dice.usize(..shards.len())];
        stream.intrude(shard).await;
    }

    fn offer(&mut self) {
        let plugin = self.any_plugin();
        if self.worlds[plugin].plan.options.rollout.enabled && self.versions.bool() {
            self.run.count("fault: hopeless version");
            let version = HOPELESS_FROM + self.versions.u64(..HOPELESS_VERSIONS);
            // With nothing to go back to, the newest is as good as any.
            for host in self
                .slots
                .iter()
                .filter_map(|slot| slot.host.as_ref())
                .filter(|host| host.has_run(plugin))
            {
                host.offer(plugin, version, true);
            }
            return;
        }
        if self.dice.u32(0..4) != 0 {
            self.run.count("fault: new version");
            return self.offer_good(plugin);
        }
        self.run.count("fault: version that does not start");
        // Far from the good ones, which every later process starts with.
        let version = 1_000_000 + self.dice.u64(..1_000);
        self.offer_to_all(plugin, version, false);
    }

    /// Offers a fresh version of a plugin that works.
    pub(crate) fn offer_good(&mut self, plugin: usize) {
        self.versions_made += 1;
        self.newest[plugin] = self.versions_made;
        self.offer_to_all(plugin, self.versions_made, true);
    }

    fn offer_to_all(&self, plugin: usize, version: u64, can_start: bool) {
        for slot in &self.slots {
            if let Some(host) = &slot.host {
                host.offer(plugin, version, can_start);
            }
        }
    }

    fn pause(&mut self) {
        let Some(slot) = self.any_host() else { return };
        self.run.count("fault: pause");
        if let Some(host) = &self.slots[slot].host {
            host.pause(true);
        }
        // Often longer than a lease, which is 5 to 12 s.
        let lasts = Duration::from_millis(self.dice.u64(200..30_000));
        self.plan(lasts, Event::Resume(slot));
    }

    fn suspend(&mut self) {
        self.run.count("fault: suspension");
        // Around a lease's duration, or for hours.
        let lasts = if self.dice.u32(0..10) == 0 {
            self.dice.u64(..7_200_000)
        } else {
            self.dice.u64(200..30_000)
        };
        self.run.suspend(Duration::from_millis(lasts));
    }

    pub(crate) fn resume(&mut self, slot: usize) {
        if let Some(host) = &self.slots[slot].host {
            host.pause(false);
        }
    }

    fn move_wall_clock(&mut self) {
        if self.schedule.clock_error_max > 0.0
            && let Some(slot) = self.any_host()
        {
            self.run.count("fault: wall clock jumps");
            let error_ms = self.dice.i64(-3_600_000..3_600_000);
            self.slots[slot].machine.jump_wall_clock(error_ms);
        }
    }
}
