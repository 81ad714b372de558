//! What a plugin sees of the host's environment and of its secrets: what it was granted, and
//! nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use shardmill_core::plugin::{GuestLimits, Permissions, ProcessorError, SecretSource};
use shardmill_core::ports::RecordProcessor;
use shardmill_wasm::Runtime;

use crate::support::{ask, asking, batch_of, runtime};

const SECRET: &str = "hush-hush-4711";

fn ample() -> Runtime {
    runtime(GuestLimits {
        process_deadline: Duration::from_secs(30),
        ..GuestLimits::default()
    })
}

fn secret_in(path: &Path) -> Permissions {
    let secrets = BTreeMap::from([("api".to_owned(), SecretSource::File(path.to_owned()))]);
    Permissions {
        secrets,
        ..Permissions::default()
    }
}

struct Vault {
    folder: tempfile::TempDir,
    runtime: Runtime,
}

impl Vault {
    fn new() -> Self {
        let vault = Self {
            folder: tempfile::tempdir().unwrap(),
            runtime: ample(),
        };
        vault.put(SECRET);
        vault
    }

    fn put(&self, value: &str) {
        std::fs::write(self.folder.path().join("api"), format!("{value}\n")).unwrap();
    }

    async fn open(
        &self,
        config: &[(&str, &str)],
    ) -> Result<Box<dyn RecordProcessor>, ProcessorError> {
        asking(
            &self.runtime,
            secret_in(&self.folder.path().join("api")),
            config,
        )
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_sees_the_variables_that_it_was_granted_and_no_others() {
    let runtime = ample();
    let mut plain = asking(&runtime, Permissions::default(), &[]).await.unwrap();
    assert_eq!(ask(&mut *plain, "environment").await.unwrap(), "");
    let env = BTreeSet::from([
        "CARGO_PKG_NAME".to_owned(),
        "SHARDMILL_NOT_SET_ANYWHERE".to_owned(),
    ]);
    let mut granted = asking(
        &runtime,
        Permissions {
            env,
            ..Permissions::default()
        },
        &[],
    )
    .await
    .unwrap();
    let expected = format!("CARGO_PKG_NAME={}", env!("CARGO_PKG_NAME"));
    assert_eq!(ask(&mut *granted, "environment").await.unwrap(), expected);
    assert_eq!(ask(&mut *granted, "env PATH").await.unwrap(), "(not set)");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_read_by_its_name_and_not_listed() {
    let vault = Vault::new();
    let mut granted = vault.open(&[("colour", "red")]).await.unwrap();
    assert_eq!(
        ask(&mut *granted, "get secret.api").await.unwrap(),
        SECRET,
        "what is emitted is the plugin's own affair"
    );
    assert_eq!(
        ask(&mut *granted, "get secret.other").await.unwrap(),
        "(none)"
    );
    assert_eq!(ask(&mut *granted, "all").await.unwrap(), "colour=red");
    let mut plain = asking(&vault.runtime, Permissions::default(), &[])
        .await
        .unwrap();
    assert_eq!(ask(&mut *plain, "get secret.api").await.unwrap(), "(none)");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_secret_is_what_the_next_instance_reads() {
    let vault = Vault::new();
    let mut before = vault.open(&[]).await.unwrap();
    vault.put("another-one-4712");
    let mut after = vault.open(&[]).await.unwrap();
    assert_eq!(
        ask(&mut *after, "get secret.api").await.unwrap(),
        "another-one-4712"
    );
    assert_eq!(ask(&mut *before, "get secret.api").await.unwrap(), SECRET);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_cannot_be_had_is_the_hosts_trouble_and_names_its_place() {
    let vault = Vault::new();
    std::fs::remove_file(vault.folder.path().join("api")).unwrap();
    let Err(ProcessorError::Host { message }) = vault.open(&[]).await else {
        panic!("not the host's error")
    };
    assert!(
        message.contains("cannot read the secret api: the file ")
            && message.contains("No such file"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn no_error_of_a_guest_holds_a_secret() {
    let vault = Vault::new();
    let said = "could not log in with [secret]";
    let error = vault.open(&[("init", "tell")]).await.err().unwrap();
    assert_eq!(
        error,
        ProcessorError::Reported {
            message: "init was told [secret]".to_owned()
        }
    );
    let mut granted = vault.open(&[]).await.unwrap();
    let error = ask(&mut *granted, "error secret.api").await.unwrap_err();
    assert_eq!(
        error,
        ProcessorError::Reported {
            message: said.to_owned()
        }
    );
    let processed = granted
        .process(batch_of(&["reject secret.api".to_owned()]))
        .await
        .unwrap();
    assert_eq!(processed.outcome.failures[0].message, said);
    let error = ask(&mut *granted, "panic secret.api")
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains(said) && !error.contains(SECRET), "{error}");
}
