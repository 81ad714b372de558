//! `shardmill import`: facts from the library's tables and the stream, the decision from core,
//! conditional writes into the application's lease table.

mod outcome;
mod report;

use anyhow::{anyhow, bail};
use shardmill_aws::{AwsClients, KinesisReader, LeaseTable, LibraryTables, RowMove};
use shardmill_core::fleet::StreamIdentity;
use shardmill_core::lease::Checkpoint;
use shardmill_core::migration::{ImportRequest, ImportStep, ShardImport, blocks, plan_import};
use shardmill_core::plugin::{Part, split_part};
use shardmill_core::ports::{Created, LeaseStore, ReadError, StreamReader};
use shardmill_core::stream::{ReadFrom, Shard, StreamRef};

use self::outcome::{Import, Written};
use self::report::Report;
use super::old_fleet::OldFleet;
use crate::cli::ImportArgs;
use crate::output::no_stream;

pub(crate) async fn execute(args: &ImportArgs) -> anyhow::Result<()> {
    let stream = StreamRef::parse(&args.stream)?;
    refuse_part(&args.to)?;
    let clients = crate::aws::connect_to(&args.connection).await?;
    let tables = find(&clients, args).await?;
    let reader = KinesisReader::new(clients.kinesis.clone(), &stream);
    let (fleet, shards) = old_fleet(args, &tables, &stream, &reader).await?;
    let made_as = crate::aws::table_options(&args.connection)?;
    let target = LeaseTable::new(clients.dynamodb.clone(), args.to.as_str()).made_as(made_as);
    let mut import = plan(args, &fleet, &shards, &target, tables.checkpoints_table()).await?;
    refuse_foreign_checkpoints(args, &reader, &import.shards).await?;
    if (args.apply || args.watch) && import.alive == 0 {
        import.written = write(&target, &import.shards).await?;
    }
    Report::of(args, tables.library(), &import).show(args.output)?;
    conclude(args, &import)
}

/// A part's rows are made by the host that signs for it, or are the KCL's own.
fn refuse_part(application: &str) -> anyhow::Result<()> {
    match split_part(application) {
        (_, Part::Whole) => Ok(()),
        (base, Part::Host(host)) => bail!(
            "nothing is imported for a single host: {host} reads by itself what the other hosts of \
                {base} read too. It begins at initial-position"
        ),
        (base, Part::Stream(stream)) => bail!(
            "nothing is imported into a part of a table of several streams: name an application \
                with a table of its own, which for a plugin with several `streams` is {base}.{stream}"
        ),
    }
}

async fn find(clients: &AwsClients, args: &ImportArgs) -> anyhow::Result<LibraryTables> {
    let found = LibraryTables::find(&clients.dynamodb, &args.from).await?;
    let found = found.ok_or_else(|| {
        anyhow!(
            "neither {} nor {}_checkpoints is a table of a library that shardmill knows: `shardmill \
                doctor {}` says what it is. A lease table of the KCL with one stream needs no \
                import: name it as the plugin's application",
            args.from,
            args.from,
            args.from
        )
    })?;
    if found.checkpoints_table() == args.to {
        bail!(
            "--to names the library's own table {}: name another application",
            args.to
        );
    }
    Ok(found)
}

/// The library's fleet, once it stopped or was seen alive, and the shards of the stream after that.
async fn old_fleet<'a>(
    args: &'a ImportArgs,
    tables: &'a LibraryTables,
    stream: &'a StreamRef,
    reader: &KinesisReader,
) -> anyhow::Result<(OldFleet<'a>, Vec<Shard>)> {
    let (identity, shards) = read_stream(reader, stream).await?;
    let group = args.group.as_deref();
    let mut fleet = OldFleet::look(tables, stream.name(), group, args.failover_time).await?;
    refuse_blocked(args, &fleet, identity, &shards)?;
    if args.watch {
        fleet.until_stopped().await?;
    } else {
        fleet.judge().await?;
    }
    // The shards may have split while the fleet was waited for.
    let (identity, shards) = read_stream(reader, stream).await?;
    refuse_blocked(args, &fleet, identity, &shards)?;
    fleet
        .found
        .forget_beginnings(&reader.first_sequences().await?);
    Ok((fleet, shards))
}

async fn read_stream(
    reader: &KinesisReader,
    stream: &StreamRef,
) -> anyhow::Result<(StreamIdentity, Vec<Shard>)> {
    let Some(identity) = reader.identity().await? else {
        return Err(no_stream(stream.name().as_str()));
    };
    Ok((identity, reader.list_shards().await?))
}

fn refuse_blocked(
    args: &ImportArgs,
    fleet: &OldFleet<'_>,
    identity: StreamIdentity,
    shards: &[Shard],
) -> anyhow::Result<()> {
    let blocks = blocks(&fleet.found, identity, shards);
    if blocks.is_empty() {
        return Ok(());
    }
    let reasons: Vec<String> = blocks.iter().map(ToString::to_string).collect();
    bail!(
        "nothing is imported from {}: {}",
        args.from,
        reasons.join("; ")
    )
}

/// All streams have shards of the same ids, so only Kinesis knows that a checkpoint belongs to
/// another stream.
async fn refuse_foreign_checkpoints(
    args: &ImportArgs,
    reader: &KinesisReader,
    shards: &[ShardImport],
) -> anyhow::Result<()> {
    for import in shards.iter().filter(|import| import.step.writes()) {
        let Some(Checkpoint::At(position)) = import.step.starts_at() else {
            continue;
        };
        let from = ReadFrom::AtSequenceNumber(position.sequence.clone());
        match reader.iterator(&import.shard, &from).await {
            Ok(_) => {}
            Err(ReadError::Refused { message }) => bail!(
                "nothing is imported from {}: Kinesis refuses the checkpoint {position} of {}, \
                    which may be another stream's: {message}",
                args.from,
                import.shard
            ),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

async fn plan(
    args: &ImportArgs,
    fleet: &OldFleet<'_>,
    shards: &[Shard],
    target: &LeaseTable,
    table: String,
) -> anyhow::Result<Import> {
    let rows = if target.exists().await? {
        target.list_consistently().await?.leases
    } else {
        Vec::new()
    };
    let shards = plan_import(&ImportRequest {
        found: &fleet.found,
        shards,
        rows: &rows,
        initial: args.initial_position.into(),
    });
    Ok(Import {
        table,
        workers: fleet.lives(),
        alive: fleet.alive().len(),
        shards,
        written: Written::default(),
    })
}

/// Parents before children, so that a host that starts meanwhile finds no child without its
/// parent's row.
async fn write(target: &LeaseTable, shards: &[ShardImport]) -> anyhow::Result<Written> {
    target.ensure_table().await?;
    let mut written = Written::default();
    for shard in shards {
        let is_written = match &shard.step {
            ImportStep::Create(lease) => target.create(lease).await? == Created::New,
            ImportStep::Move { seen, to } => {
                target.move_checkpoint(seen, to).await? == RowMove::Moved
            }
            ImportStep::Keep(_) | ImportStep::Served(_) | ImportStep::Leave => continue,
        };
        written.rows += usize::from(is_written);
        written.lost += usize::from(!is_written);
    }
    Ok(written)
}

fn conclude(args: &ImportArgs, import: &Import) -> anyhow::Result<()> {
    let is_applied = args.apply || args.watch;
    if is_applied && import.alive > 0 {
        bail!(
            "nothing was written: {} worker(s) of the old fleet may be alive, and records that \
                they process from now on would be processed twice. Stop them; --watch waits for that",
            import.alive
        );
    }
    if import.written.lost > 0 {
        bail!(
            "{} row(s) changed meanwhile and were left alone: run it again",
            import.written.lost
        );
    }
    let behind = import
        .shards
        .iter()
        .filter(|shard| shard.is_behind())
        .count();
    if behind > 0 {
        bail!(
            "{behind} shard(s) of {} are held by its own workers at checkpoints before the \
                library's: it began without the import, and its own checkpoints count. Import \
                into another application",
            args.to
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_imported_for_a_part_of_an_application() {
        assert!(refuse_part("totals").is_ok() && refuse_part("totals.orders").is_ok());
        let of_host = refuse_part("totals@pod-7").unwrap_err().to_string();
        assert!(of_host.contains("pod-7 reads by itself"), "{of_host}");
        let of_stream = refuse_part("totals:orders").unwrap_err().to_string();
        assert!(of_stream.contains("totals.orders"), "{of_stream}");
    }
}
