//! What happens in a host, in the metrics that the KCL publishes to CloudWatch: the same names,
//! dimensions and units, so that dashboards and alarms of an application outlive its move.
//!
//! Only what a host can honestly say is here. `docs/how-to/cloudwatch.md` lists the rest of the
//! KCL's metrics, with the reasons; `tests/predecessors/kcl/metrics.json` has what a real KCL
//! published, and a test holds both against it.

mod metric;
mod observation;
mod tally;

pub use metric::{EMITTED, KclMetric, Kind, Level, Scope, Unit};
pub use observation::{Fleet, Observation};
pub use tally::{Subject, Tally, VALUES_MAX, Values};
