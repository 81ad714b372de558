//! The section `[traces]`: whether batches are traced, and where the traces go.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use shardmill_core::trace::Sampler;
use shardmill_sinks::HeaderSource;

use super::duration;
use super::problem::{At, Problem};
use super::settings::TracesConfig;
use super::sinks::{check_header, check_url};

/// Longest wait for a collector that can be set: spans that wait longer are dropped for newer ones.
const TIMEOUT_MAX: Duration = Duration::from_mins(1);
/// Resource attributes: far more than anybody sets, and all of them are in every request.
const ATTRIBUTES_MAX: usize = 64;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct TracesFile {
    enabled: Option<bool>,
    endpoint: Option<String>,
    sample: Option<f64>,
    follow: Option<bool>,
    inject: Option<bool>,
    #[serde(default, deserialize_with = "duration::optional")]
    timeout: Option<Duration>,
    service_name: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, HeaderSource>,
    #[serde(default)]
    attributes: BTreeMap<String, String>,
}

impl TracesFile {
    /// Relative paths are relative to `folder`.
    pub(super) fn check(self, folder: &Path) -> Result<TracesConfig, Problem> {
        self.refuse_useless()?;
        let endpoint = self.endpoint.as_deref().map(check_url).transpose();
        let headers = self.headers.into_iter();
        Ok(TracesConfig {
            is_enabled: self.enabled.unwrap_or(false),
            endpoint: endpoint.at("traces.endpoint")?,
            sampler: self
                .sample
                .map(Sampler::new)
                .transpose()
                .at("traces.sample")?,
            follows: self.follow.unwrap_or(false),
            injects: self.inject.unwrap_or(false),
            timeout: self
                .timeout
                .map(within_reason)
                .transpose()
                .at("traces.timeout")?,
            service_name: self
                .service_name
                .map(not_empty)
                .transpose()
                .at("traces.service-name")?,
            headers: headers
                .map(|(name, source)| (name, source.in_folder(folder)))
                .collect(),
            attributes: self.attributes,
        })
    }

    /// Refuses what no collector would get, or none would take.
    fn refuse_useless(&self) -> Result<(), Problem> {
        if self.endpoint.is_some() && self.enabled.is_none() {
            let message = "nothing is sent there unless traces.enabled = true";
            return Err(Problem::new("traces.endpoint", message));
        }
        for (name, source) in &self.headers {
            check_trace_header(name, source).at("traces.headers")?;
        }
        if self.attributes.len() > ATTRIBUTES_MAX {
            let message = format!("has more than {ATTRIBUTES_MAX} attributes");
            return Err(Problem::new("traces.attributes", message));
        }
        Ok(())
    }
}

/// What is wrong with a header of the requests to a collector.
///
/// # Errors
/// A sentence that begins with the header's name.
pub fn check_trace_header(name: &str, source: &HeaderSource) -> Result<(), String> {
    if name.eq_ignore_ascii_case("content-type") {
        return Err(format!(
            "{name}: the host sets this header, since it encodes the spans"
        ));
    }
    check_header(name, source)
}

fn within_reason(time: Duration) -> Result<Duration, &'static str> {
    if time.is_zero() || time > TIMEOUT_MAX {
        return Err("must be above zero and at most 1 minute");
    }
    Ok(time)
}

fn not_empty(name: String) -> Result<String, &'static str> {
    if name.trim().is_empty() {
        return Err("must not be empty");
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn traces(section: &str) -> Result<TracesConfig, String> {
        let text = format!("[traces]\n{section}");
        Ok(Config::parse(&text, Path::new("/etc/mill"))?.traces)
    }

    #[test]
    fn nothing_is_traced_unless_the_operator_says_so() {
        let usual = Config::parse("", Path::new(".")).unwrap().traces;
        assert_eq!(usual, TracesConfig::default());
        assert!(!usual.is_enabled && !usual.injects && !usual.follows);
        let own = traces(
            "enabled = true\nendpoint = \"http://127.0.0.1:4318\"\nsample = 0.5\nfollow = true\n\
             inject = true\ntimeout = \"3s\"\nservice-name = \"mill\"\n\
             headers = { authorization = \"file:token\" }\nattributes = { zone = \"a\" }",
        )
        .unwrap();
        let header = HeaderSource::from("file:token".to_owned()).in_folder(Path::new("/etc/mill"));
        let expected = TracesConfig {
            is_enabled: true,
            endpoint: Some(check_url("http://127.0.0.1:4318").unwrap()),
            sampler: Some(Sampler::new(0.5).unwrap()),
            follows: true,
            injects: true,
            timeout: Some(Duration::from_secs(3)),
            service_name: Some("mill".to_owned()),
            headers: [("authorization".to_owned(), header)].into(),
            attributes: [("zone".to_owned(), "a".to_owned())].into(),
        };
        assert_eq!(own, expected);
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_line_and_the_way_out() {
        for (section, expected) in [
            (
                "endpoint = \"http://127.0.0.1:4318\"",
                "line 2: traces.endpoint: nothing is sent there unless traces.enabled = true",
            ),
            (
                "enabled = true\nendpoint = \"collector:4318\"",
                "line 3: traces.endpoint: must start with http:// or https://",
            ),
            ("sample = 1.5", "line 2: traces.sample: must be from 0 to 1"),
            ("sample = nan", "line 2: traces.sample: must be from 0 to 1"),
            (
                "timeout = \"0s\"",
                "line 2: traces.timeout: must be above zero",
            ),
            ("timeout = \"2m\"", "at most 1 minute"),
            (
                "service-name = \" \"",
                "line 2: traces.service-name: must not be empty",
            ),
            ("headers = { \"a b\" = \"x\" }", "traces.headers"),
            (
                "headers = { Content-Length = \"5\" }",
                "traces.headers: Content-Length: the host sets this header",
            ),
            (
                "headers = { content-type = \"text/plain\" }",
                "traces.headers: content-type: the host sets this header",
            ),
            ("ratio = 0.1", "unknown field `ratio`"),
        ] {
            let told = traces(section).unwrap_err();
            assert!(told.contains(expected), "{section}: {told}");
        }
    }
}
