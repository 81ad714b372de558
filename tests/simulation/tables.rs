//! The tables of a run, whichever service holds them.

use std::collections::BTreeMap;

use shardmill_core::plugin::PluginDigest;
use shardmill_invariants::history::{Micros, Row, Start, WriteKind};

use crate::dynamodb::Dynamodb;
use crate::edits::Edit;
use crate::memory::MemoryTables;
use crate::world::World;

/// Who holds them.
#[expect(clippy::large_enum_variant, reason = "there is one a run")]
pub enum Tables {
    /// An emulator that speaks DynamoDB's protocol.
    Emulated(Dynamodb),
    /// Fakes of the ports.
    Memory(MemoryTables),
}

impl Tables {
    /// The lease rows as they are.
    pub fn leases(&self) -> BTreeMap<String, Row> {
        match self {
            Self::Emulated(dynamodb) => dynamodb.leases(),
            Self::Memory(memory) => memory.leases(),
        }
    }

    /// Somebody edits a lease row by hand. Only of tables in memory.
    pub fn edit(&self, world: &World, shard: &str, edit: &Edit) {
        match self {
            Self::Emulated(_) => {}
            Self::Memory(memory) => memory.edit(world, shard, edit),
        }
    }

    /// Somebody removes a worker's row by hand; whether there was one. Only of tables in memory.
    pub fn remove_worker(&self, world: &World, worker: &str) -> bool {
        match self {
            Self::Emulated(_) => false,
            Self::Memory(memory) => memory.remove_worker(world, worker),
        }
    }

    /// Where the application begins, once that is written down. Hosts over the wire know of nothing
    /// but the oldest record.
    pub fn start(&self) -> Option<Start> {
        match self {
            Self::Emulated(_) => Some(Start::Oldest),
            Self::Memory(memory) => memory.start(),
        }
    }

    /// Whether a version was found bad by the fleet. Unknown of tables over the wire.
    pub fn has_quarantined(&self, digest: &PluginDigest) -> bool {
        match self {
            Self::Emulated(_) => false,
            Self::Memory(memory) => memory.has_quarantined(digest),
        }
    }

    /// Who leads, as the coordinator table has it, and since when it does.
    pub fn leader(&self) -> Option<(String, Micros)> {
        match self {
            Self::Emulated(dynamodb) => dynamodb.leader(),
            Self::Memory(memory) => memory.leader(),
        }
    }
}

/// Counts states of rows that a run should reach.
pub(crate) fn note_rare(world: &World, kind: WriteKind, before: Option<&Row>, host: &str) {
    let owner = before.and_then(|row| row.owner.as_deref());
    match kind {
        WriteKind::Take { .. } => match owner {
            Some(owner) if owner == host => {
                world.count("reached: take of an own lease after a restart");
            }
            Some(_) => world.count("reached: take of another's lease"),
            None => world.count("reached: take of a free lease"),
        },
        WriteKind::End => world.count("reached: shard end written"),
        WriteKind::Release => world.count("reached: release"),
        WriteKind::GiveUp => world.count("reached: lease given up"),
        WriteKind::Claim => world.count("reached: claim"),
        WriteKind::Checkpoint => world.count("reached: checkpoint"),
        WriteKind::Delete => world.count("reached: finished row removed"),
        WriteKind::Direct => world.count("reached: command"),
        WriteKind::Obey => world.count("reached: command obeyed"),
        WriteKind::Create | WriteKind::Renew | WriteKind::Admin => {}
    }
}
