//! A policy: what is allowed on what, and why.

use serde_json::{Value, json};

/// One statement of a policy, as all formats show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Allowed {
    pub(super) sid: String,
    /// Permissions, each with what it is needed for.
    pub(super) actions: Vec<(String, &'static str)>,
    /// ARNs.
    pub(super) resources: Vec<String>,
}

/// The policy as AWS takes it.
pub(super) fn document(policy: &[Allowed]) -> Value {
    let statement = |one: &Allowed| {
        let actions: Vec<&str> = one
            .actions
            .iter()
            .map(|(action, _)| action.as_str())
            .collect();
        json!({ "Sid": one.sid, "Effect": "Allow", "Action": actions, "Resource": one.resources })
    };
    let statements: Vec<Value> = policy.iter().map(statement).collect();
    json!({ "Version": "2012-10-17", "Statement": statements })
}

/// For people: each permission with its reason.
pub(super) fn text(policy: &[Allowed]) -> String {
    let mut lines = Vec::new();
    for one in policy {
        lines.push(format!("{}:", one.sid));
        lines.extend(
            one.resources
                .iter()
                .map(|resource| format!("  on {resource}")),
        );
        let action = |(action, why): &(String, &str)| format!("    {action}  {why}");
        lines.extend(one.actions.iter().map(action));
    }
    lines.join("\n")
}
