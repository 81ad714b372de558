//! Runs one seed: a stream, a fleet, a storm of events, the healing, and the wait until all is
//! settled.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use shardmill_invariants::history::{Checkpoint, Micros, What};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::bugs::PortBug;
use crate::commands::Operator;
use crate::dynamodb::Dynamodb;
use crate::hearing;
use crate::host::{Host, Machine};
use crate::kinesis::Kinesis;
use crate::memory::{MemoryStream, MemoryTables};
use crate::plugin::digest_of;
use crate::reached;
use crate::report::SeedReport;
use crate::schedule::{Over, Schedule, Scope, StartSettings};
use crate::storm::Event;
use crate::stream::{Stream, StreamService};
use crate::tables::Tables;
use crate::trace_file::TraceFile;
use crate::verdict;
use crate::world::{Run, World};

/// From the healing until everything must be settled and checkpointed, without any record being
/// settled meanwhile. The longest waits in it: a back-off at its cap (30 s), then a lease that
/// expires, for each generation of shards that follow one another.
const CONVERGE_MAX: Duration = Duration::from_mins(4);
/// How often the fleet is asked whether it is done.
const CONVERGE_POLL: Duration = Duration::from_millis(250);

/// A run under way.
pub struct Driver {
    pub(crate) run: Arc<Run>,
    /// One for each plugin, in the order in which hosts start them.
    pub(crate) worlds: Vec<Arc<World>>,
    /// What they read, in order.
    pub(crate) streams: Vec<Arc<Stream>>,
    pub(crate) schedule: Schedule,
    pub(crate) dice: fastrand::Rng,
    /// For what is in the records.
    pub(crate) contents: fastrand::Rng,
    /// For versions that only runs have which try versions.
    pub(crate) versions: fastrand::Rng,
    /// For what differs from start to start of a host.
    pub(crate) settings: fastrand::Rng,
    /// For which of several plugins and streams something happens to.
    pub(crate) whose: fastrand::Rng,
    /// Who gives commands.
    pub(crate) operator: Operator,
    pub(crate) slots: Vec<Slot>,
    pub(crate) agenda: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    pub(crate) stopping: JoinSet<()>,
    pub(crate) hosts_named: u64,
    pub(crate) versions_made: u64,
    /// The newest version of each plugin that works.
    pub(crate) newest: Vec<u64>,
    pub(crate) partitions_made: u64,
    pub(crate) keys_made: u64,
    pub(crate) twins_made: u64,
    /// When the last process of this name ended because another has its name.
    replaced_at: BTreeMap<String, Micros>,
    entries_made: u64,
}

/// A place for a host in the fleet.
pub(crate) struct Slot {
    pub(crate) machine: Arc<Machine>,
    pub(crate) name: String,
    pub(crate) host: Option<Host>,
    /// Whether it should run once the run is healed.
    pub(crate) is_wanted: bool,
}

impl Slot {
    /// By which name the network knows its machine.
    pub(crate) fn path(&self) -> String {
        self.machine.path(&self.name).to_owned()
    }
}

impl Driver {
    async fn new(
        seed: u64,
        scope: Scope,
        schedule: Schedule,
        bug: Option<PortBug>,
        file: Option<TraceFile>,
    ) -> Self {
        if let Some(file) = &file {
            file.line(format_args!("{schedule:?}"));
        }
        let run = Run::new(seed, bug, file);
        let mut streams: Vec<Arc<Stream>> = Vec::new();
        let mut worlds = Vec::new();
        for mut plan in schedule.plugins() {
            plan.stream = plan.stream.min(streams.len());
            if plan.stream == streams.len() {
                let service = match scope.over {
                    Over::Wire => StreamService::Emulated(Kinesis::new().await),
                    Over::Ports => StreamService::Memory(MemoryStream::new(schedule.shards)),
                };
                streams.push(Stream::new(Arc::clone(&run), service));
            }
            let tables = match scope.over {
                Over::Wire => Tables::Emulated(Dynamodb::new()),
                Over::Ports => Tables::Memory(MemoryTables::default()),
            };
            let stream = Arc::clone(&streams[plan.stream]);
            worlds.push(World::new(Arc::clone(&run), plan, tables, stream));
        }
        hearing::listen(&worlds);
        Self {
            run,
            newest: vec![1; worlds.len()],
            worlds,
            streams,
            schedule,
            dice: fastrand::Rng::with_seed(seed ^ 0xd1ce),
            contents: fastrand::Rng::with_seed(seed ^ 0xc0_17e1),
            versions: fastrand::Rng::with_seed(seed ^ 0x0e75_1045),
            settings: fastrand::Rng::with_seed(seed ^ 0x5e77_1065),
            whose: fastrand::Rng::with_seed(seed ^ 0x3405_e001),
            operator: Operator::new(seed),
            slots: Vec::new(),
            agenda: BinaryHeap::new(),
            stopping: JoinSet::new(),
            hosts_named: 0,
            versions_made: 1,
            partitions_made: 0,
            keys_made: 0,
            twins_made: 0,
            replaced_at: BTreeMap::new(),
            entries_made: 0,
        }
    }

    /// Adds a host on its own machine.
    pub(crate) fn add_host(&mut self) {
        let machine = self.new_machine(None);
        let name = self.fresh_name();
        self.start_on(machine, name);
    }

    /// Another process begins under the name of one that runs, on its own machine.
    pub(crate) fn add_twin(&mut self, name: String) {
        self.twins_made += 1;
        let path = format!("{name} (twin {})", self.twins_made);
        let machine = self.new_machine(Some(path));
        self.start_on(machine, name);
    }

    fn new_machine(&mut self, path: Option<String>) -> Arc<Machine> {
        let error = self.schedule.clock_error_max * (2.0 * self.dice.f64() - 1.0);
        let offset = Duration::from_secs(self.dice.u64(60..1_000_000));
        Machine::on_path(path, Arc::clone(&self.run), 1.0 + error, offset)
    }

    fn start_on(&mut self, machine: Arc<Machine>, name: String) {
        let settings = self.schedule.settings_of_a_start(&mut self.settings);
        let host = self.start_host(&machine, &name, settings);
        self.slots.push(Slot {
            machine,
            name,
            host: Some(host),
            is_wanted: true,
        });
    }

    pub(crate) fn fresh_name(&mut self) -> String {
        self.hosts_named += 1;
        format!("host-{}", self.hosts_named)
    }

    fn start_host(&self, machine: &Arc<Machine>, name: &str, settings: StartSettings) -> Host {
        let plugins: Vec<_> = self
            .worlds
            .iter()
            .cloned()
            .zip(self.newest.iter().copied())
            .collect();
        let budget_bytes = self.schedule.budget_bytes;
        Host::start(&plugins, machine, name, settings, budget_bytes)
    }

    /// One of the plugins, counted from 0. No dice are needed for the only one.
    pub(crate) fn any_plugin(&mut self) -> usize {
        match self.worlds.len() {
            1 => 0,
            several => self.whose.usize(..several),
        }
    }

    /// The world of one of the plugins.
    pub(crate) fn any_world(&mut self) -> Arc<World> {
        let plugin = self.any_plugin();
        Arc::clone(&self.worlds[plugin])
    }

    /// One of the streams. No dice are needed for the only one.
    pub(crate) fn any_stream(&mut self) -> Arc<Stream> {
        let stream = match self.streams.len() {
            1 => 0,
            several => self.whose.usize(..several),
        };
        Arc::clone(&self.streams[stream])
    }

    /// Puts something into the history of each plugin.
    pub(crate) fn note(&self, what: &What) {
        for world in &self.worlds {
            world.note(what.clone());
        }
    }

    /// Starts the process of a slot again, if it is down.
    pub(crate) fn restart(&mut self, slot: usize) {
        let Slot {
            machine,
            name,
            host,
            is_wanted,
        } = &self.slots[slot];
        if host.is_none() && *is_wanted && !machine.is_running(name) {
            let settings = self.schedule.settings_of_a_start(&mut self.settings);
            let host = self.start_host(machine, name, settings);
            self.slots[slot].host = Some(host);
        }
    }

    /// Processes that ended because another has their name are gone for good.
    pub(crate) fn bury_replaced(&mut self) {
        for slot in &mut self.slots {
            if slot.host.as_mut().is_some_and(Host::was_replaced)
                && let Some(host) = slot.host.take()
            {
                self.run.count("reached: process replaced by its twin");
                let now = self.worlds[0].now();
                self.replaced_at.insert(host.name.clone(), now);
                host.bury();
                slot.is_wanted = false;
            }
        }
    }

    pub(crate) fn plan(&mut self, after: Duration, event: Event) {
        self.entries_made += 1;
        self.agenda
            .push(Reverse((Instant::now() + after, self.entries_made, event)));
    }

    async fn storm(&mut self) {
        let end = Instant::now() + self.schedule.faults_for;
        self.plan_storms();
        while let Some(Reverse((at, _, event))) = self.agenda.pop() {
            if at >= end {
                break;
            }
            tokio::time::sleep_until(at).await;
            self.bury_replaced();
            self.perform(event).await;
            while self.stopping.try_join_next().is_some() {}
        }
        tokio::time::sleep_until(end).await;
    }

    /// How long it took, or what is missing.
    async fn converge(&mut self) -> Result<Duration, Vec<String>> {
        let began = Instant::now();
        let (mut moved_at, mut last) = (began, usize::MAX);
        loop {
            self.bury_replaced();
            let alive: BTreeSet<String> = self
                .slots
                .iter()
                .filter_map(|slot| slot.host.as_ref())
                .map(|host| host.name.clone())
                .collect();
            let mut missing = self.unsettled(&alive);
            if self.slots.iter().filter(|slot| slot.host.is_some()).count() > alive.len() {
                missing.push("two processes have the same name".to_owned());
            }
            if missing.is_empty() {
                return Ok(began.elapsed());
            }
            // A backlog of hours is worked off one small batch after the other.
            let behind = self.worlds.iter().map(|world| verdict::behind(world)).sum();
            if behind != last {
                (moved_at, last) = (Instant::now(), behind);
            }
            if moved_at.elapsed() > CONVERGE_MAX {
                return Err(missing);
            }
            for slot in &mut self.slots {
                if let Some(host) = &mut slot.host
                    && host.has_ended()
                {
                    return Err(vec![format!("the worker of {} ended by itself", host.name)]);
                }
            }
            tokio::time::sleep(CONVERGE_POLL).await;
        }
    }

    fn unsettled(&self, alive: &BTreeSet<String>) -> Vec<String> {
        let of_each = self.worlds.iter().flat_map(|world| {
            let missing = verdict::unsettled(world, alive);
            missing.into_iter().map(|what| self.of_plugin(world, what))
        });
        of_each.collect()
    }

    /// `what` is wrong with a plugin, which is named if there are several.
    fn of_plugin(&self, world: &World, what: String) -> String {
        if self.worlds.len() == 1 {
            what
        } else {
            format!("{what} ({})", world.plan.name())
        }
    }

    /// A healed fleet loses a host in order, and another by a crash, while records come in; then
    /// nothing happens for so long that leases must have come to rest.
    async fn drill(&mut self) -> Result<(), Vec<String>> {
        for plugin in 0..self.worlds.len() {
            // A host that came with the newest version, and was told by others that it is bad, has
            // no other, and takes nothing: somebody has to give it one before the others leave.
            let newest = digest_of(self.newest[plugin]);
            if self.worlds[plugin].tables.has_quarantined(&newest) {
                self.offer_good(plugin);
            }
        }
        tokio::time::sleep(verdict::SLOW_START).await;
        for is_planned in [true, false] {
            // The last one may be the only one that holds as many leases as there are.
            let kept = self.schedule.had_limits.then(|| self.slots.len() - 1);
            let is_up = |slot: &usize| self.slots[*slot].host.is_some() && Some(*slot) != kept;
            let up: Vec<_> = (0..self.slots.len()).filter(is_up).collect();
            if up.len() + usize::from(kept.is_some()) < 2 || up.is_empty() {
                break;
            }
            let slot = up[self.dice.usize(..up.len())];
            self.slots[slot].is_wanted = false;
            let Some(host) = self.slots[slot].host.take() else {
                break;
            };
            if is_planned {
                host.stop().await;
            } else {
                host.crash().await;
            }
            self.put().await;
            tokio::time::sleep(self.schedule.options.leases.duration * 2).await;
        }
        self.converge().await?;
        tokio::time::sleep(verdict::balanced_within(&self.schedule) + Duration::from_secs(30))
            .await;
        Ok(())
    }

    async fn stop_all(&mut self, healed_at: Micros) -> Vec<String> {
        let up = self
            .slots
            .iter_mut()
            .filter_map(|slot| Some((slot.name.clone(), slot.host.take()?)));
        let (names, hosts): (BTreeSet<String>, Vec<Host>) = up.unzip();
        for host in hosts {
            self.stopping.spawn(host.stop());
        }
        while let Some(stopped) = self.stopping.join_next().await {
            stopped.expect("a host stops without a panic");
        }
        let worlds = self.worlds.iter();
        let kept = worlds.flat_map(|world| {
            let kept = self.kept(world, &names, healed_at);
            kept.into_iter().map(|what| self.of_plugin(world, what))
        });
        kept.collect()
    }

    /// What hosts that have drained still have of one plugin.
    fn kept(&self, world: &World, names: &BTreeSet<String>, healed_at: Micros) -> Vec<String> {
        // A finished row may keep its owner if the release after its end got lost: nobody takes
        // finished rows.
        let rows = world
            .tables
            .leases()
            .into_iter()
            .filter(|(_, row)| row.checkpoint != Checkpoint::End);
        let owned = rows.filter_map(|(key, row)| Some((key, row.owner?)));
        // A host that lost a lease by silence has nothing to give back, until its next look.
        let history = world.history();
        let is_sure = |key: &str, owner: &str| {
            !verdict::is_in_doubt(&history, key, owner, &self.schedule, healed_at)
        };
        let owned = owned.filter(|(key, owner)| is_sure(key, owner));
        let owned = owned
            .map(|(key, owner)| format!("all hosts have drained, but {owner} still owns {key}"));
        // The office of a process that crashed or was replaced, perhaps under the name of one of
        // these, is taken only once it was silent for long.
        let leads = world.tables.leader().filter(|(host, since)| {
            let replaced_at = self.replaced_at.get(host).copied().unwrap_or_default();
            names.contains(host) && *since >= healed_at.max(replaced_at)
        });
        let leads =
            leads.map(|(host, _)| format!("all hosts have drained, but {host} still leads"));
        owned.chain(leads).collect()
    }
}

/// Runs `seed` to its end, inside of a paused runtime on a thread that has entered the simulation.
pub async fn run(
    seed: u64,
    scope: Scope,
    bug: Option<PortBug>,
    file: Option<TraceFile>,
) -> SeedReport {
    let schedule = Schedule::draw(seed, scope);
    let weather = schedule.weather.clone();
    let mut driver = Driver::new(seed, scope, schedule, bug, file).await;
    let shards = driver.schedule.shards;
    for stream in &driver.streams {
        stream.create(shards).await;
    }
    driver.live_through_the_past().await;
    *driver.run.weather() = weather;
    for stream in &driver.streams {
        stream.shorten_subscriptions(driver.schedule.subscription_lasts);
    }
    for _ in 0..driver.schedule.hosts {
        driver.add_host();
    }
    driver.storm().await;
    driver.heal().await;
    let healed_at = driver.run.now();
    let converged = driver.converge().await;
    driver.calm_ends().await;
    let mut violations = Vec::new();
    let (mut converged_ms, mut rests_at) = (None, None);
    match converged {
        Ok(took) => {
            converged_ms = u64::try_from(took.as_millis()).ok();
            if driver.schedule.has_drill {
                if let Err(missing) = driver.drill().await {
                    violations.extend(
                        missing
                            .into_iter()
                            .map(|what| format!("does not converge after a drill: {what}")),
                    );
                }
                rests_at = Some(driver.run.now());
            }
            violations.extend(driver.stop_all(healed_at).await);
        }
        Err(missing) => violations.extend(
            missing
                .into_iter()
                .map(|what| format!("does not converge: {what}")),
        ),
    }
    for world in &driver.worlds {
        for what in verdict::broken(world, &driver.schedule, healed_at, rests_at) {
            let what = driver.of_plugin(world, what);
            if !violations.contains(&what) {
                violations.push(what);
            }
        }
        reached::count(&world.history(), |what| driver.run.count(what));
    }
    let records = driver.streams.iter().map(|stream| stream.records()).sum();
    let report = SeedReport {
        seed,
        hash: driver.run.trace_hash(),
        simulated_ms: u64::try_from(
            driver
                .run
                .elapsed()
                .saturating_sub(driver.schedule.past_lasts())
                .as_millis(),
        )
        .unwrap_or(u64::MAX),
        converged_ms,
        records,
        requests: driver.run.requests(),
        counts: driver.run.counts(),
        violations,
    };
    // As the runtime is: the process ends with the run.
    std::mem::forget(driver);
    report
}
