use std::fmt;

use crate::stream::ShardId;

/// How long an entry of the history is kept.
pub const HISTORY_KEPT_DAYS: u64 = 90;

/// Something that a person or the fleet did: an entry of the application's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryEntry {
    /// When, by the clock of who did it, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Who: a person as it called itself, or a worker.
    pub by: String,
    /// What was done to the shard or the fleet.
    pub deed: Deed,
    /// The shard, if it was done to one.
    pub shard: Option<ShardId>,
    /// From where to where, which records, until when: for people.
    pub details: String,
    /// The reason that was given, empty if none was.
    pub why: String,
}

/// Something that a person or the fleet did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Deed {
    /// A person asked for a pause.
    Pause,
    /// A person ended a pause.
    Resume,
    /// A person sent a shard to another place.
    Seek,
    /// A person asked for records to be skipped.
    Skip,
    /// A person took a seek or a skip back before it was done.
    Withdraw,
    /// A person asked a host to hand over what it holds.
    Drain,
    /// A person let a host take leases again.
    Undrain,
    /// A person asked for a lease to move.
    Move,
    /// A person sent an application, or shards of it, back to its beginning.
    Reset,
    /// A person asked for a state to be replaced.
    ImportState,
    /// A person asked for a state to be removed.
    ResetState,
    /// A person asked for the application's tables to be deleted.
    Delete,
    /// A person restored the application from a backup.
    Restore,
    /// A person asked hosts to read their configuration again.
    Reload,
    /// A host read its configuration again, as it was told, and took over what it says.
    Reloaded,
    /// A host was told so, and says why it took over nothing, or not all of it.
    NotReloaded,
    /// A holder replaced or removed its shard's state, as it was told, or said why not.
    EditedState,
    /// A holder sent its shard to another place, as it was told.
    Sought,
    /// A holder was to send its shard to another place, and it stayed where it is.
    Stayed,
    /// A holder gave up records, as it was told.
    Skipped,
    /// A host took leases that others held before.
    Took,
    /// A host gave a lease back, since its shard made no progress there.
    GaveUp,
    /// A shard was halted at a record, as its failure policy says.
    Halted,
    /// Records were given up, as the failure policy says.
    GaveUpRecords,
    /// A host tries a new version of the plugin on one shard.
    Tried,
    /// A host runs a new version on all its shards.
    Promoted,
    /// A host found a version bad, and runs the one before it.
    RolledBack,
    /// A person asked hosts to promote or drop what runs in the plugin's shadow.
    Shadow,
    /// A host promoted or dropped what ran in the shadow, as it was told.
    EndedShadow,
    /// A host was told so, and says why it did not, or not all of it.
    KeptShadow,
    /// The same by a rule of its configuration.
    ShadowEnded,
    /// A person asked hosts to pull a version and to try it, or ended that.
    Deploy,
    /// A host pulled the version, as it was told, and tries it in its turn.
    Deployed,
    /// A host was told so, and says why it could not.
    NotDeployed,
}

impl Deed {
    /// Every deed once, in the order of declaration.
    pub const ALL: [Self; 34] = [
        Self::Pause,
        Self::Resume,
        Self::Seek,
        Self::Skip,
        Self::Withdraw,
        Self::Drain,
        Self::Undrain,
        Self::Move,
        Self::Reset,
        Self::ImportState,
        Self::ResetState,
        Self::Delete,
        Self::Restore,
        Self::Reload,
        Self::Reloaded,
        Self::NotReloaded,
        Self::EditedState,
        Self::Sought,
        Self::Stayed,
        Self::Skipped,
        Self::Took,
        Self::GaveUp,
        Self::Halted,
        Self::GaveUpRecords,
        Self::Tried,
        Self::Promoted,
        Self::RolledBack,
        Self::Shadow,
        Self::EndedShadow,
        Self::KeptShadow,
        Self::ShadowEnded,
        Self::Deploy,
        Self::Deployed,
        Self::NotDeployed,
    ];

    /// A stable word, as it is stored.
    pub fn code(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Seek => "seek",
            Self::Skip => "skip",
            Self::Withdraw => "withdraw",
            Self::Drain => "drain",
            Self::Undrain => "undrain",
            Self::Move => "move",
            Self::Reset => "reset",
            Self::ImportState => "import-state",
            Self::ResetState => "reset-state",
            Self::Delete => "delete",
            Self::Restore => "restore",
            Self::Reload => "reload",
            Self::Reloaded => "reloaded",
            Self::NotReloaded => "not-reloaded",
            Self::EditedState => "edited-state",
            Self::Sought => "sought",
            Self::Stayed => "stayed",
            Self::Skipped => "skipped",
            Self::Took => "took",
            Self::GaveUp => "gave-up",
            Self::Halted => "halted",
            Self::GaveUpRecords => "gave-up-records",
            Self::Tried => "tried",
            Self::Promoted => "promoted",
            Self::RolledBack => "rolled-back",
            Self::Shadow => "shadow",
            Self::EndedShadow => "shadow-done",
            Self::KeptShadow => "shadow-not-done",
            Self::ShadowEnded => "shadow-by-rule",
            Self::Deploy => "deploy",
            Self::Deployed => "deployed",
            Self::NotDeployed => "not-deployed",
        }
    }

    /// Whether a command asked for it.
    pub fn is_wanted(self) -> bool {
        match self {
            Self::Pause
            | Self::Resume
            | Self::Seek
            | Self::Skip
            | Self::Withdraw
            | Self::Drain
            | Self::Undrain
            | Self::Move
            | Self::Reset
            | Self::ImportState
            | Self::ResetState
            | Self::Delete
            | Self::Restore
            | Self::Reload
            | Self::Reloaded
            | Self::NotReloaded
            | Self::EditedState
            | Self::Sought
            | Self::Stayed
            | Self::Skipped
            | Self::Shadow
            | Self::EndedShadow
            | Self::KeptShadow
            | Self::Deploy
            | Self::Deployed
            | Self::NotDeployed => true,
            Self::Took
            | Self::GaveUp
            | Self::Halted
            | Self::GaveUpRecords
            | Self::Tried
            | Self::Promoted
            | Self::RolledBack
            | Self::ShadowEnded => false,
        }
    }

    /// The deed with this code, if there is one.
    pub fn of_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|deed| deed.code() == code)
    }
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}
