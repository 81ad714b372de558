//! The sections `[sinks.NAME]`.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use bytesize::ByteSize;
use reqwest::Url;
use reqwest::header::{self, HeaderName};
use serde::Deserialize;
use shardmill_aws::PutTarget;
use shardmill_core::stream::check_region;
use shardmill_sinks::{
    BodyFormat, HeaderSource, HttpSinkOptions, KeyOrder, KinesisSinkOptions, LineFormat, STDOUT,
    SinkOptions,
};

use super::duration;
use super::problem::{At, Problem, Under};
use super::role::check_role;
use super::size;
use super::units::to_usize;

/// Smallest limit that can be set for a request or a record: a part of a dead letter needs half of
/// it for everything but the data.
const LIMIT_MIN: ByteSize = ByteSize::kib(64);
/// Largest record and largest request (AWS limit).
const KINESIS_MAX: ByteSize = ByteSize::mib(10);
/// Largest record that a stream accepts unless `UpdateMaxRecordSize` raised it (AWS default).
const RECORD_DEFAULT: ByteSize = ByteSize::mib(1);
/// Emulators accept no more; AWS accepts twice that.
const KINESIS_REQUEST_DEFAULT: ByteSize = ByteSize::mib(5);
/// What servers and gateways commonly accept.
const HTTP_REQUEST_DEFAULT: ByteSize = ByteSize::mib(1);
/// More than anybody wants in one request, yet small enough to catch a mistyped number.
const HTTP_REQUEST_MAX: ByteSize = ByteSize::mib(256);
/// As many as `PutRecords` allows.
const HTTP_RECORDS_DEFAULT: usize = 500;
/// Longer than any healthy TCP and TLS handshake.
const CONNECT_DEFAULT: Duration = Duration::from_secs(3);
/// A megabyte over a slow link, and a slow endpoint.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// A call must come back long before the lease is given up for it (`leases.checkpoint-deadline`, 5
/// min).
const TIMEOUT_MAX: Duration = Duration::from_mins(2);
/// Concurrent requests that an ordinary endpoint handles.
const CONCURRENCY_DEFAULT: usize = 32;
/// More connections than a process may usually open.
const CONCURRENCY_MAX: usize = 10_000;

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum SinkFile {
    Stdout {
        #[serde(default)]
        format: LineFormat,
    },
    #[serde(rename_all = "kebab-case")]
    File {
        path: PathBuf,
        #[serde(default, deserialize_with = "size::optional")]
        rotate_bytes: Option<ByteSize>,
        #[serde(default)]
        format: LineFormat,
        mode: Option<String>,
    },
    Kinesis(KinesisFile),
    Http(HttpFile),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct KinesisFile {
    stream: String,
    region: Option<String>,
    role: Option<String>,
    external_id: Option<String>,
    endpoint: Option<String>,
    #[serde(default)]
    order: KeyOrder,
    #[serde(default, deserialize_with = "size::optional")]
    record_bytes: Option<ByteSize>,
    #[serde(default, deserialize_with = "size::optional")]
    request_bytes: Option<ByteSize>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct HttpFile {
    url: String,
    #[serde(default)]
    headers: BTreeMap<String, HeaderSource>,
    #[serde(default)]
    format: LineFormat,
    #[serde(default)]
    body: BodyFormat,
    records: Option<usize>,
    #[serde(default, deserialize_with = "size::optional")]
    request_bytes: Option<ByteSize>,
    #[serde(default, deserialize_with = "duration::optional")]
    connect_timeout: Option<Duration>,
    #[serde(default, deserialize_with = "duration::optional")]
    timeout: Option<Duration>,
    concurrency: Option<usize>,
}

// === impl SinkFile ===

pub(super) fn check_sinks(
    sinks: BTreeMap<String, SinkFile>,
    folder: &Path,
) -> Result<BTreeMap<String, SinkOptions>, Problem> {
    let mut checked = BTreeMap::new();
    for (name, sink) in sinks {
        let sink = sink.check(folder).under(&format!("sinks.{name}"))?;
        checked.insert(name, sink);
    }
    refuse_shared_files(&checked)?;
    Ok(checked)
}

/// Refuses the name of a sink that the configuration does not have.
pub(super) fn refuse_unknown_sink(
    name: &str,
    sinks: &BTreeMap<String, SinkOptions>,
) -> Result<(), String> {
    if name == STDOUT || sinks.contains_key(name) {
        return Ok(());
    }
    Err(format!(
        "no sink is named {name:?}: add [sinks.{name}], or name an existing one"
    ))
}

/// A file has one writer.
fn refuse_shared_files(sinks: &BTreeMap<String, SinkOptions>) -> Result<(), Problem> {
    let mut writers: BTreeMap<PathBuf, &str> = BTreeMap::new();
    for (name, sink) in sinks {
        let SinkOptions::File { path, .. } = sink else {
            continue;
        };
        let path = as_one_writes_it(path);
        if let Some(other) = writers.insert(path, name) {
            let message = format!(
                "is the file of sinks.{other} too: give each its own file, or use one of them for both"
            );
            return Err(Problem::new(format!("sinks.{name}.path"), message));
        }
    }
    Ok(())
}

/// A path without `.`, and without what `..` takes back, as far as that can be known without looking
/// for links.
pub(super) fn as_one_writes_it(path: &Path) -> PathBuf {
    let mut simple = PathBuf::new();
    for part in path.components() {
        let goes_back = part == Component::ParentDir
            && matches!(simple.components().next_back(), Some(Component::Normal(_)));
        if goes_back {
            simple.pop();
        } else if part != Component::CurDir {
            simple.push(part);
        }
    }
    simple
}

impl SinkFile {
    fn check(self, folder: &Path) -> Result<SinkOptions, Problem> {
        match self {
            Self::Stdout { format } => Ok(SinkOptions::Stdout { format }),
            Self::File {
                path,
                rotate_bytes,
                format,
                mode,
            } => Ok(SinkOptions::File {
                path: folder.join(path),
                rotate_bytes: rotate_bytes.map_or(1 << 30, |size| size.as_u64()),
                format,
                mode: mode.as_deref().map(check_mode).transpose().at("mode")?,
            }),
            Self::Kinesis(file) => file.check(),
            Self::Http(file) => file.check(folder).map(SinkOptions::Http),
        }
    }
}

/// A mode in octal digits, as `chmod` takes it: the host must be able to read and write the file;
/// others may not write it, and nobody may run it.
fn check_mode(text: &str) -> Result<u32, String> {
    const NEEDED: u32 = 0o600;
    const ALLOWED: u32 = 0o664;
    let digits = text.strip_prefix("0o").unwrap_or(text);
    let mode = u32::from_str_radix(digits, 8).ok();
    mode.filter(|mode| mode & NEEDED == NEEDED && mode & !ALLOWED == 0)
        .ok_or_else(|| {
            format!(
                "{text:?} is not the mode of a file that the host writes and others at most read: \
                    use \"0600\", \"0640\", \"0660\" or \"0644\""
            )
        })
}

impl KinesisFile {
    fn check(self) -> Result<SinkOptions, Problem> {
        let target = PutTarget::parse(&self.stream).at("stream")?;
        if let Some(region) = &self.region {
            check_region(region).at("region")?;
        }
        if let Some(endpoint) = &self.endpoint {
            check_url(endpoint).at("endpoint")?;
        }
        let record = self.record_bytes.unwrap_or(RECORD_DEFAULT);
        let request = self
            .request_bytes
            .unwrap_or(KINESIS_REQUEST_DEFAULT.max(record));
        let options = KinesisSinkOptions {
            order: self.order,
            record_bytes: between(record, KINESIS_MAX).at("record-bytes")?,
            request_bytes: between(request, KINESIS_MAX).at("request-bytes")?,
        };
        if options.record_bytes > options.request_bytes {
            let message = format!("must be at least record-bytes, {record}");
            return Err(Problem::new("request-bytes", message));
        }
        Ok(SinkOptions::Kinesis {
            target,
            region: self.region,
            role: check_role(self.role, self.external_id, "")?,
            endpoint: self.endpoint,
            options,
        })
    }
}

impl HttpFile {
    fn check(self, folder: &Path) -> Result<HttpSinkOptions, Problem> {
        for (name, source) in &self.headers {
            check_header(name, source).at("headers")?;
        }
        let headers = self.headers.into_iter();
        let request_bytes = self.request_bytes.unwrap_or(HTTP_REQUEST_DEFAULT);
        let connect_timeout = self.connect_timeout.unwrap_or(CONNECT_DEFAULT);
        let timeout = self.timeout.unwrap_or(TIMEOUT_DEFAULT);
        Ok(HttpSinkOptions {
            url: check_url(&self.url).at("url")?,
            headers: headers
                .map(|(name, source)| (name, source.in_folder(folder)))
                .collect(),
            format: self.format,
            body: self.body,
            records: above_zero(self.records, HTTP_RECORDS_DEFAULT).at("records")?,
            request_bytes: between(request_bytes, HTTP_REQUEST_MAX).at("request-bytes")?,
            connect_timeout: within_reason(connect_timeout).at("connect-timeout")?,
            timeout: within_reason(timeout).at("timeout")?,
            concurrency: concurrency(self.concurrency).at("concurrency")?,
        })
    }
}

/// Headers that say where a request ends, or what becomes of its connection (RFC 9110, 7.6.1): with
/// another value than the client's own, a receiver reads a part of the body, and says that all is
/// well.
const FRAMING: [HeaderName; 7] = [
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    header::EXPECT,
];

/// What is wrong with a header that requests are to have.
///
/// # Errors
/// A sentence that begins with the header's name.
pub(super) fn check_header(name: &str, source: &HeaderSource) -> Result<(), String> {
    let Ok(header) = HeaderName::try_from(name) else {
        return Err(format!("{name:?} cannot name a header"));
    };
    if FRAMING.contains(&header) {
        return Err(format!(
            "{name}: the host sets this header, which says where a request ends"
        ));
    }
    if source.variable().is_some_and(str::is_empty) {
        return Err(format!("{name}: name the variable, as in \"env:TOKEN\""));
    }
    let file = source.file();
    if file.is_some_and(|path| path.as_os_str().is_empty()) {
        return Err(format!(
            "{name}: name the file, as in \"file:/run/secrets/token\""
        ));
    }
    Ok(())
}

fn concurrency(asked: Option<usize>) -> Result<usize, &'static str> {
    match asked.unwrap_or(CONCURRENCY_DEFAULT) {
        some if (1..=CONCURRENCY_MAX).contains(&some) => Ok(some),
        _ => Err("must be from 1 to 10000"),
    }
}

fn above_zero(asked: Option<usize>, default: usize) -> Result<usize, &'static str> {
    match asked {
        Some(0) => Err("must be above zero"),
        asked => Ok(asked.unwrap_or(default)),
    }
}

fn within_reason(time: Duration) -> Result<Duration, String> {
    if time.is_zero() {
        return Err("must be above zero".to_owned());
    }
    if time > TIMEOUT_MAX {
        return Err(format!("must be at most {}", spoken(TIMEOUT_MAX)));
    }
    Ok(time)
}

/// Checks a URL to send to, a sink's or an endpoint's.
///
/// # Errors
/// What is wrong with it. Never shows a URL with a secret in it.
pub fn check_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text)
        .map_err(|error| format!("not a URL such as \"http://127.0.0.1:4566\": {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("must start with http:// or https:// and name a host".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "must not contain a user and password; an HTTP sink sends them in its header authorization"
                .to_owned(),
        );
    }
    Ok(url)
}

fn between(size: ByteSize, max: ByteSize) -> Result<usize, String> {
    if (LIMIT_MIN..=max).contains(&size) {
        return Ok(to_usize(size));
    }
    Err(format!("must be from {LIMIT_MIN} to {max}"))
}

fn spoken(time: Duration) -> humantime::FormattedDuration {
    humantime::format_duration(time)
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    fn sink(text: &str) -> Result<SinkOptions, String> {
        let text =
            format!("stream = \"orders\"\n[sinks.first]\ntype = \"stdout\"\n[sinks.out]\n{text}");
        Config::parse(&text, Path::new("/etc")).map(|config| config.sinks["out"].clone())
    }

    #[test]
    fn a_file_has_a_mode_that_lets_the_host_write_and_not_everybody() {
        let mode = |mode: &str| {
            sink(&format!("type = \"file\"\npath = \"out\"\n{mode}")).map(|sink| match sink {
                SinkOptions::File { mode, .. } => mode,
                _ => panic!("another sink"),
            })
        };
        assert_eq!(mode(""), Ok(None));
        assert_eq!(mode("mode = \"0640\""), Ok(Some(0o640)));
        assert_eq!(mode("mode = \"0o660\""), Ok(Some(0o660)));
        for wrong in [
            "0666",
            "0755",
            "0440",
            "4640",
            "rw",
            "",
            "-1",
            "99999999999",
        ] {
            let told = mode(&format!("mode = {wrong:?}")).unwrap_err();
            assert!(
                told.contains("sinks.out.mode") && told.contains("\"0640\""),
                "{told}"
            );
        }
    }

    #[test]
    fn a_kinesis_sink_keeps_order_and_takes_what_every_stream_takes_unless_configured_otherwise() {
        let SinkOptions::Kinesis {
            target,
            region,
            role,
            endpoint,
            options,
        } = sink("type = \"kinesis\"\nstream = \"alerts\"").unwrap()
        else {
            panic!("another sink")
        };
        assert_eq!(
            (target.to_string().as_str(), region, role, endpoint),
            ("alerts", None, None, None)
        );
        let expected = KinesisSinkOptions {
            order: KeyOrder::Key,
            record_bytes: 1 << 20,
            request_bytes: 5 << 20,
        };
        assert_eq!(options, expected);
        let large = sink(
            "type = \"kinesis\"\nstream = \"alerts\"\nrecord-bytes = \"10MiB\"\norder = \"none\"",
        )
        .unwrap();
        let SinkOptions::Kinesis { options, .. } = large else {
            panic!("another sink")
        };
        assert_eq!(
            (options.order, options.record_bytes, options.request_bytes),
            (KeyOrder::None, 10 << 20, 10 << 20)
        );
    }

    #[test]
    fn an_http_sink_needs_only_an_address() {
        let SinkOptions::Http(options) =
            sink("type = \"http\"\nurl = \"https://example.org/in?a=b\"").unwrap()
        else {
            panic!("another sink")
        };
        assert_eq!(
            (options.records, options.request_bytes, options.concurrency),
            (500, 1 << 20, 32)
        );
        assert_eq!(
            (options.body, options.format),
            (BodyFormat::Ndjson, LineFormat::Data)
        );
        assert_eq!(
            (options.connect_timeout, options.timeout),
            (CONNECT_DEFAULT, TIMEOUT_DEFAULT)
        );
    }

    #[test]
    fn a_setting_that_cannot_work_is_named_with_sink_line_and_mend() {
        let http = "type = \"http\"\nurl = \"http://localhost:1\"\n";
        let kinesis = "type = \"kinesis\"\nstream = \"alerts\"\n";
        for (text, expected) in [
            (
                "type = \"kinesis\"\nstream = \"a b\"".to_owned(),
                "line 6: sinks.out.stream: stream name \"a b\"",
            ),
            (
                "type = \"kinesis\"\nstream = \"arn:aws:sqs:x:1:y\"".to_owned(),
                "an ARN of a stream looks like",
            ),
            (
                format!("{kinesis}record-bytes = \"11MiB\""),
                "line 7: sinks.out.record-bytes: must be from 64",
            ),
            (
                format!("{kinesis}record-bytes = \"1KiB\""),
                "line 7: sinks.out.record-bytes: must be from 64",
            ),
            (
                format!("{kinesis}request-bytes = \"100KiB\""),
                "line 7: sinks.out.request-bytes: must be at least record",
            ),
            (
                format!("{kinesis}endpoint = \"localhost\""),
                "line 7: sinks.out.endpoint: not a URL",
            ),
            (
                "type = \"http\"\nurl = \"ftp://x\"".to_owned(),
                "line 6: sinks.out.url: must start with http",
            ),
            (
                "type = \"http\"\nurl = \"http://me:hush@x\"".to_owned(),
                "must not contain a user and password",
            ),
            (
                format!("{http}records = 0"),
                "line 7: sinks.out.records: must be above zero",
            ),
            (
                format!("{http}timeout = \"1h\""),
                "line 7: sinks.out.timeout: must be at most 2m",
            ),
            (
                format!("{http}headers = {{ Content-Length = \"5\" }}"),
                "line 7: sinks.out.headers: Content-Length: the host sets this header",
            ),
            (
                format!("{http}headers = {{ \"a b\" = \"x\" }}"),
                "\"a b\" cannot name a header",
            ),
            (
                format!("{http}headers = {{ a = \"env:\" }}"),
                "a: name the variable",
            ),
            (format!("{http}retries = 3"), "unknown field `retries`"),
            ("type = \"sqs\"".to_owned(), "unknown value `sqs`"),
        ] {
            let error = sink(&text).unwrap_err();
            assert!(
                error.contains(expected) && !error.contains("hush"),
                "{error}"
            );
        }
    }

    #[test]
    fn an_http_sink_has_one_request_at_once_or_as_many_as_a_process_can_hold() {
        let of = |concurrency: &str| {
            let text = format!(
                "type = \"http\"\nurl = \"http://localhost/\"\nconcurrency = {concurrency}\n"
            );
            sink(&text)
        };
        for good in ["1", "10000"] {
            assert!(of(good).is_ok(), "{good}");
        }
        for bad in ["0", "10001", "9223372036854775807"] {
            let told = of(bad).unwrap_err();
            assert!(
                told.contains("concurrency: must be from 1 to 10000"),
                "{told}"
            );
        }
    }
}
