//! The errors for values of the wrong kind: every key with every kind.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use toml::{Table, Value};

use crate::Config;
use crate::environment::Environment;

/// Every section and every key, each with a value that works.
const EVERY_KEY: &str = r#"
stream = "orders"
plugins = "plugins"
worker-id = "host-1"
initial-position = "latest"

[aws]
region = "eu-west-1"
endpoint = "http://127.0.0.1:4566"
kinesis-endpoint = "http://127.0.0.1:4566"
dynamodb-endpoint = "http://127.0.0.1:4566"
role = "arn:aws:iam::123456789012:role/a"
external-id = "id"
kinesis-region = "eu-west-1"
kinesis-role = "arn:aws:iam::123456789012:role/b"
kinesis-external-id = "id"
dynamodb-region = "eu-west-1"
dynamodb-role = "arn:aws:iam::123456789012:role/c"
dynamodb-external-id = "id"
wire = "json"

[leases]
duration = "10s"
renew-every = "3s"
scan-every = "1s"
shard-sync-every = "1m"
max = 10
balance = "count"
shared-with-kcl = true
read-deadline = "2m"
plugin-deadline = "15m"
checkpoint-deadline = "5m"

[reads]
calls-per-second = 5.0
bytes-per-second = "2MiB"
records-per-call = 1000
idle-every = "250ms"
idle-max = "2s"
retrieval = "polling"
deregister-on-exit = false

[batch]
records = 1000
bytes = "4MiB"
window = "1s"

[checkpoint]
records = 1000
bytes = "16MiB"
age = "3s"

[retry]
base = "100ms"
cap = "30s"

[failure]
attempts = 3
unavailable-attempts = 3
misconfigured-attempts = 3
max-age = "1h"
bisect = true
on-exhausted = "dead-letter"
dead-letter = "file"
order = "shard"

[limits]
memory = "64MiB"
table-elements = 1000
process-deadline = "5s"
init-deadline = "5s"
hostcall-bytes = "1MiB"
handles = 100
emit-bytes = "1MiB"
emit-count = 10
state = "256KiB"
log-line-bytes = "8KiB"
log-lines-per-second = 10
log-burst = 10

[ceilings]
memory = "64MiB"
table-elements = 1000
process-deadline = "5s"
init-deadline = "5s"
hostcall-bytes = "1MiB"
handles = 100
emit-bytes = "1MiB"
emit-count = 10
state = "256KiB"
streams = ["web-*"]
applications = ["web-*"]
sinks = ["file"]
failure = true
rollout = true
frequent-checkpoints = true
parallelism = 4

[ceilings.grants]
http = ["api.example.org"]
env = ["ZONE"]
state = true

[http]
allow-private = ["10.1.0.0/16"]
connect-timeout = "3s"
first-byte-timeout = "3s"
between-bytes-timeout = "3s"
timeout = "3s"
request-bytes = "1MiB"
response-bytes = "1MiB"
headers = 10
header-bytes = "1KiB"
requests-in-flight = 8
requests-in-flight-total = 8
requests-per-call = 8

[secrets.key]
file = "key"
plugins = ["orders"]

[secrets.other]
env = "OTHER"

[tables]
create = "if-missing"
billing = "on-demand"
tags = { team = "payments" }
point-in-time-recovery = true
deletion-protection = true
encryption-key = "arn:aws:kms:eu-west-1:123456789012:key/12ab-34cd"

[compile]
wall = "1m"
cpu = "1m"
memory = "1GiB"
code = "1MiB"
threads = 2

[rollout]
enabled = true
canary-records = 10
canary-batches = 5
canary-for = "10s"
time-factor = 3.0
memory-factor = 2.0
memory-allowance = "16MiB"
probation = "5m"
share = 1.0
share-wait = "15m"
quarantine-for = "1h"

[integrity]
allowed-digests = []
keys = ["d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"]
require-signature = true
version-min = 1
accept-bare-signatures = false

[host]
buffer = "256MiB"
instances-memory = "256MiB"
code-memory = "1GiB"
only-listed = false
drain-limit = "20s"
admin = "127.0.0.1:9090"
admin-token = { file = "token" }
admin-names = ["shardmill.internal"]
fan-out-allowed = false
cache = "off"
history = "all"
on-remove = "keep"
plugin-bytes-max = "32MiB"
plugins-max = 100
rescan-every = "5s"

[pull]
every = "1m"
timeout = "1m"
insecure = ["registry.internal:5000"]
s3-endpoint = "http://127.0.0.1:9000"

[pull.registries."registry.internal:5000"]
user = "robot"
env = "REGISTRY_PASSWORD"

[pull.registries.mirror]
user = "robot"
file = "password"

[recordings]
enabled = true
memory = "32MiB"
instance-memory = "4MiB"
disk = "256MiB"
keep-for = "72h"
except = ["payments"]

[emf]
target = "tcp://127.0.0.1:25888"
level = "detailed"
namespace = "{application}"
every = "10s"
log-group = "orders"

[traces]
enabled = true
endpoint = "http://127.0.0.1:4318"
sample = 0.01
follow = false
inject = false
timeout = "10s"
service-name = "orders"

[traces.headers]
x-token = "env:TOKEN"

[traces.attributes]
zone = "a"

[scaling]
enabled = true
hosts-min = 2
hosts-max = 9
catch-up = "2m"
settle = "5m"
cores = 1.5

[console]
enabled = true
anonymous = ["view"]
mask = ["customer.email"]

[console.tokens.alice]
file = "alice"
may = ["view", "operate"]

[console.tokens.carol]
env = "CAROL"
may = []

[console.proxy]
header = "x-forwarded-user"
addresses = ["127.0.0.1"]

[console.proxy.users]
bob = ["view"]

[sinks.out]
type = "stdout"
format = "data"

[sinks.file]
type = "file"
path = "file"
rotate-bytes = "1GiB"
format = "data"
mode = "0640"

[sinks.stream]
type = "kinesis"
stream = "out"
region = "eu-west-1"
role = "arn:aws:iam::123456789012:role/d"
external-id = "id"
endpoint = "http://127.0.0.1:4566"
order = "key"
record-bytes = "1MiB"
request-bytes = "5MiB"

[sinks.http]
type = "http"
url = "http://127.0.0.1"
format = "data"
body = "json"
records = 500
request-bytes = "1MiB"
connect-timeout = "3s"
timeout = "30s"
concurrency = 32

[sinks.http.headers]
authorization = "env:TOKEN"

[plugin.orders]
stream = "orders"
streams = ["clicks", { stream = "views", initial-position = "latest" }]
application = "orders"
initial-position = "latest"
retrieval = "fan-out"
consumer = "orders"
sinks = ["file"]
world = "0.1"
parallelism = 1

[plugin.orders.filter]
key-prefix = "a"
patterns = ['{"data": {"a": [1]}}']

[plugin.orders.batch]
records = 1000
bytes = "4MiB"
window = "1s"

[plugin.orders.checkpoint]
records = 1000
bytes = "16MiB"
age = "3s"

[plugin.orders.tick]
every = "10s"

[plugin.orders.shadow]
share = 0.5
http = true
promote-after = 1000
differences-max = 1
drop-after = 10

[plugin.orders.retry]
base = "100ms"
cap = "30s"

[plugin.orders.failure]
bisect = true

[plugin.orders.limits]
memory = "64MiB"

[plugin.orders.grants]
http = ["api.example.org"]
env = ["ZONE"]
secrets = ["key"]
state = true

[plugin.orders.rollout]
enabled = true

[plugin.orders.integrity]
require-signature = true

[plugin.orders.config]
level = "info"
"#;

/// Keys that contradict some of the others, with what they need.
const OTHER_KEYS: &str = r#"
worker-id = "host-1"

[plugin.prices]
stream = "prices"

[plugin.prices.standalone]
restart = "resume"
forget-after = "24h"

[plugin.totals]
streams = ["orders", "returns"]
multi-stream-table = true
"#;

/// A value of each kind.
const EVERY_KIND: &str = r#"
empty = ""
text = "x"
whole = 5
negative = -5
huge = 9223372036854775807
fraction = 1.5
truth = true
date = 2026-01-31
numbers = [1]
texts = ["x"]
lists = [[1]]
sections = [{ x = 1 }]
section = { x = 1 }
"#;

/// Words that make sense only to someone who knows Rust or serde.
const WORDS_OF_RUST: [&str; 16] = [
    "struct", "enum", "variant", "tuple", "newtype", "unit", "map", "sequence", "parsable",
    "overflow", "u8", "u32", "u64", "i64", "usize", "f64",
];

/// Names in the file and of services, which look like types.
const OTHER_NAMES: [&str; 7] = [
    "KiB",
    "MiB",
    "GiB",
    "PiB",
    "GetRecords",
    "DynamoDB",
    "CloudWatch",
];

type KeyPath = Vec<String>;

fn table(text: &str) -> Table {
    toml::from_str(text).unwrap()
}

/// All sections and keys, each with the names that lead to it from the outermost section on.
fn paths(table: &Table) -> Vec<KeyPath> {
    let mut paths = Vec::new();
    for (key, value) in table {
        paths.push(vec![key.clone()]);
        if let Value::Table(section) = value {
            let within = self::paths(section).into_iter();
            paths.extend(within.map(|path| [vec![key.clone()], path].concat()));
        }
    }
    paths
}

/// The section that `names` lead to.
fn section<'t>(table: &'t mut Table, names: &[String]) -> Option<&'t mut Table> {
    let mut section = table;
    for name in names {
        section = section.get_mut(name)?.as_table_mut()?;
    }
    Some(section)
}

/// `text` with `value` in place of what is at `path`, and what is wrong with it.
fn problems_with(text: &str, path: &[String], value: Value) -> Vec<String> {
    problems_in(table(text), path, value)
}

/// The same without the other sections: thousands of values would take half a minute.
fn problems_of_section(text: &str, path: &[String], value: Value) -> Vec<String> {
    let mut table = table(text);
    table.retain(|name, value| *name == path[0] || !value.is_table());
    problems_in(table, path, value)
}

fn problems_in(mut table: Table, path: &[String], value: Value) -> Vec<String> {
    let (last, sections) = path.split_last().unwrap();
    let section = section(&mut table, sections).unwrap();
    section.insert(last.clone(), value);
    let text = toml::to_string(&table).unwrap();
    let parsed = Config::parse_in(&text, Path::new("."), &Environment::default());
    parsed
        .err()
        .map_or_else(Vec::new, |refused| refused.problems)
}

fn is_of_rust(word: &str) -> bool {
    let name = word.trim_start_matches(|sign: char| sign.is_ascii_digit());
    let has_small = word.contains(|letter: char| letter.is_ascii_lowercase());
    let capitals = word.matches(|letter: char| letter.is_ascii_uppercase());
    let is_camel_case = has_small && capitals.count() > 1 && !OTHER_NAMES.contains(&name);
    is_camel_case || WORDS_OF_RUST.contains(&word)
}

#[test]
fn a_value_of_another_kind_is_refused_in_words_of_the_file_with_its_line() {
    let mut faults = BTreeSet::new();
    for text in [EVERY_KEY, OTHER_KEYS] {
        Config::parse(text, Path::new(".")).unwrap();
        for path in paths(&table(text)) {
            for (_, value) in table(EVERY_KIND) {
                let problems = problems_of_section(text, &path, value.clone());
                let faulty = problems.iter().filter_map(|told| fault_of(told));
                faults.extend(faulty.map(|fault| format!("{} = {value}: {fault}", path.join("."))));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

/// What is wrong with an error, if anything is.
fn fault_of(told: &str) -> Option<String> {
    let words = told.split(|sign: char| !sign.is_alphanumeric() && sign != '_');
    let of_rust: Vec<_> = words.filter(|word| is_of_rust(word)).collect();
    let is_faulty = !of_rust.is_empty() || !told.starts_with("line ");
    is_faulty.then(|| format!("{told} {of_rust:?}"))
}

#[test]
fn a_section_is_no_list_of_values_in_the_order_of_its_keys() {
    for path in paths(&table(EVERY_KEY)) {
        let key = path.join(".");
        let name = match key.as_str() {
            "plugin" | "secrets" | "sinks" => format!("{key}.NAME"),
            _ => key.clone(),
        };
        if section(&mut table(EVERY_KEY), &path).is_some() {
            let help = format!(
                "{key}: invalid type: list, expected a section; a section begins with the line \
                    [{name}], and its keys follow"
            );
            let told = problems_with(EVERY_KEY, &path, Value::Array(Vec::new()));
            assert!(
                told.iter().any(|one| one.ends_with(&help)),
                "{key}: {told:?}"
            );
        }
    }
    let told = crate::Config::parse("retry = [\"1s\", \"2s\"]", Path::new(".")).unwrap_err();
    assert!(told.contains("retry: invalid type: list"), "{told}");
    let told = crate::Config::parse("[[retry]]\nbase = \"1s\"", Path::new(".")).unwrap_err();
    assert!(told.contains("begins with the line [retry]"), "{told}");
}

/// Keys of one kind of section, wherever it is.
fn kind_of_section(path: &[String]) -> &str {
    match path.last().map_or("", String::as_str) {
        // Both say where a secret is kept.
        "key" | "other" | "admin-token" => "secrets",
        // Both are somebody who shows a token.
        "alice" | "carol" => "tokens",
        // Both are registries.
        "registry.internal:5000" | "mirror" => "registries",
        // All are plugins.
        "prices" | "totals" => "orders",
        name => name,
    }
}

#[test]
fn every_key_that_a_section_may_have_is_tried() {
    let mut tried: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in paths(&table(OTHER_KEYS)) {
        let (key, above) = path.split_last().unwrap();
        let kind = kind_of_section(above).to_owned();
        tried.entry(kind).or_default().insert(key.clone());
    }
    let mut sections = vec![Vec::new()];
    for path in paths(&table(EVERY_KEY)) {
        let (key, above) = path.split_last().unwrap();
        let kind = kind_of_section(above).to_owned();
        tried.entry(kind).or_default().insert(key.clone());
        if section(&mut table(EVERY_KEY), &path).is_some() {
            sections.push(path);
        }
    }
    let mut known = 0;
    for above in sections {
        let path = [above.clone(), vec!["xyzzy".to_owned()]].concat();
        for told in problems_with(EVERY_KEY, &path, Value::Boolean(true)) {
            let Some((_, keys)) = told.split_once("unknown field `xyzzy`, expected") else {
                continue;
            };
            // The keys stand between ticks: every second part.
            for key in keys.split('`').skip(1).step_by(2) {
                let kind = kind_of_section(&above);
                assert!(tried[kind].contains(key), "{kind}: {key} is not tried");
                known += 1;
            }
        }
    }
    assert!(known > 150, "{known}");
}

/// How many settings whose sample value `is_one` refuse each of these values, with `refusal`.
fn refusing(is_one: impl Fn(&str) -> bool, values: [&str; 3], refusal: &str) -> usize {
    let mut refusing = 0;
    for path in paths(&table(EVERY_KEY)) {
        let (last, sections) = path.split_last().unwrap();
        let mut table = table(EVERY_KEY);
        let sample = section(&mut table, sections).and_then(|section| section.get(last));
        let sample = sample.and_then(Value::as_str).unwrap_or_default();
        if is_one(sample) {
            for value in values {
                let told = problems_with(EVERY_KEY, &path, Value::from(value)).join(" ");
                assert!(told.contains(refusal), "{path:?} = {value}: {told}");
            }
            refusing += 1;
        }
    }
    refusing
}

#[test]
fn no_duration_or_size_is_so_large_that_the_host_cannot_count_with_it() {
    let is_duration = |sample: &str| humantime::parse_duration(sample).is_ok();
    let long = ["36526 days", "584542046090 years", "18446744073709551615 s"];
    let durations = refusing(is_duration, long, "a duration is at most 100 years");
    assert!(durations > 25, "{durations}");

    let is_size = |sample: &str| sample.ends_with("iB");
    let large = ["1025 TiB", "16777215 TiB", "18446744073709551615"];
    let sizes = refusing(is_size, large, "a size is at most 1PiB");
    assert!(sizes > 15, "{sizes}");
}

/// Settings that may be 0: they mean that nothing is waited for, or that nothing is done.
const MAY_BE_ZERO: [&str; 7] = [
    "batch.window",
    "checkpoint.age",
    "host.drain-limit",
    "plugin.orders.batch.window",
    "plugin.orders.checkpoint.age",
    "rollout.probation",
    "rollout.share-wait",
];

/// Settings that may be 1 ms and not 0: neither is anything repeated by them, nor does all fail
/// that is near enough.
const MAY_BE_SHORT: [&str; 10] = [
    "failure.max-age",
    "http.between-bytes-timeout",
    "http.connect-timeout",
    "http.first-byte-timeout",
    "http.timeout",
    "pull.timeout",
    "recordings.keep-for",
    "sinks.http.connect-timeout",
    "sinks.http.timeout",
    "traces.timeout",
];

/// What is wrong with the configuration once the duration at `path` is this short.
fn expected_message(path: &[String], short: &str) -> String {
    problems_with(EVERY_KEY, path, Value::from(short)).join(" ")
}

#[test]
fn no_duration_is_so_short_that_the_host_is_busy_with_it_or_nothing_succeeds() {
    let is_duration = |sample: &str| humantime::parse_duration(sample).is_ok();
    let short = ["1ns", "20us", "999999ns"];
    let durations = refusing(is_duration, short, "a duration is 0s or at least 1ms");
    assert!(durations > 25, "{durations}");

    let mut zero = Vec::new();
    let mut tiny = Vec::new();
    for path in paths(&table(EVERY_KEY)) {
        let (last, sections) = path.split_last().unwrap();
        let mut table = table(EVERY_KEY);
        let sample = section(&mut table, sections).and_then(|section| section.get(last));
        if !sample.and_then(Value::as_str).is_some_and(is_duration) {
            continue;
        }
        if expected_message(&path, "0s").is_empty() {
            zero.push(path.join("."));
        } else if expected_message(&path, "1ms").is_empty() {
            tiny.push(path.join("."));
        }
    }
    zero.sort();
    tiny.sort();
    assert_eq!(
        (zero, tiny),
        (
            MAY_BE_ZERO.map(str::to_owned).into(),
            MAY_BE_SHORT.map(str::to_owned).into()
        )
    );
}

#[test]
fn a_whole_number_that_no_computer_counts_to_is_named_with_its_line() {
    let text = "[leases]\nmax = 99999999999999999999\n";
    let error = Config::parse(text, Path::new(".")).unwrap_err();
    let expected = "line 2: max = 99999999999999999999:";
    assert!(error.contains(expected), "{error}");
}
