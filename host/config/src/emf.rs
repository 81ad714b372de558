//! The section `[emf]`: the KCL's metrics for CloudWatch, in its embedded metric format.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use shardmill_core::kcl_metrics::Level;
use shardmill_sinks::SinkOptions;

use super::duration;
use super::problem::Problem;
use super::settings::{EmfConfig, EmfTarget};
use super::sinks::as_one_writes_it;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct EmfFile {
    target: Option<String>,
    level: Option<String>,
    namespace: Option<String>,
    #[serde(default, deserialize_with = "duration::optional")]
    every: Option<Duration>,
    log_group: Option<String>,
}

/// As the KCL: `metricsBufferTimeMillis`.
const EVERY: Duration = Duration::from_secs(10);
/// More often, lines would hold single values, and CloudWatch adds them up by the minute anyway.
const EVERY_MIN: Duration = Duration::from_secs(1);
/// More rarely, alarms on a period of a minute would miss data.
const EVERY_MAX: Duration = Duration::from_mins(1);
/// Stands for the name of the application, without which those of several plugins are added up.
const APPLICATION: &str = "{application}";
/// CloudWatch takes 255 bytes, and the name of an application has up to 255; few are so long.
const NAMESPACE_BYTES_MAX: usize = 100;
/// Under these the process has its own output.
const STREAMS: [&str; 4] = ["/dev/stdout", "/dev/stderr", "/dev/fd", "/proc"];
/// CloudWatch Logs takes no longer name.
const LOG_GROUP_BYTES_MAX: usize = 512;

impl EmfFile {
    /// `None` if nothing is to be written. A relative path is relative to `folder`.
    pub(super) fn check(
        self,
        folder: &Path,
        sinks: &BTreeMap<String, SinkOptions>,
    ) -> Result<Option<EmfConfig>, Problem> {
        let Some(target) = self.target.as_deref() else {
            return self.refuse_without_target().map(|()| None);
        };
        let target = target_of(target, folder)?;
        refuse_shared_file(&target, sinks)?;
        let every = self.every.unwrap_or(EVERY);
        if !(EVERY_MIN..=EVERY_MAX).contains(&every) {
            let message = "must be from 1s to 1m; the KCL's value is 10s";
            return Err(Problem::new("emf.every", message));
        }
        Ok(Some(EmfConfig {
            target,
            level: level_of(self.level.as_deref())?,
            namespace: namespace_of(self.namespace)?,
            every,
            log_group: log_group_of(self.log_group)?,
        }))
    }

    /// Whoever sets one of the others wants lines.
    fn refuse_without_target(&self) -> Result<(), Problem> {
        let others = [
            ("level", self.level.is_some()),
            ("namespace", self.namespace.is_some()),
            ("every", self.every.is_some()),
            ("log-group", self.log_group.is_some()),
        ];
        match others.iter().find(|(_, is_set)| *is_set) {
            None => Ok(()),
            Some((key, _)) => Err(Problem::new(
                format!("emf.{key}"),
                "has no effect without emf.target: say where the lines go, such as target = \
                    \"tcp://127.0.0.1:25888\"",
            )),
        }
    }
}

fn target_of(text: &str, folder: &Path) -> Result<EmfTarget, Problem> {
    let refused = |message: &str| Err(Problem::new("emf.target", message));
    if text == "stderr" {
        return Ok(EmfTarget::Stderr);
    }
    if text == "stdout" {
        return refused(
            "cannot be \"stdout\", which has the output of plugins: \"stderr\" goes to the same log \
             of a container",
        );
    }
    if let Some(path) = text.strip_prefix("file:") {
        let file = as_one_writes_it(&folder.join(path));
        return match path {
            "" => refused("names no file: write it as \"file:emf.ndjson\""),
            _ if STREAMS.iter().any(|stream| file.starts_with(stream)) => {
                refused("must be a file of its own: for the log of a container, write \"stderr\"")
            }
            _ => Ok(EmfTarget::File(file)),
        };
    }
    for (scheme, target) in [
        ("tcp://", EmfTarget::Tcp as fn(String) -> EmfTarget),
        ("udp://", EmfTarget::Udp),
    ] {
        if let Some(address) = text.strip_prefix(scheme) {
            return if is_address(address) {
                Ok(target(address.to_owned()))
            } else {
                refused("needs a host and a port, such as \"tcp://127.0.0.1:25888\"")
            };
        }
    }
    refused(
        "must be \"stderr\", \"file:PATH\", or the address of a CloudWatch agent: \
         \"tcp://127.0.0.1:25888\", \"udp://127.0.0.1:25888\"",
    )
}

/// Whether it is `HOST:PORT`; a host of digits and colons is in brackets.
fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let is_name = |host: &str| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        !host.is_empty() && host.chars().all(is_allowed)
    };
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    port.parse::<u16>().is_ok_and(|port| port > 0) && (is_bracketed || is_name(host))
}

/// Lines of two kinds in one file are of no use to whoever reads one kind.
fn refuse_shared_file(
    target: &EmfTarget,
    sinks: &BTreeMap<String, SinkOptions>,
) -> Result<(), Problem> {
    let EmfTarget::File(path) = target else {
        return Ok(());
    };
    let is_same = |options: &SinkOptions| match options {
        SinkOptions::File { path: other, .. } => as_one_writes_it(other) == *path,
        SinkOptions::Stdout { .. } | SinkOptions::Kinesis { .. } | SinkOptions::Http(_) => false,
    };
    match sinks.iter().find(|(_, options)| is_same(options)) {
        None => Ok(()),
        Some((name, _)) => {
            let message = format!("is the file of the sink {name}: choose another one");
            Err(Problem::new("emf.target", message))
        }
    }
}

fn level_of(text: Option<&str>) -> Result<Level, Problem> {
    match text {
        // The KCL's choice.
        None | Some("detailed") => Ok(Level::Detailed),
        Some("summary") => Ok(Level::Summary),
        Some(_) => {
            let message = "must be \"summary\" or \"detailed\"; for none, leave emf.target out";
            Err(Problem::new("emf.level", message))
        }
    }
}

fn namespace_of(text: Option<String>) -> Result<String, Problem> {
    let Some(text) = text else {
        return Ok(APPLICATION.to_owned());
    };
    let refused = |message: &str| Err(Problem::new("emf.namespace", message));
    let rest = text.replacen(APPLICATION, "", 1);
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-/#: ".contains(c);
    if text.trim().is_empty() || !rest.chars().all(is_allowed) {
        return refused(
            "must be letters, digits, spaces and . _ - / # : with {application} where the name of \
             the application belongs, such as \"shardmill/{application}\"",
        );
    }
    if rest.len() > NAMESPACE_BYTES_MAX {
        return refused("is longer than 100 bytes, not counting {application}");
    }
    if rest.starts_with("AWS/") && text.starts_with("AWS/") {
        return refused("must not begin with AWS/, which belongs to AWS' own services");
    }
    Ok(text)
}

fn log_group_of(text: Option<String>) -> Result<Option<String>, Problem> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-/#".contains(c);
    match text {
        Some(text)
            if text.is_empty()
                || text.len() > LOG_GROUP_BYTES_MAX
                || !text.chars().all(is_allowed) =>
        {
            let message = "must be 1 to 512 letters, digits and . _ - / #";
            Err(Problem::new("emf.log-group", message))
        }
        text => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn emf(section: &str) -> Result<Option<EmfConfig>, String> {
        let text = format!("[sinks.out]\ntype = \"file\"\npath = \"out\"\n[emf]\n{section}");
        Ok(Config::parse(&text, Path::new("/etc/shardmill"))?.emf)
    }

    #[test]
    fn nothing_is_written_unless_it_says_where() {
        assert_eq!(emf("").unwrap(), None);
        let told = emf("level = \"summary\"").unwrap_err();
        assert!(
            told.contains("line 5: emf.level: has no effect without emf.target"),
            "{told}"
        );
    }

    #[test]
    fn the_kcls_level_interval_and_namespace_are_the_defaults() {
        let usual = emf("target = \"tcp://agent:25888\"").unwrap().unwrap();
        let expected = EmfConfig {
            target: EmfTarget::Tcp("agent:25888".to_owned()),
            level: Level::Detailed,
            namespace: "{application}".to_owned(),
            every: Duration::from_secs(10),
            log_group: None,
        };
        assert_eq!(usual, expected);
        let own = "target = \"file:emf\"\nlevel = \"summary\"\nnamespace = \"x/{application}\"\n\
            every = \"1m\"\nlog-group = \"/orders\"";
        let expected = EmfConfig {
            target: EmfTarget::File("/etc/shardmill/emf".into()),
            level: Level::Summary,
            namespace: "x/{application}".to_owned(),
            every: Duration::from_mins(1),
            log_group: Some("/orders".to_owned()),
        };
        assert_eq!(emf(own).unwrap().unwrap(), expected);
    }

    #[test]
    fn a_target_that_would_mix_lines_or_is_none_is_refused_with_what_to_write() {
        for (target, told) in [
            ("stdout", "which has the output of plugins: \"stderr\""),
            ("file:out", "is the file of the sink out"),
            ("file:a/../out", "is the file of the sink out"),
            ("file:/dev/stdout", "must be a file of its own"),
            ("file:/dev/fd/1", "must be a file of its own"),
            ("file:", "names no file"),
            ("tcp://agent", "needs a host and a port"),
            ("udp://:25888", "needs a host and a port"),
            ("tcp://agent:0", "needs a host and a port"),
            ("tcp://agent:99999", "needs a host and a port"),
            ("http://agent:25888", "must be \"stderr\", \"file:PATH\""),
        ] {
            let refused = emf(&format!("target = \"{target}\"")).unwrap_err();
            assert!(
                refused.contains("line 5: emf.target") && refused.contains(told),
                "{target}: {refused}"
            );
        }
        assert!(emf("target = \"udp://[::1]:25888\"").is_ok());
    }

    #[test]
    fn what_cloudwatch_would_refuse_is_refused_here() {
        for (key, value) in [
            ("namespace", "AWS/Kinesis"),
            ("namespace", ""),
            ("namespace", "a{b}"),
            ("namespace", "{application}{application}"),
            ("log-group", "a b"),
            ("level", "none"),
            ("every", "500ms"),
            ("every", "2m"),
        ] {
            let section = format!("target = \"stderr\"\n{key} = \"{value}\"");
            let told = emf(&section).unwrap_err();
            assert!(told.contains(&format!("line 6: emf.{key}")), "{told}");
        }
    }
}
