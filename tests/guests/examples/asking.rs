//! Asks the host for what can be granted: each record's data says what, in words, and what came of
//! it is emitted.

use shardmill_processor::bindings::wasi::config::store;
use shardmill_processor::{Batch, Context, Error, Outcome, Processor, config, emit, log, metrics};

mod bindings {
    #![allow(
        missing_docs,
        unreachable_pub,
        clippy::pedantic,
        reason = "generated code"
    )]

    wit_bindgen::generate!({
        world: "shardmill:guests/requests",
        path: ["../../wit/deps/wasi-io", "../../wit/deps/wasi-clocks", "../../wit/deps/wasi-http", "wit"],
        generate_all,
    });
}

use bindings::wasi::clocks::monotonic_clock::subscribe_duration;
use bindings::wasi::http::outgoing_handler::handle;
use bindings::wasi::http::types::{
    ErrorCode, Fields, FutureIncomingResponse, IncomingResponse, Method, OutgoingBody,
    OutgoingRequest, OutgoingResponse, RequestOptions, Scheme,
};
use bindings::wasi::io::streams::StreamError;

/// Bytes that a stream takes at once (WASI 0.2 asks for `check-write`; the host gives 16 KiB).
const WRITE_BYTES: usize = 4 << 10;
/// Bytes read at once.
const READ_BYTES: u64 = 64 << 10;

struct Asking;

impl Processor for Asking {
    fn init(_context: Context) -> Result<Self, Error> {
        match config::get("init").as_deref() {
            Some("tell") => Err(format!("init was told {}", value("secret.api")).into()),
            _ => Ok(Self),
        }
    }

    fn process(&mut self, batch: Batch) -> Result<Outcome, Error> {
        let mut outcome = Outcome::default();
        for (index, record) in batch.records.iter().enumerate() {
            let text = String::from_utf8_lossy(record.data).into_owned();
            let words: Vec<&str> = text.split(' ').collect();
            let answer = match words[..] {
                ["error", key] => {
                    return Err(format!("could not log in with {}", value(key)).into());
                }
                ["panic", key] => panic!("could not log in with {}", value(key)),
                ["reject", key] => {
                    outcome.reject(index, format!("could not log in with {}", value(key)));
                    continue;
                }
                _ => answer(&words),
            };
            emit("stdout", &text, answer.as_bytes())?;
        }
        Ok(outcome)
    }
}

fn answer(words: &[&str]) -> String {
    match words {
        ["env", name] => std::env::var(name).unwrap_or_else(|_| "(not set)".to_owned()),
        ["environment"] => std::env::vars()
            .map(|(name, value)| format!("{name}={value}"))
            .collect::<Vec<_>>()
            .join(","),
        ["get", key] => config::get(key).unwrap_or_else(|| "(none)".to_owned()),
        ["all"] => {
            let all = store::get_all().unwrap_or_default();
            all.into_iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect::<Vec<_>>()
                .join(",")
        }
        ["log", key] => {
            log::info(format!("logged in with {} today", value(key)));
            "logged".to_owned()
        }
        ["print", padding, key] => print_padded(padding.parse().unwrap_or_default(), &value(key)),
        ["measure", key] => {
            metrics::counter(&format!("name_{}", value(key)), 1);
            metrics::counter("name_of_nothing", 1);
            "measured".to_owned()
        }
        ["http", method, url] => shown(exchange(method, url, 0, None)),
        ["http", method, url, body_bytes] => shown(exchange(
            method,
            url,
            body_bytes.parse().unwrap_or_default(),
            None,
        )),
        ["wait", millis, url] => shown(exchange("GET", url, 0, millis.parse().ok())),
        ["follow", url] => follow(url),
        ["leave", url] => {
            // As a guest does that forgets about it: the handle stays in the host's table.
            std::mem::forget(start("GET", url, 0, None));
            "left".to_owned()
        }
        ["linger", url] => {
            // The same once the response has begun.
            match start("GET", url, 0, None)
                .map_err(|error| format!("{error:?}"))
                .and_then(|one| await_response(&one))
            {
                Ok(response) => {
                    let status = response.status();
                    std::mem::forget(response);
                    format!("{status} left")
                }
                Err(error) => format!("error {error}"),
            }
        }
        ["burst", count, url] => burst(count.parse().unwrap_or_default(), url),
        ["header", name, value] => append_header(name, value),
        ["path", path] => set_path(path),
        ["fields"] => fill_fields(),
        ["keep", what, bytes] => fill_handles(what, bytes.parse().unwrap_or_default()),
        ["bodies"] => fill_bodies(),
        _ => "what?".to_owned(),
    }
}

fn value(key: &str) -> String {
    config::get(key).unwrap_or_default()
}

#[expect(clippy::print_stdout, reason = "the host must redact it")]
fn print_padded(padding: usize, value: &str) -> String {
    println!("{}{value}", "x".repeat(padding));
    "printed".to_owned()
}

fn shown(result: Result<(u16, Vec<u8>), String>) -> String {
    match result {
        Ok((status, body)) => {
            format!(
                "{status} {} {}",
                body.len(),
                String::from_utf8_lossy(&body[..body.len().min(60)])
            )
        }
        Err(error) => format!("error {error}"),
    }
}

fn exchange(
    method: &str,
    url: &str,
    body_bytes: usize,
    timeout_ms: Option<u64>,
) -> Result<(u16, Vec<u8>), String> {
    let response = await_response(
        &start(method, url, body_bytes, timeout_ms).map_err(|error| format!("{error:?}"))?,
    )?;
    Ok((response.status(), read(&response)?))
}

fn start(
    method: &str,
    url: &str,
    body_bytes: usize,
    timeout_ms: Option<u64>,
) -> Result<FutureIncomingResponse, ErrorCode> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
    let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let headers = Fields::new();
    let _ = headers.append("x-asking", b"please");
    let request = OutgoingRequest::new(headers);
    let _ = request.set_method(&match method {
        "GET" => Method::Get,
        "POST" => Method::Post,
        "CONNECT" => Method::Connect,
        other => Method::Other(other.to_owned()),
    });
    let _ = request.set_scheme(Some(&if scheme == "http" {
        Scheme::Http
    } else {
        Scheme::Https
    }));
    let _ = request.set_authority(Some(authority));
    let _ = request.set_path_with_query(Some(path));
    let options = RequestOptions::new();
    if let Some(millis) = timeout_ms {
        let _ = options.set_between_bytes_timeout(Some(millis * 1_000_000));
    }
    if timeout_ms == Some(0) {
        // Whoever has no time has none for anything.
        let _ = options.set_connect_timeout(Some(0));
        let _ = options.set_first_byte_timeout(Some(0));
    }
    let body = request.body().ok();
    let response = handle(request, Some(options))?;
    if let Some(body) = body {
        write(body, body_bytes);
    }
    Ok(response)
}

fn write(body: OutgoingBody, mut bytes: usize) {
    if let Ok(stream) = body.write() {
        while bytes > 0 {
            let piece = bytes.min(WRITE_BYTES);
            if stream.blocking_write_and_flush(&vec![b'x'; piece]).is_err() {
                break;
            }
            bytes -= piece;
        }
    }
    let _ = OutgoingBody::finish(body, None);
}

fn await_response(response: &FutureIncomingResponse) -> Result<IncomingResponse, String> {
    response.subscribe().block();
    match response.get() {
        Some(Ok(Ok(response))) => Ok(response),
        Some(Ok(Err(error))) => Err(format!("{error:?}")),
        other => Err(format!("no response: {}", other.is_some())),
    }
}

fn read(response: &IncomingResponse) -> Result<Vec<u8>, String> {
    let body = response.consume().map_err(|()| "no body")?;
    let stream = body.stream().map_err(|()| "no stream")?;
    let mut bytes = Vec::new();
    loop {
        match stream.blocking_read(READ_BYTES) {
            Ok(piece) => bytes.extend(piece),
            Err(StreamError::Closed) => return Ok(bytes),
            Err(StreamError::LastOperationFailed(error)) => {
                return Err(format!(
                    "after {} bytes: {}",
                    bytes.len(),
                    error.to_debug_string()
                ));
            }
        }
    }
}

/// As every client does it.
fn follow(url: &str) -> String {
    let response = match start("GET", url, 0, None)
        .map_err(|error| format!("{error:?}"))
        .and_then(|one| await_response(&one))
    {
        Ok(response) => response,
        Err(error) => return format!("error {error}"),
    };
    let location = response.headers().get("location").pop();
    match location.and_then(|location| String::from_utf8(location).ok()) {
        Some(location) => format!(
            "{} then {}",
            response.status(),
            shown(exchange("GET", &location, 0, None))
        ),
        None => format!("{} and no redirect", response.status()),
    }
}

fn burst(count: usize, url: &str) -> String {
    let started: Vec<_> = (0..count).map(|_| start("GET", url, 0, None)).collect();
    let answers = started.iter().map(|one| match one {
        Ok(response) => await_response(response).map(|response| response.status()),
        Err(error) => Err(format!("{error:?}")),
    });
    let (answered, refused): (Vec<_>, Vec<_>) = answers.partition(Result::is_ok);
    format!(
        "{} answered, {} refused: {:?}",
        answered.len(),
        refused.len(),
        refused.first()
    )
}

/// What the host says to a header; a `|` in it is the end of a line.
fn append_header(name: &str, value: &str) -> String {
    let [name, value] = [name, value].map(|text| text.replace('|', "\r\n"));
    match Fields::new().append(&name, value.as_bytes()) {
        Ok(()) => "taken".to_owned(),
        Err(error) => format!("refused: {error:?}"),
    }
}

/// The same of a path.
fn set_path(path: &str) -> String {
    let path = path.replace('|', "\r\n");
    match OutgoingRequest::new(Fields::new()).set_path_with_query(Some(&path)) {
        Ok(()) => "taken".to_owned(),
        Err(()) => "refused".to_owned(),
    }
}

fn fill_fields() -> String {
    let fields = Fields::new();
    for number in 0.. {
        if fields.append(&format!("x-{number}"), b"value").is_err() {
            return format!("{number} fields");
        }
    }
    String::new()
}

/// Bodies that are written to and never sent.
fn fill_bodies() -> String {
    let mut kept = Vec::new();
    loop {
        let request = OutgoingRequest::new(Fields::new());
        let Ok(body) = request.body() else {
            return "no body".to_owned();
        };
        let Ok(stream) = body.write() else {
            return "no stream".to_owned();
        };
        while let Ok(room @ 1..) = stream.check_write() {
            let bytes = usize::try_from(room).unwrap_or(WRITE_BYTES).min(1 << 20);
            if stream.write(&vec![7; bytes]).is_err() {
                break;
            }
        }
        kept.push((request, body, stream));
    }
}

/// Handles of one kind, for as long as the host gives any; each is given as much to keep as it
/// takes.
fn fill_handles(what: &str, bytes: usize) -> String {
    let text = "M".repeat(bytes);
    let mut kept: Vec<Box<dyn std::any::Any>> = Vec::new();
    loop {
        match keep(what, &text) {
            Some(handle) => kept.push(handle),
            None => return format!("refused after {}", kept.len()),
        }
    }
}

fn keep(what: &str, text: &str) -> Option<Box<dyn std::any::Any>> {
    let request = || OutgoingRequest::new(Fields::new());
    match what {
        "methods" => with(request(), |one| {
            one.set_method(&Method::Other(text.to_owned()))
        }),
        "schemes" => with(request(), |one| {
            one.set_scheme(Some(&Scheme::Other(text.to_owned())))
        }),
        "authorities" => with(request(), |one| one.set_authority(Some(text))),
        "paths" => with(request(), |one| {
            one.set_path_with_query(Some(&format!("/{text}")))
        }),
        "lists" => Some(Box::new(
            Fields::from_list(&[("x".to_owned(), text.as_bytes().to_vec())]).ok()?,
        )),
        "set" => with(Fields::new(), |one| {
            one.set("x", &[text.as_bytes().to_vec()])
        }),
        "appended" => with(Fields::new(), |one| one.append("x", text.as_bytes())),
        "copies" => with(Fields::new(), |one| one.append("x", text.as_bytes()))
            .map(|one| Box::new((one.downcast_ref::<Fields>().map(Fields::clone), one)) as Box<_>),
        "headers" => Some(Box::new(request().headers())),
        "trailers" => trailers(text).map(|request| Box::new(request) as Box<_>),
        "answers" => {
            let answer = OutgoingResponse::new(Fields::new());
            let body = answer.body().ok()?;
            Some(Box::new((body, answer)))
        }
        "options" => Some(Box::new(RequestOptions::new())),
        "futures" => {
            let request = request();
            request.set_authority(Some("example.org")).ok()?;
            request.set_path_with_query(Some("/")).ok()?;
            Some(Box::new(handle(request, None).ok()?))
        }
        "timers" => Some(Box::new(subscribe_duration(u64::MAX))),
        _ => None,
    }
}

fn with<T: 'static, E>(
    handle: T,
    set: impl FnOnce(&T) -> Result<(), E>,
) -> Option<Box<dyn std::any::Any>> {
    set(&handle).ok()?;
    Some(Box::new(handle))
}

/// A request whose body was finished with trailers, and that is not sent.
fn trailers(text: &str) -> Option<OutgoingRequest> {
    let request = OutgoingRequest::new(Fields::new());
    let body = request.body().ok()?;
    let trailers = Fields::new();
    trailers.append("x", text.as_bytes()).ok()?;
    OutgoingBody::finish(body, Some(trailers)).ok()?;
    Some(request)
}

shardmill_processor::plugin!(Asking);
