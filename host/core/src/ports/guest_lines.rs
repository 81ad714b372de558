use crate::stream::ShardId;

/// Sees the lines that plugins log, beside the host's log.
pub trait GuestLines: Send + Sync {
    /// Whether somebody looks at them now; lines are made for nobody else.
    fn are_wanted(&self) -> bool;

    /// A line that an instance of the application's plugin logged, with its level. It holds what
    /// the plugin wrote, without secrets, and is not escaped.
    fn line(&self, application: &str, shard: &ShardId, line: &str);
}
