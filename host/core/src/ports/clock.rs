use crate::time::Moment;

/// The clocks of one host: one that never goes back, and one for people.
pub trait Clock: Send + Sync {
    /// Monotonic time that also counts while the machine is suspended: a lease runs out during a
    /// suspend as well.
    fn now(&self) -> Moment;

    /// Wall time, in milliseconds since the Unix epoch. Never used to judge a lease; only to tell
    /// Kinesis a time.
    fn wall_ms(&self) -> u64;
}
