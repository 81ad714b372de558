//! A policy as part of a template, which knows the region and the account if the policy does not.

use std::fmt::Write;

use serde::Serialize;

use super::policy::{Allowed, Arn, Document};

/// The partition in Terraform, by the data sources of [`terraform`].
pub(super) const TERRAFORM_PARTITION: &str = "${data.aws_partition.current.partition}";
/// `id` is the region in each version of the provider; `name` and `region` are not.
pub(super) const TERRAFORM_REGION: &str = "${data.aws_region.current.id}";
pub(super) const TERRAFORM_ACCOUNT: &str = "${data.aws_caller_identity.current.account_id}";

/// The data sources, by the variables that use them.
const TERRAFORM_SOURCES: [(&str, &str); 3] = [
    (
        TERRAFORM_PARTITION,
        "data \"aws_partition\" \"current\" {}\n",
    ),
    (TERRAFORM_REGION, "data \"aws_region\" \"current\" {}\n"),
    (
        TERRAFORM_ACCOUNT,
        "data \"aws_caller_identity\" \"current\" {}\n",
    ),
];

/// Text for Terraform: a managed policy, to be attached to the hosts' role.
pub(super) fn terraform(policy: &[Allowed]) -> String {
    let mut text = "# Permissions of shardmill hosts, printed by `shardmill iam`.\n".to_owned();
    for (variable, source) in TERRAFORM_SOURCES {
        let mut resources = policy.iter().flat_map(|one| &one.resources);
        if resources.any(|resource| resource.contains(variable)) {
            text += source;
        }
    }
    text += "\ndata \"aws_iam_policy_document\" \"shardmill\" {\n";
    for one in policy {
        write_statement(&mut text, one);
    }
    text + "}\n\nresource \"aws_iam_policy\" \"shardmill\" {\n  name_prefix = \"shardmill-\"\n  \
            policy      = data.aws_iam_policy_document.shardmill.json\n}\n\n\
            output \"shardmill_policy_arn\" {\n  value = aws_iam_policy.shardmill.arn\n}"
}

fn write_statement(text: &mut String, one: &Allowed) {
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "  statement {{\n    sid = \"{}\"\n    actions = [\n",
        one.sid
    );
    for (action, why) in &one.actions {
        let _ = writeln!(text, "      \"{action}\", # {why}");
    }
    *text += "    ]\n    resources = [\n";
    for resource in &one.resources {
        let _ = writeln!(text, "      \"{resource}\",");
    }
    *text += "    ]\n  }\n";
}

/// A template for CloudFormation: a managed policy, to be attached to the hosts' role. Keys are
/// printed in this order.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Cloudformation {
    #[serde(rename = "AWSTemplateFormatVersion")]
    format_version: &'static str,
    description: &'static str,
    outputs: Outputs,
    resources: Resources,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Outputs {
    policy_arn: PolicyArn,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct PolicyArn {
    value: Reference,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Reference {
    r#ref: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Resources {
    shardmill_policy: ManagedPolicy,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ManagedPolicy {
    properties: PolicyProperties,
    r#type: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct PolicyProperties {
    policy_document: Document,
}

/// Marks the names in which CloudFormation has to fill in variables.
pub(super) fn cloudformation(mut document: Document) -> Cloudformation {
    for statement in &mut document.statement {
        for arn in &mut statement.resource {
            if let Arn::Known(name) = arn
                && name.contains("${")
            {
                *arn = Arn::Substituted {
                    template: std::mem::take(name),
                };
            }
        }
    }
    Cloudformation {
        format_version: "2010-09-09",
        description: "Permissions of shardmill hosts, printed by `shardmill iam`",
        outputs: Outputs {
            policy_arn: PolicyArn {
                value: Reference {
                    r#ref: "ShardmillPolicy",
                },
            },
        },
        resources: Resources {
            shardmill_policy: ManagedPolicy {
                properties: PolicyProperties {
                    policy_document: document,
                },
                r#type: "AWS::IAM::ManagedPolicy",
            },
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn policy(resource: &str) -> Vec<Allowed> {
        vec![Allowed {
            sid: "ReadStreams".to_owned(),
            actions: vec![("kinesis:GetRecords".to_owned(), "to read")],
            resources: vec![resource.to_owned()],
        }]
    }

    #[test]
    fn terraform_asks_for_what_is_not_known_and_for_nothing_else() {
        let all = format!(
            "arn:{TERRAFORM_PARTITION}:kinesis:{TERRAFORM_REGION}:{TERRAFORM_ACCOUNT}:stream/s"
        );
        let asked = terraform(&policy(&all));
        for part in [
            "data \"aws_partition\" \"current\" {}",
            "data \"aws_region\" \"current\" {}",
            "data \"aws_caller_identity\" \"current\" {}",
            "\"kinesis:GetRecords\", # to read",
            ":stream/s\",",
        ] {
            assert!(asked.contains(part), "{part} is not in\n{asked}");
        }
        assert_eq!(asked.matches('{').count(), asked.matches('}').count());
        let known = terraform(&policy("arn:aws:kinesis:eu-west-1:123456789012:stream/s"));
        assert!(!known.contains("\"current\""), "{known}");
    }

    #[test]
    fn cloudformation_fills_in_what_is_not_known() {
        let filled = |resource: &str| {
            let template = cloudformation(Document::of(&policy(resource)));
            let template = serde_json::to_value(template).unwrap();
            let policy = &template["Resources"]["ShardmillPolicy"];
            assert_eq!(policy["Type"], "AWS::IAM::ManagedPolicy");
            policy["Properties"]["PolicyDocument"]["Statement"][0]["Resource"][0].clone()
        };
        let unknown = "arn:aws:kinesis:${AWS::Region}:1:stream/s";
        assert_eq!(filled(unknown), json!({ "Fn::Sub": unknown }));
        let known = "arn:aws:kinesis:eu-west-1:1:stream/s";
        assert_eq!(filled(known), json!(known));
    }
}
