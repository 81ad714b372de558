//! CBOR, written: for requests.

/// A body that grows.
#[derive(Debug, Default)]
pub struct CborWriter {
    body: Vec<u8>,
}

impl CborWriter {
    /// The bytes of all that was written.
    pub fn finish(self) -> Vec<u8> {
        self.body
    }

    /// Begins a map of so many members as come before [`Self::end`].
    pub fn open_map(&mut self) {
        self.body.push(0xBF);
    }

    /// Begins a list of so many elements as come before [`Self::end`].
    pub fn open_list(&mut self) {
        self.body.push(0x9F);
    }

    /// Ends what was opened last.
    pub fn end(&mut self) {
        self.body.push(0xFF);
    }

    /// Writes a text, with its length in front.
    pub fn text(&mut self, text: &str) {
        self.head(3, text.len() as u64);
        self.body.extend_from_slice(text.as_bytes());
    }

    /// Bytes, as they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.head(2, bytes.len() as u64);
        self.body.extend_from_slice(bytes);
    }

    /// Writes a whole number, in as few bytes as it fits in.
    pub fn integer(&mut self, number: i64) {
        match u64::try_from(number) {
            Ok(number) => self.head(0, number),
            // -1 is written as 0, -2 as 1 (RFC 8949, 3.1), which is what inverting the bits gives.
            Err(_) => self.head(1, (!number).unsigned_abs()),
        }
    }

    /// A time, as Kinesis reads it: marked as one, and in milliseconds since the Unix epoch.
    pub fn time_ms(&mut self, ms: i64) {
        self.head(6, 1);
        self.integer(ms);
    }

    /// Writes `true` or `false`, in one byte.
    pub fn boolean(&mut self, value: bool) {
        self.body.push(if value { 0xF5 } else { 0xF4 });
    }

    /// Writes `null`, in one byte.
    pub fn null(&mut self) {
        self.body.push(0xF6);
    }

    fn head(&mut self, major: u8, argument: u64) {
        let bytes = argument.to_be_bytes();
        // The fewest bytes that hold it: none but the first one, 1, 2, 4 or 8.
        let (info, skipped) = match argument {
            0..=23 => (bytes[7], 8),
            24..=0xFF => (24, 7),
            0x100..=0xFFFF => (25, 6),
            0x1_0000..=0xFFFF_FFFF => (26, 4),
            _ => (27, 0),
        };
        self.body.push((major << 5) | info);
        self.body.extend_from_slice(&bytes[skipped..]);
    }
}
