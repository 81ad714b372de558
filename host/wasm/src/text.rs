//! Text that a plugin made up or had a part in, before anyone reads it: it is cut while it is
//! written, not afterwards, and has nothing in it that steers a terminal or begins a line.

use std::fmt::{self, Display, Write};

use shardmill_core::text::steers;

/// Bytes of what the engine says of a component, with the names that are in it.
pub(crate) const SAID_BYTES_MAX: usize = 1 << 10;

/// Makes text safe for terminals and log files: no control characters, no more than `bytes_max`.
pub(crate) fn clean(text: &str, bytes_max: usize) -> String {
    let end = text.floor_char_boundary(bytes_max);
    let mut cleaned: String = text[..end]
        .chars()
        .map(|c| if steers(c) { ' ' } else { c })
        .collect();
    if end < text.len() {
        cleaned.push('…');
    }
    cleaned
}

/// What `thing` displays, clean. Whatever it would go on to write after `bytes_max` is never made.
pub(crate) fn shown(thing: impl Display, bytes_max: usize) -> String {
    let mut beginning = Beginning {
        text: String::new(),
        bytes_max,
    };
    // An error says that there was more; the byte too many that was kept shows it.
    let _ = write!(beginning, "{thing:#}");
    clean(&beginning.text, bytes_max)
}

/// Keeps what is written up to the character in which a limit is passed, and then refuses: who
/// formats, stops.
struct Beginning {
    text: String,
    bytes_max: usize,
}

impl Write for Beginning {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        let room = (self.bytes_max + 1).saturating_sub(self.text.len());
        let end = piece.ceil_char_boundary(room);
        self.text.push_str(&piece[..end]);
        if self.text.len() > self.bytes_max {
            Err(fmt::Error)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn text_from_a_guest_is_cut_at_a_character_and_cannot_steer_a_terminal() {
        assert_eq!(clean("héllo", 2), "h…");
        assert_eq!(clean("a\u{1b}[31mb\nc\u{202e}", 100), "a [31mb c ");
    }

    /// As names do that are expanded while they are written.
    struct WithoutEnd<'a>(&'a Cell<u32>);

    impl Display for WithoutEnd<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            loop {
                self.0.set(self.0.get() + 1);
                f.write_str("é\u{1b}x")?;
            }
        }
    }

    #[test]
    fn what_would_be_written_without_end_is_stopped_at_the_limit() {
        let pieces = Cell::new(0);
        let text = shown(WithoutEnd(&pieces), 10);
        assert_eq!((text.as_str(), pieces.get()), ("é xé xé…", 3));
        assert_eq!(shown("whole", 5), "whole");
        assert_eq!(shown("whole.", 5), "whole…");
    }
}
