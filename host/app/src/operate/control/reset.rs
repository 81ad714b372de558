//! `shardmill reset`: a seek of all shards to where the application begins, without state.

use shardmill_aws::KinesisReader;
use shardmill_config::Config;
use shardmill_core::control::{Deed, Place, ResetStart, start_anew};
use shardmill_core::fleet::FleetRows;
use shardmill_core::ports::{Clock, StreamReader};
use shardmill_core::stream::InitialPosition;
use shardmill_serve::BootClock;

use super::application::Application;
use super::seek::{Destination, Sending, reader, send};
use super::start::NewStart;
use crate::cli::{ChangeArgs, ResetArgs, SeekArgs, StateArg, Target};

pub(crate) async fn reset(args: ResetArgs) -> anyhow::Result<()> {
    let clients = crate::aws::connect_to(&args.change.connection).await?;
    let application = Application::open(&args.application, &clients).await?;
    let fleet = application.fleet().await?;
    let stream = args.stream.as_deref();
    let reader = reader(stream, &args.application, &args.change, &clients, &fleet)?;
    let start = start_of(&args, &reader, &fleet).await?;
    let seek = as_seek(args, &start.to);
    let replacing = fleet.start.zip(start.replaces);
    let replacing = replacing.map(|(seen, next)| NewStart { seen, next });
    let Some(to) = &seek.to else { return Ok(()) };
    let destination = Destination {
        to,
        application: &application,
        reader: &reader,
        fleet: &fleet,
    };
    let sending = Sending {
        command: "reset",
        deed: Deed::Reset,
        notes: notes(&start),
        start: replacing.as_ref(),
    };
    send(&seek, destination, sending).await
}

async fn start_of(
    args: &ResetArgs,
    reader: &KinesisReader,
    fleet: &FleetRows,
) -> anyhow::Result<ResetStart> {
    let now_ms = reader.now_ms().await?;
    let now_ms = now_ms.unwrap_or_else(|| BootClock.wall_ms());
    let configured = configured(&args.change, &args.application)?;
    let is_whole = args.shards.is_empty();
    start_anew(fleet.start.as_ref(), configured, is_whole, now_ms)
        .map_err(|refusal| anyhow::anyhow!("{}: {refusal}", args.application))
}

/// Where the hosts' configuration has the application begin, if it says anything of it.
fn configured(change: &ChangeArgs, application: &str) -> anyhow::Result<Option<InitialPosition>> {
    let config = change.connection.config.as_deref().map(Config::load);
    let config = config.transpose()?;
    let own = config.and_then(|config| config.stream_of_application(application));
    Ok(own.map(|own| own.initial_position))
}

/// The same as a seek.
fn as_seek(args: ResetArgs, to: &Place) -> SeekArgs {
    SeekArgs {
        application: args.application,
        shards: args.shards,
        to: Some(match to {
            Place::Horizon => Target::Horizon,
            Place::Time(ms) => Target::Time(*ms),
            Place::Sequence(number) => Target::Sequence(number.clone()),
        }),
        cancel: false,
        state: Some(StateArg::Drop),
        reopen: true,
        stream: args.stream,
        change: args.change,
    }
}

fn notes(start: &ResetStart) -> Vec<String> {
    let mut notes = vec![
        "the plugin's state is dropped on every shard; `shardmill state export` keeps a copy"
            .to_owned(),
    ];
    if let Some(replaces) = &start.replaces {
        notes.push(format!(
            "the application begins at {replaces} from now on, as it is configured"
        ));
    }
    if let Some(unused) = start.unused {
        notes.push(format!(
            "{unused} is configured, and the application began elsewhere: shards that are named go \
                where it began, all of them would go to {unused}"
        ));
    }
    notes
}
