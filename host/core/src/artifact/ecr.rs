//! Registries of Amazon ECR, which give logins for half a day to whoever has the right.

/// A private registry of Amazon ECR, as the name of its host says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EcrRegistry<'a> {
    /// The account whose registry it is, in twelve digits.
    pub account: &'a str,
    /// The region of the registry, and of the logins for it.
    pub region: &'a str,
    /// What the service is called in names: `ecr`, or `ecr-fips`.
    service: &'a str,
    /// What follows the region: `amazonaws.com`, or that of China.
    domain: &'a str,
}

impl<'a> EcrRegistry<'a> {
    /// Reads `ACCOUNT.dkr.ecr.REGION.amazonaws.com`; `None` for any other registry.
    pub fn of(host: &'a str) -> Option<Self> {
        let (account, rest) = host.split_once(".dkr.")?;
        let (service, rest) = rest.split_once('.')?;
        let (region, domain) = rest.split_once('.')?;
        let is_account = account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit());
        let is_region = crate::stream::check_region(region).is_ok();
        let is_ecr = is_account
            && is_region
            && ["ecr", "ecr-fips"].contains(&service)
            && ["amazonaws.com", "amazonaws.com.cn"].contains(&domain);
        is_ecr.then_some(Self {
            account,
            region,
            service,
            domain,
        })
    }

    /// Where logins are asked for.
    pub fn endpoint(&self) -> String {
        let Self {
            region,
            service,
            domain,
            ..
        } = self;
        // AWS's endpoints for ECR: the plain one has `api.` before it.
        let prefix = if *service == "ecr" { "api." } else { "" };
        format!("https://{prefix}{service}.{region}.{domain}/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_private_registry_says_where_its_logins_come_from() {
        for (host, region, endpoint) in [
            (
                "123456789012.dkr.ecr.eu-west-1.amazonaws.com",
                "eu-west-1",
                "https://api.ecr.eu-west-1.amazonaws.com/",
            ),
            (
                "123456789012.dkr.ecr-fips.us-east-1.amazonaws.com",
                "us-east-1",
                "https://ecr-fips.us-east-1.amazonaws.com/",
            ),
            (
                "123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn",
                "cn-north-1",
                "https://api.ecr.cn-north-1.amazonaws.com.cn/",
            ),
        ] {
            let registry = EcrRegistry::of(host).unwrap();
            assert_eq!(registry.account, "123456789012");
            assert_eq!(registry.region, region);
            assert_eq!(registry.endpoint(), endpoint);
        }
    }

    #[test]
    fn nobody_else_gets_a_login_of_aws() {
        for host in [
            "public.ecr.aws",
            "ghcr.io",
            "12345678901.dkr.ecr.eu-west-1.amazonaws.com",
            "12345678901x.dkr.ecr.eu-west-1.amazonaws.com",
            "123456789012.dkr.ecr.eu-west-1.amazonaws.com.evil.example",
            "123456789012.dkr.ecr.eu-west-1.evil.example",
            "123456789012.dkr.ecr.amazonaws.com",
            "123456789012.dkr.ecr..amazonaws.com",
            "123456789012.dkr.s3.eu-west-1.amazonaws.com",
            "123456789012.dkr.ecr.eu-west-1.amazonaws.com:443",
            "evil.example/123456789012.dkr.ecr.eu-west-1.amazonaws.com",
        ] {
            assert_eq!(EcrRegistry::of(host), None, "{host}");
        }
    }
}
