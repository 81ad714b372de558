//! The part of the OCI distribution specification that pulling and pushing needs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde::Deserialize;
use shardmill_core::artifact::{INDEX_TYPES, Layer, MANIFEST_TYPES, Sha256};

use crate::answer::{check, digest_of, good, read, store};
use crate::challenge::Challenge;
use crate::credentials::LoginPassword;
use crate::login::Logins;
use crate::manifest::MANIFEST;
use crate::pull_error::PullError;
use crate::transport::{Transport, host_of};

/// Bytes of a list of layers: what registries take (OCI distribution specification).
const MANIFEST_BYTES_MAX: u64 = 4 << 20;
/// Bytes of an answer with a token; tokens of clouds have some thousand.
const TOKEN_BYTES_MAX: u64 = 64 << 10;

/// What is to be done in a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Pull,
    Push,
}

/// One repository of a registry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Repository<'a> {
    pub(crate) host: &'a str,
    pub(crate) name: &'a str,
}

/// A list of layers, and its digest.
pub(crate) struct Manifest {
    pub(crate) bytes: Bytes,
    pub(crate) digest: Sha256,
}

/// Speaks to registries. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Registry {
    transport: Transport,
    logins: Arc<Logins>,
    // What each repository accepted last; one of each that is configured. Never held across an
    // await.
    shown: Arc<Mutex<HashMap<(String, Action), HeaderValue>>>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

impl Registry {
    pub(crate) fn new(transport: Transport, logins: Logins) -> Self {
        Self {
            transport,
            logins: Arc::new(logins),
            shown: Arc::default(),
        }
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.transport
    }

    /// The digest of what is under this name now, if the registry says it without sending it. Such
    /// questions are not counted as pulls.
    pub(crate) async fn digest(
        &self,
        repository: Repository<'_>,
        name: &str,
    ) -> Result<Option<Sha256>, PullError> {
        let url = self.url(repository, &format!("manifests/{name}"))?;
        let request = |client: &reqwest::Client| accepting(client.head(url.clone()));
        let response = self.send(repository, Action::Pull, request).await?;
        if !response.status().is_success() {
            // The body, which this answer has not, says why.
            return Ok(None);
        }
        let digest = response.headers().get("docker-content-digest");
        Ok(digest.and_then(|digest| Sha256::parse(digest.to_str().ok()?)))
    }

    /// What is under this name, or what has this digest.
    pub(crate) async fn manifest(
        &self,
        repository: Repository<'_>,
        name: &str,
    ) -> Result<Manifest, PullError> {
        let what = format!("{}:{name} in {}", repository.name, repository.host);
        let url = self.url(repository, &format!("manifests/{name}"))?;
        let request = |client: &reqwest::Client| accepting(client.get(url.clone()));
        let response = self.send(repository, Action::Pull, request).await?;
        let response = good(response, &what).await?;
        let bytes = read(response, MANIFEST, MANIFEST_BYTES_MAX).await?;
        let digest = digest_of(&bytes);
        if let Some(expected) = Sha256::parse(name) {
            check(MANIFEST, &expected, &digest)?;
        }
        Ok(Manifest { bytes, digest })
    }

    /// The bytes of a small layer.
    pub(crate) async fn layer(
        &self,
        repository: Repository<'_>,
        layer: &Layer,
        what: &str,
    ) -> Result<Bytes, PullError> {
        let response = self.blob(repository, layer, what).await?;
        let bytes = read(response, what, layer.size).await?;
        check(what, &layer.digest, &digest_of(&bytes))?;
        Ok(bytes)
    }

    /// Writes the bytes of a layer into a file.
    pub(crate) async fn store(
        &self,
        repository: Repository<'_>,
        layer: &Layer,
        what: &str,
        file: &mut tokio::fs::File,
    ) -> Result<(), PullError> {
        let response = self.blob(repository, layer, what).await?;
        let found = store(response, what, layer.size, file).await?;
        check(what, &layer.digest, &found)
    }

    async fn blob(
        &self,
        repository: Repository<'_>,
        layer: &Layer,
        what: &str,
    ) -> Result<Response, PullError> {
        let url = self.url(repository, &format!("blobs/{}", layer.digest))?;
        let request = |client: &reqwest::Client| client.get(url.clone());
        let response = self.send(repository, Action::Pull, request).await?;
        good(response, what).await
    }

    /// Stores bytes, unless they are there already.
    pub(crate) async fn put_blob(
        &self,
        repository: Repository<'_>,
        bytes: &Bytes,
        what: &str,
    ) -> Result<(), PullError> {
        let digest = digest_of(bytes);
        let known = self.url(repository, &format!("blobs/{digest}"))?;
        let request = |client: &reqwest::Client| client.head(known.clone());
        let response = self.send(repository, Action::Push, request).await?;
        if response.status().is_success() {
            return Ok(());
        }
        let begin = self.url(repository, "blobs/uploads/")?;
        let request = |client: &reqwest::Client| {
            let empty = client.request(Method::POST, begin.clone());
            empty.header(reqwest::header::CONTENT_LENGTH, 0)
        };
        let response = self.send(repository, Action::Push, request).await?;
        let response = good(response, what).await?;
        let url = upload_url(&response, &begin, &digest, what)?;
        let url = self.transport.named(url.as_str(), &begin)?;
        let is_there = host_of(&url) == host_of(&begin);
        let request = |client: &reqwest::Client| {
            let put = client.put(url.clone()).body(bytes.clone());
            put.header(reqwest::header::CONTENT_TYPE, "application/octet-stream")
        };
        // Another host gets no credentials of this one's.
        let response = if is_there {
            self.send(repository, Action::Push, request).await?
        } else {
            let request = request(self.transport.client());
            self.transport.send(request).await?
        };
        good(response, what).await.map(drop)
    }

    /// Stores a list of layers under this name.
    pub(crate) async fn put_manifest(
        &self,
        repository: Repository<'_>,
        name: &str,
        bytes: &Bytes,
    ) -> Result<(), PullError> {
        let url = self.url(repository, &format!("manifests/{name}"))?;
        let request = |client: &reqwest::Client| {
            let put = client.put(url.clone()).body(bytes.clone());
            put.header(reqwest::header::CONTENT_TYPE, MANIFEST_TYPES[0])
        };
        let response = self.send(repository, Action::Push, request).await?;
        good(response, MANIFEST).await.map(drop)
    }

    fn url(&self, repository: Repository<'_>, path: &str) -> Result<Url, PullError> {
        let base = self.transport.registry(repository.host)?;
        let url = base.join(&format!("{}/{path}", repository.name));
        url.map_err(|error| PullError::Unfit(format!("{} is no name: {error}", repository.name)))
    }

    /// Sends a request with what the repository accepted last; if it wants something else, once
    /// more with that.
    async fn send(
        &self,
        repository: Repository<'_>,
        action: Action,
        request: impl Fn(&reqwest::Client) -> RequestBuilder,
    ) -> Result<Response, PullError> {
        let client = self.transport.client();
        let key = (format!("{}/{}", repository.host, repository.name), action);
        let shown = self.shown().get(&key).cloned();
        let first = with(request(client), shown.as_ref());
        let mut response = self.transport.send(first).await?;
        if shown.is_some() && response.status() == StatusCode::FORBIDDEN {
            // So ECR answers to a login that has expired, without saying what it wants.
            self.shown().remove(&key);
            response = self.transport.send(request(client)).await?;
        }
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        let challenge = challenge_of(&response);
        let Some(header) = self.answer(repository, action, challenge).await? else {
            return Ok(response);
        };
        let again = with(request(client), Some(&header));
        self.shown().insert(key, header);
        self.transport.send(again).await
    }

    /// What to show; `None` if there is nothing that would help.
    async fn answer(
        &self,
        repository: Repository<'_>,
        action: Action,
        challenge: Option<Challenge>,
    ) -> Result<Option<HeaderValue>, PullError> {
        let login = self.logins.of(repository.host).await?;
        match (challenge, login) {
            (Some(Challenge::Basic), Some(login)) => secret(&basic(&login)).map(Some),
            (Some(Challenge::Bearer { realm, service }), login) => {
                let service = service.as_deref();
                let token = Token {
                    repository,
                    action,
                    realm: &realm,
                    service,
                };
                self.token(token, login).await.map(Some)
            }
            (Some(Challenge::Basic) | None, _) => Ok(None),
        }
    }

    async fn token(
        &self,
        token: Token<'_>,
        login: Option<LoginPassword>,
    ) -> Result<HeaderValue, PullError> {
        let registry = self.transport.registry(token.repository.host)?;
        let mut url = self.transport.named(token.realm, &registry)?;
        let actions = match token.action {
            Action::Pull => "pull",
            Action::Push => "pull,push",
        };
        let scope = format!("repository:{}:{actions}", token.repository.name);
        if let Some(service) = token.service {
            url.query_pairs_mut().append_pair("service", service);
        }
        url.query_pairs_mut().append_pair("scope", &scope);
        let request = self.transport.client().get(url);
        let header = login.as_ref().map(|login| secret(&basic(login)));
        let response = self
            .transport
            .send(with(request, header.transpose()?.as_ref()))
            .await?;
        let what = format!("a token for {}", token.repository.name);
        let response = good(response, &what).await?;
        let bytes = read(response, &what, TOKEN_BYTES_MAX).await?;
        let malformed = |why: &str| PullError::Malformed {
            what: what.clone(),
            why: why.to_owned(),
        };
        let answer: TokenAnswer =
            serde_json::from_slice(&bytes).map_err(|_| malformed("it is not as it should be"))?;
        let token = answer.token.or(answer.access_token);
        let token = token.ok_or_else(|| malformed("there is none in the answer"))?;
        secret(&format!("Bearer {token}"))
    }

    fn shown(&self) -> MutexGuard<'_, HashMap<(String, Action), HeaderValue>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A token that is asked for.
struct Token<'a> {
    repository: Repository<'a>,
    action: Action,
    realm: &'a str,
    service: Option<&'a str>,
}

fn accepting(request: RequestBuilder) -> RequestBuilder {
    let types = MANIFEST_TYPES.iter().chain(&INDEX_TYPES);
    let types: Vec<&str> = types.copied().collect();
    request.header(ACCEPT, types.join(", "))
}

fn with(request: RequestBuilder, header: Option<&HeaderValue>) -> RequestBuilder {
    match header {
        Some(header) => request.header(AUTHORIZATION, header.clone()),
        None => request,
    }
}

fn challenge_of(response: &Response) -> Option<Challenge> {
    let headers = response.headers().get_all(WWW_AUTHENTICATE).iter();
    let mut texts = headers.filter_map(|header| header.to_str().ok());
    texts.find_map(Challenge::parse)
}

fn basic(login: &LoginPassword) -> String {
    let both = format!("{}:{}", login.user, login.password);
    format!("Basic {}", BASE64_STANDARD.encode(both))
}

fn secret(text: &str) -> Result<HeaderValue, PullError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| {
        PullError::Unfit("a token or a password has signs that no header can hold".to_owned())
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Where the bytes go, as the registry says.
fn upload_url(
    response: &Response,
    begin: &Url,
    digest: &Sha256,
    what: &str,
) -> Result<Url, PullError> {
    let location = response.headers().get(reqwest::header::LOCATION);
    let url = location
        .and_then(|location| location.to_str().ok())
        .and_then(|location| begin.join(location).ok());
    let Some(mut url) = url else {
        return Err(PullError::Malformed {
            what: what.to_owned(),
            why: "the registry does not say where it goes".to_owned(),
        });
    };
    url.query_pairs_mut()
        .append_pair("digest", &digest.to_string());
    Ok(url)
}
