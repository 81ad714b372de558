use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use shardmill_core::plugin::SecretSource;

use crate::credentials::LoginPassword;
use crate::docker;
use crate::pull_error::PullError;

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
#[derive(Debug, Clone)]
pub(crate) struct Logins {
    configured: BTreeMap<String, Login>,
}

impl Logins {
    pub(crate) fn new(configured: BTreeMap<String, Login>) -> Self {
        Self { configured }
    }

    /// What the configuration says for this host, or else what docker knows; `None` for nobody.
    pub(crate) async fn of(&self, host: &str) -> Result<Option<LoginPassword>, PullError> {
        let login = match self.configured.get(host) {
            Some(login) => login.read().map(Some),
            None => docker::login(host).await,
        };
        login.map_err(|why| PullError::Login {
            host: host.to_owned(),
            why,
        })
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
    use super::*;

    #[tokio::test]
    async fn a_password_is_read_with_each_login_and_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let login = Login {
            user: "robot".to_owned(),
            password: SecretSource::File(path.clone()),
        };
        let logins = Logins::new(BTreeMap::from([("r.example".to_owned(), login)]));
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
