//! Opens sinks from their options.

use std::collections::BTreeMap;
use std::sync::Arc;

use shardmill_aws::{AwsClients, AwsOptions, PutTarget, Putter, Role, ServiceAccess, connect};

use super::file::{FileSink, FileSinkOptions};
use super::http::{HttpCarrier, HttpSinkOptions};
use super::kinesis::{KEY_BYTES_MAX, kinesis_sink};
use super::open_error::OpenError;
use super::options::{STDOUT, SinkOptions};
use super::router::Outlet;
use super::stdout::StdoutSink;
use super::{LineFormat, Router};

/// Opens files, reads header values and makes clients. Sends nothing: the first write shows whether
/// a target exists.
pub async fn open_sinks(
    sinks: &BTreeMap<String, SinkOptions>,
    aws: &AwsOptions,
    clients: Option<&AwsClients>,
) -> Result<Router, OpenError> {
    let mut router = Router::default();
    if !sinks.contains_key(STDOUT) {
        router.add(STDOUT, stdout(LineFormat::Data));
    }
    for (name, sink) in sinks {
        router.add(name, open(name, sink, aws, clients).await?);
    }
    Ok(router)
}

async fn open(
    name: &str,
    sink: &SinkOptions,
    aws: &AwsOptions,
    clients: Option<&AwsClients>,
) -> Result<Outlet, OpenError> {
    match sink {
        SinkOptions::Stdout { format } => Ok(stdout(*format)),
        SinkOptions::File {
            path,
            rotate_bytes,
            format,
            mode,
        } => file(FileSinkOptions {
            name: name.to_owned(),
            path: path.clone(),
            rotate_bytes: *rotate_bytes,
            format: *format,
            mode: *mode,
        }),
        SinkOptions::Kinesis {
            target,
            region,
            role,
            endpoint,
            options,
        } => {
            let stream = StreamAddress {
                target,
                region: region.as_deref(),
                role: role.as_ref(),
                endpoint: endpoint.as_deref(),
            };
            let clients = stream.clients(name, aws, clients).await?;
            let putter = Putter::new(clients.kinesis, target.clone()).speaking(clients.wire);
            let sink = kinesis_sink(name, putter, *options);
            Ok(Outlet {
                line_bytes_max: Some(options.record_bytes - KEY_BYTES_MAX),
                ..Outlet::new(Arc::new(sink))
            })
        }
        SinkOptions::Http(options) => http(name, options),
    }
}

fn stdout(format: LineFormat) -> Outlet {
    let sink = StdoutSink::new(format);
    let letters = sink.with_format(LineFormat::Data);
    Outlet {
        letters: Some(Arc::new(letters)),
        ..Outlet::new(Arc::new(sink))
    }
}

fn file(options: FileSinkOptions) -> Result<Outlet, OpenError> {
    let name = options.name.clone();
    let sink = FileSink::open(options).map_err(|source| OpenError::File { sink: name, source })?;
    let letters = sink.with_format(LineFormat::Data);
    Ok(Outlet {
        letters: Some(Arc::new(letters)),
        ..Outlet::new(Arc::new(sink))
    })
}

fn http(name: &str, options: &HttpSinkOptions) -> Result<Outlet, OpenError> {
    let sink = HttpCarrier::new(name, options)?.into_sink(name);
    let letters = sink.with_carrier(sink.carrier().with_format(LineFormat::Data));
    Ok(Outlet {
        letters: Some(Arc::new(letters)),
        // Brackets, or the line's end.
        line_bytes_max: Some(options.request_bytes - 2),
        names_spans: true,
        ..Outlet::new(Arc::new(sink))
    })
}

/// The clients that reach the sink's stream; `None` if the sink is not a stream.
pub async fn clients_of(
    name: &str,
    sink: &SinkOptions,
    aws: &AwsOptions,
    clients: &AwsClients,
) -> Result<Option<AwsClients>, OpenError> {
    let SinkOptions::Kinesis {
        target,
        region,
        role,
        endpoint,
        ..
    } = sink
    else {
        return Ok(None);
    };
    let stream = StreamAddress {
        target,
        region: region.as_deref(),
        role: role.as_ref(),
        endpoint: endpoint.as_deref(),
    };
    stream.clients(name, aws, Some(clients)).await.map(Some)
}

/// Where a sink's stream is.
struct StreamAddress<'a> {
    target: &'a PutTarget,
    region: Option<&'a str>,
    role: Option<&'a Role>,
    endpoint: Option<&'a str>,
}

impl StreamAddress<'_> {
    async fn clients(
        &self,
        name: &str,
        aws: &AwsOptions,
        clients: Option<&AwsClients>,
    ) -> Result<AwsClients, OpenError> {
        if let Some(clients) = clients
            && self.is_reached_by(clients)
        {
            return Ok(clients.clone());
        }
        let connected = Box::pin(connect(&self.options(aws))).await;
        connected.map_err(|source| OpenError::Aws {
            sink: name.to_owned(),
            source,
        })
    }

    /// The region that the configuration names for the stream; `None` means the host's.
    fn region(&self) -> Option<&str> {
        self.region.or(match self.target {
            PutTarget::Arn { region, .. } => Some(region),
            PutTarget::Name(_) => None,
        })
    }

    /// Whether the host's own clients reach the stream.
    fn is_reached_by(&self, clients: &AwsClients) -> bool {
        let has_region = |region| region == clients.region;
        self.endpoint.is_none() && self.role.is_none() && self.region().is_none_or(has_region)
    }

    /// Options for clients of the stream alone. A stream of another region is not at the host's
    /// endpoint.
    fn options(&self, aws: &AwsOptions) -> AwsOptions {
        let region = self.region();
        let endpoint = match (self.endpoint, region) {
            (Some(endpoint), _) => Some(endpoint.to_owned()),
            (None, None) => aws.kinesis_endpoint.clone(),
            (None, Some(_)) => None,
        };
        let of_host = aws.kinesis.clone();
        AwsOptions {
            kinesis: ServiceAccess {
                region: region.map(str::to_owned).or(of_host.region),
                role: self.role.cloned().or(of_host.role),
            },
            kinesis_endpoint: endpoint,
            dynamodb_endpoint: None,
            ..aws.clone()
        }
    }
}
