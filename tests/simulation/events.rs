//! The replies that are streams: what Kinesis pushes to a subscriber travels as real frames over a
//! connection that may end, break in the middle of an event, or fall silent.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use aws_smithy_types::body::SdkBody;
use axum::body::Body as AxumBody;
use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use shardmill_invariants::history::What;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::weather::{Direction, Fault, Service};
use crate::wire::contains;
use crate::world::World;

/// Events on their way to a host that does not read: more than that, and Kinesis waits.
const IN_FLIGHT_MAX: usize = 4;
/// How often a broken path is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A subscription's connection to its host.
pub(crate) struct Connection {
    pub(crate) world: Arc<World>,
    pub(crate) host: Arc<str>,
    /// By which name the network knows the host's machine.
    pub(crate) path: Arc<str>,
    pub(crate) shard: String,
    /// Breaks in the middle of the first event.
    pub(crate) is_doomed: bool,
    pub(crate) lifetime: Duration,
}

/// How an event fares.
pub(crate) enum Fare {
    Arrives,
    Breaks,
    Silence,
}

/// The host's end, as the SDK has it.
struct Received(mpsc::Receiver<io::Result<Bytes>>);

impl Connection {
    /// When Kinesis ends the subscription.
    pub(crate) fn ends_at(&self) -> Instant {
        Instant::now() + self.lifetime
    }

    /// Events of one connection never overtake each other; on a broken path they wait.
    pub(crate) async fn travel(&self) {
        let usual = Duration::from_millis(self.world.dice().u64(1..12));
        tokio::time::sleep(usual).await;
        while self
            .world
            .weather()
            .is_cut(&self.path, Service::Kinesis, Direction::Replies)
        {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// What becomes of the next event.
    pub(crate) fn fare(&self) -> Fare {
        let draws = |fault| self.world.strikes(fault);
        if self.is_doomed || draws(Fault::CutSubscription) {
            Fare::Breaks
        } else if draws(Fault::SilentSubscription) {
            Fare::Silence
        } else {
            Fare::Arrives
        }
    }

    /// The host was told that the shard has ended.
    pub(crate) fn said_end(&self) {
        self.world.count("reached: end of a shard by an event");
        self.world.note(What::SaidEnd {
            host: self.host.to_string(),
            shard: self.shard.clone(),
        });
    }

    /// It ended in order.
    pub(crate) fn ended(&self) {
        self.world.count("reached: subscription ended in time");
    }

    /// Lets what is `pushed` travel; gives the host's end.
    pub(crate) fn open(self, pushed: AxumBody) -> SdkBody {
        let (sender, receiver) = mpsc::channel(IN_FLIGHT_MAX);
        let flights = self.world.flights.clone();
        // Of the world's: what is on its way arrives, whatever becomes of the host.
        flights.spawn(self.run(pushed, sender));
        SdkBody::from_body_1_x(Received(receiver))
    }

    async fn run(self, mut pushed: AxumBody, sender: mpsc::Sender<io::Result<Bytes>>) {
        let ends_at = self.ends_at();
        let mut received = BytesMut::new();
        loop {
            let frame = tokio::select! {
                biased;
                // As Kinesis ends each, in order, though after five minutes.
                () = tokio::time::sleep_until(ends_at) => return self.ended(),
                // The host let go of it, or is gone.
                () = sender.closed() => return,
                frame = next_frame(&mut pushed, &mut received) => frame,
            };
            let Some(frame) = frame else { return };
            self.travel().await;
            match self.fare() {
                Fare::Arrives => {}
                Fare::Breaks => {
                    let _gone = sender.send(Ok(frame.slice(..frame.len() / 2))).await;
                    let _gone = sender
                        .send(Err(io::Error::other("connection reset by peer")))
                        .await;
                    return;
                }
                Fare::Silence => return sender.closed().await,
            }
            let is_end = contains(&frame, b"\"ChildShards\"");
            if contains(&frame, b"ResourceInUseException") {
                self.world.count("reached: subscription taken over");
            }
            if sender.send(Ok(frame)).await.is_ok() && is_end {
                self.said_end();
            }
        }
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0
            .poll_recv(context)
            .map(|received| received.map(|bytes| bytes.map(Frame::data)))
    }
}

/// The next whole message of an event stream: its first four bytes say how long it is.
async fn next_frame(pushed: &mut AxumBody, received: &mut BytesMut) -> Option<Bytes> {
    loop {
        if let Some(length) = received
            .first_chunk::<4>()
            .map(|length| u32::from_be_bytes(*length) as usize)
            && received.len() >= length
        {
            return Some(received.split_to(length).freeze());
        }
        let chunk =
            std::future::poll_fn(|context| Pin::new(&mut *pushed).poll_frame(context)).await?;
        received.extend_from_slice(&chunk.ok()?.into_data().ok()?);
    }
}
