//! The transport of the SDK's clients. Its errors name the address that refused a connection, which
//! the SDK's do not.
//!
//! TLS is rustls over ring: the SDK's default would bring a C library that needs cmake to build.

use std::error::Error;
use std::io;

use aws_smithy_http_client::{Builder, tls};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::connector_metadata::ConnectorMetadata;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::{
    RuntimeComponents, RuntimeComponentsBuilder,
};
use aws_smithy_types::config_bag::ConfigBag;

/// A transport with connections of its own. Cheap: certificates are read once a process.
pub(crate) fn http_client() -> SharedHttpClient {
    let client = Builder::new()
        .tls_provider(tls::Provider::Rustls(
            tls::rustls_provider::CryptoMode::Ring,
        ))
        .build_https();
    SharedHttpClient::new(NamingClient(client))
}

#[derive(Debug)]
struct NamingClient(SharedHttpClient);

impl HttpClient for NamingClient {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(NamingConnector(self.0.http_connector(settings, components)))
    }

    fn validate_base_client_config(
        &self,
        components: &RuntimeComponentsBuilder,
        config: &ConfigBag,
    ) -> Result<(), BoxError> {
        self.0.validate_base_client_config(components, config)
    }

    fn validate_final_config(
        &self,
        components: &RuntimeComponents,
        config: &ConfigBag,
    ) -> Result<(), BoxError> {
        self.0.validate_final_config(components, config)
    }

    fn connector_metadata(&self) -> Option<ConnectorMetadata> {
        self.0.connector_metadata()
    }
}

#[derive(Debug)]
struct NamingConnector(SharedHttpConnector);

impl HttpConnector for NamingConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let url = request.uri().to_owned();
        let reply = self.0.call(request);
        HttpConnectorFuture::new(async move { reply.await.map_err(|error| named(error, &url)) })
    }
}

/// A refused connection with its address; any other error as it is.
fn named(error: ConnectorError, url: &str) -> ConnectorError {
    match refused_connection(&error) {
        Some(cause) => {
            let text = format!("{cause} at {}", address(url));
            ConnectorError::io(io::Error::new(io::ErrorKind::ConnectionRefused, text).into())
        }
        None => error,
    }
}

fn refused_connection(error: &ConnectorError) -> Option<&io::Error> {
    let mut next = error.source();
    while let Some(cause) = next {
        let refused = cause.downcast_ref::<io::Error>();
        let refused = refused.filter(|cause| cause.kind() == io::ErrorKind::ConnectionRefused);
        if refused.is_some() {
            return refused;
        }
        next = cause.source();
    }
    None
}

/// Scheme, host and port of a URL.
fn address(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    // What comes before an `@` may be a password.
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_url_has_neither_path_nor_password() {
        for (url, expected) in [
            ("http://127.0.0.1:4566/", "http://127.0.0.1:4566"),
            ("https://me:secret@host/a@b?c=d", "https://host"),
            ("http://[::1]:9?x", "http://[::1]:9"),
        ] {
            assert_eq!(address(url), expected);
        }
    }

    #[test]
    fn only_a_refused_connection_gets_an_address_and_is_retried_as_before() {
        let of = |kind| ConnectorError::io(io::Error::new(kind, "no").into());
        let refused = named(of(io::ErrorKind::ConnectionRefused), "http://127.0.0.1:9/");
        let told = refused.source().map(ToString::to_string);
        assert_eq!(told.as_deref(), Some("no at http://127.0.0.1:9"));
        assert!(refused.is_io());
        let reset = named(of(io::ErrorKind::ConnectionReset), "http://127.0.0.1:9/");
        assert_eq!(
            reset.source().map(ToString::to_string).as_deref(),
            Some("no")
        );
    }
}
