//! The end of a command that tries a plugin, if a signal asks for it.

use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::output::Interrupted;

/// How long a command may need to stop by itself. A call of the plugin may never return, and
/// nothing lasts of what it does.
const GRACE: Duration = Duration::from_secs(2);

/// Runs `work`, which hears of `stop` itself, and leaves it if it goes on for much longer.
pub(super) async fn unless_interrupted<T>(
    work: impl Future<Output = T>,
    stop: &CancellationToken,
) -> Result<T, Interrupted> {
    let is_over = async {
        stop.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        biased;
        done = work => Ok(done),
        () = is_over => Err(Interrupted(String::new())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_that_hears_of_the_signal_ends_by_itself_and_other_work_is_left() {
        let stop = CancellationToken::new();
        stop.cancel();
        let hears = async { stop.cancelled().await };
        assert!(unless_interrupted(hears, &stop).await.is_ok());
        let endless = std::future::pending::<()>();
        assert!(unless_interrupted(endless, &stop).await.is_err());
    }
}
