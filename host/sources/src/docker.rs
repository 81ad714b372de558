//! Logins that docker knows: `config.json`, and the programs that it names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use crate::credentials::LoginPassword;

/// Far more than docker writes for anybody.
const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// A user and a password.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// How long a program may take that asks a key ring, or a cloud.
const PROGRAM_WITHIN: Duration = Duration::from_secs(15);
/// How Docker Hub is called in the file.
const DOCKER_HUB: &str = "https://index.docker.io/v1/";

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ConfigFile {
    auths: BTreeMap<String, Auth>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Auth {
    auth: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    username: String,
    secret: String,
}

/// The login for a registry; `None` if docker knows none.
pub(crate) async fn login(host: &str) -> Result<Option<LoginPassword>, String> {
    let Some(path) = config_file() else {
        return Ok(None);
    };
    let text = match read(&path).await {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
    };
    let config: ConfigFile = serde_json::from_slice(&text)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let program = config.cred_helpers.get(host);
    if let Some(program) = program.or(config.creds_store.as_ref()) {
        return asked(program, host).await;
    }
    let auth = names_of(host)
        .into_iter()
        .find_map(|name| config.auths.get(&name)?.auth.clone());
    auth.filter(|auth| !auth.is_empty())
        .map(|auth| decoded(&auth).ok_or_else(|| malformed(&path, host)))
        .transpose()
}

fn malformed(path: &Path, host: &str) -> String {
    let path = path.display();
    format!("{path} has no user and password for {host} that can be read: log in with docker again")
}

fn config_file() -> Option<PathBuf> {
    let folder = match std::env::var_os("DOCKER_CONFIG") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".docker"),
    };
    Some(folder.join("config.json"))
}

async fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    if !tokio::fs::metadata(path).await?.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    let file = tokio::fs::File::open(path).await?;
    let mut bytes = Vec::new();
    file.take(CONFIG_BYTES_MAX).read_to_end(&mut bytes).await?;
    Ok(bytes)
}

/// What a registry may be called in the file.
fn names_of(host: &str) -> Vec<String> {
    let mut names = vec![
        host.to_owned(),
        format!("https://{host}"),
        format!("https://{host}/v1/"),
        format!("https://{host}/v2/"),
    ];
    if host == "docker.io" {
        names.push(DOCKER_HUB.to_owned());
    }
    names
}

/// A user and a password as docker writes them down.
pub(crate) fn decoded(auth: &str) -> Option<LoginPassword> {
    let bytes = BASE64_STANDARD.decode(auth.trim()).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (user, password) = text.split_once(':')?;
    Some(LoginPassword {
        user: user.to_owned(),
        password: password.trim_end_matches('\0').to_owned(),
    })
}

/// Asks a program that keeps logins. One that knows none for this registry is no error.
async fn asked(program: &str, host: &str) -> Result<Option<LoginPassword>, String> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if program.is_empty() || !program.chars().all(is_of_name) {
        return Err(format!(
            "{program:?} cannot name a program that keeps logins"
        ));
    }
    let name = format!("docker-credential-{program}");
    let key = if host == "docker.io" {
        DOCKER_HUB
    } else {
        host
    };
    let answered = tokio::time::timeout(PROGRAM_WITHIN, answer(&name, key)).await;
    let bytes = answered
        .map_err(|_| format!("{name} took longer than {PROGRAM_WITHIN:?}"))?
        .map_err(|error| format!("{name} cannot be asked: {error}"))?;
    let Some(bytes) = bytes else {
        return Ok(None);
    };
    let Answer { username, secret } = serde_json::from_slice(&bytes)
        .map_err(|_| format!("{name} answers with something else than a user and a password"))?;
    if username == "<token>" {
        return Err(format!(
            "{name} has only a token that renews itself: log in with a user and a password"
        ));
    }
    Ok(Some(LoginPassword {
        user: username,
        password: secret,
    }))
}

/// What the program prints; `None` if it says that it failed.
async fn answer(program: &str, key: &str) -> std::io::Result<Option<Vec<u8>>> {
    let mut child = Command::new(program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(key.as_bytes()).await?;
    }
    let mut bytes = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout
            .take(ANSWER_BYTES_MAX)
            .read_to_end(&mut bytes)
            .await?;
    }
    let status = child.wait().await?;
    Ok(status.success().then_some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_in_the_file_is_a_user_and_a_password_and_the_password_may_have_colons() {
        let encoded = BASE64_STANDARD.encode("robot:a:b\0");
        let login = decoded(&encoded).unwrap();
        assert_eq!(
            (login.user.as_str(), login.password.as_str()),
            ("robot", "a:b")
        );
        for bad in ["", "%", "cm9ib3Q="] {
            assert_eq!(decoded(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_registry_is_found_however_docker_wrote_it() {
        let names = names_of("r.example:5000");
        assert!(names.contains(&"https://r.example:5000/v2/".to_owned()));
        assert!(names_of("docker.io").contains(&DOCKER_HUB.to_owned()));
        let text = "{\"auths\": {\"https://r.example\": {\"auth\": \"YTpi\"}}, \
            \"credHelpers\": {\"x\": \"ecr-login\"}, \"other\": 1}";
        let config: ConfigFile = serde_json::from_str(text).unwrap();
        assert_eq!(config.cred_helpers["x"], "ecr-login");
        assert!(config.auths.contains_key("https://r.example"));
    }

    #[tokio::test]
    async fn a_program_is_named_by_a_word_and_one_that_is_not_there_is_named() {
        for bad in ["", "../x", "a b"] {
            assert!(asked(bad, "r.example").await.is_err(), "{bad}");
        }
        let why = asked("shardmill-no-such", "r.example").await.unwrap_err();
        assert!(why.contains("docker-credential-shardmill-no-such"), "{why}");
    }
}
