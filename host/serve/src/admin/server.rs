//! Serves the admin pages on a thread of its own, so that `/live` is answered whatever the host's
//! other threads do; and within limits, since whoever connects may mean harm.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use shardmill_core::time::Moment;
use shardmill_core::token_bucket::TokenBucket;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Connections at once. Each is a descriptor and some 20 KiB; a fleet's scrapers and probes need a
/// handful.
const CONNECTIONS_MAX: usize = 64;
/// Of these from one address, so that one client cannot keep all others out.
const CONNECTIONS_OF_ONE_MAX: usize = 32;
/// A request's line and headers. The least that hyper takes is 8 KiB.
const HEADER_BYTES_MAX: usize = 16 << 10;
/// Number of headers.
const HEADERS_MAX: usize = 64;
/// For a request's head to arrive, and for an idle connection to be used again.
const HEADER_WITHIN: Duration = Duration::from_secs(10);
/// The longest life of a connection: who reads slowly, or asks without end, connects anew.
const CONNECTION_WITHIN: Duration = Duration::from_mins(2);
/// For the answer that is under way then.
const LAST_ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Wait after an accept that failed, as for want of descriptors: at once it would fail again.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Serves until `stop`, on a thread of its own. The receiver ends when that thread has.
pub(super) fn start(
    listener: std::net::TcpListener,
    router: Router,
    stop: CancellationToken,
) -> std::io::Result<Ended> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_name("admin")
        .build()?;
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::Builder::new()
        .name("admin".to_owned())
        .spawn(move || {
            runtime.block_on(serve(listener, router, stop));
            runtime.shutdown_background();
            // Nobody may wait any more.
            let _ = ended.send(());
        })?;
    Ok(Ended(end))
}

/// Resolves when the server has ended.
pub(super) struct Ended(tokio::sync::oneshot::Receiver<()>);

impl Ended {
    pub(super) async fn wait(self) {
        // An error says that the thread is gone as well.
        let _ = self.0.await;
    }
}

async fn serve(listener: std::net::TcpListener, router: Router, stop: CancellationToken) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the admin pages cannot be served"),
    };
    let (visitors, mut connections) = (Visitors::default(), JoinSet::new());
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    // Who finds no place is closed at once.
                    if let Some(place) = visitors.take_place(peer.ip()) {
                        connections.spawn(connection(stream, router.clone(), place));
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "an admin connection cannot be accepted");
                    tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
                }
            },
        }
    }
}

async fn connection(stream: TcpStream, router: Router, _place: Place) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_WITHIN);
    builder
        .max_buf_size(HEADER_BYTES_MAX)
        .max_headers(HEADERS_MAX);
    let service = TowerToHyperService::new(router);
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // However it ends, there is nobody to tell but the client.
    if tokio::time::timeout(CONNECTION_WITHIN, served.as_mut())
        .await
        .is_err()
    {
        served.as_mut().graceful_shutdown();
        let _ = tokio::time::timeout(LAST_ANSWER_WITHIN, served).await;
    }
}

/// Who is connected.
#[derive(Default, Clone)]
struct Visitors(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// A place among the connections; given back when dropped.
struct Place {
    visitors: Visitors,
    address: IpAddr,
}

impl Visitors {
    fn take_place(&self, address: IpAddr) -> Option<Place> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = places.get(&address).copied().unwrap_or_default();
        if own >= CONNECTIONS_OF_ONE_MAX || places.values().sum::<usize>() >= CONNECTIONS_MAX {
            return None;
        }
        places.insert(address, own + 1);
        Some(Place {
            visitors: self.clone(),
            address,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self
            .visitors
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let left = places
            .get(&self.address)
            .copied()
            .unwrap_or_default()
            .saturating_sub(1);
        if left == 0 {
            places.remove(&self.address);
        } else {
            places.insert(self.address, left);
        }
    }
}

/// Requests a second, in the mean, for pages that cost something to make: some ms each, of a thread
/// that does nothing else.
const PAGES_PER_SECOND: u32 = 100;
/// And at once.
const PAGES_AT_ONCE: u32 = 200;

/// A limit on requests, shared by all connections.
#[derive(Debug, Clone)]
pub(super) struct Pace {
    pages: Arc<Mutex<TokenBucket>>,
    /// What moments are counted from.
    made_at: Instant,
}

impl Pace {
    pub(super) fn new() -> Self {
        let pages = TokenBucket::new(PAGES_PER_SECOND, PAGES_AT_ONCE, Moment::default());
        Self {
            pages: Arc::new(Mutex::new(pages)),
            made_at: Instant::now(),
        }
    }

    fn is_in_time(&self) -> bool {
        let now = Moment::from_origin(self.made_at.elapsed());
        self.pages
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take(now)
    }
}

/// The middleware.
pub(super) async fn keep_pace(State(pace): State<Pace>, request: Request, next: Next) -> Response {
    if pace.is_in_time() {
        return next.run(request).await;
    }
    (
        StatusCode::TOO_MANY_REQUESTS,
        [(header::RETRY_AFTER, "1")],
        "ask less often\n",
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_pages_without_end_is_told_to_ask_less_often() {
        let pace = Pace::new();
        // Nobody asks that often while so many more are let in.
        let asked = 1_000_000;
        let answered = (0..asked).take_while(|_| pace.is_in_time()).count();
        assert!(
            (PAGES_AT_ONCE as usize..asked).contains(&answered),
            "{answered}"
        );
    }

    #[test]
    fn one_client_cannot_take_the_places_of_all_others() {
        let visitors = Visitors::default();
        let take = |address: [u8; 4], count: usize| -> Vec<Place> {
            (0..count)
                .filter_map(|_| visitors.take_place(IpAddr::from(address)))
                .collect()
        };
        let one = take([10, 0, 0, 1], 100);
        assert_eq!(one.len(), CONNECTIONS_OF_ONE_MAX);
        let others = take([10, 0, 0, 2], 100);
        assert_eq!(one.len() + others.len(), CONNECTIONS_MAX);
        assert!(take([10, 0, 0, 3], 1).is_empty());
        drop(one);
        assert_eq!(take([10, 0, 0, 3], 1).len(), 1, "places are given back");
        assert_eq!(
            visitors.0.lock().unwrap().len(),
            1,
            "and nothing is kept of who left"
        );
    }
}
