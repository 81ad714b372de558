//! Stands in front of the emulator: orders requests, journals what they changed, and corrects what
//! the emulator gets wrong.

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
use serde_json::{Map, Value};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::kept_store::KeptStore;
use super::replies;
use super::requests::{self, Target};
use super::shard_filter::ShardFilter;
use super::speech::{self, Speech};
use super::subscriptions::Subscriptions;
use super::{get_records, large_puts};
use crate::error::StartError;
use crate::web::refuse_web_pages;

/// 10 MiB of data (AWS limit) in base64, and room for keys.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The service: the store, and the subscriptions that it pushes to.
pub(crate) struct Front {
    kept: Arc<KeptStore>,
    subscriptions: Subscriptions,
}

impl std::fmt::Debug for Front {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Front").finish_non_exhaustive()
    }
}

impl Front {
    /// An emulator with what the journal in `data_dir` holds; empty and not kept without one.
    /// `closing` ends its subscriptions.
    pub(crate) async fn restore(
        data_dir: Option<&Path>,
        closing: CancellationToken,
    ) -> Result<Arc<Self>, StartError> {
        let kept = Arc::new(KeptStore::restore(data_dir).await?);
        let subscriptions = Subscriptions::new(Arc::clone(&kept), closing);
        Ok(Arc::new(Self {
            kept,
            subscriptions,
        }))
    }

    /// Journals what is left, waits for the disk, and accepts no more changes.
    pub(crate) async fn close(&self) {
        self.kept.close().await;
    }

    /// Answers in the format of the request; everything behind this works on JSON.
    async fn answer(&self, request: Request, next: Next) -> Result<Response, Response> {
        if Speech::of(request.headers()) == Speech::Json {
            return self.answer_json(request, next).await;
        }
        let (parts, body) = split(request).await?;
        let Some(request) = speech::request_in_json(parts, &body) else {
            return Err(replies::refusal(
                "SerializationException",
                "the request is not a map in CBOR",
            ));
        };
        let answered = self.answer_json(request, next).await;
        let (parts, body) = answered.unwrap_or_else(|refused| refused).into_parts();
        if !speech::is_json(&parts.headers) {
            return Ok(Response::from_parts(parts, body));
        }
        let Ok(body) = to_bytes(body, BODY_BYTES_MAX).await else {
            return Err(replies::internal_failure("the reply is too large"));
        };
        speech::reply_in_cbor(parts, &body)
            .ok_or_else(|| replies::internal_failure("the reply cannot be written in CBOR"))
    }

    async fn answer_json(&self, request: Request, next: Next) -> Result<Response, Response> {
        let Some(target) = Target::of(request.headers()) else {
            return Ok(next.run(request).await);
        };
        match target {
            Target::Put | Target::Admin => self.answer_change(target, request, next).await,
            Target::UpdateShardCount => Err(replies::invalid_argument(
                "the embedded Kinesis does not support UpdateShardCount, because readers could not \
                    know which shard follows which: use SplitShard and MergeShards",
            )),
            Target::GetRecords => self.get_records(request, next).await,
            Target::GetShardIterator => self.get_shard_iterator(request, next).await,
            Target::SubscribeToShard => self.subscribe(request, next).await,
            Target::ListShards => self.list_shards(request, next).await,
            Target::DescribeStream => describe_stream(request, next).await,
            Target::Describe => Ok(next.run(request).await),
        }
    }

    async fn answer_change(
        &self,
        target: Target,
        request: Request,
        next: Next,
    ) -> Result<Response, Response> {
        self.change(target, request, next).await.map_err(|error| {
            tracing::error!(
                %error,
                code = "local-journal-failed",
                "cannot write the embedded kinesis' journal"
            );
            replies::internal_failure(&format!("the journal cannot be written: {error}"))
        })
    }

    /// Answers only once the journal holds what changed.
    async fn change(&self, target: Target, request: Request, next: Next) -> io::Result<Response> {
        let store = self.kept.store();
        let mut keeper = self.kept.lock().await;
        keeper.expect_change(store).await?;
        let response = match target {
            Target::Put => self.put(request, next).await,
            _ => next.run(request).await,
        };
        if target == Target::Admin {
            keeper.keep_streams(store).await?;
        }
        keeper.keep_records(store).await?;
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
            && let Some(response) = large_puts::answer(self.kept.store(), &body).await
        {
            return response;
        }
        next.run(Request::from_parts(parts, Body::from(body))).await
    }

    async fn get_records(&self, request: Request, next: Next) -> Result<Response, Response> {
        let _shared = self.kept.share().await;
        let is_plain = speech::is_json(request.headers())
            && request.headers().contains_key(header::AUTHORIZATION);
        let speech = Speech::of_client(&request);
        let (parts, body) = split(request).await?;
        if is_plain
            && let Some(response) = get_records::answer(self.kept.store(), &body, speech).await
        {
            return Ok(response);
        }
        Ok(next.run(Request::from_parts(parts, Body::from(body))).await)
    }

    async fn get_shard_iterator(&self, request: Request, next: Next) -> Result<Response, Response> {
        let _shared = self.kept.share().await;
        let corrected = edit_json(request, async |body| {
            requests::name_by_arn(body);
            requests::correct_start(self.kept.store(), body).await;
        });
        let (request, _) = corrected.await?;
        Ok(next.run(request).await)
    }

    /// Lets the emulator check the request; the front pushes what a good one asks for.
    async fn subscribe(&self, request: Request, next: Next) -> Result<Response, Response> {
        let is_json = speech::is_json(request.headers());
        let speech = Speech::of_client(&request);
        let (parts, body) = split(request).await?;
        let checked = next
            .run(Request::from_parts(parts, Body::from(body.clone())))
            .await;
        if !is_json || !checked.status().is_success() {
            return Ok(checked);
        }
        let subscribed = self.subscriptions.answer(&body, speech).await;
        Ok(subscribed.unwrap_or(checked))
    }

    async fn list_shards(&self, request: Request, next: Next) -> Result<Response, Response> {
        let mut filter = None;
        let edited = edit_json(request, async |body| {
            filter = requests::translate_listing(body);
            requests::name_by_arn(body);
        });
        let (request, body) = edited.await?;
        let response = next.run(request).await;
        let stream = body.as_ref().and_then(|body| body.get("StreamName"));
        match stream.and_then(Value::as_str) {
            Some(stream) if response.status().is_success() => {
                self.filter_listing(stream, filter, response).await
            }
            _ => Ok(response),
        }
    }

    async fn filter_listing(
        &self,
        stream: &str,
        filter: Option<ShardFilter>,
        response: Response,
    ) -> Result<Response, Response> {
        let (mut parts, body) = response.into_parts();
        let Ok(bytes) = to_bytes(body, BODY_BYTES_MAX).await else {
            return Err(replies::internal_failure("the listing is too large"));
        };
        let mut reply = serde_json::from_slice::<Map<String, Value>>(&bytes).unwrap_or_default();
        requests::filter_listing(self.kept.store(), stream, filter, &mut reply).await;
        let written = serde_json::to_vec(&reply).map_err(|error| unwritable(&error))?;
        parts.headers.remove(header::CONTENT_LENGTH);
        Ok(Response::from_parts(parts, Body::from(written)))
    }
}

/// The service as a function from requests to replies.
pub(crate) fn router(front: Arc<Front>) -> Router {
    ferrokinesis::create_router(front.kept.store().clone())
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
        tracing::error!(%error, code = "local-kinesis-ended", "the embedded kinesis ended");
    }
}

async fn answer(State(front): State<Arc<Front>>, request: Request, next: Next) -> Response {
    let answered = front.answer(request, next).await;
    answered.unwrap_or_else(|refused| refused)
}

async fn describe_stream(request: Request, next: Next) -> Result<Response, Response> {
    let named = edit_json(request, async |body| requests::name_by_arn(body));
    let (request, _) = named.await?;
    Ok(next.run(request).await)
}

/// Lets `change` edit a JSON request, and returns what it became; anything else passes untouched,
/// without its content.
async fn edit_json(
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
    let written = serde_json::to_vec(&body).map_err(|error| unwritable(&error))?;
    parts.headers.remove(header::CONTENT_LENGTH);
    Ok((Request::from_parts(parts, Body::from(written)), Some(body)))
}

fn unwritable(error: &serde_json::Error) -> Response {
    replies::internal_failure(&error.to_string())
}

async fn split(request: Request) -> Result<(axum::http::request::Parts, Bytes), Response> {
    let (parts, body) = request.into_parts();
    match to_bytes(body, BODY_BYTES_MAX).await {
        Ok(bytes) => Ok((parts, bytes)),
        Err(_) => Err(StatusCode::PAYLOAD_TOO_LARGE.into_response()),
    }
}
