//! The commands that change a running fleet. Each plans by a function of `core`, shows that, and
//! with `--apply` writes what is wanted into rows; the hosts do it.

mod answers;
mod application;
mod cancel;
mod delete;
mod deploy;
mod distance;
mod drain;
mod history;
mod pause;
mod place;
mod release;
mod reload;
mod report;
mod reset;
mod seek;
mod shadow;
mod skip;
mod start;
mod state_edits;
mod states;
mod wait;

pub(super) use self::application::asked_by;
pub(super) use self::delete::delete;
pub(super) use self::deploy::deploy;
pub(super) use self::drain::drain;
pub(super) use self::history::history;
pub(super) use self::pause::{pause, resume};
pub(super) use self::place::unknown as place_is_unknown;
pub(super) use self::release::release;
pub(super) use self::reload::reload;
pub(super) use self::reset::reset;
pub(super) use self::seek::seek;
pub(super) use self::shadow::shadow;
pub(super) use self::skip::skip;
pub(super) use self::states::{import_states, reset_states};
