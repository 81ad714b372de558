//! Where letters, captured records and lines to feed are read from: a file or standard input, plain
//! or gzip.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

/// What an input is called in messages.
pub fn input_name(path: &Path) -> String {
    if path.as_os_str() == "-" {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    }
}

/// Opens a file, or standard input for `-`. Gzip is recognised by its first bytes, not by its name.
pub fn open_input(path: &Path) -> io::Result<Box<dyn BufRead + Send>> {
    let input: Box<dyn Read + Send> = if path.as_os_str() == "-" {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(path)?)
    };
    let mut input = BufReader::with_capacity(1 << 16, input);
    let is_gzip = input.fill_buf()?.starts_with(&[0x1f, 0x8b]);
    Ok(if is_gzip {
        Box::new(BufReader::with_capacity(
            1 << 16,
            Unpacked(MultiGzDecoder::new(input)),
        ))
    } else {
        Box::new(input)
    })
}

/// What a gzip file holds. Errors say that it is one, and how to fix it.
struct Unpacked<R>(MultiGzDecoder<R>);

impl<R: BufRead> Read for Unpacked<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::InvalidData => io::Error::new(
                error.kind(),
                format!("a gzip file that is cut off or damaged: {error}; copy or pack it again"),
            ),
            _ => error,
        })
    }
}
