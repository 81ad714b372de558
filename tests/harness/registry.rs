//! A registry in this process: the part of the OCI distribution specification that pulling and
//! pushing needs, with tokens if it is guarded, and with faults. It also serves plain files, as a
//! web server and a bucket do.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_body::Frame;
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// The type of a list of layers.
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
/// Bytes of one piece of a body that never ends.
const PIECE: usize = 64 << 10;

/// A running registry. Ends when dropped.
pub struct Registry {
    /// Its host, as references name it.
    pub host: String,
    shared: Arc<Shared>,
    server: JoinSet<()>,
}

#[derive(Default)]
struct Shared {
    host: String,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// By digest.
    blobs: BTreeMap<String, Bytes>,
    /// By repository, and by tag or digest.
    manifests: BTreeMap<(String, String), (String, Bytes)>,
    /// By path.
    files: BTreeMap<String, Bytes>,
    login: Option<(String, String)>,
    /// Whether the tokens that were given have expired.
    has_expired: bool,
    fault: Option<Fault>,
    /// Methods and paths, in order.
    requests: Vec<String>,
    /// Requests for files that had a signature of AWS.
    signed: usize,
    /// Requests to elsewhere that had credentials.
    leaked: usize,
}

/// What it does wrong, where that applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Bytes of blobs and files are others than they should be.
    Altered,
    /// Blobs and files end before they should.
    Truncated,
    /// Blobs and files begin, and never go on.
    Stalled,
    /// Blobs and files never end.
    Endless,
    /// Lists of layers never end.
    EndlessManifest,
    /// Tokens never end.
    EndlessToken,
    /// Every answer is an error, whose text never ends.
    EndlessError,
    /// Every answer is an error.
    Down,
    /// Every answer takes so long.
    Slow(Duration),
    /// Blobs and files are elsewhere, at another host of this machine.
    Elsewhere,
    /// Blobs and tokens are at a host that only this machine reaches.
    Inward,
    /// Blobs are where nothing is encrypted.
    Unencrypted,
    /// Blobs are where they are not, again and again.
    Circle,
    /// It does not say what the digest of a list of layers is.
    NoDigest,
}

impl Registry {
    /// Starts an empty one that lets everybody do everything.
    ///
    /// # Panics
    ///
    /// If no port is free.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let host = listener.local_addr().expect("bound").to_string();
        Self::serve(listener, host)
    }

    /// Starts one that is at another address of this machine as well, and is called by that: to
    /// whoever asks, it is elsewhere.
    ///
    /// # Panics
    ///
    /// If no port is free.
    pub async fn start_elsewhere(address: IpAddr) -> Self {
        let listener = TcpListener::bind("0.0.0.0:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        Self::serve(listener, SocketAddr::new(address, port).to_string())
    }

    fn serve(listener: TcpListener, host: String) -> Self {
        let shared = Arc::new(Shared {
            host: host.clone(),
            kept: Mutex::default(),
        });
        let app = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&shared));
        let mut server = JoinSet::new();
        server.spawn(async move {
            axum::serve(listener, app)
                .await
                .expect("it serves until it is dropped");
        });
        Self {
            host,
            shared,
            server,
        }
    }

    /// Lets only those in from now on who have this user and password.
    pub fn guard(&self, user: &str, password: &str) {
        self.shared.kept().login = Some((user.to_owned(), password.to_owned()));
    }

    /// Refuses the tokens that it gave, as ECR does after twelve hours: with 403, and without
    /// saying what it wants instead.
    pub fn expire(&self) {
        self.shared.kept().has_expired = true;
    }

    /// Does this wrong from now on; nothing if it is `None`.
    pub fn fail(&self, fault: Option<Fault>) {
        self.shared.kept().fault = fault;
    }

    /// Takes no requests any more: nobody listens at its port.
    pub async fn stop(mut self) -> String {
        self.server.abort_all();
        while self.server.join_next().await.is_some() {}
        self.host
    }

    /// The reference of what is under a tag there.
    pub fn reference(&self, repository: &str, tag: &str) -> String {
        format!("oci://{}/{repository}:{tag}", self.host)
    }

    /// Keeps bytes, and gives their digest.
    pub fn keep(&self, bytes: impl Into<Bytes>) -> String {
        let bytes = bytes.into();
        let digest = digest_of(&bytes);
        self.shared.kept().blobs.insert(digest.clone(), bytes);
        digest
    }

    /// Puts a list of layers of these types and bytes under a tag, and gives its digest.
    pub fn artifact(&self, repository: &str, tag: &str, layers: &[(&str, &[u8])]) -> String {
        let config = self.keep(&b"{}"[..]);
        let layers: Vec<serde_json::Value> = layers
            .iter()
            .map(|(media_type, bytes)| {
                let digest = self.keep(bytes.to_vec());
                serde_json::json!({"mediaType": media_type, "digest": digest, "size": bytes.len()})
            })
            .collect();
        let manifest = serde_json::json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": {"mediaType": "application/json", "digest": config, "size": 2},
            "layers": layers,
        });
        self.manifest(repository, tag, MANIFEST_TYPE, manifest.to_string())
    }

    /// Puts any text under a tag, and gives its digest.
    pub fn manifest(
        &self,
        repository: &str,
        tag: &str,
        media_type: &str,
        text: impl Into<Bytes>,
    ) -> String {
        let bytes = text.into();
        self.shared.kept().tag(repository, tag, media_type, &bytes)
    }

    /// Puts a tag to what another tag names.
    ///
    /// # Panics
    ///
    /// If there is no such tag.
    pub fn move_tag(&self, repository: &str, from: &str, to: &str) {
        let mut kept = self.shared.kept();
        let found = kept.manifests[&(repository.to_owned(), from.to_owned())].clone();
        kept.manifests
            .insert((repository.to_owned(), to.to_owned()), found);
    }

    /// Serves a file at this path, and gives its address.
    pub fn file(&self, path: &str, bytes: impl Into<Bytes>) -> String {
        let path = format!("/{path}");
        let address = format!("http://{}{path}", self.host);
        self.shared.kept().files.insert(path, bytes.into());
        address
    }

    /// How many requests it got whose method and path contain this text.
    pub fn requests(&self, part: &str) -> usize {
        let kept = self.shared.kept();
        let requests = kept.requests.iter();
        requests.filter(|request| request.contains(part)).count()
    }

    /// How many requests for files had a signature of AWS.
    pub fn signed(&self) -> usize {
        self.shared.kept().signed
    }

    /// How many requests brought credentials to where they do not belong.
    pub fn leaked(&self) -> usize {
        self.shared.kept().leaked
    }
}

impl Shared {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("nobody panics while holding it")
    }
}

impl Kept {
    fn tag(&mut self, repository: &str, tag: &str, media_type: &str, bytes: &Bytes) -> String {
        let digest = digest_of(bytes);
        for name in [tag, digest.as_str()] {
            let key = (repository.to_owned(), name.to_owned());
            self.manifests
                .insert(key, (media_type.to_owned(), bytes.clone()));
        }
        digest
    }

    /// What is wrong with who asks, if anything is.
    fn refusal(&self, host: &str, headers: &HeaderMap, is_write: bool) -> Option<Response> {
        self.login.as_ref()?;
        let shown = headers
            .get(header::AUTHORIZATION)
            .and_then(|shown| shown.to_str().ok());
        let may = match shown {
            Some("Bearer may-push") => true,
            Some("Bearer may-pull") => !is_write,
            _ => false,
        };
        if may && self.has_expired {
            let text = "{\"errors\":[{\"code\":\"DENIED\",\"message\":\"Your authorization token \
                        has expired. Reauthenticate and try again.\"}]}";
            return Some((StatusCode::FORBIDDEN, text).into_response());
        }
        if may {
            return None;
        }
        let at = match self.fault {
            Some(Fault::Inward) => format!("127.0.0.1:{}", port_of(host)),
            _ => host.to_owned(),
        };
        let challenge = format!("Bearer realm=\"http://{at}/token\",service=\"registry\"");
        let refusal = (
            StatusCode::UNAUTHORIZED,
            [(header::WWW_AUTHENTICATE, challenge)],
            "{\"errors\":[{\"code\":\"UNAUTHORIZED\",\"message\":\"authentication required\"}]}",
        );
        Some(refusal.into_response())
    }

    fn token(&mut self, headers: &HeaderMap, query: &str) -> Response {
        if self.fault == Some(Fault::EndlessToken) {
            return endless(StatusCode::OK);
        }
        let (user, password) = self.login.clone().unwrap_or_default();
        let expected = BASE64_STANDARD.encode(format!("{user}:{password}"));
        let shown = headers
            .get(header::AUTHORIZATION)
            .and_then(|shown| shown.to_str().ok());
        if shown != Some(&format!("Basic {expected}")) {
            return (StatusCode::UNAUTHORIZED, "wrong user or password").into_response();
        }
        self.has_expired = false;
        let token = if query.contains("push") {
            "may-push"
        } else {
            "may-pull"
        };
        format!("{{\"token\":{token:?}}}").into_response()
    }

    fn blob(&self, host: &str, method: &Method, digest: &str) -> Response {
        let Some(bytes) = self.blobs.get(digest) else {
            return StatusCode::NOT_FOUND.into_response();
        };
        if method == Method::HEAD {
            return StatusCode::OK.into_response();
        }
        let port = port_of(host);
        let to = match self.fault {
            Some(Fault::Elsewhere) => format!("http://localhost:{port}/elsewhere/{digest}"),
            Some(Fault::Inward) => format!("http://127.0.0.1:{port}/elsewhere/{digest}"),
            Some(Fault::Unencrypted) => format!("http://registry.example/{digest}"),
            Some(Fault::Circle) => format!("/v2/any/blobs/{digest}"),
            _ => return self.faulty(bytes),
        };
        (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, to)]).into_response()
    }

    fn faulty(&self, bytes: &Bytes) -> Response {
        let body = match self.fault {
            Some(Fault::Altered) => {
                let mut altered = bytes.to_vec();
                if let Some(last) = altered.last_mut() {
                    *last ^= 1;
                }
                return altered.into_response();
            }
            Some(Fault::Truncated) => Pieces::of(&bytes[..bytes.len() / 2], Then::Error),
            Some(Fault::Stalled) => Pieces::of(&bytes[..bytes.len() / 2], Then::Nothing),
            Some(Fault::Endless) => return endless(StatusCode::OK),
            _ => return bytes.clone().into_response(),
        };
        Body::new(body).into_response()
    }

    fn find_manifest(&self, method: &Method, repository: &str, name: &str) -> Response {
        if self.fault == Some(Fault::EndlessManifest) && method == Method::GET {
            return endless(StatusCode::OK);
        }
        let key = (repository.to_owned(), name.to_owned());
        let Some((media_type, bytes)) = self.manifests.get(&key) else {
            let text =
                "{\"errors\":[{\"code\":\"MANIFEST_UNKNOWN\",\"message\":\"manifest unknown\"}]}";
            return (StatusCode::NOT_FOUND, text).into_response();
        };
        let mut response = bytes.clone().into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, media_type.parse().expect("a type"));
        if self.fault != Some(Fault::NoDigest) {
            let digest = digest_of(bytes).parse().expect("a digest");
            headers.insert("docker-content-digest", digest);
        }
        response
    }

    fn serve_file(&mut self, host: &str, headers: &HeaderMap, path: &str) -> Response {
        let shown = headers.get(header::AUTHORIZATION);
        let is_signed = shown
            .and_then(|shown| shown.to_str().ok())
            .is_some_and(|shown| shown.starts_with("AWS4-HMAC-SHA256 "));
        self.signed += usize::from(is_signed);
        let Some(bytes) = self.files.get(path) else {
            return StatusCode::NOT_FOUND.into_response();
        };
        let mark = format!("\"{}\"", &digest_of(bytes)[7..23]);
        let known = headers.get(header::IF_NONE_MATCH);
        if known.is_some_and(|known| known.as_bytes() == mark.as_bytes()) {
            return StatusCode::NOT_MODIFIED.into_response();
        }
        if self.fault == Some(Fault::Elsewhere) {
            let to = format!("http://localhost:{}/elsewhere{path}", port_of(host));
            return (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, to)]).into_response();
        }
        let mut response = self.faulty(bytes);
        let headers = response.headers_mut();
        headers.insert(header::ETAG, mark.parse().expect("a mark"));
        response
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    // What is pushed in tests is far below that.
    let Ok(body) = axum::body::to_bytes(body, 64 << 20).await else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let fault = shared.kept().fault;
    if let Some(Fault::Slow(delay)) = fault {
        tokio::time::sleep(delay).await;
    }
    let path = parts.uri.path().to_owned();
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let mut kept = shared.kept();
    kept.requests.push(format!("{} {path}", parts.method));
    match kept.fault {
        Some(Fault::Down) => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
        Some(Fault::EndlessError) => return endless(StatusCode::SERVICE_UNAVAILABLE),
        _ => {}
    }
    if path == "/token" {
        return kept.token(&parts.headers, &query);
    }
    if let Some(digest) = path.strip_prefix("/elsewhere/") {
        let secret = ["authorization", "x-amz-security-token"];
        kept.leaked += usize::from(secret.iter().any(|name| parts.headers.contains_key(*name)));
        let found = kept.blobs.get(digest).cloned();
        return found.map_or(StatusCode::NOT_FOUND.into_response(), Bytes::into_response);
    }
    let Some(rest) = path.strip_prefix("/v2/") else {
        return kept.serve_file(&shared.host, &parts.headers, &path);
    };
    let is_read = parts.method == Method::GET || parts.method == Method::HEAD;
    if let Some(refusal) = kept.refusal(&shared.host, &parts.headers, !is_read) {
        return refusal;
    }
    if let Some((repository, name)) = rest.rsplit_once("/manifests/") {
        if is_read {
            return kept.find_manifest(&parts.method, repository, name);
        }
        kept.tag(repository, name, MANIFEST_TYPE, &body);
        return StatusCode::CREATED.into_response();
    }
    if let Some((repository, _)) = rest.split_once("/blobs/uploads/") {
        if parts.method == Method::POST {
            let to = format!("/v2/{repository}/blobs/uploads/one?state=a%2Bb");
            return (StatusCode::ACCEPTED, [(header::LOCATION, to)]).into_response();
        }
        let digest = digest_of(&body);
        let said = query.rsplit("digest=").next().unwrap_or_default();
        if said.replace("%3A", ":") != digest || !query.contains("state=a%2Bb") {
            return (StatusCode::BAD_REQUEST, "DIGEST_INVALID").into_response();
        }
        kept.blobs.insert(digest, body);
        return StatusCode::CREATED.into_response();
    }
    match rest.rsplit_once("/blobs/") {
        Some((_, digest)) => kept.blob(&shared.host, &parts.method, digest),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

fn port_of(host: &str) -> &str {
    host.rsplit(':').next().unwrap_or_default()
}

fn digest_of(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

fn endless(status: StatusCode) -> Response {
    (status, Body::new(Pieces::of(&[], Then::More))).into_response()
}

/// A body in pieces that does not end as it should.
struct Pieces {
    first: Option<Bytes>,
    then: Then,
}

enum Then {
    More,
    Nothing,
    Error,
}

impl Pieces {
    fn of(first: &[u8], then: Then) -> Self {
        let first = (!first.is_empty()).then(|| Bytes::copy_from_slice(first));
        Self { first, then }
    }
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        match self.then {
            Then::More => {
                let piece = Bytes::from(vec![b'x'; PIECE]);
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            Then::Nothing => Poll::Pending,
            Then::Error => Poll::Ready(Some(Err(std::io::Error::other("cut off")))),
        }
    }
}
