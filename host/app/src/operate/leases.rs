//! `shardmill leases`: who holds which shard, how far each shard is, and which workers there are.

mod shards;
mod workers;

use shardmill_core::fleet::FleetRows;
use shardmill_core::lease::LeaseObserver;
use shardmill_core::ports::{Clock, LeaseListing};
use shardmill_serve::{BootClock, Signals};

use self::shards::ShardRow;
use self::workers::worker_table;
use super::view::{View, is_stopped_within};
use super::wanted::paused;
use crate::cli::LeasesArgs;
use crate::output::{Interrupted, print, print_json, terminal_width, unless_reader_is_gone};

pub(crate) async fn execute(args: &LeasesArgs) -> anyhow::Result<()> {
    let signals = Signals::listen()?;
    let mut view = View::of(&args.application, &args.connection).await?;
    let watch_for = args.watching.watch_for.unwrap_or_default();
    if view.is_stopped_while_watching(watch_for, &signals).await {
        return Err(Interrupted(": the leases were not shown".to_owned()).into());
    }
    loop {
        show(&mut view, args).await?;
        unless_reader_is_gone()?;
        match args.watch {
            Some(interval) if !is_stopped_within(interval, &signals).await => {}
            _ => return Ok(()),
        }
    }
}

async fn show(view: &mut View, args: &LeasesArgs) -> anyhow::Result<()> {
    let listing = view.listing().await?;
    let fleet = view.look_at_workers().await;
    let rows = rows(&listing, view.observer());
    if args.output.json {
        if let Err(error) = &fleet {
            tracing::warn!(%error, code = "hosts-unread", "not known: who of the owners is alive");
        }
        return print_json(&rows);
    }
    let width = if args.wide { None } else { terminal_width() };
    print(&shards::as_text(&rows, BootClock.wall_ms(), width));
    for bad in &listing.bad_rows {
        print(&format!("row {} cannot be read: {}", bad.key, bad.problem));
    }
    match fleet {
        Ok(Some(fleet)) => show_workers(&fleet, view.observer()),
        Ok(None) => {}
        Err(error) => print(&format!("\n{error}")),
    }
    let others = view.other_applications().await;
    if !others.is_empty() {
        print(&format!(
            "\nfurther streams have their own leases: {}",
            others.join(", ")
        ));
    }
    Ok(())
}

fn rows(listing: &LeaseListing, observer: &LeaseObserver) -> Vec<ShardRow> {
    let (now, wall_ms) = (BootClock.now(), BootClock.wall_ms());
    let leases = listing.leases.iter();
    let mut rows: Vec<ShardRow> = leases
        .map(|lease| ShardRow::of(lease, observer, now, wall_ms))
        .collect();
    rows.sort_by(|a, b| a.shard.cmp(&b.shard));
    rows
}

fn show_workers(fleet: &FleetRows, observer: &LeaseObserver) {
    if let Some(start) = &fleet.start {
        print(&format!("\nthe application starts at {start}"));
    }
    let pause = fleet.control.pause.as_ref();
    if let Some(pause) = pause.filter(|pause| pause.is_in_effect(BootClock.wall_ms())) {
        print(&format!("\nall shards: {}", paused(pause)));
    }
    if fleet.workers.is_empty() {
        print("\nno worker is registered");
    } else {
        let table = worker_table(fleet, observer, BootClock.now());
        print(&format!("\n{table}"));
    }
}
