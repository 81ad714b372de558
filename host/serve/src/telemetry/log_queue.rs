//! Log lines wait here for the thread that writes them. Code that logs never waits: if standard
//! error is not read, for example because a collector hangs, lines are lost and nothing else.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

/// Bytes that wait at most, and as many again are being written: some thousand lines, a second of a
/// plugin's flood.
pub(super) const WAITING_BYTES_MAX: usize = 1 << 20;

/// Lines that wait to be written. Cheap to clone.
#[derive(Clone)]
pub(super) struct LogQueue {
    shared: Arc<Shared>,
}

/// One line, or what is written of it at once.
pub(super) struct LogLine<'a>(&'a LogQueue);

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    is_writing: bool,
    /// Lines that found no room since the last report.
    dropped: u64,
}

impl LogQueue {
    /// Starts the thread, which lives as long as the process. When there is room again, it calls
    /// `told` with the number of dropped lines.
    pub(super) fn start(
        stream: impl Write + Send + 'static,
        report: impl Fn(u64) + Send + 'static,
    ) -> io::Result<Self> {
        let queue = Self {
            shared: Arc::new(Shared {
                state: Mutex::default(),
                changed: Condvar::new(),
            }),
        };
        let waiting = queue.clone();
        std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || waiting.write_all_to(stream, report))?;
        Ok(queue)
    }

    /// Takes a line, or counts it as dropped.
    pub(super) fn push(&self, line: &[u8]) {
        let mut state = self.lock();
        if state.waiting.len() + line.len() <= WAITING_BYTES_MAX {
            state.waiting.extend_from_slice(line);
            self.shared.changed.notify_all();
            return;
        }
        state.dropped += 1;
        drop(state);
        metrics::counter!(super::metrics::DROPPED).increment(1);
    }

    /// Waits until everything is written, but no longer than `within`. True if it is.
    pub(super) fn flush(&self, within: Duration) -> bool {
        self.wait_until(within, |state| {
            !state.is_writing && state.waiting.is_empty()
        })
    }

    /// The same until half of the room is free.
    pub(super) fn has_half_free_within(&self, within: Duration) -> bool {
        self.wait_until(within, |state| state.waiting.len() <= WAITING_BYTES_MAX / 2)
    }

    fn wait_until(&self, within: Duration, is_so: impl Fn(&State) -> bool) -> bool {
        let deadline = Instant::now() + within;
        let mut state = self.lock();
        while !is_so(&state) {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return false;
            };
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn write_all_to(&self, mut stream: impl Write, report: impl Fn(u64)) {
        loop {
            let (lines, dropped) = self.take();
            // A closed stream means that no log is wanted.
            let _ = stream.write_all(&lines).and_then(|()| stream.flush());
            if dropped > 0 {
                report(dropped);
            }
            self.lock().is_writing = false;
            self.shared.changed.notify_all();
        }
    }

    /// Waits for lines.
    fn take(&self) -> (Vec<u8>, u64) {
        let mut state = self.lock();
        while state.waiting.is_empty() {
            state = self
                .shared
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.is_writing = true;
        (
            std::mem::take(&mut state.waiting),
            std::mem::take(&mut state.dropped),
        )
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> MakeWriter<'a> for LogQueue {
    type Writer = LogLine<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        LogLine(self)
    }
}

impl Write for LogLine<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A stream that somebody reads only when they say so.
    struct Stream {
        reads: Receiver<()>,
        written: Sender<Vec<u8>>,
    }

    impl Write for Stream {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.reads.recv().map_err(io::Error::other)?;
            self.written
                .send(bytes.to_vec())
                .map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn queue() -> (LogQueue, Sender<()>, Receiver<Vec<u8>>, Receiver<u64>) {
        let ((read, reads), (written, seen), (told, dropped)) = (channel(), channel(), channel());
        let tell = move |lines| told.send(lines).unwrap();
        (
            LogQueue::start(Stream { reads, written }, tell).unwrap(),
            read,
            seen,
            dropped,
        )
    }

    #[test]
    fn a_stream_that_nobody_reads_costs_lines_that_are_reported_and_holds_up_nobody_who_logs() {
        let (queue, read, seen, dropped) = queue();
        let line = [b'x'; 1 << 10];
        queue.push(&line);
        while !queue.lock().is_writing {
            std::thread::yield_now();
        }
        // More than waits, beside what is being written.
        for _ in 0..3 * WAITING_BYTES_MAX / line.len() {
            queue.push(&line);
        }
        assert!(!queue.flush(Duration::from_millis(1)));
        let kept = queue.lock().waiting.len();
        assert_eq!(kept, WAITING_BYTES_MAX);
        read.send(()).unwrap();
        read.send(()).unwrap();
        let written = [seen.recv().unwrap().len(), seen.recv().unwrap().len()];
        assert_eq!(written, [line.len(), WAITING_BYTES_MAX]);
        assert_eq!(
            dropped.recv().unwrap(),
            2 * WAITING_BYTES_MAX as u64 / line.len() as u64
        );
    }

    #[test]
    fn the_last_lines_are_written_before_the_end() {
        let (queue, read, seen, _dropped) = queue();
        queue.push(b"first\n");
        queue.push(b"last\n");
        read.send(()).unwrap();
        read.send(()).unwrap();
        assert!(queue.flush(Duration::from_mins(1)));
        assert_eq!(
            seen.try_iter().flatten().collect::<Vec<_>>(),
            b"first\nlast\n"
        );
    }

    #[test]
    fn a_line_that_is_larger_than_all_that_may_wait_is_dropped_and_the_next_one_is_not() {
        let (queue, read, seen, dropped) = queue();
        queue.push(&vec![b'x'; WAITING_BYTES_MAX + 1]);
        queue.push(b"next");
        read.send(()).unwrap();
        assert_eq!(
            (seen.recv().unwrap(), dropped.recv().unwrap()),
            (b"next".to_vec(), 1)
        );
    }
}
