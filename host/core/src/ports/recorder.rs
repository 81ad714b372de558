use crate::recording::Recording;

/// Keeps batches that failed, so that somebody can run them again.
pub trait Recorder: Send + Sync {
    /// Takes one over, and returns at once: what cannot be kept now is dropped, and counted. No
    /// shard waits for it, and none fails by it.
    fn keep(&self, recording: Recording);
}
