//! From options to sinks.

use std::collections::BTreeMap;
use std::sync::Arc;

use shardmill_aws::{AwsClients, AwsOptions, PutTarget, Putter, connect};

use super::http::HttpCarrier;
use super::kinesis::{KEY_BYTES_MAX, kinesis_sink};
use super::open_error::OpenError;
use super::options::{STDOUT, SinkOptions};
use super::router::Outlet;
use super::{FileSink, FileSinkOptions, LineFormat, Router, StdoutSink};

/// Opens files, reads header values, makes clients. Sends nothing: whether a target is there shows
/// at the first write.
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
    Ok(match sink {
        SinkOptions::Stdout { format } => stdout(*format),
        SinkOptions::File {
            path,
            rotate_bytes,
            format,
            mode,
        } => {
            let (path, rotate_bytes, format) = (path.clone(), *rotate_bytes, *format);
            let options = FileSinkOptions {
                name: name.to_owned(),
                path,
                rotate_bytes,
                format,
                mode: *mode,
            };
            let file = FileSink::open(options).map_err(|source| OpenError::File {
                sink: name.to_owned(),
                source,
            })?;
            let letters = Arc::new(file.with_format(LineFormat::Data));
            Outlet {
                letters: Some(letters),
                ..Outlet::new(Arc::new(file))
            }
        }
        SinkOptions::Kinesis {
            target,
            region,
            endpoint,
            options,
        } => {
            let place = Place {
                target,
                region: region.as_ref(),
                endpoint: endpoint.as_ref(),
            };
            let AwsClients { kinesis, wire, .. } = place.clients(name, aws, clients).await?;
            let putter = Putter::new(kinesis, target.clone()).speaking(wire);
            let sink = kinesis_sink(name, putter, *options);
            let line_bytes_max = Some(options.record_bytes - KEY_BYTES_MAX);
            Outlet {
                line_bytes_max,
                ..Outlet::new(Arc::new(sink))
            }
        }
        SinkOptions::Http(options) => {
            let sink = HttpCarrier::new(name, options)?.into_sink(name);
            let letters = sink.with_carrier(sink.carrier().with_format(LineFormat::Data));
            // Brackets, or the line's end.
            let line_bytes_max = Some(options.request_bytes - 2);
            Outlet {
                letters: Some(Arc::new(letters)),
                line_bytes_max,
                ..Outlet::new(Arc::new(sink))
            }
        }
    })
}

fn stdout(format: LineFormat) -> Outlet {
    let sink = StdoutSink::new(format);
    let letters = sink.with_format(LineFormat::Data);
    Outlet {
        letters: Some(Arc::new(letters)),
        ..Outlet::new(Arc::new(sink))
    }
}

/// The clients that a sink's stream is reached by; `None` for other sinks.
pub async fn clients_of(
    name: &str,
    sink: &SinkOptions,
    aws: &AwsOptions,
    clients: &AwsClients,
) -> Result<Option<AwsClients>, OpenError> {
    let SinkOptions::Kinesis {
        target,
        region,
        endpoint,
        ..
    } = sink
    else {
        return Ok(None);
    };
    let place = Place {
        target,
        region: region.as_ref(),
        endpoint: endpoint.as_ref(),
    };
    place.clients(name, aws, Some(clients)).await.map(Some)
}

/// Where a sink's stream is.
struct Place<'a> {
    target: &'a PutTarget,
    region: Option<&'a String>,
    endpoint: Option<&'a String>,
}

impl Place<'_> {
    async fn clients(
        &self,
        name: &str,
        aws: &AwsOptions,
        clients: Option<&AwsClients>,
    ) -> Result<AwsClients, OpenError> {
        let (region, endpoint) = (self.region.cloned(), self.endpoint.cloned());
        if let Some(clients) = clients
            && is_same_place(self.target, region.as_deref(), endpoint.as_deref(), clients)
        {
            return Ok(clients.clone());
        }
        let own = connect(&own_place(self.target, region, endpoint, aws)).await;
        own.map_err(|source| OpenError::Aws {
            sink: name.to_owned(),
            source,
        })
    }
}

/// Whether the host's own client reaches the stream.
fn is_same_place(
    target: &PutTarget,
    region: Option<&str>,
    endpoint: Option<&str>,
    clients: &AwsClients,
) -> bool {
    let wanted = region.or(match target {
        PutTarget::Arn { region, .. } => Some(region.as_str()),
        PutTarget::Name(_) => None,
    });
    endpoint.is_none() && wanted.is_none_or(|region| region == clients.region)
}

/// Where a stream is that the host's own client does not reach. Another region's stream is not at
/// the host's endpoint.
fn own_place(
    target: &PutTarget,
    region: Option<String>,
    endpoint: Option<String>,
    aws: &AwsOptions,
) -> AwsOptions {
    let of_target = match target {
        PutTarget::Arn { region, .. } => Some(region.clone()),
        PutTarget::Name(_) => None,
    };
    let is_elsewhere = region.is_some() || of_target.is_some();
    AwsOptions {
        region: region.or(of_target).or_else(|| aws.region.clone()),
        kinesis_endpoint: endpoint
            .or_else(|| aws.kinesis_endpoint.clone().filter(|_| !is_elsewhere)),
        dynamodb_endpoint: None,
        credentials: aws.credentials.clone(),
        wire: aws.wire,
    }
}
