//! `shardmill status` and `shardmill top`: how an application is doing, in a few lines.

mod summary;
#[cfg(test)]
mod tests;
mod text;

use anyhow::bail;
use shardmill_core::ports::{Clock, LeaseListing};
use shardmill_serve::{BootClock, Signals};

use self::summary::Look;
pub(crate) use self::summary::{Counts, HostStatus, ShardStatus, Summary};
use super::view::{View, is_stopped_within};
use crate::cli::{StatusArgs, TopArgs};
use crate::output::{
    Interrupted, clear_screen, print, print_json, terminal_size, unless_reader_is_gone,
};

/// Lines that `top` leaves free at the end, for the prompt.
const LINES_FREE: usize = 1;

pub(crate) async fn status(args: &StatusArgs) -> anyhow::Result<()> {
    let signals = Signals::listen()?;
    let mut view = View::of(&args.application, &args.connection).await?;
    let watch_for = args.watching.watch_for.unwrap_or_default();
    if view.is_stopped_while_watching(watch_for, &signals).await {
        return Err(Interrupted(": the status was not shown".to_owned()).into());
    }
    let summary = summary(&mut view, &args.application).await?;
    if args.output.json {
        print_json(&summary)?;
    } else {
        print(text::overview(&summary).trim_end());
    }
    if args.check && summary.needs_attention() {
        bail!("{} needs attention", args.application);
    }
    Ok(())
}

/// Shows the application until ctrl-c. What cannot be read for a while is shown too: whoever
/// watches an incident needs the screen most then.
pub(crate) async fn top(args: &TopArgs) -> anyhow::Result<()> {
    let signals = Signals::listen()?;
    let mut view = View::of(&args.application, &args.connection).await?;
    let mut last = summary(&mut view, &args.application).await?;
    let mut problem = None;
    loop {
        show(&last, problem.as_deref());
        unless_reader_is_gone()?;
        if is_stopped_within(args.interval, &signals).await {
            return Ok(());
        }
        match summary(&mut view, &args.application).await {
            Ok(summary) => (last, problem) = (summary, None),
            Err(error) => problem = Some(crate::output::in_one_line(&error)),
        }
    }
}

fn show(summary: &Summary, problem: Option<&str>) {
    let (width, height) = terminal_size().map_or((None, usize::MAX), |(width, height)| {
        (Some(width), height.saturating_sub(LINES_FREE))
    });
    let mut page = text::page(
        summary,
        width,
        height.saturating_sub(usize::from(problem.is_some())),
    );
    if let Some(problem) = problem {
        page = format!("{page}\nas it was last seen: {problem}");
    }
    clear_screen();
    print(page.trim_end());
}

async fn summary(view: &mut View, application: &str) -> anyhow::Result<Summary> {
    Ok(look(view, application).await?.1)
}

/// The rows of an application, and what they say together.
pub(crate) async fn look(
    view: &mut View,
    application: &str,
) -> anyhow::Result<(LeaseListing, Summary)> {
    let listing = view.listing().await?;
    let fleet = view.look_at_workers().await;
    let summary = Summary::of(&Look {
        application,
        listing: &listing,
        fleet: fleet.as_ref().map(Option::as_ref),
        observer: view.observer(),
        now: BootClock.now(),
        wall_ms: BootClock.wall_ms(),
    });
    Ok((listing, summary))
}
