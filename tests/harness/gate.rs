//! AWS' permissions before the embedded stack, which checks none: forwards what a policy allows,
//! refuses the rest as AWS would, and keeps which permission was used on what.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use shardmill_local::{LOCAL_ACCOUNT, LOCAL_REGION};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// No request of a test is larger.
const BODY_MAX: usize = 16 << 20;

/// An action on a resource, by its ARN.
pub type Permission = (String, String);

/// Endpoints behind which only what a policy allows is done. They end when it is dropped.
pub struct Gate {
    keeper: Arc<Keeper>,
    servers: JoinSet<()>,
}

/// Prints the policy as it is now, if there is one.
type Print = Box<dyn Fn() -> Option<Value> + Send + Sync>;

struct Keeper {
    policy: Mutex<BTreeSet<Permission>>,
    /// Asked before something is refused.
    print: Option<Print>,
    client: Client<HttpConnector, Body>,
    used: Mutex<BTreeSet<Permission>>,
    refused: Mutex<BTreeSet<String>>,
}

struct Front {
    keeper: Arc<Keeper>,
    behind: String,
}

/// What a request asks for; the resource is not told by requests that carry an iterator or a token.
struct Asked {
    action: String,
    resource: Option<String>,
}

/// What the policy does not allow.
struct Refused {
    action: String,
    resource: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.action, self.resource)
    }
}

impl IntoResponse for Refused {
    /// As AWS words it.
    fn into_response(self) -> Response {
        let Self { action, resource } = self;
        let message = format!(
            "User: arn:aws:iam::{LOCAL_ACCOUNT}:user/test is not authorized to perform: {action} \
                on resource: {resource} because no identity-based policy allows the {action} action"
        );
        let body = serde_json::json!({ "__type": "AccessDeniedException", "message": message });
        let json = [(header::CONTENT_TYPE, "application/x-amz-json-1.1")];
        (StatusCode::BAD_REQUEST, json, body.to_string()).into_response()
    }
}

impl Gate {
    /// Allows what `policy` does, a document as IAM has it.
    pub fn of(policy: &Value) -> Self {
        Self::new(permissions_in(policy), None)
    }

    /// Allows what the policy does that `print` gives, or has given: it is asked again before
    /// anything is refused. While it gives none, everything is allowed.
    pub fn printed(print: impl Fn() -> Option<Value> + Send + Sync + 'static) -> Self {
        Self::new(BTreeSet::new(), Some(Box::new(print)))
    }

    fn new(policy: BTreeSet<Permission>, print: Option<Print>) -> Self {
        Self {
            keeper: Arc::new(Keeper {
                policy: Mutex::new(policy),
                print,
                client: Client::builder(TokioExecutor::new()).build_http(),
                used: Mutex::default(),
                refused: Mutex::default(),
            }),
            servers: JoinSet::new(),
        }
    }

    /// An endpoint that forwards to `behind`.
    ///
    /// # Panics
    ///
    /// If no port is free.
    pub async fn before(&mut self, behind: &str) -> String {
        let front = Arc::new(Front {
            keeper: Arc::clone(&self.keeper),
            behind: behind.to_owned(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let router = Router::new().fallback(pass).with_state(front);
        self.servers
            .spawn(async move { drop(axum::serve(listener, router).await) });
        endpoint
    }

    /// What the policy allows and nobody has used.
    pub fn unused(&self) -> BTreeSet<Permission> {
        let used = locked(&self.keeper.used);
        locked(&self.keeper.policy)
            .difference(&used)
            .cloned()
            .collect()
    }

    /// What was asked for and is not allowed.
    pub fn refused(&self) -> BTreeSet<String> {
        locked(&self.keeper.refused).clone()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The permissions of a document as IAM has it.
fn permissions_in(policy: &Value) -> BTreeSet<Permission> {
    let mut permissions = BTreeSet::new();
    for statement in policy["Statement"].as_array().into_iter().flatten() {
        for action in texts(&statement["Action"]) {
            let resources = texts(&statement["Resource"]);
            permissions.extend(resources.into_iter().map(|one| (action.clone(), one)));
        }
    }
    permissions
}

fn texts(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items
        .filter_map(|item| Some(item.as_str()?.to_owned()))
        .collect()
}

impl Keeper {
    /// Notes what is used, or what is refused.
    fn allows(&self, asked: &[Asked]) -> Result<(), Refused> {
        let Some(missing) = self.first_missing(asked) else {
            return Ok(());
        };
        if let Some(print) = &self.print {
            let now = print().map(|policy| permissions_in(&policy));
            locked(&self.policy).extend(now.into_iter().flatten());
            if locked(&self.policy).is_empty() || self.first_missing(asked).is_none() {
                return Ok(());
            }
        }
        locked(&self.refused).insert(missing.to_string());
        Err(missing)
    }

    /// The first that the policy does not allow. If it allows all, what it allows them by is used.
    fn first_missing(&self, asked: &[Asked]) -> Option<Refused> {
        let (policy, mut used) = (locked(&self.policy), BTreeSet::new());
        for one in asked {
            let allowing = policy
                .iter()
                .filter(|permission| one.is_covered(permission));
            let allowing: Vec<&Permission> = allowing.collect();
            if allowing.is_empty() {
                let resource = one.resource.as_deref().unwrap_or("?");
                return Some(Refused {
                    action: one.action.clone(),
                    resource: resource.to_owned(),
                });
            }
            used.extend(allowing.into_iter().cloned());
        }
        locked(&self.used).extend(used);
        None
    }
}

impl Asked {
    fn is_covered(&self, (action, pattern): &Permission) -> bool {
        let is_on = |resource: &String| match pattern.strip_suffix('*') {
            Some(start) => resource.starts_with(start),
            None => resource == pattern,
        };
        self.action == *action && self.resource.as_ref().is_none_or(is_on)
    }

    /// What a request needs, by its target and body. A transaction needs what its parts do.
    fn of(target: &str, body: &Value) -> Vec<Self> {
        let (service, operation) = target.split_once('.').unwrap_or_default();
        let table = |body: &Value| {
            let name = body["TableName"].as_str()?;
            Some(format!(
                "arn:aws:dynamodb:{LOCAL_REGION}:{LOCAL_ACCOUNT}:table/{name}"
            ))
        };
        if operation == "TransactWriteItems" {
            let parts = body["TransactItems"].as_array().into_iter().flatten();
            let of_part = |part: &Value| {
                let (kind, inner) = part.as_object()?.iter().next()?;
                Some(Self {
                    action: format!("dynamodb:{kind}Item"),
                    resource: table(inner),
                })
            };
            return parts.filter_map(of_part).collect();
        }
        let (service, resource) = if service.starts_with("DynamoDB") {
            ("dynamodb", table(body))
        } else {
            ("kinesis", stream_or_consumer(operation, body))
        };
        vec![Self {
            action: format!("{service}:{operation}"),
            resource,
        }]
    }
}

/// Registering a consumer is a right on its stream; any other on the consumer itself: by its ARN
/// where a request has that, else by its name without the time of its registration.
fn stream_or_consumer(operation: &str, body: &Value) -> Option<String> {
    let text = |key: &str| body[key].as_str();
    if let Some(consumer) = text("ConsumerARN") {
        return Some(consumer.to_owned());
    }
    let by_name = || {
        let name = text("StreamName")?;
        Some(format!(
            "arn:aws:kinesis:{LOCAL_REGION}:{LOCAL_ACCOUNT}:stream/{name}"
        ))
    };
    let stream = text("StreamARN").map(str::to_owned).or_else(by_name)?;
    match text("ConsumerName") {
        Some(name) if operation != "RegisterStreamConsumer" => {
            Some(format!("{stream}/consumer/{name}"))
        }
        Some(_) | None => Some(stream),
    }
}

async fn pass(State(front): State<Arc<Front>>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let Ok(bytes) = to_bytes(body, BODY_MAX).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let target = parts
        .headers
        .get("x-amz-target")
        .and_then(|target| target.to_str().ok());
    let target = target.unwrap_or_default().to_owned();
    let read: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    if let Err(refused) = front.keeper.allows(&Asked::of(&target, &read)) {
        return refused.into_response();
    }
    let uri: Result<Uri, _> = format!("{}{}", front.behind, parts.uri.path()).parse();
    let Ok(uri) = uri else {
        return StatusCode::BAD_GATEWAY.into_response();
    };
    parts.uri = uri;
    match front
        .keeper
        .client
        .request(Request::from_parts(parts, bytes.into()))
        .await
    {
        Ok(reply) => reply.map(Body::new),
        Err(_) => StatusCode::BAD_GATEWAY.into_response(),
    }
}
