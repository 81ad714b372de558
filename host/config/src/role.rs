//! A role of AWS in the file: its ARN, and the external id that its owner may ask for.

use shardmill_aws::Role;

use super::problem::Problem;

/// The keys are `BEFORErole` and `BEFOREexternal-id`.
pub(super) fn check_role(
    arn: Option<String>,
    external_id: Option<String>,
    before: &str,
) -> Result<Option<Role>, Problem> {
    let (role_key, id_key) = (format!("{before}role"), format!("{before}external-id"));
    let Some(arn) = arn else {
        if external_id.is_some() {
            let message = format!("needs {role_key}: it is sent when that role is assumed");
            return Err(Problem::new(id_key, message));
        }
        return Ok(None);
    };
    if !is_role(&arn) {
        let message = "is the ARN of a role, such as arn:aws:iam::123456789012:role/shardmill";
        return Err(Problem::new(role_key, message));
    }
    if let Some(id) = &external_id
        && !is_external_id(id)
    {
        let message = "has 2 to 1224 letters, digits and +=,.@:/- (AWS limit)";
        return Err(Problem::new(id_key, message));
    }
    Ok(Some(Role { arn, external_id }))
}

fn is_role(arn: &str) -> bool {
    let parts: Vec<&str> = arn.split(':').collect();
    match parts[..] {
        ["arn", partition, "iam", "", account, resource] => {
            let is_account = account.len() == 12 && account.bytes().all(|b| b.is_ascii_digit());
            let path = resource.strip_prefix("role/").unwrap_or_default();
            is_account
                && partition.starts_with("aws")
                && !path.is_empty()
                && path.bytes().all(|b| b.is_ascii_graphic())
        }
        _ => false,
    }
}

/// As STS takes it (`AssumeRole`, `ExternalId`).
fn is_external_id(id: &str) -> bool {
    let may_be_in_it = |b: u8| b.is_ascii_alphanumeric() || b"_+=,.@:/-".contains(&b);
    (2..=1_224).contains(&id.len()) && id.bytes().all(may_be_in_it)
}
