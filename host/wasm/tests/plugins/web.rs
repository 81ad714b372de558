//! A small HTTP server on loopback that behaves in as many ways as it has paths, and remembers what
//! it saw.

#![allow(
    unreachable_pub,
    missing_docs,
    reason = "shared by tests of one binary"
)]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub struct Web {
    pub address: SocketAddr,
    seen: Arc<Seen>,
    _tasks: JoinSet<()>,
}

struct Seen {
    requests: Mutex<Vec<String>>,
    open: watch::Sender<usize>,
}

impl Web {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen {
            requests: Mutex::default(),
            open: watch::Sender::new(0),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&seen)));
        Self {
            address,
            seen,
            _tasks: tasks,
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Requests so far: head, empty line, body.
    pub fn requests(&self) -> Vec<String> {
        self.seen.requests.lock().unwrap().clone()
    }

    /// Waits until so many connections are open.
    pub async fn until_open(&self, count: usize) {
        self.seen
            .open
            .subscribe()
            .wait_for(|open| *open == count)
            .await
            .unwrap();
    }
}

async fn accept(listener: TcpListener, seen: Arc<Seen>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        seen.open.send_modify(|open| *open += 1);
        let seen = Arc::clone(&seen);
        connections.spawn(async move {
            // A client that hangs up is a client that hangs up.
            let _ = serve(stream, &seen).await;
            seen.open.send_modify(|open| *open -= 1);
        });
    }
}

async fn serve(mut stream: TcpStream, seen: &Seen) -> std::io::Result<()> {
    let mut text = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    while !is_complete(&text) {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            read => text.extend_from_slice(&buffer[..read]),
        }
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
    seen.requests.lock().unwrap().push(text);
    respond(&mut stream, &path).await?;
    // The connection is the client's to end.
    while stream.read(&mut buffer).await? > 0 {}
    Ok(())
}

async fn respond(stream: &mut TcpStream, path: &str) -> std::io::Result<()> {
    let answer = |status: &str, headers: &str, body: &str| {
        format!(
            "HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let (path, argument) = path.split_once('?').unwrap_or((path, ""));
    let text = match path {
        "/hello" => answer("200 OK", "", "hello"),
        "/redirect" => answer("302 Found", &format!("location: {argument}\r\n"), ""),
        // Packed by its own account: who unpacks it fails, or has other bytes.
        "/packed" => answer(
            "200 OK",
            &format!("content-encoding: {argument}\r\n"),
            &"x".repeat(1_000),
        ),
        "/large" => answer("200 OK", "", &"x".repeat(argument.parse().unwrap())),
        "/many-headers" => {
            let headers = "x: y\r\n".repeat(argument.parse().unwrap());
            answer("200 OK", &headers, "")
        }
        "/large-header" => answer(
            "200 OK",
            &format!("x: {}\r\n", "y".repeat(argument.parse().unwrap())),
            "",
        ),
        "/silent" => return Ok(()),
        "/stalls" => "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nonly this".to_owned(),
        "/breaks" => {
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nonly this")
                .await?;
            return stream.shutdown().await;
        }
        "/endless" => {
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
                .await?;
            loop {
                stream
                    .write_all(format!("1000\r\n{}\r\n", "x".repeat(0x1000)).as_bytes())
                    .await?;
            }
        }
        "/hints" => loop {
            let hints = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(100);
            stream.write_all(hints.as_bytes()).await?;
        },
        "/nonsense" => "hello, is this HTTP?\r\n\r\n".to_owned(),
        _ => answer("404 Not Found", "", "no such path"),
    };
    stream.write_all(text.as_bytes()).await
}

fn is_complete(text: &[u8]) -> bool {
    let Some(head) = text.windows(4).position(|four| four == b"\r\n\r\n") else {
        return false;
    };
    let head_text = String::from_utf8_lossy(&text[..head]).to_ascii_lowercase();
    let length = head_text
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
    text.len() >= head + 4 + length.unwrap_or(0)
}
