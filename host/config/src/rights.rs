//! The rights that a host with this configuration needs at AWS: the operations that it calls, on
//! the streams and tables that it names, and nothing else.

use std::collections::BTreeSet;

use shardmill_aws::operations::{Operation, dynamodb, kinesis, kms, s3, sts};
use shardmill_aws::{Creation, PutTarget, Role, TableOptions};
use shardmill_core::artifact::Location;
use shardmill_core::pipeline::GiveUp;
use shardmill_core::plugin::{Part, coordinator_table, lease_table, split_part, state_table};
use shardmill_core::stream::{FanOutConsumer, StreamRef};
use shardmill_sinks::SinkOptions;

use super::config::Config;
use super::settings::{AwsConfig, PluginConfig, StreamConfig};

/// Operations on resources, for one purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// The purpose in one word, letters only, as AWS wants it.
    pub sid: &'static str,
    /// The operations, and why each is called.
    pub needs: &'static [Need],
    /// The resources; at least one.
    pub on: BTreeSet<Resource>,
}

/// An operation, and what a host calls it for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// The operation's name, such as `GetRecords`.
    pub operation: Operation,
    /// The reason, for people.
    pub why: &'static str,
}

/// What an operation is called on. A region is given if it is not that of the scope.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// A stream.
    Stream {
        /// The stream, by name or ARN.
        stream: StreamRef,
        /// The region of a stream that is given by name.
        region: Option<String>,
    },
    /// The fan-out consumer of that name, whenever it is registered.
    Consumer {
        /// The stream, by name or ARN.
        stream: StreamRef,
        /// The region of a stream that is given by name.
        region: Option<String>,
        /// The consumer's name.
        name: String,
    },
    /// A table.
    Table {
        /// The table's name.
        name: String,
        /// The table's region.
        region: Option<String>,
    },
    /// An object in a bucket, by the names of both.
    Object(String, String),
    /// The resource with this ARN.
    Arn(String),
}

/// What an ARN says before the name of a resource: literal values, or those of a template language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsScope {
    /// The ARN's partition, such as `aws` or `aws-cn`.
    pub partition: String,
    /// The region's code, such as `eu-west-1`.
    pub region: String,
    /// The account's number, in twelve digits.
    pub account: String,
}

const fn need(operation: Operation, why: &'static str) -> Need {
    Need { operation, why }
}

const READ: [Need; 4] = [
    need(
        kinesis::DESCRIBE_STREAM_SUMMARY,
        "whether the stream is the one that the checkpoints belong to, and what time it is there",
    ),
    need(kinesis::LIST_SHARDS, "which shards there are"),
    need(
        kinesis::GET_SHARD_ITERATOR,
        "to begin reading a shard at its checkpoint",
    ),
    need(
        kinesis::GET_RECORDS,
        "to read records; with fan-out, while there is no subscription",
    ),
];
const LEASES: [Need; 6] = on_leases(
    need(
        dynamodb::SCAN,
        "to watch all leases, as the leader and its deputies do",
    ),
    "to take, claim, checkpoint and release leases",
    "to remove the leases of finished shards",
);
/// In the place of [`LEASES`] where hosts are standalone.
const OWN_LEASES: [Need; 6] = on_leases(
    need(dynamodb::QUERY, "to watch this host's own leases"),
    "to take, checkpoint and release leases",
    "to remove the leases of finished shards, and of hosts that are gone",
);

const fn on_leases(watch: Need, update: &'static str, remove: &'static str) -> [Need; 6] {
    [
        need(
            dynamodb::DESCRIBE_TABLE,
            "whether the lease table is there, and has the right key",
        ),
        watch,
        need(
            dynamodb::GET_ITEM,
            "to read a lease before it is taken, and after a write without an answer",
        ),
        need(dynamodb::PUT_ITEM, "to create the leases of new shards"),
        need(dynamodb::UPDATE_ITEM, update),
        need(dynamodb::DELETE_ITEM, remove),
    ]
}

/// Beside [`STATE`], where hosts are standalone.
const OTHERS_STATE: [Need; 1] = [need(
    dynamodb::QUERY,
    "to remove the state of hosts that are gone",
)];
const COORDINATION: [Need; 6] = [
    need(
        dynamodb::DESCRIBE_TABLE,
        "whether the coordinator table is there, and has the right key",
    ),
    need(
        dynamodb::QUERY,
        "to watch the fleet, and to read what the leader left for this host",
    ),
    need(dynamodb::GET_ITEM, "to read a host's registration"),
    need(
        dynamodb::PUT_ITEM,
        "to register, to lead, and to write the list of shards",
    ),
    need(
        dynamodb::UPDATE_ITEM,
        "for heartbeats and messages between hosts",
    ),
    need(
        dynamodb::DELETE_ITEM,
        "to leave the fleet, and to remove hosts that died",
    ),
];
const STATE: [Need; 4] = [
    need(
        dynamodb::DESCRIBE_TABLE,
        "whether the state table is there, and has the right key",
    ),
    need(
        dynamodb::GET_ITEM,
        "to give a plugin the state of its shard",
    ),
    need(
        dynamodb::PUT_ITEM,
        "to save state in one transaction with the checkpoint",
    ),
    need(
        dynamodb::DELETE_ITEM,
        "to remove state in one transaction with the checkpoint",
    ),
];
const CREATE_TABLES: [Need; 1] = [need(
    dynamodb::CREATE_TABLE,
    "to create a table that is missing; not needed once all exist",
)];
const TAG_TABLES: [Need; 1] = [need(
    dynamodb::TAG_RESOURCE,
    "because of tables.tags; not needed once all tables exist",
)];
const RECOVER_TABLES: [Need; 1] = [need(
    dynamodb::UPDATE_CONTINUOUS_BACKUPS,
    "because of tables.point-in-time-recovery",
)];
const USE_KEY: [Need; 6] = [
    need(
        kms::ENCRYPT,
        "because of tables.encryption-key, by DynamoDB",
    ),
    need(kms::DECRYPT, "the same"),
    need(kms::RE_ENCRYPT, "the same"),
    need(kms::GENERATE_DATA_KEY, "the same"),
    need(kms::DESCRIBE_KEY, "the same"),
    need(
        kms::CREATE_GRANT,
        "the same; not needed once all tables exist",
    ),
];
const ASSUME_ROLES: [Need; 1] = [need(
    sts::ASSUME_ROLE,
    "for who starts the host; the other permissions are for the role",
)];
const REGISTER: [Need; 1] = [need(
    kinesis::REGISTER_STREAM_CONSUMER,
    "to register the fan-out consumer if it is missing",
)];
const SUBSCRIBE: [Need; 2] = [
    need(
        kinesis::DESCRIBE_STREAM_CONSUMER,
        "whether the fan-out consumer can be used",
    ),
    need(kinesis::SUBSCRIBE_TO_SHARD, "to have records pushed"),
];
const DEREGISTER: [Need; 1] = [need(
    kinesis::DEREGISTER_STREAM_CONSUMER,
    "because of reads.deregister-on-exit",
)];
const PUT: [Need; 2] = [
    need(
        kinesis::DESCRIBE_STREAM_SUMMARY,
        "whether the stream of a Kinesis sink is there, asked once at the start",
    ),
    need(kinesis::PUT_RECORDS, "to store the output of Kinesis sinks"),
];

const PULL: [Need; 1] = [need(
    s3::GET_OBJECT,
    "to pull versions of plugins from a bucket, and their signatures",
)];

/// Statements in the order of their purposes, by resource.
struct Collected<'a> {
    aws: &'a AwsConfig,
    tables: &'a TableOptions,
    statements: Vec<Statement>,
}

impl Config {
    /// The rights that a host with this configuration needs. Covers the plugins in the folder and
    /// those with a section or a manifest.
    ///
    /// # Errors
    /// A plugin's settings cannot be used, or there is no plugin.
    pub fn rights(&self) -> Result<Vec<Statement>, String> {
        let plugins = self.all_plugins()?;
        if plugins.values().all(|plugin| plugin.streams.is_empty()) {
            return Err(format!(
                "no plugin reads a stream: put components into {}, or add [plugin.NAME] with the \
                    name of each",
                self.plugins.display()
            ));
        }
        let mut collected = Collected {
            aws: &self.aws,
            tables: &self.tables,
            statements: Vec::new(),
        };
        for plugin in plugins.values() {
            collected.serves(plugin);
        }
        for sink in self.sinks_of(plugins.values()) {
            collected.puts(sink);
        }
        for role in self.roles_of(plugins.values()) {
            let arn = Resource::Arn(role.arn.clone());
            collected.add("AssumeRoles", &ASSUME_ROLES, arn);
        }
        if let Some(key) = &self.tables.encryption_key {
            collected.add("UseKey", &USE_KEY, Resource::Arn(key.clone()));
        }
        for source in &self.sources {
            collected.pulls(source.reference.location());
        }
        Ok(collected.statements)
    }

    /// The roles that a host assumes.
    fn roles_of<'a>(
        &'a self,
        plugins: impl Iterator<Item = &'a PluginConfig> + Clone,
    ) -> impl Iterator<Item = &'a Role> {
        let aws = &self.aws;
        let of_services = [&aws.kinesis, &aws.dynamodb].map(|service| match &service.role {
            Some(own) => Some(own),
            None => aws.role.as_ref(),
        });
        let of_sinks = self.sinks_of(plugins).filter_map(|sink| match sink {
            SinkOptions::Kinesis { role, .. } => role.as_ref(),
            _ => None,
        });
        of_services.into_iter().flatten().chain(of_sinks)
    }

    /// The sinks that a plugin may emit to, or that take its dead letters.
    fn sinks_of<'a>(
        &'a self,
        plugins: impl Iterator<Item = &'a PluginConfig> + Clone,
    ) -> impl Iterator<Item = &'a SinkOptions> {
        let is_used = move |name: &str| {
            plugins.clone().any(|plugin| {
                let is_its = plugin.sinks.as_ref().is_none_or(|own| own.contains(name));
                let then = &plugin.failure.then;
                is_its || matches!(then, Some(GiveUp::DeadLetter(sink)) if sink == name)
            })
        };
        let used = self.sinks.iter().filter(move |(name, _)| is_used(name));
        used.map(|(_, sink)| sink)
    }
}

// === impl Collected ===

impl Collected<'_> {
    fn add(&mut self, sid: &'static str, needs: &'static [Need], resource: Resource) {
        let found = self.statements.iter_mut().find(|one| one.sid == sid);
        match found {
            Some(statement) => {
                statement.on.insert(resource);
            }
            None => self.statements.push(Statement {
                sid,
                needs,
                on: BTreeSet::from([resource]),
            }),
        }
    }

    fn stream(&self, stream: &StreamConfig) -> Resource {
        Resource::Stream {
            stream: stream.stream.clone(),
            region: self.aws.kinesis.region.clone(),
        }
    }

    fn table(&self, name: impl Into<String>) -> Resource {
        Resource::Table {
            name: name.into(),
            region: self.aws.dynamodb.region.clone(),
        }
    }

    fn serves(&mut self, plugin: &PluginConfig) {
        for stream in &plugin.streams {
            self.reads(stream);
            self.leases(&stream.application);
        }
        if plugin.permissions.state {
            self.state(plugin);
        }
        for stream in &plugin.streams {
            self.subscribes(stream);
        }
    }

    fn reads(&mut self, stream: &StreamConfig) {
        let resource = self.stream(stream);
        self.add("ReadStreams", &READ, resource);
    }

    fn leases(&mut self, application: &str) {
        let leases = self.table(lease_table(application));
        let coordinator = self.table(coordinator_table(application));
        let (sid, needs) = match split_part(application).1 {
            Part::Whole | Part::Stream(_) => ("Leases", &LEASES),
            Part::Host(_) => ("OwnLeases", &OWN_LEASES),
        };
        self.add(sid, needs, leases.clone());
        self.add("Coordination", &COORDINATION, coordinator.clone());
        for table in [leases, coordinator] {
            self.makes(table);
        }
    }

    fn makes(&mut self, table: Resource) {
        if self.tables.creation == Creation::Never {
            return;
        }
        self.add("CreateTables", &CREATE_TABLES, table.clone());
        if !self.tables.tags.is_empty() {
            self.add("TagTables", &TAG_TABLES, table.clone());
        }
        if self.tables.has_recovery {
            self.add("RecoverTables", &RECOVER_TABLES, table);
        }
    }

    fn state(&mut self, plugin: &PluginConfig) {
        for stream in &plugin.streams {
            let table = self.table(state_table(&stream.application));
            self.add("State", &STATE, table.clone());
            if plugin.standalone.is_some() {
                self.add("OthersState", &OTHERS_STATE, table.clone());
            }
            self.makes(table);
        }
    }

    fn subscribes(&mut self, stream: &StreamConfig) {
        let Some(fan_out) = stream.retrieval.fan_out() else {
            return;
        };
        let consumer = match &fan_out.consumer {
            FanOutConsumer::Given(arn) => Resource::Arn(arn.to_string()),
            FanOutConsumer::Named(name) => {
                let of = self.stream(stream);
                self.add("RegisterConsumers", &REGISTER, of);
                Resource::Consumer {
                    stream: stream.stream.clone(),
                    region: self.aws.kinesis.region.clone(),
                    name: name.to_string(),
                }
            }
        };
        if fan_out.deregister_on_exit && !matches!(consumer, Resource::Arn(_)) {
            self.add("DeregisterConsumers", &DEREGISTER, consumer.clone());
        }
        self.add("Subscribe", &SUBSCRIBE, consumer);
    }

    fn pulls(&mut self, location: &Location) {
        let Location::Bucket { bucket, key } = location else {
            return;
        };
        // Other versions may be deployed that are kept beside it.
        let folder = key.rsplit_once('/').map_or("", |(folder, _)| folder);
        let objects = format!("{folder}{}*", if folder.is_empty() { "" } else { "/" });
        let resource = Resource::Object(bucket.clone(), objects);
        self.add("PullPlugins", &PULL, resource);
    }

    fn puts(&mut self, sink: &SinkOptions) {
        let SinkOptions::Kinesis { target, region, .. } = sink else {
            return;
        };
        let resource = match target {
            PutTarget::Name(name) => Resource::Stream {
                stream: name.into(),
                region: region.clone().or_else(|| self.aws.kinesis.region.clone()),
            },
            PutTarget::Arn { arn, .. } => Resource::Arn(arn.clone()),
        };
        self.add("PutOutput", &PUT, resource);
    }
}

// === impl AwsScope ===

impl AwsScope {
    fn region_or<'a>(&'a self, own: Option<&'a String>) -> &'a str {
        own.unwrap_or(&self.region)
    }

    /// The ARN of a stream in this region, unless the stream was given by its ARN.
    fn arn_of(&self, stream: &StreamRef, region: &str) -> String {
        let (partition, account) = (&self.partition, &self.account);
        match stream.arn() {
            Some(arn) => arn.to_owned(),
            None => format!(
                "arn:{partition}:kinesis:{region}:{account}:stream/{}",
                stream.name()
            ),
        }
    }
}

// === impl Resource ===

impl Resource {
    /// Its ARN; `scope` provides what the resource does not say itself.
    pub fn arn(&self, scope: &AwsScope) -> String {
        let AwsScope {
            partition, account, ..
        } = scope;
        match self {
            Self::Stream { stream, region } => {
                scope.arn_of(stream, scope.region_or(region.as_ref()))
            }
            // The time of the registration follows the name.
            Self::Consumer {
                stream,
                region,
                name,
            } => {
                let stream = scope.arn_of(stream, scope.region_or(region.as_ref()));
                format!("{stream}/consumer/{name}:*")
            }
            Self::Table { name, region } => {
                let region = scope.region_or(region.as_ref());
                format!("arn:{partition}:dynamodb:{region}:{account}:table/{name}")
            }
            Self::Object(bucket, key) => format!("arn:{partition}:s3:::{bucket}/{key}"),
            Self::Arn(arn) => arn.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn scope() -> AwsScope {
        AwsScope {
            partition: "aws".to_owned(),
            region: "eu-west-1".to_owned(),
            account: "123456789012".to_owned(),
        }
    }

    /// Lines such as `kinesis:GetRecords arn`, in order.
    fn rights(text: &str) -> BTreeSet<String> {
        let config = Config::parse(text, Path::new("nowhere")).unwrap();
        let lines = |statement: Statement| {
            let mut lines = Vec::new();
            for resource in &statement.on {
                let arn = resource.arn(&scope());
                let permission = |need: &Need| format!("{} {arn}", need.operation.permission());
                lines.extend(statement.needs.iter().map(permission));
            }
            lines
        };
        let statements = config.rights().unwrap();
        statements.into_iter().flat_map(lines).collect()
    }

    #[test]
    fn a_plugin_from_a_bucket_needs_what_is_kept_there_and_one_from_a_registry_nothing_of_aws() {
        let pulled = |plugins: &str| -> Vec<String> {
            let text = format!("stream = \"orders\"\nplugins = [{plugins:?}]\n");
            let all = rights(&text).into_iter();
            all.filter(|line| line.starts_with("s3:")).collect()
        };
        assert_eq!(
            pulled("s3://plugins/team/alerts.wasm"),
            ["s3:GetObject arn:aws:s3:::plugins/team/*"]
        );
        assert_eq!(
            pulled("s3://plugins/alerts.wasm"),
            ["s3:GetObject arn:aws:s3:::plugins/*"]
        );
        assert!(pulled("oci://r.example/alerts:1").is_empty());
    }

    #[test]
    fn a_plugin_that_polls_needs_its_stream_and_two_tables() {
        let of_plugin = rights("stream = \"orders\"\n[plugin.alerts]\n");
        let on = |resource: &str, service: &str, names: &[&str]| -> Vec<String> {
            let line = |name: &&str| {
                format!("{service}:{name} arn:aws:{service}:eu-west-1:123456789012:{resource}")
            };
            names.iter().map(line).collect()
        };
        let row = [
            "CreateTable",
            "DescribeTable",
            "GetItem",
            "PutItem",
            "UpdateItem",
            "DeleteItem",
        ];
        let read = [
            "DescribeStreamSummary",
            "ListShards",
            "GetShardIterator",
            "GetRecords",
        ];
        let expected: BTreeSet<String> = [
            on("stream/orders", "kinesis", &read),
            on("table/alerts", "dynamodb", &row),
            on("table/alerts", "dynamodb", &["Scan"]),
            on("table/alerts-coordinator", "dynamodb", &row),
            on("table/alerts-coordinator", "dynamodb", &["Query"]),
        ]
        .concat()
        .into_iter()
        .collect();
        assert_eq!(of_plugin, expected);
    }

    #[test]
    fn tables_of_another_region_than_the_streams_have_it_in_their_arns() {
        let plugin = "stream = \"orders\"\n[plugin.alerts]\n";
        let all = rights(&format!(
            "{plugin}[aws]\ndynamodb-region = \"eu-north-1\"\n"
        ));
        let is_of = |line: &String, service: &str, region: &str| {
            line.contains(&format!("arn:aws:{service}:{region}:"))
        };
        let tables = all
            .iter()
            .filter(|line| is_of(line, "dynamodb", "eu-north-1"));
        let streams = all
            .iter()
            .filter(|line| is_of(line, "kinesis", "eu-west-1"));
        assert_eq!(tables.count() + streams.count(), all.len());
    }

    #[test]
    fn who_makes_the_tables_himself_gives_no_right_to_make_any() {
        let base = "stream = \"orders\"\n[plugin.alerts]\ngrants.state = true\n";
        let with = rights(base);
        let without = rights(&format!("{base}[tables]\ncreate = \"never\"\n"));
        let dropped: Vec<String> = with.difference(&without).cloned().collect();
        assert_eq!(dropped.len(), 3);
        assert!(
            dropped
                .iter()
                .all(|line| line.starts_with("dynamodb:CreateTable"))
        );
        assert!(without.is_subset(&with));
    }

    /// What a plugin needs more than one without settings, if they take nothing away.
    fn added_by(more: &str) -> Vec<String> {
        let base = "stream = \"orders\"\n[plugin.alerts]\n";
        let (without, with) = (rights(base), rights(&format!("{base}{more}")));
        assert!(with.is_superset(&without), "{more}");
        with.difference(&without).cloned().collect()
    }

    fn whole(lines: Vec<&str>) -> Vec<String> {
        let whole = |line: &str| {
            line.replace("TABLE/", "arn:aws:dynamodb:eu-west-1:123456789012:table/")
                .replace("STREAM/", "arn:aws:kinesis:eu-west-1:123456789012:stream/")
        };
        lines.into_iter().map(whole).collect()
    }

    #[test]
    fn each_setting_adds_what_it_needs_and_nothing_else() {
        let given = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders/consumer/ours:1700000000";
        for (more, expected) in [
            (
                "grants.state = true\n",
                vec![
                    "dynamodb:CreateTable TABLE/alerts-state",
                    "dynamodb:DeleteItem TABLE/alerts-state",
                    "dynamodb:DescribeTable TABLE/alerts-state",
                    "dynamodb:GetItem TABLE/alerts-state",
                    "dynamodb:PutItem TABLE/alerts-state",
                ],
            ),
            (
                "retrieval = \"fan-out\"\nconsumer = \"ours\"\n",
                vec![
                    "kinesis:DescribeStreamConsumer STREAM/orders/consumer/ours:*",
                    "kinesis:RegisterStreamConsumer STREAM/orders",
                    "kinesis:SubscribeToShard STREAM/orders/consumer/ours:*",
                ],
            ),
            (
                "retrieval = \"fan-out\"\nconsumer = \"ours\"\n[reads]\nderegister-on-exit = true\n",
                vec![
                    "kinesis:DeregisterStreamConsumer STREAM/orders/consumer/ours:*",
                    "kinesis:DescribeStreamConsumer STREAM/orders/consumer/ours:*",
                    "kinesis:RegisterStreamConsumer STREAM/orders",
                    "kinesis:SubscribeToShard STREAM/orders/consumer/ours:*",
                ],
            ),
            (
                &format!("retrieval = \"fan-out\"\nconsumer = \"{given}\"\n"),
                vec![
                    "kinesis:DescribeStreamConsumer STREAM/orders/consumer/ours:1700000000",
                    "kinesis:SubscribeToShard STREAM/orders/consumer/ours:1700000000",
                ],
            ),
            ("retrieval = \"auto\"\n", vec![]),
            (
                "[sinks.out]\ntype = \"kinesis\"\nstream = \"totals\"\n",
                vec![
                    "kinesis:DescribeStreamSummary STREAM/totals",
                    "kinesis:PutRecords STREAM/totals",
                ],
            ),
            (
                "sinks = [\"stdout\"]\n[sinks.out]\ntype = \"kinesis\"\nstream = \"totals\"\n",
                vec![],
            ),
            (
                "sinks = [\"stdout\"]\nfailure = { on-exhausted = \"dead-letter\", dead-letter = \
                    \"out\", attempts = 2 }\n\
                 [sinks.out]\ntype = \"kinesis\"\nstream = \"totals\"\n",
                vec![
                    "kinesis:DescribeStreamSummary STREAM/totals",
                    "kinesis:PutRecords STREAM/totals",
                ],
            ),
            ("[sinks.out]\ntype = \"stdout\"\n", vec![]),
        ] {
            assert_eq!(added_by(more), whole(expected), "{more}");
        }
    }

    #[test]
    fn tables_made_in_another_way_and_roles_need_more() {
        for (more, expected) in [
            (
                "[tables]\ntags = { team = \"payments\" }\npoint-in-time-recovery = true\n",
                vec![
                    "dynamodb:TagResource TABLE/alerts",
                    "dynamodb:TagResource TABLE/alerts-coordinator",
                    "dynamodb:UpdateContinuousBackups TABLE/alerts",
                    "dynamodb:UpdateContinuousBackups TABLE/alerts-coordinator",
                ],
            ),
            (
                "[aws]\nrole = \"arn:aws:iam::123456789012:role/a\"\n",
                vec!["sts:AssumeRole arn:aws:iam::123456789012:role/a"],
            ),
            (
                "[sinks.out]\ntype = \"kinesis\"\nstream = \"totals\"\nrole = \
                    \"arn:aws:iam::123456789012:role/b\"\n",
                vec![
                    "kinesis:DescribeStreamSummary STREAM/totals",
                    "kinesis:PutRecords STREAM/totals",
                    "sts:AssumeRole arn:aws:iam::123456789012:role/b",
                ],
            ),
            (
                "[tables]\nencryption-key = \"arn:aws:kms:eu-west-1:123456789012:key/1\"\n",
                vec![
                    "kms:CreateGrant arn:aws:kms:eu-west-1:123456789012:key/1",
                    "kms:Decrypt arn:aws:kms:eu-west-1:123456789012:key/1",
                    "kms:DescribeKey arn:aws:kms:eu-west-1:123456789012:key/1",
                    "kms:Encrypt arn:aws:kms:eu-west-1:123456789012:key/1",
                    "kms:GenerateDataKey* arn:aws:kms:eu-west-1:123456789012:key/1",
                    "kms:ReEncrypt* arn:aws:kms:eu-west-1:123456789012:key/1",
                ],
            ),
        ] {
            assert_eq!(added_by(more), whole(expected), "{more}");
        }
    }

    #[test]
    fn a_stream_of_another_account_and_a_sink_in_another_region_keep_their_own() {
        let arn = "arn:aws:kinesis:eu-west-1:999999999999:stream/theirs";
        let text = format!(
            "[plugin.alerts]\nstream = \"{arn}\"\n[sinks.far]\ntype = \"kinesis\"\nstream = \
                \"far\"\nregion = \"us-east-1\"\n"
        );
        let rights = rights(&text);
        assert!(rights.contains(&format!("kinesis:GetRecords {arn}")));
        let far = "kinesis:PutRecords arn:aws:kinesis:us-east-1:123456789012:stream/far";
        assert!(rights.contains(far), "{rights:?}");
    }

    #[test]
    fn without_a_plugin_the_permissions_are_not_known() {
        let config = Config::parse("stream = \"orders\"", Path::new("nowhere")).unwrap();
        let told = config.rights().unwrap_err();
        assert!(told.contains("add [plugin.NAME]"), "{told}");
    }

    #[test]
    fn every_operation_is_a_hosts_or_a_commands_alone() {
        let of_hosts: BTreeSet<Operation> = [
            &READ[..],
            &LEASES,
            &COORDINATION,
            &STATE,
            &CREATE_TABLES,
            &RECOVER_TABLES,
            &REGISTER,
            &SUBSCRIBE,
            &DEREGISTER,
            &PUT,
        ]
        .concat()
        .iter()
        .map(|need| need.operation)
        .collect();
        let of_commands = BTreeSet::from([
            kinesis::CREATE_STREAM,
            kinesis::DELETE_STREAM,
            kinesis::LIST_STREAM_CONSUMERS,
            dynamodb::DELETE_TABLE,
            dynamodb::LIST_TABLES,
            // Needs the permissions of its parts.
            dynamodb::TRANSACT_WRITE_ITEMS,
            dynamodb::UPDATE_TIME_TO_LIVE,
        ]);
        assert!(of_hosts.is_disjoint(&of_commands));
        assert_eq!(&of_hosts | &of_commands, BTreeSet::from(Operation::ALL));
    }
}
