use crate::time::Moment;

/// One host's clocks.
pub trait Clock: Send + Sync {
    /// Monotonic time that also counts while the machine is suspended: a lease runs out during a suspend as well.
    fn now(&self) -> Moment;
}
