//! What operators want of a shard, as tables show it.

use shardmill_core::control::{Directives, Pause, Seek, SeekState};
use shardmill_core::stream::Utc;

/// One text for each thing wanted. A pause that is over is not wanted any more.
pub(super) fn wanted(directives: &Directives, wall_ms: u64) -> Vec<String> {
    let mut wanted = Vec::new();
    let pause = directives.pause.as_ref();
    wanted.extend(
        pause
            .filter(|pause| pause.is_in_effect(wall_ms))
            .map(paused),
    );
    if let Some(seek) = &directives.seek {
        wanted.push(sought(seek));
    }
    if let Some(skip) = &directives.skip {
        let (first, last) = (skip.records.first(), skip.records.last());
        wanted.push(format!("skip {first} to {last}, {}", skip.asked));
    }
    if let Some(edit) = &directives.state {
        wanted.push(format!("{edit}, {}", edit.asked));
    }
    wanted
}

/// A pause, with its end, who wants it and why.
pub(super) fn paused(pause: &Pause) -> String {
    match pause.until_ms {
        Some(until) => format!("paused until {}, {}", Utc(until), pause.asked),
        None => format!("paused {}", pause.asked),
    }
}

fn sought(seek: &Seek) -> String {
    let state = match seek.state {
        SeekState::Absent | SeekState::Keep => "",
        SeekState::Drop => " without state",
    };
    let place = seek.to.checkpoint();
    format!("seek to {place}{state}, {}", seek.asked)
}
