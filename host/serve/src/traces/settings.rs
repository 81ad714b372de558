//! What holds for traces: the configuration, and what it leaves open by the variables that
//! OpenTelemetry defines for all programs
//! (<https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>).

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Url;
use shardmill_config::TracesConfig;
use shardmill_core::trace::Sampler;
use shardmill_sinks::HeaderSource;

use super::names;

/// Where a collector listens by the specification.
const ENDPOINT: &str = "http://localhost:4318";
/// What comes after the endpoint of all signals.
const PATH: &str = "v1/traces";
/// One batch in a hundred: enough to see where time goes, and too little to cost anything.
const RATIO: f64 = 0.01;
/// As the specification has it.
const TIMEOUT: Duration = Duration::from_secs(10);
/// What programs call themselves that are not told otherwise.
const SERVICE: &str = "shardmill";

/// The variables of OpenTelemetry that are heeded, as they are set.
#[derive(Debug, Clone, Default)]
pub(super) struct Standard(BTreeMap<&'static str, String>);

/// The variables that are looked at.
const VARIABLES: [&str; 13] = [
    "OTEL_SDK_DISABLED",
    "OTEL_TRACES_EXPORTER",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
    "OTEL_EXPORTER_OTLP_TIMEOUT",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_SERVICE_NAME",
    "OTEL_RESOURCE_ATTRIBUTES",
    "OTEL_TRACES_SAMPLER_ARG",
];

/// See the module's description.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    /// Where traces are posted to; always there.
    pub(super) url: Option<Url>,
    pub(super) sampler: Sampler,
    pub(super) follows: bool,
    pub(super) injects: bool,
    pub(super) timeout: Duration,
    pub(super) headers: BTreeMap<String, HeaderSource>,
    /// Of the resource, without those that the host knows best.
    pub(super) attributes: BTreeMap<String, String>,
    /// Variables that cannot be used, each with the reason and without its value.
    pub(super) ignored: Vec<String>,
}

// === impl Standard ===

impl Standard {
    pub(super) fn of_process() -> Self {
        Self::of(|name| std::env::var(name).ok())
    }

    /// Empty ones count as not set, by the specification.
    fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = VARIABLES.into_iter().filter_map(|name| {
            let value = variable(name)?.trim().to_owned();
            (!value.is_empty()).then_some((name, value))
        });
        Self(set.collect())
    }

    /// Whether traces are switched off for all programs.
    pub(super) fn is_disabled(&self) -> bool {
        let is = |name: &str, value: &str| {
            self.get(name)
                .is_some_and(|set| set.eq_ignore_ascii_case(value))
        };
        is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none")
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The variable of traces, or else of all signals, with its name.
    fn of_exporter(&self, what: &str) -> Option<(String, &str)> {
        let names = [
            format!("OTEL_EXPORTER_OTLP_TRACES_{what}"),
            format!("OTEL_EXPORTER_OTLP_{what}"),
        ];
        names.into_iter().find_map(|name| {
            let value = self.get(&name)?;
            Some((name, value))
        })
    }
}

// === impl Settings ===

impl Settings {
    pub(super) fn new(config: &TracesConfig, standard: &Standard) -> Self {
        let mut ignored = Vec::new();
        if let Some((name, protocol)) = standard.of_exporter("PROTOCOL")
            && protocol != "http/protobuf"
        {
            ignored.push(format!("{name}: traces are sent by http/protobuf only"));
        }
        Self {
            url: url(config, standard, &mut ignored),
            sampler: sampler(config, standard, &mut ignored),
            follows: config.follows,
            injects: config.injects,
            timeout: timeout(config, standard, &mut ignored),
            headers: headers(config, standard, &mut ignored),
            attributes: attributes(config, standard, &mut ignored),
            ignored,
        }
    }
}

/// `None` only if the default could not be read.
fn url(config: &TracesConfig, standard: &Standard, ignored: &mut Vec<String>) -> Option<Url> {
    if let Some(endpoint) = &config.endpoint {
        return Some(with_path(endpoint.clone()));
    }
    let own = standard.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    let name = if own.is_some() {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
    } else {
        "OTEL_EXPORTER_OTLP_ENDPOINT"
    };
    let text = standard.get(name).unwrap_or(ENDPOINT);
    match shardmill_config::check_url(text) {
        // The variable of traces is taken as it is, by the specification.
        Ok(url) if own.is_some() => Some(url),
        Ok(url) => Some(with_path(url)),
        Err(problem) => {
            ignored.push(format!("{name}: {problem}"));
            let url = shardmill_config::check_url(ENDPOINT);
            url.ok().map(with_path)
        }
    }
}

/// The URL for traces at this endpoint, unless it is one already.
fn with_path(mut endpoint: Url) -> Url {
    let path = endpoint.path().trim_end_matches('/');
    if !path.ends_with(PATH) {
        let path = format!("{path}/{PATH}");
        endpoint.set_path(&path);
    }
    endpoint
}

fn sampler(config: &TracesConfig, standard: &Standard, ignored: &mut Vec<String>) -> Sampler {
    if let Some(sampler) = config.sampler {
        return sampler;
    }
    let name = "OTEL_TRACES_SAMPLER_ARG";
    let by_default = Sampler::new(RATIO).unwrap_or(Sampler::none());
    let Some(text) = standard.get(name) else {
        return by_default;
    };
    let ratio = text.parse::<f64>().unwrap_or(f64::NAN);
    Sampler::new(ratio).unwrap_or_else(|problem| {
        ignored.push(format!("{name}: {problem}"));
        by_default
    })
}

fn timeout(config: &TracesConfig, standard: &Standard, ignored: &mut Vec<String>) -> Duration {
    if let Some(timeout) = config.timeout {
        return timeout;
    }
    let Some((name, text)) = standard.of_exporter("TIMEOUT") else {
        return TIMEOUT;
    };
    if let Ok(ms @ 1..=60_000) = text.parse() {
        return Duration::from_millis(ms);
    }
    ignored.push(format!("{name}: must be from 1 to 60000 milliseconds"));
    TIMEOUT
}

fn headers(
    config: &TracesConfig,
    standard: &Standard,
    ignored: &mut Vec<String>,
) -> BTreeMap<String, HeaderSource> {
    let mut headers = BTreeMap::new();
    if let Some((name, text)) = standard.of_exporter("HEADERS") {
        let Some(pairs) = pairs(text) else {
            ignored.push(format!("{name}: write it like name=value,name=value"));
            return config.headers.clone();
        };
        for (header, value) in pairs {
            match header_of(&header, value) {
                Ok(source) => {
                    headers.insert(header, source);
                }
                Err(problem) => ignored.push(format!("{name}: {problem}")),
            }
        }
    }
    headers.extend(config.headers.clone());
    headers
}

/// A header of a variable. A wrong one is left out, and its value is shown to nobody.
fn header_of(header: &str, value: String) -> Result<HeaderSource, String> {
    let source = HeaderSource::value(value);
    if let Err(problem) = source.header_value() {
        return Err(format!("{header}: {problem}"));
    }
    shardmill_config::check_trace_header(header, &source)?;
    Ok(source)
}

fn attributes(
    config: &TracesConfig,
    standard: &Standard,
    ignored: &mut Vec<String>,
) -> BTreeMap<String, String> {
    let mut all = BTreeMap::from([(names::SERVICE.to_owned(), SERVICE.to_owned())]);
    if let Some(text) = standard.get("OTEL_RESOURCE_ATTRIBUTES") {
        match pairs(text) {
            Some(pairs) => all.extend(pairs),
            None => ignored
                .push("OTEL_RESOURCE_ATTRIBUTES: write it like name=value,name=value".to_owned()),
        }
    }
    let of_variable = standard.get("OTEL_SERVICE_NAME").map(str::to_owned);
    let service = config.service_name.clone();
    all.extend(config.attributes.clone());
    let service = service.or(of_variable);
    all.extend(service.map(|name| (names::SERVICE.to_owned(), name)));
    all
}

/// `name=value,name=value`, each value with its percent signs read (W3C Baggage). `None` if it is
/// written otherwise: then none of it counts, by the specification.
fn pairs(text: &str) -> Option<impl Iterator<Item = (String, String)>> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let name = unescaped(name.trim())?;
        (!name.is_empty()).then_some((name, unescaped(value.trim())?))
    };
    let pairs = text.split(',').filter(|text| !text.trim().is_empty());
    let pairs = pairs.map(pair).collect::<Option<Vec<_>>>()?;
    Some(pairs.into_iter())
}

/// The text with `%2C` read as a comma, and so on.
fn unescaped(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digits = part
            .get(..2)
            .filter(|two| two.bytes().all(|b| b.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standard(set: &[(&str, &str)]) -> Standard {
        Standard::of(|name| {
            let found = set.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn settings(set: &[(&str, &str)]) -> Settings {
        Settings::new(&TracesConfig::default(), &standard(set))
    }

    #[test]
    fn without_a_word_it_is_the_collector_beside_the_host_and_one_batch_in_a_hundred() {
        let settings = settings(&[("OTEL_SERVICE_NAME", " ")]);
        let url = settings.url.as_ref().map(Url::as_str);
        assert_eq!(url, Some("http://localhost:4318/v1/traces"));
        assert_eq!(settings.sampler, Sampler::new(0.01).unwrap());
        assert_eq!(settings.timeout, Duration::from_secs(10));
        assert_eq!(settings.attributes["service.name"], "shardmill");
        assert!(settings.headers.is_empty() && settings.ignored.is_empty());
    }

    #[test]
    fn the_variables_of_all_programs_are_heeded() {
        let set = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/otlp/"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%2Cb, x=y"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=mill,zone=a%20b"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ];
        let settings = settings(&set);
        let url = settings.url.as_ref().map(Url::as_str);
        assert_eq!(url, Some("http://collector:4318/otlp/v1/traces"));
        let key = HeaderSource::value("a,b".to_owned());
        assert_eq!(settings.headers["api-key"], key);
        assert_eq!(settings.timeout, Duration::from_millis(2500));
        assert_eq!(settings.sampler, Sampler::new(0.25).unwrap());
        assert_eq!(settings.attributes["service.name"], "mill");
        assert_eq!(settings.attributes["zone"], "a b");
        assert_eq!(settings.ignored, [""; 0]);
    }

    #[test]
    fn a_header_of_a_variable_that_cannot_be_sent_is_left_out_and_its_value_is_not_shown() {
        let settings = settings(&[(
            "OTEL_EXPORTER_OTLP_HEADERS",
            "authorization=Bearer%20secret%0d%0aX:y,content-length=5,zone=a",
        )]);
        assert_eq!(settings.headers.len(), 1);
        assert_eq!(
            settings.headers["zone"],
            HeaderSource::value("a".to_owned())
        );
        let ignored = settings.ignored.join("; ");
        assert!(
            ignored.contains("authorization: its value") && ignored.contains("content-length"),
            "{ignored}"
        );
        assert!(!ignored.contains("secret"), "{ignored}");
    }

    #[test]
    fn the_variable_of_traces_goes_before_that_of_all_signals_and_is_taken_as_it_is() {
        let settings = settings(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4318"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://own:9/in"),
            ("OTEL_SERVICE_NAME", "mine"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other"),
        ]);
        assert_eq!(
            settings.url.as_ref().map(Url::as_str),
            Some("http://own:9/in")
        );
        assert_eq!(settings.attributes["service.name"], "mine");
    }

    #[test]
    fn the_configuration_goes_before_all_variables() {
        let config = TracesConfig {
            endpoint: Some(shardmill_config::check_url("http://mine:1/v1/traces").unwrap()),
            sampler: Some(Sampler::new(1.0).unwrap()),
            timeout: Some(Duration::from_secs(1)),
            service_name: Some("own".to_owned()),
            headers: [("a".to_owned(), HeaderSource::value("own".to_owned()))].into(),
            ..TracesConfig::default()
        };
        let standard = standard(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4318"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=theirs,b=theirs"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
            ("OTEL_SERVICE_NAME", "theirs"),
            ("OTEL_TRACES_SAMPLER_ARG", "0"),
        ]);
        let settings = Settings::new(&config, &standard);
        let url = settings.url.as_ref().map(Url::as_str);
        assert_eq!(url, Some("http://mine:1/v1/traces"));
        assert_eq!(settings.sampler, Sampler::new(1.0).unwrap());
        assert_eq!(settings.timeout, Duration::from_secs(1));
        assert_eq!(settings.attributes["service.name"], "own");
        assert_eq!(settings.headers["a"], HeaderSource::value("own".to_owned()));
        assert_eq!(
            settings.headers["b"],
            HeaderSource::value("theirs".to_owned())
        );
    }

    #[test]
    fn a_variable_that_cannot_be_used_is_named_and_changes_nothing() {
        let settings = settings(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "secret"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
            ("OTEL_RESOURCE_ATTRIBUTES", "zone=%zz"),
            ("OTEL_TRACES_SAMPLER_ARG", "half"),
        ]);
        assert_eq!(settings.ignored.len(), 6, "{:?}", settings.ignored);
        let all = settings.ignored.join("; ");
        assert!(!all.contains("secret") && !all.contains("half"), "{all}");
        let url = settings.url.as_ref().map(Url::as_str);
        assert_eq!(url, Some("http://localhost:4318/v1/traces"));
        assert_eq!(settings.sampler, Sampler::new(0.01).unwrap());
    }

    #[test]
    fn who_switches_traces_off_for_all_programs_switches_them_off_here() {
        assert!(standard(&[("OTEL_SDK_DISABLED", "TRUE")]).is_disabled());
        assert!(standard(&[("OTEL_TRACES_EXPORTER", "none")]).is_disabled());
        assert!(!standard(&[("OTEL_SDK_DISABLED", "false")]).is_disabled());
    }
}
