//! What commands print on standard output, and the errors that they end with.

mod captured;
mod cells;
mod page;
mod spinner;

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use shardmill_core::text::printable;

pub(crate) use self::captured::{TooLong, captured};
pub(crate) use self::cells::{
    age, age_since, millis, or_dash, short_digest, short_reason, short_shard, table,
};
pub(crate) use self::page::Page;
pub(crate) use self::spinner::spinner;

/// A signal ended the command before it was done. Its effects stay, but it did not succeed. The
/// text follows the word `interrupted`.
#[derive(Debug, thiserror::Error)]
#[error("interrupted{0}")]
pub(crate) struct Interrupted(pub(crate) String);

/// The reader of standard output closed it before all was written, as `head` does. No message is
/// shown.
#[derive(Debug, thiserror::Error)]
#[error("the reader of standard output is gone")]
pub(crate) struct PipeClosed;

/// The first error of writing to standard output. Commands print in many places; what could not be
/// written is looked at once, at their end.
static UNWRITTEN: OnceLock<io::Error> = OnceLock::new();

/// An error if not all that was printed could be written. A reader that closed it has what it
/// wanted, as `head` has.
pub(crate) fn all_written() -> anyhow::Result<()> {
    match UNWRITTEN.get() {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            anyhow::bail!("cannot write to standard output: {error}")
        }
        Some(_) | None => Ok(()),
    }
}

/// An error if nobody reads any more: for what would go on printing.
pub(crate) fn unless_reader_is_gone() -> anyhow::Result<()> {
    match UNWRITTEN.get() {
        Some(_) => {
            all_written()?;
            Err(PipeClosed.into())
        }
        None => Ok(()),
    }
}

fn write(bytes: &[&[u8]]) {
    let mut out = io::stdout().lock();
    let mut written = Ok(());
    for bytes in bytes {
        written = written.and_then(|()| out.write_all(bytes));
    }
    if let Err(error) = written.and_then(|()| out.flush()) {
        // Only the first matters.
        let _ = UNWRITTEN.set(error);
    }
}

/// The error for a stream that does not exist, clearer than the service's own.
pub(crate) fn no_stream(stream: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "there is no stream {stream}: create it, or fix its name, the region or the endpoint; \
            `aws kinesis list-streams` lists the existing ones"
    )
}

/// Prints a line to standard output; all text of commands goes through here. Much of it comes from
/// rows, files and names that others wrote, so control characters are escaped. An error shows at
/// the command's end, see [`all_written`].
pub(crate) fn print(text: &str) {
    if captured::keep(text.as_bytes(), b"\n") {
        return;
    }
    write(&[printable(text).as_bytes(), b"\n"]);
}

/// An error with its causes, each once: some errors name their cause in their own text.
pub(crate) fn in_one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

/// Prints bytes unchanged, or with control characters escaped if standard output is a terminal.
pub(crate) fn print_bytes(bytes: &[u8]) {
    if captured::keep(bytes, b"") {
        return;
    }
    write(&[&for_reader(bytes, io::stdout().is_terminal())]);
}

/// The columns of the terminal; `None` if standard output is not a terminal.
pub(crate) fn terminal_width() -> Option<usize> {
    terminal_size().map(|(width, _)| width)
}

/// The columns and lines of the terminal; `None` if standard output is not a terminal.
pub(crate) fn terminal_size() -> Option<(usize, usize)> {
    let (width, height) = terminal_size::terminal_size_of(std::io::stdout())?;
    Some((usize::from(width.0), usize::from(height.0)))
}

/// Has the next text begin at the top of an empty screen, if standard output is a terminal.
pub(crate) fn clear_screen() {
    const TO_THE_TOP_AND_ERASE: &[u8] = b"\x1b[H\x1b[2J";
    let mut out = std::io::stdout().lock();
    if out.is_terminal() {
        let _ = out.write_all(TO_THE_TOP_AND_ERASE);
    }
}

fn for_reader(bytes: &[u8], is_terminal: bool) -> Cow<'_, [u8]> {
    if is_terminal {
        let text = printable(&String::from_utf8_lossy(bytes)).into_owned();
        Cow::Owned(text.into_bytes())
    } else {
        Cow::Borrowed(bytes)
    }
}

/// Prints `value` as one line of JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    print(&serde_json::to_string(value)?);
    Ok(())
}

/// Prints `value` as indented JSON, for people or for a file.
pub(crate) fn print_pretty_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    print(&serde_json::to_string_pretty(value)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn what_a_plugin_made_steers_no_terminal_and_is_the_same_for_everybody_else() {
        let made = b"\x1b]0;owned\x07\xff\n";
        assert_eq!(*for_reader(made, false), *made);
        let shown = for_reader(made, true);
        assert_eq!(
            String::from_utf8_lossy(&shown),
            "\\u001b]0;owned\\u0007\u{fffd}\n"
        );
    }

    #[test]
    fn a_cause_is_reported_once_whoever_reports_it() {
        let read = |text: &str| shardmill_config::ConfigError::Read {
            path: "shardmill.toml".into(),
            source: std::io::Error::other(text.to_owned()),
        };
        let told = in_one_line(&anyhow::Error::new(read("no such file")).context("cannot start"));
        assert_eq!(
            told,
            "cannot start: cannot read shardmill.toml: no such file"
        );
        let plain = Err::<(), _>(anyhow::anyhow!("inner"))
            .context("outer")
            .unwrap_err();
        assert_eq!(in_one_line(&plain), "outer: inner");
    }
}
