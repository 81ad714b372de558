/// How a call of a version failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The failure's stable name for metrics.
    pub kind: &'static str,
    /// The error, as people read it.
    pub reason: String,
    /// Whether it cost the instance.
    pub is_deadly: bool,
}
