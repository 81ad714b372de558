use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};
use shardmill_config::{AwsConfig, Config, ConsoleRight, ConsoleToken};
use shardmill_core::plugin::SecretSource;
use shardmill_core::stream::StreamName;
use shardmill_serve::Peer;
use tower::ServiceExt;

use super::*;

/// Nobody listens there, so that what is let in fails at once.
const NOWHERE: &str = "http://127.0.0.1:1";

const RIGHTS: [ConsoleRight; 4] = ConsoleRight::ALL;

/// A console for which each right has a token of its own, and nobody else may anything.
struct Console {
    pages: Router,
    _folder: tempfile::TempDir,
}

/// An answer: its status, and its body if that is JSON.
struct Answered(u16, Value);

impl Console {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config::for_stream(&StreamName::new("orders").unwrap()).unwrap();
        config.console.is_enabled = true;
        let admin = folder.path().join("admin-token");
        std::fs::write(&admin, "the-token-of-status").unwrap();
        config.host.admin_token = Some(SecretSource::File(admin));
        for right in RIGHTS {
            let path = folder.path().join(visitor::code(right));
            std::fs::write(&path, token(right)).unwrap();
            config.console.tokens.push(ConsoleToken {
                name: visitor::code(right).to_owned(),
                source: SecretSource::File(path),
                may: [right].into(),
            });
        }
        let aws = AwsConfig {
            region: Some("us-east-1".to_owned()),
            kinesis_endpoint: Some(NOWHERE.to_owned()),
            dynamodb_endpoint: Some(NOWHERE.to_owned()),
            is_local: true,
            ..AwsConfig::default()
        };
        let pages = pages(ConsoleHost {
            config: &config,
            surroundings: Surroundings::default(),
            clients: crate::aws::connect(&aws).await.unwrap(),
            status: HostStatus::new("host-a"),
            tap: Tap::default(),
            stop: CancellationToken::new(),
        });
        Self {
            pages: pages.unwrap().unwrap(),
            _folder: folder,
        }
    }

    async fn ask(&self, request: Request<Body>) -> Answered {
        let mut request = request;
        request
            .extensions_mut()
            .insert(Peer("127.0.0.1".parse().unwrap()));
        let reply = self.pages.clone().oneshot(request);
        let reply = tokio::time::timeout(Duration::from_mins(1), reply).await;
        let reply = reply.expect("an answer in time").unwrap();
        let status = reply.status().as_u16();
        let body = to_bytes(reply.into_body(), 1 << 20).await.unwrap();
        Answered(status, serde_json::from_slice(&body).unwrap_or_default())
    }

    async fn get(&self, path: &str, right: Option<ConsoleRight>) -> Answered {
        let request = asked("GET", path, right).body(Body::empty()).unwrap();
        self.ask(request).await
    }

    async fn post(&self, path: &str, right: Option<ConsoleRight>, body: &Value) -> Answered {
        let request = asked("POST", path, right)
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()));
        self.ask(request.unwrap()).await
    }
}

fn token(right: ConsoleRight) -> String {
    format!("the-token-of-{}", visitor::code(right))
}

fn asked(method: &str, path: &str, right: Option<ConsoleRight>) -> axum::http::request::Builder {
    let request = Request::builder().method(method).uri(path);
    match right {
        Some(right) => request.header("authorization", format!("Bearer {}", token(right))),
        None => request,
    }
}

fn is_let_in(status: u16) -> bool {
    ![401, 403].contains(&status)
}

#[tokio::test]
async fn every_endpoint_asks_for_its_right_whoever_comes() {
    let console = Console::new().await;
    let definitions = Definitions::all();
    for right in RIGHTS.into_iter().map(Some).chain([None]) {
        let may = |needed| right.is_some_and(|right: ConsoleRight| right.includes(needed));
        for path in ["session", "openapi.json", "fleet?application=orders"] {
            let Answered(status, _) = console.get(&format!("/api/v1/{path}"), right).await;
            assert_eq!(
                is_let_in(status),
                may(ConsoleRight::View),
                "{right:?} {path}"
            );
        }
        for definition in definitions.iter() {
            let path = format!("/api/v1/commands/{}", definition.name.replace(' ', "%20"));
            // Arguments that no command takes: nothing is run.
            let nothing = json!({"arguments": {}});
            let Answered(shown, _) = console.get(&format!("{path}?no-such=1"), right).await;
            let no_such = json!({"arguments": {"no-such": "1"}});
            let Answered(acted, _) = console.post(&path, right, &no_such).await;
            let expected = match right {
                None => 401,
                Some(_) if may(definition.right) => 400,
                Some(_) => 403,
            };
            assert_eq!((shown, acted), (expected, expected), "{right:?} {path}");
            for argument in &definition.arguments {
                let mut asked = nothing.clone();
                asked["arguments"][&argument.name] = match argument.kind {
                    definition::Kind::Flag => true.into(),
                    definition::Kind::Choice => argument.choices[0].clone().into(),
                    // Such an application or shard does not exist anywhere.
                    definition::Kind::Text => "!".into(),
                };
                let needed = may(definition.right) && may(argument.right);
                if !needed {
                    let Answered(status, _) = console.post(&path, right, &asked).await;
                    assert!(!is_let_in(status), "{right:?} {path} {}", argument.name);
                }
            }
        }
    }
}

#[tokio::test]
async fn a_change_is_never_made_by_a_request_that_a_link_can_send() {
    let console = Console::new().await;
    for (path, right) in [
        (
            "pause?application=orders&apply=true&why=x",
            ConsoleRight::Operate,
        ),
        (
            "plugins?application=orders&rollback=true",
            ConsoleRight::Operate,
        ),
        (
            "history?application=orders&expire=true",
            ConsoleRight::Admin,
        ),
    ] {
        let path = format!("/api/v1/commands/{path}");
        let Answered(status, body) = console.get(&path, Some(right)).await;
        assert_eq!(status, 405, "{path}: {body}");
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", ""] {
        let request = asked(
            "POST",
            "/api/v1/commands/pause",
            Some(ConsoleRight::Operate),
        )
        .header("content-type", kind)
        .body(Body::from("{\"arguments\":{\"application\":\"orders\"}}"));
        let Answered(status, _) = console.ask(request.unwrap()).await;
        assert_eq!(status, 415, "{kind:?}");
    }
}

#[tokio::test]
async fn who_has_the_token_of_the_status_page_may_see_and_no_more() {
    let console = Console::new().await;
    let request = Request::get("/api/v1/session")
        .header("authorization", "Bearer the-token-of-status")
        .body(Body::empty());
    let Answered(status, session) = console.ask(request.unwrap()).await;
    assert_eq!((status, &session["rights"]), (200, &json!(["view"])));
    let commands = session["commands"].as_array().unwrap();
    let names: Vec<&str> = commands
        .iter()
        .filter_map(|of| of["name"].as_str())
        .collect();
    assert!(
        names.contains(&"status") && !names.contains(&"pause"),
        "{names:?}"
    );
    assert_eq!(session["by"], Value::Null);
    let Answered(_, operator) = console
        .get("/api/v1/session", Some(ConsoleRight::Operate))
        .await;
    assert_eq!(operator["by"], "operate");
}

#[tokio::test]
async fn the_description_names_every_path_and_every_path_that_it_names_is_answered() {
    let console = Console::new().await;
    let admin = Some(ConsoleRight::Admin);
    let Answered(status, description) = console.get("/api/v1/openapi.json", admin).await;
    assert_eq!(status, 200);
    let paths = description["paths"].as_object().unwrap();
    for definition in Definitions::all().iter() {
        let path = format!("/api/v1/commands/{}", definition.name.replace(' ', "%20"));
        let schema = &paths[&path]["post"]["requestBody"]["content"]["application/json"]["schema"];
        let described = schema["properties"]["arguments"]["properties"]
            .as_object()
            .unwrap();
        let mut names: Vec<&String> = described.keys().collect();
        let mut expected: Vec<&String> = definition.arguments.iter().map(|of| &of.name).collect();
        names.sort();
        expected.sort();
        assert_eq!(names, expected, "{path}");
    }
    for (path, methods) in paths {
        for method in methods.as_object().unwrap().keys() {
            let request = asked(&method.to_uppercase(), path, admin).body(Body::empty());
            let Answered(status, _) = console.ask(request.unwrap()).await;
            assert!(![404, 405].contains(&status), "{method} {path}: {status}");
        }
    }
    let Answered(status, body) = console.get("/api/v1/nothing", admin).await;
    assert_eq!(status, StatusCode::NOT_FOUND.as_u16());
    assert!(
        body["problem"].as_str().unwrap().contains("openapi"),
        "{body}"
    );
}

#[tokio::test]
async fn an_outage_is_told_in_the_answer_with_the_command_that_met_it() {
    let console = Console::new().await;
    let path = "/api/v1/commands/leases?application=orders";
    let Answered(status, body) = console.get(path, Some(ConsoleRight::View)).await;
    let problem = body["problem"].as_str().unwrap();
    assert!(
        status == 422 && problem.contains("cannot be reached"),
        "{status} {problem}"
    );
    assert!(!problem.contains('\n'), "{problem}");
}
