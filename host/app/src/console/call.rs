//! Runs the command of a request: in this process, or, if it runs a plugin, in a child.

use std::process::Stdio;
use std::time::Duration;

use clap::FromArgMatches;
use serde::Serialize;
use serde_json::{Deserializer, Value};
use shardmill_aws::AwsClients;
use shardmill_serve::engine::own_binary;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::cli::{Cli, Command, OperateCommand};
use crate::output::{TooLong, captured, in_one_line};

/// The longest that a command may take: it waits for hosts, and for what watching shows.
pub(super) const WITHIN: Duration = Duration::from_secs(90);

/// Most bytes of the output of a process: what a failing batch shows.
const OUTPUT_BYTES_MAX: usize = 16 << 20;

/// What came of a command.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Answer {
    /// What a person types to do the same on this host.
    pub(super) command_line: String,
    /// What the command printed with `--json`.
    pub(super) results: Vec<Value>,
    /// Why its exit code is not 0, if it is not.
    pub(super) problem: Option<String>,
}

/// The command line refuses the arguments, for this reason.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub(super) struct UsageError(String);

/// Reads a command line as the program does.
pub(super) fn parse(line: &[String]) -> Result<OperateCommand, UsageError> {
    let usage = |error: &clap::Error| UsageError(in_words(error));
    let matches = crate::cli::command()
        .try_get_matches_from(line)
        .map_err(|error| usage(&error))?;
    match Cli::from_arg_matches(&matches)
        .map_err(|error| usage(&error))?
        .command
    {
        Command::Operate(command) => Ok(command),
        _ => Err(UsageError("this command is not offered".to_owned())),
    }
}

/// Runs a command to its end, in this process.
pub(super) async fn run(
    command: OperateCommand,
    clients: AwsClients,
    command_line: String,
) -> Answer {
    let command = Box::pin(crate::operate::offered::look_or_change(command));
    let command = captured(crate::aws::with_clients_of_host(clients, command));
    let (done, printed) = match tokio::time::timeout(WITHIN, command).await {
        Ok((done, printed)) => (done, printed),
        Err(_) => (Err(took_too_long()), Ok(Vec::new())),
    };
    let (results, unreadable) = match printed.map(|printed| values(&printed)) {
        Ok(Ok(results)) => (results, None),
        Ok(Err(error)) => (Vec::new(), Some(error.to_string())),
        Err(error @ TooLong) => (Vec::new(), Some(error.to_string())),
    };
    let problem = done.err().map(|error| in_one_line(&error));
    Answer {
        command_line,
        results,
        problem: problem.or(unreadable),
    }
}

/// Runs a command in a child process, which ends if nobody waits for it any more.
pub(super) async fn run_in_child(line: Vec<String>, command_line: String) -> Answer {
    let ended = match tokio::time::timeout(WITHIN, output_of(&line)).await {
        Ok(ended) => ended,
        Err(_) => Err(took_too_long()),
    };
    let (results, problem) = match ended {
        Ok(ended) => match values(&ended.stdout) {
            Ok(results) => (results, ended.problem),
            Err(error) => (Vec::new(), ended.problem.or(Some(error.to_string()))),
        },
        Err(error) => (Vec::new(), Some(in_one_line(&error))),
    };
    Answer {
        command_line,
        results,
        problem,
    }
}

/// What a process printed, and why it failed.
struct Ended {
    stdout: Vec<u8>,
    problem: Option<String>,
}

async fn output_of(line: &[String]) -> anyhow::Result<Ended> {
    let mut command = tokio::process::Command::new(own_binary()?);
    command.args(&line[1..]).kill_on_drop(true);
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (stdout, stderr, status) =
        tokio::join!(beginning_of(stdout), beginning_of(stderr), child.wait());
    let (stdout, stderr, status) = (stdout?, stderr?, status?);
    if stdout.len() > OUTPUT_BYTES_MAX {
        return Err(TooLong.into());
    }
    // The last line says why; what is above it is the log.
    let stderr = String::from_utf8_lossy(&stderr);
    let last = stderr.lines().last().unwrap_or("it ended without a word");
    let problem = last.strip_prefix("error: ").unwrap_or(last).to_owned();
    Ok(Ended {
        stdout,
        problem: (!status.success()).then_some(problem),
    })
}

/// What a stream has, but no more than one byte too many.
async fn beginning_of(stream: Option<impl AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        let most = OUTPUT_BYTES_MAX as u64 + 1;
        stream.take(most).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

fn took_too_long() -> anyhow::Error {
    anyhow::anyhow!(
        "it took longer than {}s; hosts go on with what they were told",
        WITHIN.as_secs()
    )
}

/// Commands print a value a line, or several lines for one.
fn values(printed: &[u8]) -> Result<Vec<Value>, serde_json::Error> {
    Deserializer::from_slice(printed).into_iter().collect()
}

/// The first lines of clap's message, without usage and hints for a terminal.
fn in_words(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    let lines: Vec<&str> = first.lines().map(str::trim).collect();
    lines.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn what_the_command_line_refuses_is_refused_in_one_line() {
        for (words, told) in [
            (&["shardmill", "pause"][..], "<APPLICATION>"),
            (
                &["shardmill", "pause", "--for=soon", "--", "orders"],
                "soon",
            ),
            (&["shardmill", "pause", "--apply", "--", "orders"], "--why"),
            (&["shardmill", "--help"], ""),
            (
                &["shardmill", "put", "--stream=a", "--", "x"],
                "not offered",
            ),
        ] {
            let UsageError(refused) = parse(&line(words)).unwrap_err();
            assert!(
                refused.contains(told) && !refused.contains('\n'),
                "{refused}"
            );
        }
    }

    #[test]
    fn values_are_read_however_a_command_lays_them_out() {
        assert_eq!(values(b"").unwrap(), Vec::<Value>::new());
        let two = values(b"{\"a\":1}\n{\n \"b\": 2\n}\n").unwrap();
        assert_eq!(two.len(), 2);
        assert!(values(b"the table").is_err());
    }
}
