//! Settings from the environment: `SHARDMILL_AWS__REGION` is the key `region` under `[aws]`. They
//! are laid over the file before anything of it is checked, so that every rule holds for both.

use std::collections::BTreeMap;
use std::ffi::OsString;

/// What the variables begin with.
const PREFIX: &str = "SHARDMILL_";
/// Separates a section from what is in it.
const INTO: &str = "__";
/// Keys outside of all sections, which a variable names without [`INTO`].
const TOP_LEVEL: [&str; 4] = ["stream", "plugins", "worker-id", "initial-position"];
/// Sections whose values are always text, even if they look like numbers: of each plugin or sink,
/// and of the host.
const TEXTS: [(&str, &str); 2] = [("plugin", "config"), ("sinks", "headers")];
const TEXTS_OF_HOST: [(&str, &str); 2] = [("traces", "headers"), ("traces", "attributes")];

/// The settings that variables of the environment hold.
#[derive(Debug, Default)]
pub(super) struct Environment {
    settings: BTreeMap<Vec<String>, Setting>,
    /// Variables that look like settings but are not.
    mistakes: Vec<Mistake>,
}

#[derive(Debug, Clone)]
struct Setting {
    variable: String,
    text: String,
}

/// A variable that sets nothing.
#[derive(Debug, Clone)]
struct Mistake {
    message: String,
    /// The key that it was meant to set.
    key: String,
}

/// Which variable set which key.
#[derive(Debug, Default)]
pub(super) struct Overrides {
    by_key: BTreeMap<String, String>,
    mistakes: Vec<Mistake>,
}

// === impl Environment ===

impl Environment {
    /// The settings of this process' environment.
    pub(super) fn of_process() -> Self {
        let variables = std::env::vars_os();
        Self::of(variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value))))
    }

    /// The settings among `variables`. Other variables with the same prefix are not settings:
    /// `SHARDMILL_LOG`, and what Kubernetes sets for a service of that name, such as
    /// `SHARDMILL_PORT`.
    pub(super) fn of(variables: impl IntoIterator<Item = (String, OsString)>) -> Self {
        let mut environment = Self::default();
        // Sorted, so that the order does not depend on the system.
        for (variable, value) in variables.into_iter().collect::<BTreeMap<_, _>>() {
            environment.add(variable, value);
        }
        environment
    }

    fn add(&mut self, variable: String, value: OsString) {
        let path = match path_of(&variable) {
            Ok(Some(path)) => path,
            Ok(None) => return,
            Err(mistake) => return self.mistakes.push(mistake),
        };
        match value.into_string() {
            Ok(text) => {
                self.settings.insert(path, Setting { variable, text });
            }
            Err(_) => self.mistakes.push(Mistake {
                message: format!("{variable}: its value is not UTF-8 text; set it again"),
                key: path.join("."),
            }),
        }
    }

    /// The names of the variables, never their values, which may be secret.
    pub(super) fn variables(&self) -> Vec<String> {
        let variables = self.settings.values().map(|one| one.variable.clone());
        variables.collect()
    }

    /// Puts the settings in place of what `table` says.
    pub(super) fn lay_over(&self, table: &mut toml::Table) -> Overrides {
        let mut overrides = Overrides {
            mistakes: self.mistakes.clone(),
            ..Overrides::default()
        };
        // Sections come before what is in them.
        for (path, setting) in &self.settings {
            let variable = &setting.variable;
            match set(table, path, &setting.text) {
                Ok(key) => {
                    overrides.by_key.insert(key, variable.clone());
                }
                Err(problem) => overrides.mistakes.push(Mistake {
                    message: format!("{variable}: {problem}"),
                    key: path.join("."),
                }),
            }
        }
        overrides
    }
}

// === impl Overrides ===

impl Overrides {
    /// The variable that set `key`, or what it is in.
    pub(super) fn variable_of(&self, key: &str) -> Option<&str> {
        let mut path = key;
        loop {
            if let Some(variable) = self.by_key.get(path) {
                return Some(variable);
            }
            path = path.rsplit_once('.')?.0;
        }
    }

    /// A variable that set something in the section `key`.
    pub(super) fn variable_within(&self, key: &str) -> Option<&str> {
        let within = format!("{key}.");
        let (name, variable) = self.by_key.range(within.clone()..).next()?;
        name.starts_with(&within).then_some(variable)
    }

    pub(super) fn has_mistakes(&self) -> bool {
        !self.mistakes.is_empty()
    }

    /// What is wrong with variables that set nothing.
    pub(super) fn problems(&self) -> impl Iterator<Item = String> {
        self.mistakes.iter().map(|mistake| mistake.message.clone())
    }

    /// The keys that those were meant to set.
    pub(super) fn meant(&self) -> impl Iterator<Item = String> {
        self.mistakes.iter().map(|mistake| mistake.key.clone())
    }
}

/// The keys that a variable names, from the outermost section on; `None` if it is not a setting.
fn path_of(variable: &str) -> Result<Option<Vec<String>>, Mistake> {
    let Some(name) = variable.strip_prefix(PREFIX) else {
        return Ok(None);
    };
    let path: Vec<String> = name.split(INTO).map(as_key).collect();
    if path.len() == 1 {
        return of_top_level(variable, path);
    }
    if name.split(INTO).all(is_key) {
        return Ok(Some(path));
    }
    Err(Mistake {
        message: format!(
            "{variable} names no setting: write the section, two underscores and the key in \
                capitals, such as SHARDMILL_AWS__REGION, or rename it"
        ),
        key: path.join("."),
    })
}

/// Whether this part of a variable's name can stand for a key.
fn is_key(part: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    !part.is_empty() && part.chars().all(is_allowed)
}

/// A name without a section is a setting only if it is a known key. Only near misses are reported.
fn of_top_level(variable: &str, path: Vec<String>) -> Result<Option<Vec<String>>, Mistake> {
    /// Only typing mistakes are that near: `STARTS` is not taken for `STREAM`.
    const NEAR: f64 = 0.9;
    if path.iter().all(|key| TOP_LEVEL.contains(&key.as_str())) {
        return Ok(Some(path));
    }
    let name = path.concat();
    let meant = TOP_LEVEL
        .iter()
        .find(|key| strsim::jaro_winkler(&name, key) > NEAR);
    match meant {
        Some(key) => Err(Mistake {
            message: format!(
                "{variable} names no setting; did you mean {PREFIX}{}?",
                key.to_uppercase().replace('-', "_")
            ),
            key: (*key).to_owned(),
        }),
        None => Ok(None),
    }
}

/// As keys are written in the file.
fn as_key(part: &str) -> String {
    part.to_lowercase().replace('_', "-")
}

/// Sets the value at `path`. Returns the whole key as the table spells it.
fn set(table: &mut toml::Table, path: &[String], text: &str) -> Result<String, String> {
    let Some((last, sections)) = path.split_last() else {
        return Err("names no setting".to_owned());
    };
    let (mut inside, mut written) = (table, Vec::new());
    for section in sections {
        let name = name_in(inside, section)?;
        written.push(name.clone());
        inside = inside
            .entry(name)
            .or_insert_with(|| toml::Table::new().into())
            .as_table_mut()
            .ok_or_else(|| format!("`{}` is not a section", written.join(".")))?;
    }
    let name = name_in(inside, last)?;
    written.push(name.clone());
    inside.insert(name, value(&written, text));
    Ok(written.join("."))
}

/// The spelling of `part` in `table`: names of plugins and sinks may have capitals, dots and
/// underscores, which a variable cannot express.
fn name_in(table: &toml::Table, part: &str) -> Result<String, String> {
    if table.contains_key(part) {
        return Ok(part.to_owned());
    }
    let found: Vec<&String> = table
        .keys()
        .filter(|name| as_key(name).replace('.', "-") == part)
        .collect();
    match found[..] {
        [] => Ok(part.to_owned()),
        [name] => Ok(name.clone()),
        [one, other, ..] => Err(format!(
            "may mean `{one}` or `{other}`; set it in the file instead"
        )),
    }
}

/// A value as in the file, where text may go without its quotes.
fn value(path: &[String], text: &str) -> toml::Value {
    let is_text = match path {
        [section, _, within, _] => TEXTS.contains(&(section.as_str(), within.as_str())),
        [section, within, _] => TEXTS_OF_HOST.contains(&(section.as_str(), within.as_str())),
        _ => false,
    };
    match text.parse::<toml::Value>() {
        // No setting is a date of TOML; times are text.
        Ok(toml::Value::Datetime(_)) | Err(_) => text.into(),
        Ok(value) if !is_text => value,
        Ok(_) => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::time::Duration;

    use shardmill_core::plugin::PluginName;
    use shardmill_core::stream::InitialPosition;

    use super::*;
    use crate::Config;

    fn parsed(text: &str, variables: &[(&str, &str)]) -> Result<Config, String> {
        let variables = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), OsString::from(*value)));
        let environment = Environment::of(variables);
        Config::parse_in(text, Path::new("."), &environment)
            .map_err(|refused| refused.problems.join("\n"))
    }

    #[test]
    fn a_variable_sets_any_key_with_the_type_that_it_has() {
        let config = parsed(
            "stream = \"in-the-file\"\n[leases]\nduration = \"20s\"\n",
            &[
                ("SHARDMILL_STREAM", "orders"),
                ("SHARDMILL_WORKER_ID", "pod-1"),
                ("SHARDMILL_INITIAL_POSITION", "2026-01-31T00:00:00Z"),
                ("SHARDMILL_AWS__REGION", "eu-west-1"),
                ("SHARDMILL_LEASES__DURATION", "30s"),
                ("SHARDMILL_LEASES__MAX", "7"),
                ("SHARDMILL_READS__CALLS_PER_SECOND", "2.5"),
                ("SHARDMILL_BATCH__BYTES", "2MiB"),
                ("SHARDMILL_HOST__FAN_OUT_ALLOWED", "true"),
                (
                    "SHARDMILL_HOST__ADMIN_NAMES",
                    "[\"a.example\", \"b.example\"]",
                ),
                ("SHARDMILL_CEILINGS__GRANTS__STATE", "false"),
                ("SHARDMILL_SECRETS__API__FILE", "/run/secrets/api"),
            ],
        )
        .unwrap();
        assert_eq!(config.stream.as_ref().unwrap().to_string(), "orders");
        assert_eq!(config.worker_id.as_str(), "pod-1");
        assert_eq!(
            config.initial_position,
            InitialPosition::AtTimestamp(1_769_817_600_000)
        );
        assert_eq!(config.aws.region.as_deref(), Some("eu-west-1"));
        assert_eq!(config.leases.duration, Duration::from_secs(30));
        assert_eq!(config.leases.max_leases, 7);
        assert!((config.reads.calls_per_second - 2.5).abs() < f64::EPSILON);
        assert_eq!(config.batches.bytes, 2 << 20);
        assert!(config.retrieval.is_fan_out_allowed && !config.ceilings.permissions.state);
        assert_eq!(config.host.admin_names, ["a.example", "b.example"]);
        assert!(config.secrets.contains_key("api"));
        assert_eq!(config.environment.len(), 12);
    }

    #[test]
    fn a_variable_reaches_a_plugin_and_a_sink_whatever_letters_their_names_have() {
        let text = "stream = \"s\"\n[plugin.Web_Shop-v2]\n[sinks.out]\ntype = \"http\"\n";
        let config = parsed(
            text,
            &[
                ("SHARDMILL_PLUGIN__WEB_SHOP_V2__BATCH__RECORDS", "5"),
                ("SHARDMILL_PLUGIN__WEB_SHOP_V2__CONFIG__MIN_PRICE", "100"),
                ("SHARDMILL_PLUGIN__QUAKES__APPLICATION", "earth"),
                ("SHARDMILL_SINKS__OUT__URL", "http://127.0.0.1:1/in"),
                ("SHARDMILL_SINKS__OUT__RECORDS", "3"),
                ("SHARDMILL_SINKS__OUT__HEADERS__X_KEY", "12"),
            ],
        )
        .unwrap();
        let of = |name| {
            config
                .of_plugin(&PluginName::new(name).unwrap(), None)
                .unwrap()
        };
        assert_eq!(of("Web_Shop-v2").batches.records, 5);
        assert_eq!(of("Web_Shop-v2").config["min-price"], "100");
        assert_eq!(of("quakes").streams[0].application, "earth");
    }

    #[test]
    fn a_variable_that_cannot_work_is_named_with_the_mend() {
        for (variable, value, told) in [
            ("SHARDMILL_AWS__REGOIN", "x", "did you mean `region`?"),
            ("SHARDMILL_AWZ__REGION", "x", "unknown field `awz`"),
            ("SHARDMILL_STREM", "x", "did you mean SHARDMILL_STREAM?"),
            ("SHARDMILL_PLUGIN", "x", "did you mean SHARDMILL_PLUGINS?"),
            ("SHARDMILL_WORKER", "x", "did you mean SHARDMILL_WORKER_ID?"),
            ("SHARDMILL_leases__max", "1", "in capitals"),
            ("SHARDMILL_LEASES____MAX", "1", "in capitals"),
            (
                "SHARDMILL_LEASES__MAX",
                "many",
                "without quotes, such as 100",
            ),
            ("SHARDMILL_LEASES__MAX", "0", "leases.max: "),
            ("SHARDMILL_LEASES__DURATION", "10", "such as \"500ms\""),
            (
                "SHARDMILL_WORKER_ID",
                "17",
                "in both quotes, such as '\"17\"'",
            ),
            ("SHARDMILL_STREAM__NAME", "x", "`stream` is not a section"),
            ("SHARDMILL_PLUGIN__A_B__STREAM", "x", "`a.b` or `a_b`"),
        ] {
            let text = "stream = \"s\"\n[plugin.\"a.b\"]\n[plugin.a_b]\n";
            let problem = parsed(
                text,
                &[("SHARDMILL_BATCH__RECORDS", "5"), (variable, value)],
            )
            .unwrap_err();
            assert!(
                problem.contains(variable) && problem.contains(told),
                "{variable}={value}: {problem}"
            );
        }
        let numbers = parsed("stream = \"s\"", &[("SHARDMILL_WORKER_ID", "\"17\"")]);
        assert_eq!(numbers.unwrap().worker_id.as_str(), "17");
    }

    #[test]
    fn a_fault_of_the_file_is_reported_with_its_line_whatever_the_environment_sets() {
        for text in [
            "stream = \"s\"\n[leases]\nmax = 0\n",
            "stream = \"s\"\n[leases]\nmaxx = 1\n",
            "stream = \"s\"\n[leases\n",
        ] {
            let problem = parsed(text, &[("SHARDMILL_AWS__REGION", "eu-west-1")]).unwrap_err();
            assert!(problem.contains("line "), "{problem}");
            assert!(!problem.contains("SHARDMILL_"), "{problem}");
        }
    }

    #[test]
    fn what_the_file_lacks_may_come_from_the_environment() {
        let text = "[sinks.out]\ntype = \"file\"\n";
        assert!(parsed(text, &[]).is_err());
        let whole = [("SHARDMILL_SINKS__OUT__PATH", "out.ndjson")];
        assert!(parsed(text, &whole).is_ok());
    }

    #[test]
    fn other_variables_that_begin_alike_are_no_settings() {
        let others = [
            "LOG",
            "WALL",
            "CONFIG",
            "COMMIT",
            "SEEDS",
            "KCL",
            "CORPUS",
            "FLIGHTS",
            "KILLS",
            "SWAPS",
            "STARTS",
            "POISONED",
            "AGGREGATES",
            "BLESS",
            "TEST_WALL",
            "PORT",
            "SERVICE_HOST",
            "SERVICE_PORT",
            "SERVICE_PORT_ADMIN",
            "PORT_9090_TCP",
            "PORT_9090_TCP_ADDR",
            "PORT_9090_TCP_PORT",
            "PORT_9090_TCP_PROTO",
        ]
        .map(|name| {
            (
                format!("SHARDMILL_{name}"),
                OsString::from("tcp://10.1.2.3:9090"),
            )
        });
        let foreign = [("AWS_REGION".to_owned(), OsString::from("x"))];
        let environment = Environment::of(others.into_iter().chain(foreign));
        assert!(environment.settings.is_empty() && environment.mistakes.is_empty());
    }

    #[test]
    fn wrong_variables_are_reported_with_each_other_and_with_the_file() {
        let text = "[leases]\nduration = 10\n[sinks.out]\ntype = \"file\"\n";
        let variables = [
            ("SHARDMILL_STREM", "s"),
            ("SHARDMILL_leases__max", "1"),
            ("SHARDMILL_LEASES__MAX", "0"),
            ("SHARDMILL_AWS__REGOIN", "x"),
        ];
        let told = parsed(text, &variables).unwrap_err();
        let all: Vec<&str> = told.lines().collect();
        let parts = [
            "line 2: leases.duration",
            "line 3: sinks.out",
            "SHARDMILL_AWS__REGOIN: ",
            "SHARDMILL_LEASES__MAX: leases.max",
            "SHARDMILL_STREM names no setting",
            "SHARDMILL_leases__max names no setting",
        ];
        assert_eq!(all.len(), parts.len(), "{told}");
        for part in parts {
            let times = all.iter().filter(|line| line.contains(part)).count();
            assert_eq!(times, 1, "{part}: {told}");
        }
        let broken = parsed("[leases\n", &variables[..2]).unwrap_err();
        assert_eq!(broken.lines().count(), 3, "{broken}");
    }

    #[test]
    #[cfg(unix)]
    fn a_value_that_is_no_text_is_reported_with_its_variable_and_hides_no_other_mistake() {
        use std::os::unix::ffi::OsStringExt;

        let not_text = OsString::from_vec(vec![0xff]);
        let variables = [
            ("SHARDMILL_AWS__REGION".to_owned(), not_text.clone()),
            ("SHARDMILL_STREM".to_owned(), OsString::from("s")),
            // A service of Kubernetes, or anything: no setting.
            ("SHARDMILL_PORT".to_owned(), not_text),
        ];
        let refused = Config::parse_in("", Path::new("."), &Environment::of(variables));
        let told = refused.unwrap_err().problems;
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("SHARDMILL_AWS__REGION: its value is not UTF-8"));
        assert!(told[1].contains("did you mean SHARDMILL_STREAM?"));
    }

    #[test]
    fn every_key_outside_of_the_sections_is_known_here() {
        let told = Config::parse("xyzzy = 1", Path::new(".")).unwrap_err();
        let all = told.split("expected one of").nth(1).unwrap();
        let all = all.split('\n').next().unwrap().split('`');
        let is_section = |key: &str| {
            let told = Config::parse(&format!("{key} = \"x\""), Path::new("."));
            told.is_err_and(|told| told.contains("invalid type: string"))
        };
        let keys: BTreeSet<&str> = all
            .skip(1)
            .step_by(2)
            .filter(|key| !is_section(key))
            .collect();
        assert_eq!(keys, BTreeSet::from(TOP_LEVEL));
    }
}
