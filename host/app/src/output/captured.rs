//! What a command prints, kept for whoever runs it in this process instead of going to standard
//! output.

use std::sync::{Arc, Mutex, PoisonError};

/// Most bytes of one command: the leases of ten thousand shards have half of that.
const BYTES_MAX: usize = 16 << 20;

tokio::task_local! {
    static KEPT: Arc<Mutex<Kept>>;
}

#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    is_too_long: bool,
}

/// A command printed more than is kept.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the answer is longer than 16 MiB: ask for less of it")]
pub(crate) struct TooLong;

/// Runs a command; returns what it returns, and what it printed.
pub(crate) async fn captured<T>(command: impl Future<Output = T>) -> (T, Result<Vec<u8>, TooLong>) {
    let kept = Arc::new(Mutex::new(Kept::default()));
    let result = KEPT.scope(Arc::clone(&kept), command).await;
    let kept = std::mem::take(&mut *kept.lock().unwrap_or_else(PoisonError::into_inner));
    let printed = if kept.is_too_long {
        Err(TooLong)
    } else {
        Ok(kept.bytes)
    };
    (result, printed)
}

/// Keeps what is printed, if the command that prints is one of [`captured`]; returns whether it is.
pub(super) fn keep(text: &[u8], end: &[u8]) -> bool {
    let kept = KEPT.try_with(|kept| {
        kept.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add(text, end);
    });
    kept.is_ok()
}

impl Kept {
    fn add(&mut self, text: &[u8], end: &[u8]) {
        if self.is_too_long || self.bytes.len() + text.len() + end.len() > BYTES_MAX {
            *self = Self {
                bytes: Vec::new(),
                is_too_long: true,
            };
            return;
        }
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(end);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{print, print_bytes, print_json};
    use super::*;

    #[tokio::test]
    async fn what_a_command_prints_goes_to_its_caller_unchanged_and_to_no_other() {
        let command = async {
            print("one\u{1b}");
            print_bytes(b"\xff");
            print_json(&"two").unwrap();
            7
        };
        let other = captured(async { print("other") });
        let ((result, printed), ((), of_other)) = tokio::join!(captured(command), other);
        assert_eq!(result, 7);
        assert_eq!(printed.unwrap(), b"one\x1b\n\xff\"two\"\n");
        assert_eq!(of_other.unwrap(), b"other\n");
        assert!(!keep(b"later", b""), "nobody keeps it");
    }

    #[tokio::test]
    async fn an_answer_without_end_takes_no_memory_without_end() {
        let line = "x".repeat(1 << 20);
        let ((), printed) = captured(async { (0..100).for_each(|_| print(&line)) }).await;
        assert_eq!(printed, Err(TooLong));
    }
}
