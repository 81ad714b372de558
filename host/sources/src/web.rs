//! Versions on web servers and in buckets: a file, and maybe a signature beside it.

use bytes::Bytes;
use reqwest::header::{ETAG, HeaderMap, IF_NONE_MATCH, LAST_MODIFIED};
use reqwest::{Response, StatusCode};
use shardmill_aws::{S3Object, SignedRequest};
use shardmill_core::artifact::{ArtifactRef, Location, Sha256, Sizes};

use crate::answer::{check, digest_of, good, read, store};
use crate::aws_access::AwsAccess;
use crate::pull_error::{COMPONENT, PullError};
use crate::transport::Transport;

/// What the signature is called in errors.
const SIGNATURE: &str = "the signature";
/// Longest mark of a version that is kept.
const MARK_BYTES_MAX: usize = 256;
/// Precedes the digest of the signature in a mark.
const SIGNED: &str = " signed ";

/// A file on a server.
pub(crate) struct WebFile<'a> {
    transport: &'a Transport,
    aws: Option<&'a AwsAccess>,
    reference: &'a ArtifactRef,
}

/// What was fetched.
pub(crate) struct Fetched {
    pub(crate) mark: Option<String>,
    pub(crate) component: Sha256,
    pub(crate) signature: Option<Bytes>,
}

impl<'a> WebFile<'a> {
    pub(crate) fn new(
        transport: &'a Transport,
        aws: Option<&'a AwsAccess>,
        reference: &'a ArtifactRef,
    ) -> Self {
        Self {
            transport,
            aws,
            reference,
        }
    }

    /// Writes the component into a file; `None` if it still is what has the mark `known`, and no
    /// other signature came beside it.
    pub(crate) async fn fetch(
        &self,
        known: Option<&str>,
        sizes: Sizes,
        file: &mut tokio::fs::File,
    ) -> Result<Option<Fetched>, PullError> {
        let signature = self.signature(sizes).await?;
        let signed = signature.as_deref().map(digest_of);
        let response = self.get("", known.and_then(|known| asked(known, signed.as_ref())));
        let response = response.await?;
        if response.status() == StatusCode::NOT_MODIFIED {
            return Ok(None);
        }
        let response = good(response, &self.reference.to_string()).await?;
        let mark = mark_of(response.headers(), signed.as_ref());
        let component = store(response, COMPONENT, sizes.component, file).await?;
        if let Some(expected) = self.reference.digest() {
            check(COMPONENT, expected, &component)?;
        }
        Ok(Some(Fetched {
            mark,
            component,
            signature,
        }))
    }

    /// First: a signature that comes while the component is fetched belongs to the next one. A
    /// server that does not want to say whether there is one has none.
    async fn signature(&self, sizes: Sizes) -> Result<Option<Bytes>, PullError> {
        if self.has_query() {
            // What was signed is this one address.
            return Ok(None);
        }
        let response = self.get(".sig", None).await?;
        let none = [
            StatusCode::NOT_FOUND,
            StatusCode::FORBIDDEN,
            StatusCode::GONE,
        ];
        if none.contains(&response.status()) {
            return Ok(None);
        }
        let response = good(response, SIGNATURE).await?;
        read(response, SIGNATURE, sizes.signature).await.map(Some)
    }

    fn has_query(&self) -> bool {
        matches!(self.reference.location(), Location::Web { url } if url.contains('?'))
    }

    /// `ending` follows the name of the component's file.
    async fn get(&self, ending: &str, known: Option<&str>) -> Result<Response, PullError> {
        let mut request = match self.reference.location() {
            Location::Bucket { bucket, key } => {
                self.signed(bucket, &format!("{key}{ending}")).await?
            }
            Location::Web { url } => {
                let url = self.transport.chosen(&format!("{url}{ending}"))?;
                self.transport.client().get(url)
            }
            Location::Registry { .. } => {
                return Err(PullError::Unfit(format!(
                    "{} is in a registry",
                    self.reference
                )));
            }
        };
        if let Some(known) = known.filter(|known| known.starts_with(['"', 'W'])) {
            request = request.header(IF_NONE_MATCH, known);
        }
        self.transport.send(request).await
    }

    async fn signed(&self, bucket: &str, key: &str) -> Result<reqwest::RequestBuilder, PullError> {
        let Some(aws) = self.aws else {
            return Err(PullError::Unfit(
                "a bucket needs credentials of AWS, which this command does not have".to_owned(),
            ));
        };
        let object = S3Object {
            bucket,
            key,
            endpoint: aws.s3_endpoint.as_deref(),
        };
        let SignedRequest { url, headers, .. } = aws
            .clients
            .get_object(object, (aws.now)())
            .await
            .map_err(|why| {
                PullError::Unfit(format!("the request to S3 cannot be signed: {why}"))
            })?;
        let url = self.transport.chosen(&url)?;
        // The signature is for this host, and a session's token for nobody else.
        let mut request = self.transport.staying().get(url);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        Ok(request)
    }
}

/// What tells two versions apart without fetching them: what the server calls the component, and
/// the signature, which changes on its own.
fn mark_of(headers: &HeaderMap, signed: Option<&Sha256>) -> Option<String> {
    let mark = headers.get(ETAG).or_else(|| headers.get(LAST_MODIFIED))?;
    let mark = mark.to_str().ok()?;
    let signed = signed.map(|digest| format!("{SIGNED}{digest}"));
    let mark = format!("{mark}{}", signed.unwrap_or_default());
    (mark.len() <= MARK_BYTES_MAX).then_some(mark)
}

/// What the component need not be sent for: what the server calls the one that is here. `None` if
/// there is another signature beside it now. One that is gone leaves what was signed as it is.
fn asked<'a>(known: &'a str, signed: Option<&Sha256>) -> Option<&'a str> {
    let (mark, known) = match known.rsplit_once(SIGNED) {
        Some((mark, digest)) => (mark, Sha256::parse(digest)),
        None => (known, None),
    };
    (signed.is_none() || signed == known.as_ref()).then_some(mark)
}
