//! Serves the admin pages on a separate thread, so that `/live` is answered even if the host's
//! other threads are busy. Clients may be hostile, so everything has a limit.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use shardmill_core::time::Moment;
use shardmill_core::token_bucket::TokenBucket;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Connections at once. Each is a descriptor and some 20 KiB; a fleet's scrapers and probes need a
/// handful.
const CONNECTIONS_MAX: usize = 64;
/// Of these from one client.
const CONNECTIONS_OF_ONE_MAX: usize = 32;
/// A request's line and headers. The least that hyper takes is 8 KiB.
const HEADER_BYTES_MAX: usize = 16 << 10;
/// Number of headers.
const HEADERS_MAX: usize = 64;
/// For a request's head to arrive, and for an idle connection to be used again.
const HEADER_WITHIN: Duration = Duration::from_secs(10);
/// The longest life of a connection. A client that reads slowly, or never stops asking, has to
/// reconnect.
const CONNECTION_WITHIN: Duration = Duration::from_mins(2);
/// For the answer that is under way then.
const LAST_ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Wait after an accept that failed, for example for lack of descriptors: it would fail again at
/// once.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Serves until `stop`, on a separate thread. The receiver ends when that thread has ended.
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
            // The receiver may be gone.
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
        Err(error) => {
            return tracing::error!(
                %error,
                code = "admin-failed",
                "the admin pages cannot be served"
            );
        }
    };
    let (visitors, mut connections) = (Visitors::default(), JoinSet::new());
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    // A connection without a slot is closed at once.
                    if let Some(slot) = visitors.take_slot(peer.ip()) {
                        let router = router.clone().layer(Extension(Peer(peer.ip())));
                        connections.spawn(visit(stream, router, slot));
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

/// Serves a connection for as long as it has its slot.
async fn visit(stream: TcpStream, router: Router, slot: Slot) {
    slot.leave
        .run_until_cancelled(connection(stream, router))
        .await;
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin, router: Router) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_WITHIN);
    builder
        .max_buf_size(HEADER_BYTES_MAX)
        .max_headers(HEADERS_MAX);
    let service = TowerToHyperService::new(router);
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // However it ends, only the client needs to know.
    if tokio::time::timeout(CONNECTION_WITHIN, served.as_mut())
        .await
        .is_err()
    {
        served.as_mut().graceful_shutdown();
        let _ = tokio::time::timeout(LAST_ANSWER_WITHIN, served).await;
    }
}

/// Who sends a request: an extension of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

/// The open connections, in the order of arrival.
#[derive(Default, Clone)]
struct Visitors(Arc<Mutex<Book>>);

#[derive(Default)]
struct Book {
    /// Numbers of arrivals rise.
    arrivals: u64,
    // At most `CONNECTIONS_MAX`, so that every question may go through all of them.
    visits: BTreeMap<u64, Visit>,
}

struct Visit {
    client: IpAddr,
    leave: CancellationToken,
}

/// A slot among the connections; given back when dropped.
struct Slot {
    visitors: Visitors,
    arrival: u64,
    /// Cancelled once another connection has the slot.
    leave: CancellationToken,
}

impl Visitors {
    /// A slot for a connection from `address`. If there is none, the client with the most
    /// connections loses its oldest: a probe comes from an address that has few, and ends within
    /// milliseconds. `None` if no client has more than this one.
    fn take_slot(&self, address: IpAddr) -> Option<Slot> {
        let client = client_of(address);
        let mut book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if book.count(client) >= CONNECTIONS_OF_ONE_MAX {
            book.end_oldest_of(client);
        } else if book.visits.len() >= CONNECTIONS_MAX {
            let crowd = book.crowd().filter(|crowd| *crowd != client)?;
            if book.count(crowd) <= book.count(client) {
                return None;
            }
            book.end_oldest_of(crowd);
        }
        book.arrivals += 1;
        let (arrival, leave) = (book.arrivals, CancellationToken::new());
        let visit = Visit {
            client,
            leave: leave.clone(),
        };
        book.visits.insert(arrival, visit);
        Some(Slot {
            visitors: self.clone(),
            arrival,
            leave,
        })
    }
}

impl Book {
    fn count(&self, client: IpAddr) -> usize {
        let of_client = |visit: &&Visit| visit.client == client;
        self.visits.values().filter(of_client).count()
    }

    /// The client with the most connections; of several, the one that came first.
    fn crowd(&self) -> Option<IpAddr> {
        let clients = self.visits.values().map(|visit| visit.client);
        // Of equals, the last one is found.
        clients.rev().max_by_key(|client| self.count(*client))
    }

    fn end_oldest_of(&mut self, client: IpAddr) {
        let mut visits = self.visits.iter();
        let oldest = visits.find(|(_, visit)| visit.client == client);
        let Some(arrival) = oldest.map(|(arrival, _)| *arrival) else {
            return;
        };
        if let Some(visit) = self.visits.remove(&arrival) {
            visit.leave.cancel();
        }
    }
}

/// What counts as one client. Under IPv6 that is a network of 64 bits, since a client that has one
/// address of it usually has all.
fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut book = self
            .visitors
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        book.visits.remove(&self.arrival);
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

/// Answers a request only if it does not come too soon; axum calls this for each.
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

/// Clients whose pace is known; the one that was heard of longest ago is forgotten.
const PACED_CLIENTS_MAX: usize = 256;

/// A limit on the requests of each client, so that a stranger does not use up everybody's.
#[derive(Debug, Clone, Default)]
pub(super) struct PaceOfEach(Arc<Mutex<Vec<(IpAddr, Pace)>>>);

impl PaceOfEach {
    fn of(&self, client: IpAddr) -> Pace {
        let mut paces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = paces.iter().position(|(known, _)| *known == client);
        let entry = match at {
            Some(at) => paces.remove(at),
            None => (client, Pace::new()),
        };
        let pace = entry.1.clone();
        paces.push(entry);
        if paces.len() > PACED_CLIENTS_MAX {
            paces.remove(0);
        }
        pace
    }
}

/// The same as [`keep_pace`], for each client.
pub(super) async fn keep_pace_of_each(
    State(paces): State<PaceOfEach>,
    Extension(peer): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    keep_pace(State(paces.of(client_of(peer.0))), request, next).await
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn take(visitors: &Visitors, address: &str, count: usize) -> Vec<Slot> {
        let address = address.parse().unwrap();
        (0..count)
            .filter_map(|_| visitors.take_slot(address))
            .collect()
    }

    fn staying(slots: &[Slot]) -> usize {
        let stays = |slot: &&Slot| !slot.leave.is_cancelled();
        slots.iter().filter(stays).count()
    }

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
    fn a_client_that_asks_without_end_uses_up_nobody_elses_pace() {
        let paces = PaceOfEach::default();
        let of = |address: &str| paces.of(address.parse().unwrap());
        let greedy = of("10.0.0.1");
        while greedy.is_in_time() {}
        assert!(of("10.0.0.2").is_in_time());
        for n in 0..1_000 {
            of(&format!("10.1.{}.{}", n / 250, n % 250));
        }
        assert_eq!(paces.0.lock().unwrap().len(), PACED_CLIENTS_MAX);
    }

    #[test]
    fn a_probe_gets_in_whoever_holds_all_slots() {
        let visitors = Visitors::default();
        let one = take(&visitors, "10.0.0.1", 100);
        assert_eq!((one.len(), staying(&one)), (100, CONNECTIONS_OF_ONE_MAX));
        let other = take(&visitors, "10.0.0.2", CONNECTIONS_OF_ONE_MAX);
        assert_eq!(staying(&one) + staying(&other), CONNECTIONS_MAX);
        for n in 3..20 {
            let probe = take(&visitors, &format!("10.0.0.{n}"), 1);
            assert_eq!(staying(&probe), 1, "{n}");
        }
        let lost = 2 * CONNECTIONS_OF_ONE_MAX - staying(&one) - staying(&other);
        assert_eq!(
            lost, 1,
            "the slot that the probes took, one after the other"
        );
        // It comes from the very address that holds as many as one may.
        let busy = take(&visitors, "10.0.0.1", CONNECTIONS_OF_ONE_MAX);
        let probe = take(&visitors, "10.0.0.1", 1);
        assert_eq!(
            (staying(&probe), staying(&busy)),
            (1, CONNECTIONS_OF_ONE_MAX - 1)
        );
    }

    #[test]
    fn who_has_as_many_as_anybody_takes_no_slot_from_others_and_all_slots_are_given_back() {
        let visitors = Visitors::default();
        let each = |n: usize| take(&visitors, &format!("10.0.1.{n}"), 1);
        let all: Vec<_> = (0..CONNECTIONS_MAX).flat_map(each).collect();
        assert_eq!(staying(&all), CONNECTIONS_MAX);
        assert!(take(&visitors, "10.0.1.5", 1).is_empty());
        assert_eq!(take(&visitors, "10.9.9.9", 1).len(), 1, "it had none");
        assert!(all[0].leave.is_cancelled(), "the oldest went");
        drop(all);
        assert!(visitors.0.lock().unwrap().visits.is_empty());
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one() {
        let visitors = Visitors::default();
        let many: Vec<_> = (0..CONNECTIONS_OF_ONE_MAX * 2)
            .flat_map(|n| take(&visitors, &format!("2001:db8::{n:x}"), 1))
            .collect();
        assert_eq!(staying(&many), CONNECTIONS_OF_ONE_MAX);
        let mapped = take(&visitors, "::ffff:10.0.0.1", 1);
        assert_eq!(staying(&mapped), 1);
        let book = visitors.0.lock().unwrap();
        assert_eq!(book.count("10.0.0.1".parse().unwrap()), 1);
    }

    /// What a client that sends this, and then nothing, is answered until it is cut off, and how
    /// long that takes.
    async fn answered(sent: &[u8]) -> (String, Duration) {
        let (mut client, server) = tokio::io::duplex(4_096);
        let router = Router::new().route("/live", axum::routing::get(|| async { "live\n" }));
        let started = tokio::time::Instant::now();
        client.write_all(sent).await.unwrap();
        let mut answer = String::new();
        let read = client.read_to_string(&mut answer);
        let ((), read) = tokio::join!(connection(server, router), read);
        read.unwrap();
        (answer, started.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_whole_request_is_cut_off_after_ten_seconds() {
        let is_cut_off = |took: Duration| took.abs_diff(HEADER_WITHIN) < Duration::from_secs(1);
        for sent in ["", "GET /li", "GET /live HTTP/1.1\r\nHost: a\r\n"] {
            let (answer, took) = answered(sent.as_bytes()).await;
            assert!(!answer.contains("200 OK"), "{answer}");
            assert!(is_cut_off(took), "{sent:?}: {took:?}");
        }
        let whole = b"GET /live HTTP/1.1\r\nHost: a\r\n\r\n";
        let (answer, took) = answered(whole).await;
        assert!(answer.contains("200 OK"), "{answer}");
        assert!(is_cut_off(took), "it idles: {took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_lies_about_its_length_is_answered_or_refused_and_keeps_no_slot() {
        let of = |method: &str, lengths: &[&str], body: &str| {
            let lengths = lengths
                .iter()
                .map(|said| format!("Content-Length: {said}\r\n"));
            let lengths: String = lengths.collect();
            format!("{method} /live HTTP/1.1\r\nHost: a\r\n{lengths}\r\n{body}")
        };
        let (ok, bad, wrong_method) = ("HTTP/1.1 200", "HTTP/1.1 400", "HTTP/1.1 405");
        let too_large = "HTTP/1.1 431";
        for (request, expected) in [
            // More than there is: the page is there at once, and who promised waits in vain.
            (of("GET", &["10"], "four"), ok),
            (of("POST", &["10"], "four"), wrong_method),
            (of("GET", &["9223372036854775807"], "four"), ok),
            // Less: what comes after it is no request.
            (of("GET", &["1"], "four and more\r\n\r\n"), ok),
            // No length at all.
            (of("GET", &["18446744073709551614"], "four"), too_large),
            (of("GET", &["18446744073709551616"], ""), bad),
            (of("GET", &["-1"], ""), bad),
            (of("GET", &["+1"], "x"), bad),
            (of("GET", &["0x4"], "four"), bad),
            (of("GET", &["4 4"], "four"), bad),
            (of("GET", &[""], ""), bad),
            // Two: what would one server take for a second request, which another does not?
            (of("GET", &["4", "40"], "four"), bad),
            (of("GET", &["4, 40"], "four"), bad),
        ] {
            let (answer, took) = answered(request.as_bytes()).await;
            assert!(answer.starts_with(expected), "{request:?}: {answer}");
            let smuggled = answer.matches("HTTP/1.1 200").count() > 1;
            assert!(!smuggled, "{request:?}: {answer}");
            assert!(
                took <= HEADER_WITHIN + Duration::from_secs(1),
                "{request:?}: {took:?}"
            );
        }
    }
}
