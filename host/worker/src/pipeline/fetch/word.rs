//! What a reader lets its pipeline know.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use shardmill_core::time::Moment;
use tokio::sync::watch;

/// See the module's description. Outlives the reader. Cheap to clone.
#[derive(Debug, Clone)]
pub(in crate::pipeline) struct ReaderWord {
    /// When Kinesis last gave a good reply, or a refusal that every host would get, or the host
    /// stopped holding the reader up.
    heard_at: Arc<watch::Sender<Moment>>,
    /// Why the shard cannot be read, once that lasts.
    trouble: Arc<watch::Sender<Option<String>>>,
    is_held_up: Arc<AtomicBool>,
}

impl ReaderWord {
    pub(in crate::pipeline) fn new(now: Moment) -> Self {
        Self {
            heard_at: Arc::new(watch::channel(now).0),
            trouble: Arc::new(watch::channel(None).0),
            is_held_up: Arc::default(),
        }
    }

    /// When the reader last heard of Kinesis.
    pub(in crate::pipeline) fn heard_at(&self) -> Moment {
        *self.heard_at.borrow()
    }

    /// Why the shard cannot be read, once that lasts.
    pub(in crate::pipeline) fn trouble(&self) -> watch::Receiver<Option<String>> {
        self.trouble.subscribe()
    }

    /// Whether the reader waits for its own host, and so cannot be blamed for hearing nothing.
    pub(in crate::pipeline) fn is_held_up(&self) -> bool {
        self.is_held_up.load(Ordering::Acquire)
    }

    pub(super) fn heard(&self, at: Moment) {
        self.heard_at.send_replace(at);
    }

    pub(super) fn set_held_up(&self, is_held_up: bool) {
        self.is_held_up.store(is_held_up, Ordering::Release);
    }

    /// The shard cannot be read, or can again.
    pub(super) fn set_trouble(&self, trouble: Option<String>) {
        self.trouble.send_if_modified(|shown| {
            let is_news = *shown != trouble;
            *shown = trouble;
            is_news
        });
    }

    /// The reader waits for its host, or no longer. Kinesis' own words about the shard, if there
    /// are any, say more.
    pub(super) fn set_wait(&self, wait: Option<String>) {
        self.trouble.send_if_modified(|shown| {
            let is_news = *shown != wait && (shown.is_none() || wait.is_none());
            if is_news {
                *shown = wait;
            }
            is_news
        });
    }
}
