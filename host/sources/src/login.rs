use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use shardmill_core::artifact::EcrRegistry;
use shardmill_core::plugin::SecretSource;

use crate::aws_access::AwsAccess;
use crate::credentials::LoginPassword;
use crate::pull_error::PullError;
use crate::transport::Transport;
use crate::{docker, ecr_login};

/// Far more than any password has; tokens of clouds have some thousand.
const PASSWORD_BYTES_MAX: u64 = 64 << 10;

/// How a host shows a registry who it is, as the configuration says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// The name of the user.
    pub user: String,
    /// Where the password is kept. Read with each login, so that it may change.
    pub password: SecretSource,
}

/// Which login each registry gets.
#[derive(Clone)]
pub(crate) struct Logins {
    configured: BTreeMap<String, Login>,
    /// For registries of AWS, if there are credentials for them.
    aws: Option<AwsAccess>,
    transport: Transport,
}

impl Logins {
    pub(crate) fn new(
        configured: BTreeMap<String, Login>,
        aws: Option<AwsAccess>,
        transport: Transport,
    ) -> Self {
        Self {
            configured,
            aws,
            transport,
        }
    }

    /// What the configuration says for this host, or what docker knows, or what AWS gives for its
    /// own registries; `None` for nobody.
    pub(crate) async fn of(&self, host: &str) -> Result<Option<LoginPassword>, PullError> {
        let login = match self.configured.get(host) {
            Some(login) => login.read().map(Some),
            None => self.found(host).await,
        };
        login.map_err(|why| PullError::Login {
            host: host.to_owned(),
            why,
        })
    }

    async fn found(&self, host: &str) -> Result<Option<LoginPassword>, String> {
        if let Some(known) = docker::login(host).await? {
            return Ok(Some(known));
        }
        match (EcrRegistry::of(host), &self.aws) {
            (Some(registry), Some(aws)) => {
                let login = ecr_login::login(registry, aws, &self.transport).await?;
                Ok(Some(login))
            }
            _ => Ok(None),
        }
    }
}

impl Login {
    fn read(&self) -> Result<LoginPassword, String> {
        let password = match &self.password {
            SecretSource::Variable(name) => {
                std::env::var(name).map_err(|_| format!("the variable {name} is not set"))?
            }
            SecretSource::File(path) => read_file(path)
                .map_err(|error| format!("cannot read {}: {error}", path.display()))?,
        };
        Ok(LoginPassword {
            user: self.user.clone(),
            password: password.trim_end_matches(['\r', '\n']).to_owned(),
        })
    }
}

/// A link is followed: secrets that are mounted into containers are links.
fn read_file(path: &Path) -> std::io::Result<String> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    let file = File::open(path)?;
    file.take(PASSWORD_BYTES_MAX + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > PASSWORD_BYTES_MAX {
        return Err(std::io::Error::other("it is too large for a password"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::{Duration, SystemTime};

    use shardmill_aws::{AwsOptions, StaticCredentials, connect};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Answers one request with this status and body, and returns it.
    async fn asked_once(listener: tokio::net::TcpListener, status: u16, body: &str) -> String {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 16 << 10];
        let mut length = 0;
        while !request[..length].ends_with(b"{}") {
            length += stream.read(&mut request[length..]).await.unwrap();
        }
        let answer = format!(
            "HTTP/1.1 {status} so\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8_lossy(&request[..length]).to_lowercase()
    }

    /// What a login of AWS's registry in Ireland comes to if ECR answers so, and what was asked.
    async fn of_ecr(status: u16, body: &str) -> (Result<Option<LoginPassword>, PullError>, String) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let aws = AwsOptions {
            region: Some("us-east-1".to_owned()),
            credentials: Some(StaticCredentials::dummy()),
            ..AwsOptions::default()
        };
        let aws = AwsAccess {
            clients: connect(&aws).await.unwrap(),
            s3_endpoint: None,
            ecr_endpoint: Some(format!("http://{}", listener.local_addr().unwrap())),
            now: || SystemTime::UNIX_EPOCH + Duration::from_hours(500_000),
        };
        let transport = Transport::new(Duration::from_secs(5), BTreeSet::new()).unwrap();
        let logins = Logins::new(BTreeMap::new(), Some(aws), transport);
        let host = "123456789012.dkr.ecr.eu-west-1.amazonaws.com";
        tokio::join!(logins.of(host), asked_once(listener, status, body))
    }

    #[tokio::test]
    async fn a_registry_of_aws_gets_the_login_that_aws_gives_for_its_region() {
        // AWS:secret
        let body = r#"{"authorizationData":[{"authorizationToken":"QVdTOnNlY3JldA=="}]}"#;
        let (login, asked) = of_ecr(200, body).await;
        let login = login.unwrap().unwrap();
        assert_eq!(
            (login.user.as_str(), login.password.as_str()),
            ("AWS", "secret")
        );
        assert!(
            asked.contains("containerregistry_v20150921.getauthorizationtoken")
                && asked.contains("/eu-west-1/ecr/aws4_request"),
            "{asked}"
        );
    }

    #[tokio::test]
    async fn a_login_that_aws_refuses_or_garbles_names_the_registry_and_the_permission() {
        let refusal = r#"{"__type":"AccessDeniedException","Message":"not authorized"}"#;
        for (status, body, why) in [
            (400, refusal, "ecr:GetAuthorizationToken"),
            (200, "{}", "ECR's answer"),
            (200, r#"{"authorizationData":[]}"#, "no user and password"),
        ] {
            let told = of_ecr(status, body).await.0.unwrap_err().to_string();
            assert!(
                told.contains("login for 123456789012.dkr.ecr") && told.contains(why),
                "{told}"
            );
        }
    }

    #[tokio::test]
    async fn a_password_is_read_with_each_login_and_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let login = Login {
            user: "robot".to_owned(),
            password: SecretSource::File(path.clone()),
        };
        let transport = Transport::new(Duration::from_secs(5), BTreeSet::new()).unwrap();
        let configured = BTreeMap::from([("r.example".to_owned(), login)]);
        let logins = Logins::new(configured, None, transport);
        let missing = logins.of("r.example").await.unwrap_err().to_string();
        assert!(
            missing.contains("login for r.example") && missing.contains("password"),
            "{missing}"
        );
        for password in ["one", "two"] {
            std::fs::write(&path, format!("{password}\n")).unwrap();
            let found = logins.of("r.example").await.unwrap().unwrap();
            assert_eq!(
                (found.user.as_str(), found.password.as_str()),
                ("robot", password)
            );
            assert!(!format!("{found:?}").contains(password));
        }
    }
}
