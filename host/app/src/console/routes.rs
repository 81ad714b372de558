//! The paths of the HTTP API, and what is answered at each.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use shardmill_config::ConsoleRight;
use shardmill_serve::{HostStatus, Peer};
use tokio_util::task::AbortOnDropHandle;

use super::api::{Api, Refusal, ended};
use super::arguments::Given;
use super::definition::{Definition, Kind};
use super::visitor::Visitor;
use super::{openapi, tail};

/// Of an answer that is JSON already.
const JSON: [(HeaderName, &str); 1] = [(header::CONTENT_TYPE, "application/json")];
/// Longest request: a thousand shards by name.
const BODY_BYTES_MAX: usize = 64 << 10;

/// A plugin's application, to be chosen.
#[derive(Debug, Serialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "kebab-case")]
struct Served {
    /// The application.
    #[serde(rename = "application")]
    name: String,
    plugin: String,
    stream: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Session<'a> {
    version: &'static str,
    worker: &'a str,
    by: Option<String>,
    rights: Vec<ConsoleRight>,
    applications: Vec<Served>,
    features: [&'static str; 1],
    commands: Vec<&'a Definition>,
}

/// A request to run a command.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct CommandRequest {
    #[serde(default)]
    arguments: Map<String, Value>,
}

/// Every path of the API; [`openapi`] describes each.
pub(super) fn router(api: Api) -> Router {
    Router::new()
        .route("/api/v1/session", get(session))
        .route("/api/v1/fleet", get(fleet))
        .route("/api/v1/tail", get(tail::tail))
        .route("/api/v1/commands/{name}", get(show).post(act))
        .route("/api/v1/openapi.json", get(describe))
        .route("/api/{*path}", get(nothing).post(nothing))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn(guarded))
        .with_state(Arc::new(api))
}

/// Refuses what a page of another site has a browser send, which need not show where it comes from
/// in `Origin`; and has nobody keep an answer.
async fn guarded(request: Request, next: Next) -> Response {
    let site = request.headers().get("sec-fetch-site");
    if site.is_some_and(|site| site != "same-origin" && site != "none") {
        let message = "requests from pages of other web sites are refused";
        return Refusal(StatusCode::FORBIDDEN, message.to_owned()).into_response();
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let sniffing = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, sniffing);
    response
}

async fn session(
    State(api): State<Arc<Api>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let visitor = api.visitor(&headers, peer)?;
    visitor.must(ConsoleRight::View)?;
    let commands = api.definitions.iter();
    let session = Session {
        version: env!("CARGO_PKG_VERSION"),
        worker: &api.worker,
        rights: visitor.rights(),
        applications: served(&api.status),
        features: ["tail"],
        commands: commands
            .filter(|command| visitor.may(command.right))
            .collect(),
        by: visitor.name,
    };
    Ok(Json(session).into_response())
}

/// What this host serves: the applications that it knows of without asking anybody.
fn served(status: &HostStatus) -> Vec<Served> {
    let mut all = Vec::new();
    for (name, plugin) in status.snapshot().plugins {
        if let Some(application) = plugin.application {
            all.push(Served {
                name: application,
                plugin: name,
                stream: plugin.stream,
            });
        }
    }
    all.sort();
    all
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfApplication {
    application: String,
}

async fn fleet(
    State(api): State<Arc<Api>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    of: Result<Query<OfApplication>, QueryRejection>,
) -> Result<Response, Refusal> {
    api.visitor(&headers, peer)?.must(ConsoleRight::View)?;
    let Query(of) = of?;
    let (fleets, application) = (api.fleets.clone(), of.application);
    let look = api.runtime.spawn(async move {
        Some(match fleets.look(&application).await {
            Ok(fleet) => (JSON, fleet).into_response(),
            Err(error) => {
                let problem = crate::output::in_one_line(&error);
                Refusal(StatusCode::UNPROCESSABLE_ENTITY, problem).into_response()
            }
        })
    });
    ended(AbortOnDropHandle::new(look).await)
}

/// Runs a command that only shows.
async fn show(
    State(api): State<Arc<Api>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    Path(name): Path<String>,
    Query(pairs): Query<Vec<(String, String)>>,
) -> Result<Response, Refusal> {
    let definition = api.definition(&name)?;
    let visitor = api.visitor(&headers, peer)?;
    let given = given(definition, &from_query(definition, pairs), &visitor)?;
    for name in &given.names {
        if definition.changes_with(name) {
            let message = format!("{name} changes something: send a POST request");
            return Err(Refusal(StatusCode::METHOD_NOT_ALLOWED, message));
        }
    }
    api.run(definition, &given, &visitor).await
}

/// Runs a command, which may change something.
async fn act(
    State(api): State<Arc<Api>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Response, Refusal> {
    let definition = api.definition(&name)?;
    let visitor = api.visitor(&headers, peer)?;
    visitor.must(definition.right)?;
    // A form of another site cannot send this type without asking first.
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        let message = "send JSON, with the header `content-type: application/json`";
        return Err(Refusal(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            message.to_owned(),
        ));
    }
    let request: CommandRequest = serde_json::from_slice(&body)
        .map_err(|error| Refusal(StatusCode::BAD_REQUEST, error.to_string()))?;
    let given = given(definition, &request.arguments, &visitor)?;
    api.run(definition, &given, &visitor).await
}

/// Reads the arguments of somebody who may give them. Who may not run the command learns nothing of
/// its arguments.
fn given(
    definition: &Definition,
    arguments: &Map<String, Value>,
    visitor: &Visitor,
) -> Result<Given, Refusal> {
    visitor.must(definition.right)?;
    let given = Given::read(definition, arguments)
        .map_err(|problem| Refusal(StatusCode::BAD_REQUEST, problem))?;
    for right in given.rights(definition) {
        visitor.must(right)?;
    }
    Ok(given)
}

async fn describe(
    State(api): State<Arc<Api>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    api.visitor(&headers, peer)?.must(ConsoleRight::View)?;
    let description = api.description.get_or_init(|| {
        let description = openapi::describe(&api.definitions).to_string();
        Bytes::from(description)
    });
    Ok((JSON, description.clone()).into_response())
}

async fn nothing() -> Refusal {
    Refusal(
        StatusCode::NOT_FOUND,
        "there is no such path; /api/v1/openapi.json describes those that there are".to_owned(),
    )
}

/// What a form or a link sends: one text a value, several for an argument that repeats.
fn from_query(definition: &Definition, pairs: Vec<(String, String)>) -> Map<String, Value> {
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in pairs {
        values.entry(name).or_default().push(value);
    }
    let mut arguments = Map::new();
    for (name, texts) in values {
        let argument = definition.argument(&name);
        let value = value_of(argument.map(|argument| argument.kind), texts);
        arguments.insert(name, value);
    }
    arguments
}

/// What is not as the argument has it stays a list, which is refused with all else that is wrong.
fn value_of(kind: Option<Kind>, mut texts: Vec<String>) -> Value {
    match kind {
        Some(Kind::Flag) => match texts.as_slice() {
            [text] if text == "true" || text.is_empty() => Value::Bool(true),
            [text] if text == "false" => Value::Bool(false),
            _ => texts.into(),
        },
        Some(_) if texts.len() == 1 => Value::String(texts.remove(0)),
        _ => texts.into(),
    }
}
