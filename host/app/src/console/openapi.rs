//! The description of the API, made from the same definitions as the API itself.

use serde_json::{Map, Value, json};

use super::definition::{Argument, Definition, Definitions, Kind};
use super::visitor::code;

/// The description, as OpenAPI 3.1.
pub(super) fn describe(definitions: &Definitions) -> Value {
    let mut paths = own_paths();
    for definition in definitions.iter() {
        paths.insert(path(definition), command(definition));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "shardmill",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Shows and changes a running fleet. Each command does what the command \
                line does; without `apply` it only shows what it would do.",
        },
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Answer": answer_schema(), "Problem": problem_schema()},
        },
    })
}

/// The paths that run no command.
fn own_paths() -> Map<String, Value> {
    let application = json!({
        "name": "application", "in": "query", "required": true, "schema": {"type": "string"},
    });
    let own = [
        (
            "session",
            operation(
                "Who asks, what they may do, and which commands there are",
                "view",
                &[],
            ),
        ),
        (
            "fleet",
            operation(
                "An application: its hosts, and every shard with a verdict",
                "view",
                &[application],
            ),
        ),
        ("openapi.json", operation("This description", "view", &[])),
        (
            "tail",
            operation(
                "What goes through a plugin on this host, live, as server-sent events",
                "view-data",
                &tail(),
            ),
        ),
    ];
    let own = own.into_iter();
    own.map(|(name, get)| (format!("/api/v1/{name}"), json!({ "get": get })))
        .collect()
}

fn answer_schema() -> Value {
    json!({
        "type": "object",
        "required": ["command-line", "results", "problem"],
        "properties": {
            "command-line": {
                "type": "string",
                "description": "What does the same on the host's command line",
            },
            "results": {
                "type": "array",
                "items": {},
                "description": "What the command prints with --json",
            },
            "problem": {
                "type": ["string", "null"],
                "description": "Why its exit code would not be 0",
            },
        },
    })
}

fn problem_schema() -> Value {
    json!({
        "type": "object",
        "required": ["problem"],
        "properties": {"problem": {"type": "string"}},
    })
}

fn tail() -> Vec<Value> {
    let parameter = |name: &str, required: bool, description: &str| {
        json!({
            "name": name, "in": "query", "required": required, "description": description,
            "schema": {"type": "string"},
        })
    };
    vec![
        parameter(
            "application",
            true,
            "Whose records, outputs, failures and log lines",
        ),
        parameter("shard", false, "Only of this shard"),
        parameter("key", false, "Only with this key"),
        parameter("contains", false, "Only with this text in the data"),
        parameter(
            "what",
            false,
            "Of records, outputs, failures and log those that are named, with commas",
        ),
    ]
}

/// Names of two words have a space, which is escaped in a path.
fn path(definition: &Definition) -> String {
    format!("/api/v1/commands/{}", definition.name.replace(' ', "%20"))
}

fn command(definition: &Definition) -> Value {
    let shown = definition.arguments.iter();
    let shown = shown.filter(|of| !definition.changes_with(&of.name));
    let parameters: Vec<Value> = shown.map(parameter).collect();
    let right = code(definition.right);
    let mut show = operation(&definition.about, right, &parameters);
    show["operationId"] = format!("show-{}", id(definition)).into();
    show["responses"]["200"] = answer();
    let mut act = operation(&definition.about, right, &[]);
    act["operationId"] = id(definition).into();
    act["responses"]["200"] = answer();
    act["requestBody"] = json!({
        "required": true,
        "content": {"application/json": {"schema": request(definition)}},
    });
    json!({"get": show, "post": act})
}

fn id(definition: &Definition) -> String {
    definition.name.replace(' ', "-")
}

fn operation(summary: &str, right: &str, parameters: &[Value]) -> Value {
    json!({
        "summary": summary,
        "description": format!("Needs the right `{right}`."),
        "parameters": parameters,
        "responses": {
            "200": {"description": "The answer", "content": {"application/json": {"schema": {}}}},
            "default": {
                "description": "Why there is none",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
            },
        },
    })
}

fn answer() -> Value {
    let schema = json!({"$ref": "#/components/schemas/Answer"});
    json!({"description": "What came of it", "content": {"application/json": {"schema": schema}}})
}

fn request(definition: &Definition) -> Value {
    let mut properties = Map::new();
    for argument in &definition.arguments {
        properties.insert(argument.name.clone(), property(argument, definition));
    }
    let required = definition.arguments.iter().filter(|of| of.is_required);
    let required: Vec<&str> = required.map(|of| of.name.as_str()).collect();
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "arguments": {
                "type": "object",
                "additionalProperties": false,
                "properties": properties,
                "required": required,
            },
        },
    })
}

fn property(argument: &Argument, definition: &Definition) -> Value {
    let mut schema = schema(argument);
    schema["description"] = argument.help.clone().into();
    if argument.right != definition.right {
        let right = code(argument.right);
        schema["description"] = format!("{} Needs the right `{right}`.", argument.help).into();
    }
    schema
}

fn parameter(argument: &Argument) -> Value {
    json!({
        "name": argument.name,
        "in": "query",
        "required": argument.is_required,
        "description": argument.help,
        "schema": schema(argument),
    })
}

fn schema(argument: &Argument) -> Value {
    let mut one = match argument.kind {
        Kind::Flag => return json!({"type": "boolean"}),
        Kind::Choice => json!({"type": "string", "enum": argument.choices}),
        Kind::Text => json!({"type": "string"}),
    };
    if let Some(default) = &argument.default {
        one["default"] = default.clone().into();
    }
    if argument.repeats {
        return json!({"type": "array", "items": one});
    }
    one
}
