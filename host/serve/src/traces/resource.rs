//! What is said of the host once, and not with each span.

use super::message::{KeyValue, Resource};
use super::names;
use super::settings::Settings;

/// The resource of all spans of this process, which is worker `worker_id`.
pub(super) fn of(settings: &Settings, worker_id: &str) -> Resource {
    let mut attributes = vec![
        KeyValue::text(names::SERVICE_VERSION, env!("CARGO_PKG_VERSION")),
        KeyValue::text(names::SERVICE_INSTANCE, worker_id),
    ];
    let own = [names::SERVICE_VERSION, names::SERVICE_INSTANCE];
    let others = settings.attributes.iter();
    let others = others.filter(|(name, _)| !own.contains(&name.as_str()));
    attributes.extend(others.map(|(name, value)| KeyValue::text(name, value)));
    Resource { attributes }
}
