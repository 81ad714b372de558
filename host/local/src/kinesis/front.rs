//! Stands in front of the emulator: orders requests, journals what they changed, mends what the
//! emulator gets wrong.

mod subscribe;

use std::io;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt;
use ferrokinesis::store::{Store, StoreOptions};
use serde_json::{Map, Value};
use tokio::net::TcpListener;
use tokio::sync::{RwLock, RwLockReadGuard};
use tokio_util::sync::CancellationToken;

use self::subscribe::Running;
use super::keeper::Keeper;
use super::replies;
use super::requests::{self, Target};
use super::speech::{self, Speech};
use super::{get_records, large_puts, restore};
use crate::error::StartError;
use crate::place::{LOCAL_ACCOUNT, LOCAL_REGION};
use crate::web::refuse_web_pages;

/// 10 MiB of data (AWS limit) in base64, and room for keys.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Long enough that other clients see the intermediate states, short enough that nobody waits for
/// them.
const TRANSITION_MS: u64 = 5;
/// Open shards in all streams together; the emulator's own limit is 10.
const SHARDS_MAX: u32 = 1_000;

/// The emulator's state, and who may touch it when.
pub(crate) struct Front {
    store: Store,
    keeper: RwLock<Keeper>,
    subscriptions: Running,
    /// Ends what streams.
    closing: CancellationToken,
}

impl std::fmt::Debug for Front {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Front").finish_non_exhaustive()
    }
}

impl Front {
    /// An emulator with what the journal in `data_dir` holds; empty and not kept without one.
    pub(crate) async fn restore(
        data_dir: Option<&Path>,
        closing: CancellationToken,
    ) -> Result<Arc<Self>, StartError> {
        let store = Store::new(StoreOptions {
            create_stream_ms: TRANSITION_MS,
            delete_stream_ms: TRANSITION_MS,
            update_stream_ms: TRANSITION_MS,
            shard_limit: SHARDS_MAX,
            aws_account_id: LOCAL_ACCOUNT.to_owned(),
            aws_region: LOCAL_REGION.to_owned(),
            ..StoreOptions::default()
        });
        let keeper = restore::restore(&store, data_dir).await?;
        Ok(Arc::new(Self {
            store,
            keeper: RwLock::new(keeper),
            subscriptions: Running::default(),
            closing,
        }))
    }

    /// Writes down what is left, waits for the disk, and takes no more changes.
    pub(crate) async fn close(&self) {
        let mut keeper = self.keeper.write().await;
        if let Err(error) = keeper.close(&self.store).await {
            tracing::error!(%error, "cannot finish the embedded kinesis' journal");
        }
    }

    /// In the format that was spoken; everything behind this works on JSON.
    async fn answer(self: &Arc<Self>, request: Request, next: Next) -> Response {
        if Speech::of(request.headers()) == Speech::Json {
            return self.answer_json(request, next).await;
        }
        let (parts, body) = match split(request).await {
            Ok(split) => split,
            Err(response) => return response,
        };
        let Some(request) = speech::request_in_json(parts, &body) else {
            return replies::refusal("SerializationException", "this is no map in CBOR");
        };
        let (parts, body) = self.answer_json(request, next).await.into_parts();
        if !speech::is_json(&parts.headers) {
            return Response::from_parts(parts, body);
        }
        let Ok(body) = to_bytes(body, BODY_BYTES_MAX).await else {
            return replies::internal_failure("the reply is too large");
        };
        speech::reply_in_cbor(parts, &body)
            .unwrap_or_else(|| replies::internal_failure("the reply has no place in CBOR"))
    }

    async fn answer_json(self: &Arc<Self>, request: Request, next: Next) -> Response {
        let target = request
            .headers()
            .get("x-amz-target")
            .and_then(|value| value.to_str().ok())
            .map(Target::of);
        match target {
            Some(target @ (Target::Put | Target::Admin)) => match self
                .change(target, request, next)
                .await
            {
                Ok(response) => response,
                Err(error) => {
                    tracing::error!(%error, "cannot write the embedded kinesis' journal");
                    replies::internal_failure(&format!("the journal cannot be written: {error}"))
                }
            },
            Some(Target::UpdateShardCount) => replies::invalid_argument(
                "the embedded Kinesis has no UpdateShardCount, because it would lose which shard \
                    follows which: use SplitShard and MergeShards",
            ),
            Some(Target::GetRecords) => self.get_records(request, next).await,
            Some(Target::GetShardIterator) => {
                let _shared = self.share().await;
                let mended = mend(request, async |body| {
                    requests::name_by_arn(body);
                    let _was_needed = requests::mend_iterator_request(&self.store, body).await;
                });
                match mended.await {
                    Ok((request, _)) => next.run(request).await,
                    Err(response) => response,
                }
            }
            Some(Target::SubscribeToShard) => self.subscribe(request, next).await,
            Some(Target::ListShards) => self.list_shards(request, next).await,
            Some(Target::DescribeStream) => {
                match mend(request, async |body| requests::name_by_arn(body)).await {
                    Ok((request, _)) => next.run(request).await,
                    Err(response) => response,
                }
            }
            Some(Target::Describe) | None => next.run(request).await,
        }
    }

    /// Answers only once the journal holds what changed.
    async fn change(&self, target: Target, request: Request, next: Next) -> io::Result<Response> {
        let mut keeper = self.keeper.write().await;
        keeper.expect_change(&self.store).await?;
        let response = match target {
            Target::Put => self.put(request, next).await,
            _ => next.run(request).await,
        };
        if target == Target::Admin {
            keeper.keep_streams(&self.store).await?;
        }
        keeper.keep_records(&self.store).await?;
        keeper.change_is_kept();
        Ok(response)
    }

    async fn put(&self, request: Request, next: Next) -> Response {
        let is_json = speech::is_json(request.headers());
        let (parts, body) = match split(request).await {
            Ok(split) => split,
            Err(response) => return response,
        };
        if is_json
            && body.len() > large_puts::ORDINARY_BYTES_MAX
            && let Some(response) = large_puts::answer(&self.store, &body).await
        {
            return response;
        }
        next.run(Request::from_parts(parts, Body::from(body))).await
    }

    /// Shares the state with other readers, once the journal holds all of it.
    pub(super) async fn share(&self) -> RwLockReadGuard<'_, Keeper> {
        let shared = self.keeper.read().await;
        if !shared.is_behind() {
            return shared;
        }
        drop(shared);
        let mut keeper = self.keeper.write().await;
        if let Err(error) = keeper.catch_up(&self.store).await {
            // Reading goes on: only puts promise anything about the journal.
            tracing::error!(%error, "cannot write the embedded kinesis' journal");
        }
        keeper.downgrade()
    }

    /// The emulator judges the request; what it finds good is pushed by the front.
    async fn subscribe(self: &Arc<Self>, request: Request, next: Next) -> Response {
        let is_json = speech::is_json(request.headers());
        let spoken = spoken(&request);
        let (parts, body) = match split(request).await {
            Ok(split) => split,
            Err(response) => return response,
        };
        let judged = next
            .run(Request::from_parts(parts, Body::from(body.clone())))
            .await;
        if !is_json || !judged.status().is_success() {
            return judged;
        }
        self.subscribed(&body, spoken).await.unwrap_or(judged)
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    fn running(&self) -> &Running {
        &self.subscriptions
    }

    pub(super) fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    async fn list_shards(&self, request: Request, next: Next) -> Response {
        let mut filter = None;
        let mended = mend(request, async |body| {
            filter = requests::mend_list_request(body);
            requests::name_by_arn(body);
        })
        .await;
        let (request, body) = match mended {
            Ok(mended) => mended,
            Err(response) => return response,
        };
        let response = next.run(request).await;
        let stream = body
            .as_ref()
            .and_then(|body| body.get("StreamName"))
            .and_then(Value::as_str);
        let Some(stream) = stream.filter(|_| response.status().is_success()) else {
            return response;
        };
        let (mut parts, body) = response.into_parts();
        let Ok(bytes) = to_bytes(body, BODY_BYTES_MAX).await else {
            return replies::internal_failure("the listing is too large");
        };
        let mut reply = serde_json::from_slice::<Map<String, Value>>(&bytes).unwrap_or_default();
        requests::mend_list_reply(&self.store, stream, filter, &mut reply).await;
        match serde_json::to_vec(&reply) {
            Ok(mended) => {
                parts.headers.remove(header::CONTENT_LENGTH);
                Response::from_parts(parts, Body::from(mended))
            }
            Err(error) => replies::internal_failure(&error.to_string()),
        }
    }

    async fn get_records(&self, request: Request, next: Next) -> Response {
        let _shared = self.share().await;
        let is_plain = speech::is_json(request.headers())
            && request.headers().contains_key(header::AUTHORIZATION);
        let spoken = spoken(&request);
        let (parts, body) = match split(request).await {
            Ok(split) => split,
            Err(response) => return response,
        };
        if is_plain && let Some(response) = get_records::answer(&self.store, &body, spoken).await {
            return response;
        }
        next.run(Request::from_parts(parts, Body::from(body))).await
    }
}

/// The service as a function from requests to replies.
pub(crate) fn router(front: Arc<Front>) -> Router {
    ferrokinesis::create_router(front.store.clone())
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(front, answer))
}

/// Serves until `stop`.
pub(crate) async fn serve(listener: TcpListener, front: Arc<Front>, stop: CancellationToken) {
    let router = router(front).layer(from_fn(refuse_web_pages));
    // Small replies must not wait for a full packet.
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
    });
    if let Err(error) = axum::serve(listener, router)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
    {
        tracing::error!(%error, "the embedded kinesis ended");
    }
}

async fn answer(State(front): State<Arc<Front>>, request: Request, next: Next) -> Response {
    front.answer(request, next).await
}

/// Lets `change` work on a JSON request; anything else passes untouched, without its content.
async fn mend(
    request: Request,
    change: impl AsyncFnOnce(&mut Map<String, Value>),
) -> Result<(Request, Option<Map<String, Value>>), Response> {
    if !speech::is_json(request.headers()) {
        return Ok((request, None));
    }
    let (mut parts, bytes) = split(request).await?;
    let Ok(mut body) = serde_json::from_slice::<Map<String, Value>>(&bytes) else {
        return Ok((Request::from_parts(parts, Body::from(bytes)), None));
    };
    change(&mut body).await;
    let mended =
        serde_json::to_vec(&body).map_err(|error| replies::internal_failure(&error.to_string()))?;
    parts.headers.remove(header::CONTENT_LENGTH);
    Ok((Request::from_parts(parts, Body::from(mended)), Some(body)))
}

async fn split(request: Request) -> Result<(axum::http::request::Parts, Bytes), Response> {
    let (parts, body) = request.into_parts();
    match to_bytes(body, BODY_BYTES_MAX).await {
        Ok(bytes) => Ok((parts, bytes)),
        Err(_) => Err(StatusCode::PAYLOAD_TOO_LARGE.into_response()),
    }
}

/// What the client speaks, for what answers by itself.
fn spoken(request: &Request) -> Speech {
    let translated = request.extensions().get::<Speech>();
    translated.copied().unwrap_or(Speech::Json)
}
