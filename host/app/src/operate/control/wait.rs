//! Waits until the hosts have done what is wanted.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::bail;
use serde::Serialize;
use shardmill_core::lease::Lease;
use shardmill_core::stream::ShardId;
use shardmill_serve::Signals;

use super::application::Application;
use crate::cli::ChangeArgs;
use crate::output::{Interrupted, age, millis};

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Shards that are named.
const SHARDS_SHOWN: usize = 5;

/// How it went.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Waited {
    millis: u64,
    /// The shards, or hosts, that have not done it.
    left: Vec<String>,
}

impl Waited {
    /// Waits, for as long as the arguments say, until `is_done` of the rows of all of these shards.
    /// A row that is gone is done. `None` if they say not to wait.
    pub(super) async fn until(
        application: &Application,
        shards: &BTreeSet<ShardId>,
        change: &ChangeArgs,
        is_done: impl Fn(&Lease) -> bool,
    ) -> anyhow::Result<Option<Self>> {
        Self::until_none_left(change, || async {
            let rows = application.rows().await?;
            let rows = rows.iter();
            let left = rows.filter(|row| shards.contains(&row.key.shard_id()) && !is_done(row));
            Ok(left.map(|row| row.key.to_string()).collect())
        })
        .await
    }

    /// The same, until nothing is left of what `left` names.
    pub(super) async fn until_none_left<L>(
        change: &ChangeArgs,
        left: impl Fn() -> L,
    ) -> anyhow::Result<Option<Self>>
    where
        L: Future<Output = anyhow::Result<Vec<String>>>,
    {
        if change.wait.is_zero() {
            return Ok(None);
        }
        let (signals, started) = (Signals::listen()?, Instant::now());
        loop {
            let left = left().await?;
            if left.is_empty() || started.elapsed() >= change.wait {
                let millis = millis(started.elapsed());
                return Ok(Some(Self { millis, left }));
            }
            let sleep = tokio::time::sleep(LOOK_EVERY);
            if signals.stop().run_until_cancelled(sleep).await.is_none() {
                let still = ": it stays wanted, and the hosts do it".to_owned();
                return Err(Interrupted(still).into());
            }
        }
    }

    /// Whether all have done it.
    pub(super) fn is_done(&self) -> bool {
        self.left.is_empty()
    }

    /// An error if some have not done it.
    pub(super) fn conclude(waited: Option<&Self>) -> anyhow::Result<()> {
        match waited {
            Some(waited) if !waited.left.is_empty() => bail!(
                "{} shard(s) have not done it yet; it stays wanted, and `shardmill explain` says \
                    what each waits for",
                waited.left.len()
            ),
            Some(_) | None => Ok(()),
        }
    }
}

impl fmt::Display for Waited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let took = age(Duration::from_millis(self.millis));
        if self.left.is_empty() {
            return write!(f, "done after {took}");
        }
        let shown = self.left.iter().take(SHARDS_SHOWN);
        let shown: Vec<&str> = shown.map(String::as_str).collect();
        let more = self.left.len().saturating_sub(SHARDS_SHOWN);
        write!(f, "not done after {took}: {}", shown.join(", "))?;
        if more > 0 {
            write!(f, " and {more} more")?;
        }
        Ok(())
    }
}
