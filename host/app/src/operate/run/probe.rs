//! Asks once for everything that a host will need from outside, and lists what is missing, each
//! with its fix. It creates and writes nothing, so a missing right to write shows only when it is
//! needed.

mod http;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use shardmill_aws::{
    AwsClients, CoordinatorTable, Creation, KinesisFanOut, KinesisReader, LeaseTable, PutTarget,
    StreamAdmin, TableOptions,
};
use shardmill_core::artifact::Location;
use shardmill_core::fleet::FleetRows;
use shardmill_core::lease::Lease;
use shardmill_core::plugin::{Part, split_part};
use shardmill_core::ports::{ConsumerState, Coordinator, LeaseStore, StoreError, StreamReader};
use shardmill_core::stream::{FanOutConsumer, LeaseKey, ReadFrom, StreamRef};

use shardmill_config::{AwsConfig, Config};
use shardmill_serve::sources_of;
use shardmill_sinks::{SinkOptions, clients_of};
use shardmill_worker::refuse_other_stream;

use self::http::http_problem;

/// The time for one stream, one table or one sink: healthy ones take some hundred milliseconds.
const EACH_WITHIN: Duration = Duration::from_secs(10);
/// The key of a row that does not exist, since no shard has this name.
const NO_ROW: &str = "shardmill-probe";

/// What is missing; empty if a host could serve, as far as reading shows.
pub(crate) async fn probe(config: &Config, clients: &AwsClients) -> Vec<String> {
    let mut probe = Probe::default();
    if let Some(problem) = clients.missing_credentials().await {
        // Without them all of AWS fails for the same reason.
        probe.problems.push(format!("credentials: {problem}"));
        probe.ask_sinks(config, clients, needs_no_credentials).await;
        return probe.problems;
    }
    let mut needed = Needed::of(config);
    let place = endpoint(&config.aws, clients);
    for problem in needed.leave_out_other_regions(config, clients) {
        probe.problems.push(problem);
    }
    for stream in &needed.streams {
        let what = format!("stream {stream}{place}");
        probe.ask(&what, stream_problem(stream, clients)).await;
    }
    for application in &needed.applications {
        let what = format!("application {}", application.name);
        probe.ask(&what, tables_problem(application, clients)).await;
    }
    for (stream, consumer) in &needed.consumers {
        let what = format!("fan-out consumer {consumer}");
        let problem = consumer_problem(stream, consumer, clients);
        probe.ask(&what, problem).await;
    }
    probe.ask_sinks(config, clients, |_| true).await;
    probe.problems
}

/// What of the plugins that are pulled is not in its registry. A host finds that out when it pulls.
pub(super) async fn probe_registries(config: &Config, clients: &AwsClients) -> Vec<String> {
    let mut probe = Probe::default();
    probe.ask_registries(config, clients).await;
    probe.problems
}

fn needs_no_credentials(sink: &SinkOptions) -> bool {
    !matches!(sink, SinkOptions::Kinesis { .. })
}

/// What was found so far.
#[derive(Default)]
struct Probe {
    problems: Vec<String>,
}

impl Probe {
    async fn ask_sinks(
        &mut self,
        config: &Config,
        clients: &AwsClients,
        is_asked: impl Fn(&SinkOptions) -> bool,
    ) {
        for (name, sink) in config.sinks.iter().filter(|(_, sink)| is_asked(sink)) {
            let problem = Box::pin(sink_problem(name, sink, config, clients));
            self.ask(&format!("sinks.{name}"), problem).await;
        }
    }

    /// Asks for lists of layers, which are small. A web server or a bucket has no such list.
    async fn ask_registries(&mut self, config: &Config, clients: &AwsClients) {
        let sources = match sources_of(config, clients) {
            Ok(sources) => sources,
            Err(error) => return self.problems.push(format!("plugins: {error}")),
        };
        for source in &config.sources {
            let reference = &source.reference;
            if matches!(reference.location(), Location::Registry { .. }) {
                let resolved = async {
                    let resolved = sources.resolve(reference).await;
                    resolved.map(drop).map_err(|error| error.to_string())
                };
                self.ask(&reference.to_string(), resolved).await;
            }
        }
    }

    async fn ask(&mut self, what: &str, asked: impl Future<Output = Result<(), String>>) {
        let answer = tokio::time::timeout(EACH_WITHIN, asked).await;
        let problem = match answer {
            Ok(Ok(())) => return,
            Ok(Err(problem)) => problem,
            Err(_) => {
                format!("no answer within {EACH_WITHIN:?}: check that it can be reached from here")
            }
        };
        self.problems.push(format!("{what}: {problem}"));
    }
}

/// What the plugins in the folder need.
struct Needed {
    /// Without any plugin, the general stream.
    streams: BTreeSet<StreamRef>,
    applications: Vec<Application>,
    consumers: Vec<(StreamRef, FanOutConsumer)>,
}

struct Application {
    name: String,
    stream: StreamRef,
    keeps_state: bool,
    tables: Arc<TableOptions>,
}

impl Needed {
    fn of(config: &Config) -> Self {
        let (mut streams, mut applications, mut consumers) =
            (BTreeSet::new(), Vec::new(), Vec::new());
        let tables = Arc::new(config.tables.clone());
        for plugin in config.plugins_to_serve() {
            for one in plugin.streams {
                let fan_out = one.retrieval.fan_out();
                consumers
                    .extend(fan_out.map(|fan_out| (one.stream.clone(), fan_out.consumer.clone())));
                streams.insert(one.stream.clone());
                applications.push(Application {
                    name: one.application,
                    stream: one.stream,
                    keeps_state: plugin.permissions.state,
                    tables: Arc::clone(&tables),
                });
            }
        }
        if streams.is_empty() {
            streams.extend(config.stream.clone());
        }
        Self {
            streams,
            applications,
            consumers,
        }
    }

    /// Each client speaks to one region, and would ask there for a stream of another one. Returns
    /// the problems.
    fn leave_out_other_regions(&mut self, config: &Config, clients: &AwsClients) -> Vec<String> {
        let check = |stream: &StreamRef| config.aws.check_region(stream, &clients.region);
        let problems = self.streams.iter().filter_map(|stream| check(stream).err());
        let problems = problems.collect();
        self.streams.retain(|stream| check(stream).is_ok());
        self.consumers.retain(|(stream, _)| check(stream).is_ok());
        self.applications
            .retain(|application| check(&application.stream).is_ok());
        problems
    }
}

fn endpoint(aws: &AwsConfig, clients: &AwsClients) -> String {
    match &aws.kinesis_endpoint {
        Some(endpoint) => format!(" at {endpoint}"),
        None => format!(" in {}", clients.region),
    }
}

/// Checks, as a host does, whether it exists, which shards it has, and whether one can be read.
async fn stream_problem(stream: &StreamRef, clients: &AwsClients) -> Result<(), String> {
    let reader =
        KinesisReader::new(clients.kinesis.clone(), stream.clone()).speaking(clients.wire.clone());
    if reader
        .identity()
        .await
        .map_err(|error| error.to_string())?
        .is_none()
    {
        return Err("there is no such stream: create it, or fix `stream` or the region".to_owned());
    }
    let shards = reader
        .list_shards()
        .await
        .map_err(|error| error.to_string())?;
    let Some(shard) = shards.first() else {
        return Ok(());
    };
    let iterator = reader
        .iterator(&shard.id, &ReadFrom::Latest)
        .await
        .map_err(|error| error.to_string())?;
    reader
        .fetch(&iterator, 1)
        .await
        .map(|_| ())
        .map_err(|error| error.to_string())
}

/// The first host creates missing tables, unless it may not.
async fn tables_problem(application: &Application, clients: &AwsClients) -> Result<(), String> {
    let fleet = read_tables(application, clients).await;
    let fleet = fleet.map_err(|error| error.to_string())?;
    let name = &application.name;
    if matches!(split_part(name).1, Part::Stream(_)) {
        // A table of many streams has a row for each, which cannot be another one's.
        return Ok(());
    }
    let reader = KinesisReader::new(clients.kinesis.clone(), application.stream.clone());
    let Ok(Some(identity)) = reader.speaking(clients.wire.clone()).identity().await else {
        // That is said of the stream itself.
        return Ok(());
    };
    let ours = application.stream.name();
    refuse_other_stream(name, fleet.stream.as_ref(), ours, identity)
        .map_err(|error| error.to_string())
}

/// Returns what the coordinator table says of the whole fleet.
async fn read_tables(
    Application {
        name,
        keeps_state,
        tables,
        ..
    }: &Application,
    clients: &AwsClients,
) -> Result<FleetRows, StoreError> {
    // The rights are the same for all streams of a table, and there may be no row of this one yet.
    let name = match split_part(name) {
        (base, Part::Stream(_)) => base,
        (_, Part::Whole | Part::Host(_)) => name,
    };
    let leases = LeaseTable::new(clients.dynamodb.clone(), name).made_as(Arc::clone(tables));
    let coordinator =
        CoordinatorTable::new(clients.dynamodb.clone(), name).made_as(Arc::clone(tables));
    if tables.creation == Creation::Never {
        leases.ensure_table().await?;
        if *keeps_state {
            leases.ensure_state_table().await?;
        }
        coordinator.ensure_table().await?;
    }
    read_leases(&leases, *keeps_state).await?;
    if coordinator.exists().await? {
        coordinator.board().await
    } else {
        Ok(FleetRows::default())
    }
}

async fn read_leases(leases: &LeaseTable, keeps_state: bool) -> Result<(), StoreError> {
    let refused = |message: String| StoreError::Refused { message };
    let key = LeaseKey::new(NO_ROW).map_err(|error| refused(error.to_string()))?;
    if leases.exists().await? {
        let _: Option<Lease> = leases.get(&key).await?;
    }
    if keeps_state && leases.has_state_table().await? {
        leases.state(&key).await?;
    }
    Ok(())
}

/// The first host registers a consumer that is named; one that is given must exist.
async fn consumer_problem(
    stream: &StreamRef,
    consumer: &FanOutConsumer,
    clients: &AwsClients,
) -> Result<(), String> {
    let fan_out =
        KinesisFanOut::new(clients.kinesis.clone(), stream).speaking(clients.wire.clone());
    let found = fan_out.look(consumer).await;
    match (found.map_err(|error| error.to_string())?, consumer) {
        (Some(ConsumerState::Deleting), FanOutConsumer::Given(_)) => {
            Err("it is being deregistered: fix `consumer`".to_owned())
        }
        (None, FanOutConsumer::Given(_)) => Err(
            "it does not exist: fix `consumer`, or give a name instead of an ARN: hosts register it"
                .to_owned(),
        ),
        (Some(_), _) | (None, FanOutConsumer::Named(_)) => Ok(()),
    }
}

async fn sink_problem(
    name: &str,
    sink: &SinkOptions,
    config: &Config,
    clients: &AwsClients,
) -> Result<(), String> {
    match sink {
        // `run --check` looks at files in any case.
        SinkOptions::Stdout { .. } | SinkOptions::File { .. } => Ok(()),
        SinkOptions::Http(options) => http_problem(options).await,
        SinkOptions::Kinesis { target, .. } => {
            let own = clients_of(name, sink, &config.aws.options(), clients)
                .await
                .map_err(|error| error.to_string())?;
            let Some(own) = own else { return Ok(()) };
            target_problem(target, StreamAdmin::new(own.kinesis)).await
        }
    }
}

/// Whether the stream exists. A role that may write to it need not be allowed to describe it.
async fn target_problem(target: &PutTarget, admin: StreamAdmin) -> Result<(), String> {
    let stream = match target {
        PutTarget::Name(name) => name.clone().into(),
        PutTarget::Arn { arn, .. } => StreamRef::parse(arn).map_err(|error| error.to_string())?,
    };
    match admin.describe(stream.clone()).await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(format!(
            "there is no stream {stream}: create it, or fix `stream` or the region"
        )),
        Err(error) if error.to_string().contains("not allowed") => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}
