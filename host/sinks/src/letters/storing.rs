//! A batch of dead letters on its way into a sink: some are encoded as lines and written, then the
//! next. Lines take a third more than their data, or several times as much if they repeat their
//! heads. So a shard holds a part of them at a time, and all shards of a plugin what fits its room.

use std::sync::Arc;

use shardmill_core::ports::{DeadLetter, Origin, Sink, SinkError};
use shardmill_core::stream::Emitted;

use super::envelope::encode;
use super::room::{Room, RoomPermit};

/// Bytes of data in a part, unless a single letter has more: small compared with its batch, so that
/// many shards have one at once.
const PART_BYTES: usize = 256 << 10;
/// Characters of a record's key that a letter is kept under; a longer or empty one could not be a
/// partition key.
const KEY_CHARS_MAX: usize = 256;

/// How far the letters of a batch are.
#[derive(Default)]
pub(crate) struct Storing {
    /// Letters that are encoded as lines, and written except `in_hand`.
    taken: usize,
    /// Kept unchanged between tries, so that the sink recognizes it.
    in_hand: Option<Part>,
}

/// Letters of one plugin and shard, as lines.
#[derive(Clone)]
struct Part {
    origin: Arc<Origin>,
    lines: Arc<Vec<Emitted>>,
    /// What they take of the plugin's room; kept between tries, as they are.
    _room: Arc<RoomPermit>,
}

/// Where letters go.
pub(crate) struct LetterTarget<'a> {
    /// The sink's name.
    pub(crate) name: &'a str,
    pub(crate) sink: &'a dyn Sink,
    /// The longest line that it accepts, if there is a limit.
    pub(crate) line_bytes_max: Option<usize>,
    /// The room of the letters' plugin.
    pub(crate) room: Room,
}

impl Storing {
    /// Writes what is left of `letters` to the sink, and flushes it. After an error, the same call
    /// continues where this one stopped.
    pub(crate) async fn finish(
        &mut self,
        target: &LetterTarget<'_>,
        letters: &Arc<Vec<DeadLetter>>,
    ) -> Result<(), SinkError> {
        loop {
            if self.in_hand.is_none() {
                self.in_hand = self.next_part(target, letters).await?;
            }
            let Some(part) = self.in_hand.clone() else {
                return target.sink.flush().await;
            };
            target.sink.write(part.origin, part.lines).await?;
            self.in_hand = None;
        }
    }

    /// Encodes the next letters as lines, if any are left, on a thread that may block, since async
    /// threads renew leases.
    async fn next_part(
        &mut self,
        target: &LetterTarget<'_>,
        letters: &Arc<Vec<DeadLetter>>,
    ) -> Result<Option<Part>, SinkError> {
        let next = self.taken..self.taken + count(&letters[self.taken..]);
        if next.is_empty() {
            return Ok(None);
        }
        let bytes = letters[next.clone()].iter().map(bytes_of).sum();
        let room = target.room.take(target.name, bytes).await?;
        let name = target.name.to_owned();
        let line_bytes_max = target.line_bytes_max;
        let all = Arc::clone(letters);
        let to = next.end;
        // The thread holds the room, and nothing stops it when a lease is lost.
        let encoding =
            tokio::task::spawn_blocking(move || Part::of(&name, &all[next], line_bytes_max, room));
        let part = encoding.await.map_err(|error| SinkError {
            sink: target.name.to_owned(),
            message: format!("dead letters cannot be encoded: {error}"),
        })?;
        self.taken = to;
        Ok(part)
    }
}

impl Part {
    /// The letters as lines; `None` if there are no letters.
    fn of(
        target: &str,
        letters: &[DeadLetter],
        line_bytes_max: Option<usize>,
        room: RoomPermit,
    ) -> Option<Self> {
        let last = letters.last()?;
        let mut lines = Vec::new();
        for letter in letters {
            for data in encode(letter, line_bytes_max) {
                lines.push(Emitted {
                    destination: target.to_owned(),
                    key: key_of(letter),
                    data,
                });
            }
        }
        Some(Self {
            lines: Arc::new(lines),
            origin: Arc::new(Origin {
                plugin: last.plugin.clone(),
                shard: last.shard.clone(),
                through: Some(last.record.position.clone()),
                trace: None,
            }),
            _room: Arc::new(room),
        })
    }
}

/// How many of the first letters make a part: of one plugin and shard, and one at least.
fn count(letters: &[DeadLetter]) -> usize {
    let Some(first) = letters.first() else {
        return 0;
    };
    let (mut count, mut bytes) = (0, 0);
    for letter in letters {
        let is_of_part = (&letter.plugin, &letter.shard) == (&first.plugin, &first.shard);
        bytes += bytes_of(letter);
        if !is_of_part || count > 0 && bytes > PART_BYTES {
            break;
        }
        count += 1;
    }
    count
}

/// Of what makes a line long. The rest is names, which are short.
fn bytes_of(letter: &DeadLetter) -> usize {
    const NAMES: usize = 512;
    let DeadLetter { record, reason, .. } = letter;
    record.data.len() + record.partition_key.len() + reason.len() + NAMES
}

/// The record's key, so that letters of one key stay in order where the target orders by key.
fn key_of(letter: &DeadLetter) -> String {
    let key = &letter.record.partition_key;
    if (1..=KEY_CHARS_MAX).contains(&key.chars().count()) {
        return key.clone();
    }
    letter.record.position.sequence.to_string()
}
