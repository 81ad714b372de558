//! A policy: the actions that are allowed, on which resources, and why.

use serde::Serialize;
use shardmill_config::{AwsScope, Need, Statement};

/// One statement of a policy, as all formats show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Allowed {
    pub(super) sid: String,
    /// Permissions, each with what it is needed for.
    pub(super) actions: Vec<(String, &'static str)>,
    /// ARNs of the resources that the actions are allowed on.
    pub(super) resources: Vec<String>,
}

impl Allowed {
    /// What a statement allows, with the full names of its resources.
    pub(super) fn of(statement: &Statement, scope: &AwsScope) -> Self {
        let mut scope = scope.clone();
        if let Some(account) = statement.by.account() {
            account.clone_into(&mut scope.account);
        }
        let resources = statement.on.iter();
        Self {
            sid: statement.sid.to_owned(),
            actions: actions(statement.needs),
            resources: resources.map(|resource| resource.arn(&scope)).collect(),
        }
    }

    /// Allows the same on the resources of `other`, too.
    pub(super) fn extend(&mut self, other: Self) {
        for resource in other.resources {
            if !self.resources.contains(&resource) {
                self.resources.push(resource);
            }
        }
    }
}

/// The permissions, each with what it is needed for.
pub(super) fn actions(needs: &[Need]) -> Vec<(String, &'static str)> {
    needs
        .iter()
        .map(|need| (need.operation.permission(), need.why))
        .collect()
}

/// The policy as AWS takes it. Keys are printed in this order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Document {
    pub(super) statement: Vec<StatementDocument>,
    version: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct StatementDocument {
    action: Vec<String>,
    effect: &'static str,
    pub(super) resource: Vec<Arn>,
    sid: String,
}

/// The name of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(super) enum Arn {
    /// The whole name.
    Known(String),
    /// With variables that CloudFormation fills in.
    Substituted {
        #[serde(rename = "Fn::Sub")]
        template: String,
    },
}

impl Document {
    pub(super) fn of(policy: &[Allowed]) -> Self {
        Self {
            statement: policy.iter().map(StatementDocument::of).collect(),
            version: "2012-10-17",
        }
    }
}

impl StatementDocument {
    fn of(one: &Allowed) -> Self {
        Self {
            action: one
                .actions
                .iter()
                .map(|(action, _)| action.clone())
                .collect(),
            effect: "Allow",
            resource: one.resources.iter().cloned().map(Arn::Known).collect(),
            sid: one.sid.clone(),
        }
    }
}

/// For people: each permission with its reason.
pub(super) fn text(policy: &[Allowed]) -> String {
    let mut lines = Vec::new();
    for one in policy {
        lines.push(format!("{}:", one.sid));
        for resource in &one.resources {
            lines.push(format!("  on {resource}"));
        }
        for (action, why) in &one.actions {
            lines.push(format!("    {action}  {why}"));
        }
    }
    lines.join("\n")
}
