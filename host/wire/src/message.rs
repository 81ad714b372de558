//! An error in CBOR. (Errors in JSON are left to the SDK.)

use crate::cbor::Cbor;
use crate::reader::{Reader, Unreadable};

/// What an error says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// The exception's name, without its namespace.
    pub code: Option<String>,
    /// What went wrong, in a sentence of the service.
    pub message: Option<String>,
}

/// Reads the body of an error in CBOR.
pub fn read_message(body: &[u8]) -> Result<Message, Unreadable> {
    let mut reader = Cbor::copying(body);
    let mut read = Message::default();
    reader.object(|reader, name| match name {
        b"__type" | b"code" => {
            read.code = reader.optional_text()?.map(|code| short(&code));
            Ok(())
        }
        b"message" | b"Message" => {
            read.message = reader.optional_text()?;
            Ok(())
        }
        _ => reader.skip(),
    })?;
    reader.end()?;
    Ok(read)
}

/// `com.amazonaws.kinesis.v20131202#ExpiredIteratorException` is named so in full.
fn short(code: &str) -> String {
    let name = code.rsplit('#').next().unwrap_or(code);
    name.split(':').next().unwrap_or(name).to_owned()
}
