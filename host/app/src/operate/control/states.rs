//! `shardmill state import` and `shardmill state reset`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use shardmill_aws::{AwsClients, KinesisReader};
use shardmill_core::control::{
    Deed, FoundState, ImportPolicy, ShardStateEdit, StateAt, StateEdit, StateRefusal, StateStep,
    plan_state_import, plan_state_reset,
};
use shardmill_core::lease::Lease;
use shardmill_core::plugin::STATE_BYTES_MAX;
use shardmill_core::ports::SavedState;
use shardmill_core::stream::{LeaseKey, ShardId};

use super::application::{Application, asked, named};
use super::cancel::Cancelled;
use super::place::unknown;
use super::seek::{reader, with_state};
use super::state_edits::StateEdits;
use crate::cli::{ChangeArgs, StateImportArgs, StateResetArgs};
use crate::operate::state_file::{self, ShardState};

/// A state that waits to be taken over or dropped, or that was refused.
const WAITING: Cancelled = Cancelled {
    command: "change of the state",
    of: |directives| {
        let edit = directives.state.as_ref();
        edit.map(|edit| format!("{edit} {}", edit.asked))
    },
    remove: |directives| directives.state = None,
};

pub(crate) async fn import_states(args: &StateImportArgs) -> anyhow::Result<()> {
    let Some(file) = &args.file else {
        return cancel(&args.application, &args.shards, &args.change).await;
    };
    let states = chosen(state_file::read(file)?, &args.shards)?;
    import_chosen(args, states).await
}

async fn import_chosen(args: &StateImportArgs, states: Vec<ShardState>) -> anyhow::Result<()> {
    let clients = crate::aws::connect_to(&args.change.connection).await?;
    let application = open(&args.application, &clients).await?;
    let asked = asked(&args.change);
    let found: Vec<FoundState> = states.iter().map(found).collect();
    let rows = application.rows().await?;
    let id = fastrand::u64(..);
    let mut steps = plan_state_import(&found, &rows, policy(args), STATE_BYTES_MAX, id, &asked);
    if args.go_back {
        let (name, fleet) = (&args.application, application.fleet().await?);
        let reader = reader(None, name, &args.change, &clients, &fleet)?;
        refuse_nowhere(&mut steps, &reader).await?;
    }
    let edits = StateEdits {
        command: "state import",
        deed: Deed::ImportState,
        steps,
        notes: notes(args, &states, &rows),
        states: by_shard(states),
        asked,
    };
    edits.execute(&application, &args.change).await
}

pub(crate) async fn reset_states(args: &StateResetArgs) -> anyhow::Result<()> {
    if args.cancel {
        return cancel(&args.application, &args.shards, &args.change).await;
    }
    let clients = crate::aws::connect_to(&args.change.connection).await?;
    let application = open(&args.application, &clients).await?;
    let asked = asked(&args.change);
    let rows = application.rows().await?;
    let with_state = with_state(&application, &rows).await?;
    let only = named(&args.shards)?;
    let only = (!only.is_empty()).then_some(&only);
    let edits = StateEdits {
        command: "state reset",
        deed: Deed::ResetState,
        steps: plan_state_reset(only, &rows, &with_state, &asked),
        states: BTreeMap::new(),
        asked,
        notes: Vec::new(),
    };
    edits.execute(&application, &args.change).await
}

async fn open(name: &str, clients: &AwsClients) -> anyhow::Result<Application> {
    let application = Application::open(name, clients).await?;
    if !application.leases.has_state_table().await? {
        bail!(
            "{name} has no state table: its plugin keeps no state, or no host has served it since \
                it does"
        );
    }
    Ok(application)
}

/// Numbers of other shards and streams look the same. A shard that was sent to one could not be
/// read any more.
async fn refuse_nowhere(
    steps: &mut [ShardStateEdit],
    reader: &KinesisReader,
) -> anyhow::Result<()> {
    for edit in steps {
        let StateStep::Direct(StateEdit {
            at: StateAt::GoTo(place),
            ..
        }) = &edit.step
        else {
            continue;
        };
        if let Some(why) = unknown(place, &edit.shard, reader).await? {
            let state = Box::new(place.clone());
            edit.step = StateStep::Refuse(StateRefusal::Nowhere { state, why });
        }
    }
    Ok(())
}

fn policy(args: &StateImportArgs) -> ImportPolicy {
    if args.go_back {
        ImportPolicy::GoTo
    } else if args.any_checkpoint {
        ImportPolicy::Anywhere
    } else {
        ImportPolicy::Matching
    }
}

/// Those of the shards that are named; all if none is.
fn chosen(states: Vec<ShardState>, shards: &[String]) -> anyhow::Result<Vec<ShardState>> {
    let only = named(shards)?;
    for shard in &only {
        if !states.iter().any(|state| state.shard == *shard) {
            bail!("the file has no state of {shard}");
        }
    }
    let states = states.into_iter();
    let chosen = states.filter(|state| only.is_empty() || only.contains(&state.shard));
    Ok(chosen.collect())
}

fn found(state: &ShardState) -> FoundState {
    FoundState {
        shard: state.shard.clone(),
        checkpoint: state.saved.checkpoint.clone(),
        bytes: state.saved.bytes.len(),
    }
}

fn by_shard(states: Vec<ShardState>) -> BTreeMap<ShardId, SavedState> {
    let states = states.into_iter();
    states.map(|state| (state.shard, state.saved)).collect()
}

fn notes(args: &StateImportArgs, states: &[ShardState], rows: &[Lease]) -> Vec<String> {
    let mut notes = Vec::new();
    let others = states.iter().map(|state| state.application.as_str());
    let others: BTreeSet<&str> = others.filter(|name| *name != args.application).collect();
    if !others.is_empty() {
        let others: Vec<&str> = others.into_iter().collect();
        notes.push(format!(
            "the states are of another application: {}",
            others.join(", ")
        ));
    }
    let shards: BTreeSet<LeaseKey> = states
        .iter()
        .map(|state| LeaseKey::of_shard(&state.shard))
        .collect();
    let is_delivering = |row: &Lease| {
        shards.contains(&row.key) && row.owner.is_some() && !super::pause::stands(row)
    };
    if !args.go_back && !args.any_checkpoint && rows.iter().any(is_delivering) {
        notes.push(
            "a shard whose checkpoint moves before its holder takes the state over is refused: \
                pause the shards first"
                .to_owned(),
        );
    }
    notes
}

/// Takes back what waits, and removes the states that were left for it.
async fn cancel(name: &str, shards: &[String], change: &ChangeArgs) -> anyhow::Result<()> {
    let clients = crate::aws::connect_to(&change.connection).await?;
    let application = open(name, &clients).await?;
    let rows = application.rows_of(shards).await?;
    WAITING.execute(name, shards, change).await?;
    if change.apply {
        let edits = rows.iter().filter_map(|row| row.directives.state.as_ref());
        for staged in edits.filter_map(|edit| edit.staged()) {
            application.leases.unstage_state(staged).await?;
        }
    }
    Ok(())
}
