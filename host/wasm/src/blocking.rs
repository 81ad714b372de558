//! Work on threads that may block.

use tokio::task::JoinSet;

/// Runs `work` on such a thread. The error says that it panicked, or that the system has no thread
/// left, at which tokio panics: a task that runs for as long as the host does must not end of it.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let mut task = JoinSet::new();
    task.spawn(async { tokio::task::spawn_blocking(work).await });
    match task.join_next().await {
        Some(Ok(Ok(done))) => Ok(done),
        Some(Ok(Err(error)) | Err(error)) => Err(error.to_string()),
        None => Err("it was not started".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_panics_is_an_error_and_not_the_end_of_who_waits_for_it() {
        assert_eq!(blocking(|| 1).await, Ok(1));
        let told = blocking(|| panic!("no thread")).await.unwrap_err();
        assert!(told.contains("no thread"), "{told}");
    }
}
