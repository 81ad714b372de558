//! Where lines go. Only the thread that writes them waits for it, and never for long.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use shardmill_config::EmfTarget;

use super::document::LINE_BYTES_MAX;
use crate::telemetry;

/// An agent on the same host or in the same pod answers in microseconds.
const AGENT_WAIT: Duration = Duration::from_secs(1);
/// A datagram has at most 65,507 bytes of data over IPv4.
const DATAGRAM_BYTES_MAX: usize = 65_507;
/// The file begins again from here on; the one before stays. An agent that reads it is far ahead of
/// that: a host with 1,000 shards writes so much in some ten minutes.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// An open target.
pub(super) enum Target {
    Stderr,
    File(PathBuf),
    Tcp {
        address: String,
        connection: Option<TcpStream>,
    },
    Udp(String),
}

impl Target {
    pub(super) fn of(configured: &EmfTarget) -> Self {
        match configured {
            EmfTarget::Stderr => Self::Stderr,
            EmfTarget::File(path) => Self::File(path.clone()),
            EmfTarget::Tcp(address) => Self::Tcp {
                address: address.clone(),
                connection: None,
            },
            EmfTarget::Udp(address) => Self::Udp(address.clone()),
        }
    }

    /// Bytes of one line.
    pub(super) fn line_bytes_max(&self) -> usize {
        match self {
            Self::Stderr | Self::File(_) | Self::Tcp { .. } => LINE_BYTES_MAX,
            Self::Udp(_) => DATAGRAM_BYTES_MAX,
        }
    }

    /// Writes the lines, in this order. Gives back how many were written, and why the others were
    /// not: those are not to be tried again, since by then there are newer ones.
    pub(super) fn write(&mut self, lines: &[String]) -> (usize, Option<io::Error>) {
        match self {
            Self::Stderr => to_log(lines),
            Self::File(path) => to_file(path, lines),
            Self::Tcp {
                address,
                connection,
            } => to_agent(address, connection, lines),
            Self::Udp(address) => as_datagrams(address, lines),
        }
    }
}

fn to_log(lines: &[String]) -> (usize, Option<io::Error>) {
    for (written, line) in lines.iter().enumerate() {
        if !telemetry::write_beside_the_log(line) {
            let message = "standard error is not read";
            return (written, Some(io::Error::other(message)));
        }
    }
    (lines.len(), None)
}

fn to_file(path: &Path, lines: &[String]) -> (usize, Option<io::Error>) {
    let mut text = lines.join("\n");
    text.push('\n');
    let appended = open(path).and_then(|(mut file, is_torn)| {
        if is_torn {
            text.insert(0, '\n');
        }
        file.write_all(text.as_bytes())
    });
    match appended {
        Ok(()) => (lines.len(), None),
        Err(error) => (0, Some(error)),
    }
}

/// The file, and whether its last line has no end: this host or one before it was stopped in the
/// middle of it.
fn open(path: &Path) -> io::Result<(File, bool)> {
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => {
            let message = "it is no regular file, and a pipe that nobody reads would block";
            return Err(io::Error::other(message));
        }
        Ok(found) if found.len() >= FILE_BYTES_MAX => {
            let mut before = path.as_os_str().to_owned();
            before.push(".1");
            std::fs::rename(path, before)?;
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .open(path)?;
    let is_torn = file.seek(SeekFrom::End(0))? > 0 && {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        last != *b"\n"
    };
    Ok((file, is_torn))
}

fn to_agent(
    address: &str,
    connection: &mut Option<TcpStream>,
    lines: &[String],
) -> (usize, Option<io::Error>) {
    for (written, line) in lines.iter().enumerate() {
        // Taken: a connection that failed in the middle of a line is of no use any more.
        let sent = match connection.take().filter(is_open) {
            Some(open) => Ok(open),
            None => connect(address),
        };
        let sent = sent.and_then(|mut open| {
            open.write_all(line.as_bytes())?;
            open.write_all(b"\n")?;
            Ok(open)
        });
        match sent {
            Ok(open) => *connection = Some(open),
            Err(error) => return (written, Some(error)),
        }
    }
    (lines.len(), None)
}

fn connect(address: &str) -> io::Result<TcpStream> {
    let mut failed = no_address();
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, AGENT_WAIT) {
            Ok(open) => {
                open.set_write_timeout(Some(AGENT_WAIT))?;
                return Ok(open);
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Whether the agent has not closed it. Without asking, what is written next would seem to have
/// arrived.
fn is_open(connection: &TcpStream) -> bool {
    let mut byte = [0];
    let peeked = connection
        .set_nonblocking(true)
        .and_then(|()| connection.peek(&mut byte));
    let is_open = match peeked {
        Ok(bytes) => bytes > 0,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    };
    connection.set_nonblocking(false).is_ok() && is_open
}

fn as_datagrams(address: &str, lines: &[String]) -> (usize, Option<io::Error>) {
    let socket = match address.to_socket_addrs().and_then(|mut found| {
        let address = found.next().ok_or_else(no_address)?;
        datagram_socket(address)
    }) {
        Ok(socket) => socket,
        Err(error) => return (0, Some(error)),
    };
    for (written, line) in lines.iter().enumerate() {
        if let Err(error) = socket.send(line.as_bytes()) {
            return (written, Some(error));
        }
    }
    (lines.len(), None)
}

/// Connected, so that the system says when nobody listens there.
fn datagram_socket(address: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = if address.is_ipv4() {
        ([0, 0, 0, 0], 0).into()
    } else {
        ([0_u16; 8], 0).into()
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    socket.set_write_timeout(Some(AGENT_WAIT))?;
    Ok(socket)
}

fn no_address() -> io::Error {
    io::Error::other("the name has no address")
}

#[cfg(test)]
mod tests {
    use std::io::BufRead;
    use std::net::TcpListener;

    use super::*;

    fn lines(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_line_that_a_crash_has_cut_spoils_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("emf");
        std::fs::write(&path, "{\"half").unwrap();
        let mut target = Target::of(&EmfTarget::File(path.clone()));
        assert_eq!(target.write(&lines(&["one", "two"])).0, 2);
        assert_eq!(target.write(&lines(&["three"])).0, 1);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "{\"half\none\ntwo\nthree\n");
    }

    #[test]
    fn a_file_begins_again_before_it_fills_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("emf");
        let file = File::create(&path).unwrap();
        file.set_len(FILE_BYTES_MAX).unwrap();
        drop(file);
        let mut target = Target::of(&EmfTarget::File(path.clone()));
        assert_eq!(target.write(&lines(&["next"])).0, 1);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "next\n");
        let before = folder.path().join("emf.1");
        assert_eq!(before.metadata().unwrap().len(), FILE_BYTES_MAX);
    }

    #[test]
    fn what_is_no_file_or_cannot_be_made_is_an_error_and_blocks_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        for path in [pipe, folder.path().join("missing/emf")] {
            let (written, error) = Target::of(&EmfTarget::File(path)).write(&lines(&["x"]));
            assert!(written == 0 && error.is_some());
        }
    }

    #[test]
    fn an_agent_that_went_away_and_came_back_gets_whole_lines_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut target = Target::of(&EmfTarget::Tcp(address.to_string()));
        let first = |listener: &TcpListener| {
            let (connection, _) = listener.accept().unwrap();
            let mut line = String::new();
            io::BufReader::new(&connection)
                .read_line(&mut line)
                .unwrap();
            line
        };
        assert_eq!(target.write(&lines(&["one"])).0, 1);
        assert_eq!(first(&listener), "one\n");
        // That connection is closed by now, from the other side.
        assert_eq!(target.write(&lines(&["two"])).0, 1);
        assert_eq!(first(&listener), "two\n");
        drop(listener);
        let (written, error) = target.write(&lines(&["three"]));
        assert!(written == 0 && error.is_some());
    }

    #[test]
    fn a_datagram_is_a_line_and_nobody_listening_is_noticed() {
        let agent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = agent.local_addr().unwrap().to_string();
        let mut target = Target::of(&EmfTarget::Udp(address));
        let long = "x".repeat(target.line_bytes_max());
        assert_eq!(target.write(&lines(&["one", &long])).0, 2);
        let mut bytes = vec![0; DATAGRAM_BYTES_MAX + 1];
        assert_eq!(agent.recv(&mut bytes).unwrap(), 3);
        assert_eq!(agent.recv(&mut bytes).unwrap(), long.len());
        drop(agent);
        let (written, error) = target.write(&lines(&["a", "b", "c"]));
        assert!(written < 3 && error.is_some());
    }
}
