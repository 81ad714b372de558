//! What all paths of the HTTP API need: who asks, what they may do, and how a command is run.

use std::sync::{Arc, OnceLock};

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use shardmill_aws::AwsClients;
use shardmill_config::ConsoleRight;
use shardmill_serve::{HostStatus, Peer};
use shardmill_worker::Tap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::arguments::{Given, Surroundings};
use super::call::{self, Answer};
use super::definition::{Definition, Definitions};
use super::fleet::Fleets;
use super::mask::mask;
use super::visitor::{Gate, Visitor, code};

/// Commands that run at once for those who may change something, and as many for all others: each
/// may read whole tables and wait for hosts. Who only looks must not keep an operator waiting.
pub(super) const COMMANDS_MAX: usize = 8;
/// Child processes that run at once: each may take what an instance and a compiler take.
pub(super) const CHILDREN_MAX: usize = 1;
/// What the history says of somebody without a name.
const NOBODY: &str = "somebody in the console";

/// What answers need.
#[derive(Clone)]
pub(super) struct Api {
    pub(super) definitions: Definitions,
    pub(super) gate: Gate,
    pub(super) surroundings: Surroundings,
    pub(super) masked: Vec<Vec<String>>,
    pub(super) fleets: Fleets,
    pub(super) clients: AwsClients,
    pub(super) status: HostStatus,
    pub(super) tap: Tap,
    pub(super) worker: String,
    /// A permit for each command that may run for those who may change something.
    pub(super) of_operators: Arc<Semaphore>,
    /// The same for all others.
    pub(super) of_others: Arc<Semaphore>,
    /// The same for child processes.
    pub(super) children: Arc<Semaphore>,
    /// The host's own: its admin thread must stay free for probes.
    pub(super) runtime: tokio::runtime::Handle,
    pub(super) stop: CancellationToken,
    /// The description of the API, once somebody has asked for it.
    pub(super) description: Arc<OnceLock<Bytes>>,
}

/// Why a request is not answered.
pub(super) struct Refusal(pub(super) StatusCode, pub(super) String);

impl Api {
    /// Who asks.
    pub(super) fn visitor(&self, headers: &HeaderMap, peer: Peer) -> Result<Visitor, Refusal> {
        self.gate.visitor(headers, peer.0).map_err(|_| {
            let message = "sign in: send the header `authorization: Bearer TOKEN`";
            Refusal(StatusCode::UNAUTHORIZED, message.to_owned())
        })
    }

    pub(super) fn definition(&self, name: &str) -> Result<&Definition, Refusal> {
        self.definitions.named(name).ok_or_else(|| {
            let message = format!("there is no command {name:?} here");
            Refusal(StatusCode::NOT_FOUND, message)
        })
    }

    /// Runs a command to its end, on the host's own threads; what is costly there is done there,
    /// and never on the thread that answers probes.
    pub(super) async fn run(
        self: &Arc<Self>,
        definition: &Definition,
        given: &Given,
        visitor: &Visitor,
    ) -> Result<Response, Refusal> {
        let permit = self.permit(definition, visitor)?;
        let by = visitor.name.as_deref().unwrap_or(NOBODY);
        let line = given.as_arguments(definition, &self.surroundings, by);
        let command = call::parse(&line)
            .map_err(|refused| Refusal(StatusCode::BAD_REQUEST, refused.to_string()))?;
        let typed = given.as_typed(definition, &self.surroundings);
        let (api, in_child) = (Arc::clone(self), definition.in_child);
        let running = self.runtime.spawn(async move {
            let _permit = permit;
            let answer = async {
                if in_child {
                    call::run_in_child(line, typed).await
                } else {
                    call::run(command, api.clients.clone(), typed).await
                }
            };
            let answer = api.stop.run_until_cancelled(answer).await?;
            Some(answered(answer, &api.masked))
        });
        // A change goes on to its end if whoever asked for it goes away; a look does not.
        let mut names = given.names.iter();
        let changes = names.any(|name| definition.changes_with(name));
        let done = if changes {
            running.await
        } else {
            AbortOnDropHandle::new(running).await
        };
        ended(done)
    }

    fn permit(
        &self,
        definition: &Definition,
        visitor: &Visitor,
    ) -> Result<OwnedSemaphorePermit, Refusal> {
        let permits = if definition.in_child {
            &self.children
        } else if visitor.may(ConsoleRight::Operate) {
            &self.of_operators
        } else {
            &self.of_others
        };
        Arc::clone(permits).try_acquire_owned().map_err(|_| {
            let message = "others run commands already: ask again in a moment";
            Refusal(StatusCode::TOO_MANY_REQUESTS, message.to_owned())
        })
    }
}

/// What came of work on the host's own threads.
pub(super) fn ended(done: Result<Option<Response>, JoinError>) -> Result<Response, Refusal> {
    match done {
        Ok(Some(response)) => Ok(response),
        Ok(None) => Err(stopping()),
        Err(error) if error.is_cancelled() => Err(stopping()),
        Err(error) => {
            tracing::error!(%error, code = "console-panicked", "a request of the console panicked");
            Err(Refusal(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the command failed; the host's log says how".to_owned(),
            ))
        }
    }
}

fn stopping() -> Refusal {
    Refusal(
        StatusCode::SERVICE_UNAVAILABLE,
        "this host is stopping: ask another one".to_owned(),
    )
}

fn answered(mut answer: Answer, masked: &[Vec<String>]) -> Response {
    for result in &mut answer.results {
        mask(result, masked);
    }
    if answer.results.is_empty()
        && let Some(problem) = answer.problem
    {
        return Refusal(StatusCode::UNPROCESSABLE_ENTITY, problem).into_response();
    }
    Json(answer).into_response()
}

impl Visitor {
    /// Refuses who may not do what needs this right.
    pub(super) fn must(&self, needed: ConsoleRight) -> Result<(), Refusal> {
        if self.may(needed) {
            return Ok(());
        }
        let message = format!("this needs the right {:?}", code(needed));
        Err(Refusal(StatusCode::FORBIDDEN, message))
    }
}

impl From<QueryRejection> for Refusal {
    fn from(rejection: QueryRejection) -> Self {
        Self(rejection.status(), rejection.body_text())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self(status, problem) = self;
        let mut response =
            (status, Json(serde_json::json!({ "problem": problem }))).into_response();
        if status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, bearer);
        }
        response
    }
}
