//! The rights that a host with this configuration needs at AWS: the operations that it calls, on
//! the streams and tables that it names, and nothing else.

mod needs;

use std::collections::BTreeSet;

use shardmill_aws::{Creation, PutTarget, Role, TableOptions};
use shardmill_core::artifact::{EcrRegistry, Location};
use shardmill_core::pipeline::GiveUp;
use shardmill_core::plugin::{Part, coordinator_table, lease_table, split_part, state_table};
use shardmill_core::stream::{FanOutConsumer, StreamRef};
use shardmill_sinks::SinkOptions;

use self::needs::{
    ASSUME_ROLES, COORDINATION, CREATE_TABLES, DEREGISTER, DESCRIBE_CONSUMER, LEASES, LOG_IN,
    OTHERS_STATE, OWN_LEASES, PULL, PULL_IMAGES, PUT, READ, RECOVER_TABLES, REGISTER, STATE,
    SUBSCRIBE, TAG_TABLES,
};
pub use self::needs::{Need, USE_TABLE_KEY};
use super::config::Config;
use super::settings::{AwsConfig, PluginConfig, StreamConfig};

/// Operations on resources, for one purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// The purpose in one word, letters only, as AWS wants it.
    pub sid: &'static str,
    /// Who calls them: the host's own identity, or a role's.
    pub by: Caller,
    /// The operations, and why each is called.
    pub needs: &'static [Need],
    /// The resources; at least one.
    pub on: BTreeSet<Resource>,
}

/// The identity that calls an operation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Caller {
    /// The one that the host starts with.
    Host,
    /// The role with this ARN, which the host assumes.
    Role(String),
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
    /// The fan-out consumer, as AWS asks for it where an operation names it.
    Consumer(NamedConsumer),
    /// The same where an operation has its ARN, whenever it is registered.
    RegisteredConsumer(NamedConsumer),
    /// A table.
    Table {
        /// The table's name.
        name: String,
        /// The table's region.
        region: Option<String>,
    },
    /// A repository of a registry of AWS.
    Repository {
        /// The registry's region.
        region: String,
        /// The account whose registry it is.
        account: String,
        /// The repository's name.
        name: String,
    },
    /// An object in a bucket, by the names of both.
    Object(String, String),
    /// The resource with this ARN.
    Arn(String),
}

/// A fan-out consumer that is given by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedConsumer {
    /// The stream, by name or ARN.
    pub stream: StreamRef,
    /// The region of a stream that is given by name.
    pub region: Option<String>,
    /// The name that hosts register it under.
    pub name: String,
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
            collected.add("AssumeRoles", Caller::Host, &ASSUME_ROLES, arn);
        }
        if let Some(key) = &self.tables.encryption_key {
            let by = collected.of_tables();
            collected.add("UseKey", by, &USE_TABLE_KEY, Resource::Arn(key.clone()));
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
        let of_services = [&aws.kinesis, &aws.dynamodb].map(|service| aws.role_for(service));
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
    fn add(&mut self, sid: &'static str, by: Caller, needs: &'static [Need], resource: Resource) {
        let mut statements = self.statements.iter_mut();
        match statements.find(|one| one.sid == sid && one.by == by) {
            Some(statement) => {
                statement.on.insert(resource);
            }
            None => self.statements.push(Statement {
                sid,
                by,
                needs,
                on: BTreeSet::from([resource]),
            }),
        }
    }

    /// Who reads the streams, and pulls plugins from buckets.
    fn of_streams(&self) -> Caller {
        Caller::of(self.aws.role_for(&self.aws.kinesis))
    }

    fn of_tables(&self) -> Caller {
        Caller::of(self.aws.role_for(&self.aws.dynamodb))
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
        self.add("ReadStreams", self.of_streams(), &READ, resource);
    }

    fn leases(&mut self, application: &str) {
        let leases = self.table(lease_table(application));
        let coordinator = self.table(coordinator_table(application));
        let (sid, needs) = match split_part(application).1 {
            Part::Whole | Part::Stream(_) => ("Leases", &LEASES),
            Part::Host(_) => ("OwnLeases", &OWN_LEASES),
        };
        let by = self.of_tables();
        self.add(sid, by.clone(), needs, leases.clone());
        self.add("Coordination", by, &COORDINATION, coordinator.clone());
        for table in [leases, coordinator] {
            self.makes(table);
        }
    }

    fn makes(&mut self, table: Resource) {
        if self.tables.creation == Creation::Never {
            return;
        }
        let by = self.of_tables();
        self.add("CreateTables", by.clone(), &CREATE_TABLES, table.clone());
        if !self.tables.tags.is_empty() {
            self.add("TagTables", by.clone(), &TAG_TABLES, table.clone());
        }
        if self.tables.has_recovery {
            self.add("RecoverTables", by, &RECOVER_TABLES, table);
        }
    }

    fn state(&mut self, plugin: &PluginConfig) {
        let by = self.of_tables();
        for stream in &plugin.streams {
            let table = self.table(state_table(&stream.application));
            self.add("State", by.clone(), &STATE, table.clone());
            if plugin.standalone.is_some() {
                self.add("OthersState", by.clone(), &OTHERS_STATE, table.clone());
            }
            self.makes(table);
        }
    }

    fn subscribes(&mut self, stream: &StreamConfig) {
        let Some(fan_out) = stream.retrieval.fan_out() else {
            return;
        };
        let by = self.of_streams();
        let (named, registered) = match &fan_out.consumer {
            FanOutConsumer::Given(arn) => {
                let given = Resource::Arn(arn.to_string());
                (given.clone(), given)
            }
            FanOutConsumer::Named(name) => {
                let of = self.stream(stream);
                self.add("RegisterConsumers", by.clone(), &REGISTER, of);
                let consumer = NamedConsumer {
                    stream: stream.stream.clone(),
                    region: self.aws.kinesis.region.clone(),
                    name: name.to_string(),
                };
                let named = Resource::Consumer(consumer.clone());
                (named, Resource::RegisteredConsumer(consumer))
            }
        };
        if fan_out.deregister_on_exit && named != registered {
            // By name, as a host looks at it; AWS does not document which of them it asks for.
            for consumer in [named.clone(), registered.clone()] {
                self.add("DeregisterConsumers", by.clone(), &DEREGISTER, consumer);
            }
        }
        self.add("DescribeConsumers", by.clone(), &DESCRIBE_CONSUMER, named);
        self.add("Subscribe", by, &SUBSCRIBE, registered);
    }

    fn pulls(&mut self, location: &Location) {
        match location {
            Location::Bucket { bucket, key } => self.pulls_object(bucket, key),
            Location::Registry {
                host, repository, ..
            } => self.pulls_image(host, repository),
            Location::Web { .. } => {}
        }
    }

    fn pulls_image(&mut self, host: &str, repository: &str) {
        let Some(registry) = EcrRegistry::of(host) else {
            return;
        };
        let by = self.of_streams();
        let anything = Resource::Arn("*".to_owned());
        self.add("LogInToRegistries", by.clone(), &LOG_IN, anything);
        let repository = Resource::Repository {
            region: registry.region.to_owned(),
            account: registry.account.to_owned(),
            name: repository.to_owned(),
        };
        self.add("PullImages", by, &PULL_IMAGES, repository);
    }

    fn pulls_object(&mut self, bucket: &str, key: &str) {
        // Other versions may be deployed that are kept beside it.
        let folder = key.rsplit_once('/').map_or("", |(folder, _)| folder);
        let objects = format!("{folder}{}*", if folder.is_empty() { "" } else { "/" });
        let resource = Resource::Object(bucket.to_owned(), objects);
        self.add("PullPlugins", self.of_streams(), &PULL, resource);
    }

    fn puts(&mut self, sink: &SinkOptions) {
        let SinkOptions::Kinesis {
            target,
            region,
            role,
            ..
        } = sink
        else {
            return;
        };
        let by = match role {
            Some(own) => Caller::of(Some(own)),
            None => self.of_streams(),
        };
        let resource = match target {
            PutTarget::Name(name) => Resource::Stream {
                stream: name.into(),
                region: region.clone().or_else(|| self.aws.kinesis.region.clone()),
            },
            PutTarget::Arn { arn, .. } => Resource::Arn(arn.clone()),
        };
        self.add("PutOutput", by, &PUT, resource);
    }
}

// === impl Caller ===

impl Caller {
    fn of(role: Option<&Role>) -> Self {
        role.map_or(Self::Host, |role| Self::Role(role.arn.clone()))
    }

    /// The account of a role, where its resources are unless they say so themselves.
    pub fn account(&self) -> Option<&str> {
        match self {
            Self::Host => None,
            // arn:PARTITION:iam::ACCOUNT:role/NAME
            Self::Role(arn) => arn.split(':').nth(4),
        }
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
            Self::Consumer(consumer) => consumer.arn_by_name(scope),
            // The time of the registration follows the name.
            Self::RegisteredConsumer(consumer) => format!("{}:*", consumer.arn_by_name(scope)),
            Self::Table { name, region } => {
                let region = scope.region_or(region.as_ref());
                format!("arn:{partition}:dynamodb:{region}:{account}:table/{name}")
            }
            Self::Repository {
                region,
                account,
                name,
            } => format!("arn:{partition}:ecr:{region}:{account}:repository/{name}"),
            Self::Object(bucket, key) => format!("arn:{partition}:s3:::{bucket}/{key}"),
            Self::Arn(arn) => arn.clone(),
        }
    }
}

impl NamedConsumer {
    fn arn_by_name(&self, scope: &AwsScope) -> String {
        let region = scope.region_or(self.region.as_ref());
        let stream = scope.arn_of(&self.stream, region);
        format!("{stream}/consumer/{}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use shardmill_aws::operations::{Operation, dynamodb, kinesis};

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
    fn a_plugin_from_a_registry_of_aws_needs_a_login_and_its_repository() {
        let host = "999999999999.dkr.ecr.eu-north-1.amazonaws.com";
        let text = format!("stream = \"orders\"\nplugins = [\"oci://{host}/team/alerts:1\"]\n");
        let all = rights(&text).into_iter();
        let of_ecr: Vec<String> = all.filter(|line| line.starts_with("ecr:")).collect();
        let repository = "arn:aws:ecr:eu-north-1:999999999999:repository/team/alerts";
        assert_eq!(
            of_ecr,
            [
                format!("ecr:BatchGetImage {repository}"),
                "ecr:GetAuthorizationToken *".to_owned(),
                format!("ecr:GetDownloadUrlForLayer {repository}"),
            ]
        );
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
                    "kinesis:DescribeStreamConsumer STREAM/orders/consumer/ours",
                    "kinesis:RegisterStreamConsumer STREAM/orders",
                    "kinesis:SubscribeToShard STREAM/orders/consumer/ours:*",
                ],
            ),
            (
                "retrieval = \"fan-out\"\nconsumer = \"ours\"\n[reads]\nderegister-on-exit = true\n",
                vec![
                    "kinesis:DeregisterStreamConsumer STREAM/orders/consumer/ours",
                    "kinesis:DeregisterStreamConsumer STREAM/orders/consumer/ours:*",
                    "kinesis:DescribeStreamConsumer STREAM/orders/consumer/ours",
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
    fn each_role_needs_what_it_is_assumed_for_and_its_resources_are_in_its_account() {
        let role = |name: &str, account: u64| format!("arn:aws:iam::{account:012}:role/{name}");
        let [reader, keeper, writer] = [role("reader", 1), role("keeper", 2), role("writer", 3)];
        let text = format!(
            "stream = \"orders\"\n[plugin.alerts]\n[aws]\nkinesis-role = {reader:?}\n\
                dynamodb-role = {keeper:?}\n[sinks.own]\ntype = \"kinesis\"\nstream = \"a\"\n\
                role = {writer:?}\n[sinks.out]\ntype = \"kinesis\"\nstream = \"b\"\n"
        );
        let config = Config::parse(&text, Path::new("nowhere")).unwrap();
        let needed: Vec<_> = config.rights().unwrap();
        let of = |by: &Caller| -> BTreeSet<&str> {
            let own = needed.iter().filter(|one| one.by == *by);
            own.map(|one| one.sid).collect()
        };
        assert_eq!(of(&Caller::Host), BTreeSet::from(["AssumeRoles"]));
        let reads = ["PutOutput", "ReadStreams"];
        assert_eq!(of(&Caller::Role(reader)), BTreeSet::from(reads));
        let keeps = ["Coordination", "CreateTables", "Leases"];
        let keeper = Caller::Role(keeper);
        assert_eq!(of(&keeper), BTreeSet::from(keeps));
        assert_eq!(of(&Caller::Role(writer)), BTreeSet::from(["PutOutput"]));
        assert_eq!(keeper.account(), Some("000000000002"));
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
            &DESCRIBE_CONSUMER,
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
