//! Deliberate protocol bugs, for the simulator to find: a checker that never fires proves nothing.
//!
//! The switch exists only in builds with debug assertions, and only on the thread that turned it
//! on; a release build answers `false` at compile time.

/// One deliberate bug. Its doc says what a host with it does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SeededBug {
    /// A lease seen for the first time counts as expired.
    ExpiredAtFirstSight,
    /// A row that is this worker's by name is left alone, so that a take whose answer got lost
    /// orphans it.
    OwnRowsLeftAlone,
    /// Leases of live workers are taken (kcl-rb has its lease test inverted).
    TakesLiveLeases,
    /// A child is taken before its parents have ended (kinsumer knows no order).
    ChildBeforeParent,
    /// Leases of live, registered workers are taken without a hand-over.
    StealsWithoutAsking,
    /// A lead of one lease is evened out, for ever.
    RestlessBalance,
    /// A finished row is removed while its parents have rows.
    DeletesBeforeParents,
    /// A finished row is removed before its children have started.
    DeletesBeforeChildrenStart,
    /// A removed, finished shard gets a fresh row while it is still listed.
    ResurrectsFinishedShards,
    /// Children start at what comes next (lifion-kinesis).
    ChildFromLatest,
    /// A heartbeat answered after the deadline revives the leases that were held before it.
    LateHeartbeatRevives,
    /// The holder counts its deadline from the reply of a write and not from its sending (KCL).
    DeadlineFromReply,
    /// The holder continues until a write shows it that the lease is gone.
    NoHolderDeadline,
    /// Records are delivered while it is unknown whether the last lease write was applied.
    DeliversInDoubt,
    /// A lease write without an answer counts as applied.
    UnknownCountsAsApplied,
    /// Records go out after the lease was lost (kinsumer, kcl-rb).
    DeliversAfterLoss,
    /// `ResourceNotFound` is taken as the end of a shard (KCL).
    NotFoundEndsShard,
    /// A stream created again under its name is read on from the old checkpoints.
    IgnoresStreamIdentity,
    /// After an expired iterator, reading goes on at what comes next.
    ExpiredIteratorGoesToLatest,
    /// The record that the checkpoint names, and records fetched before it, are delivered again.
    DeliversSettledAgain,
    /// A batch that fails is skipped (KCL).
    SkipsFailedBatch,
    /// `SHARD_END` is written without making the children's rows.
    EndsWithoutChildren,
    /// A batch is checkpointed before it is delivered (lifion-kinesis).
    CheckpointsBeforeDelivery,
    /// A lease is given up without checkpointing what was settled (KCL at shutdown).
    HandsOverWithoutCheckpoint,
    /// A leader that leaves does not resign.
    NeverResigns,
    /// An expired lease is taken without a consistent look at its owner's heart.
    TakesWithoutSecondLook,
    /// A parent without a row in an eventually consistent listing counts as finished and removed.
    TrustsStaleListing,
    /// The last write of an earlier run of this worker is taken for this run's take.
    MistakesEarlierRunsWrite,
    /// After an expired iterator, reading goes on at the oldest record.
    ExpiredIteratorGoesToTrimHorizon,
    /// When a part of a batch is delivered again, the first record that failed is left out.
    RetrySkipsFailedRecord,
    /// Records that the guest holds back are checkpointed.
    CheckpointCoversHeldBack,
    /// A claim binds all others for ever, even if its claimant is dead.
    ClaimsNeverExpire,
    /// The fair share is rounded down, so that some leases are left to no host.
    FairShareRoundedDown,
    /// A merged shard waits for one of its parents only.
    OneParentIsEnough,
    /// A shard that is missing in one listing counts as gone.
    DeletesUnlistedShards,
    /// A host that is asked to stop checkpoints, and keeps its leases.
    DrainsWithoutRelease,
    /// Reading starts one record too late (off by one after the checkpoint).
    SkipsFirstRecord,
    /// A dead letter counts as stored although it was not.
    GivesUpUnstored,
    /// With bisecting, a batch that failed as a whole is an attempt of each of its records.
    ChargesWholeBatch,
    /// A record that has used up its attempts is tried again.
    NeverOutOfAttempts,
    /// Records do not wait for an earlier one of their key that is tried again.
    ParkedKeyFlows,
    /// What follows a checkpoint inside an aggregate is dropped.
    DropsRestOfAggregate,
    /// A subscription that follows another starts at what comes next.
    RenewsAtLatest,
    /// An instance that dies does not take the shard back to the state that was saved.
    UnsavedStateIsForgotten,
    /// What a version on trial fails on is held against the records too, and not only against the
    /// version.
    TrialChargesRecords,
    /// `LATEST` means now, whenever it is read, and not the moment when the application began
    /// (KCL).
    LatestIsNow,
    /// Shards that were closed before the application began get rows at the oldest record.
    AncestorsAtOldest,
    /// A take belongs to the heart's generation at its answer, and not at its sending.
    HeartGenerationAtAnswer,
    /// A worker whose row vanishes counts as dead at once.
    VanishedWorkerIsDead,
    /// A host whose row vanished and that registered again goes on holding all its leases by its
    /// new heartbeats.
    VanishedHeartHolds,
    /// The leader removes the row of a silent worker that writes to its leases.
    ReapsWorkersAtWork,
    /// Leases with a host's name that exceed what it may hold are kept by its heart and read by no
    /// host.
    KeepsOwnAboveMax,
    /// What a host takes because the row already has its name does not count towards its share.
    OwnTakesLeaveRoom,
    /// What a host asked for counts twice towards its share.
    ClaimsCountTwice,
    /// Each host orders the leases that may move in its own way (a hash that is not specified).
    OrderDiffersByHost,
    /// A lease whose row cannot be written is neither reported nor given up.
    WriteTroubleIsLeftAlone,
    /// A call to a table waits for its answer as long as the client does.
    CallsHaveNoDeadline,
    /// A leader that could not share its shard list does nothing else, even if the list can never
    /// be shared.
    HintStopsLeader,
    /// By key, records that are tried again go before all other due records.
    FailingKeysFirst,
    /// What one plugin of a host is guaranteed is lent to another that asks first.
    LendsGuarantees,
    /// A kept reply is served to any caller behind it, and not only to the one it directly follows.
    KeptRepliesHideGaps,
    /// With parallel keys, records of a key go to the strands by turns.
    SpreadsKeysByTurns,
    /// With parallel keys, a checkpoint covers records of a slower strand.
    CheckpointPassesSlowStrand,
    /// A shard that is paused delivers.
    PauseIsForgotten,
    /// A holder that was told of a seek goes there each time it is told, though it was done.
    SeeksAgain,
    /// A shard that is sent back goes on with what it had read ahead.
    SeekKeepsReadAhead,
    /// What was settled at the old place is written over the new one.
    OldPlaceIsWritten,
    /// A shard that is sent to another place begins one record too late.
    SeekSkipsFirstRecord,
    /// A pause of all shards is not handed to leases that are taken later.
    PauseMissesTakes,
    /// Records to be skipped are dropped, though they were to be stored.
    SkipDropsLetters,
    /// One record more than was named is skipped.
    SkipsOneMore,
    /// A host that is to be drained keeps what it holds.
    DrainKeepsLeases,
    /// A host that is drained takes leases.
    DrainedTakes,
    /// A shard goes on after a seek though its parent was opened again.
    SoughtChildRunsOn,
    /// A shard that was to go forward, and has come past the place, goes back to it.
    ForwardSeekGoesBack,
    /// What a tick emitted is stored after the state that is past it.
    TickIsCoveredFirst,
}

impl SeededBug {
    /// Every bug once, in the order of declaration.
    pub const ALL: &[Self] = &[
        Self::ExpiredAtFirstSight,
        Self::OwnRowsLeftAlone,
        Self::TakesLiveLeases,
        Self::ChildBeforeParent,
        Self::StealsWithoutAsking,
        Self::RestlessBalance,
        Self::DeletesBeforeParents,
        Self::DeletesBeforeChildrenStart,
        Self::ResurrectsFinishedShards,
        Self::ChildFromLatest,
        Self::LateHeartbeatRevives,
        Self::DeadlineFromReply,
        Self::NoHolderDeadline,
        Self::DeliversInDoubt,
        Self::UnknownCountsAsApplied,
        Self::DeliversAfterLoss,
        Self::NotFoundEndsShard,
        Self::IgnoresStreamIdentity,
        Self::ExpiredIteratorGoesToLatest,
        Self::DeliversSettledAgain,
        Self::SkipsFailedBatch,
        Self::EndsWithoutChildren,
        Self::CheckpointsBeforeDelivery,
        Self::HandsOverWithoutCheckpoint,
        Self::NeverResigns,
        Self::TakesWithoutSecondLook,
        Self::TrustsStaleListing,
        Self::MistakesEarlierRunsWrite,
        Self::ExpiredIteratorGoesToTrimHorizon,
        Self::RetrySkipsFailedRecord,
        Self::CheckpointCoversHeldBack,
        Self::ClaimsNeverExpire,
        Self::FairShareRoundedDown,
        Self::OneParentIsEnough,
        Self::DeletesUnlistedShards,
        Self::DrainsWithoutRelease,
        Self::SkipsFirstRecord,
        Self::GivesUpUnstored,
        Self::ChargesWholeBatch,
        Self::NeverOutOfAttempts,
        Self::ParkedKeyFlows,
        Self::DropsRestOfAggregate,
        Self::RenewsAtLatest,
        Self::UnsavedStateIsForgotten,
        Self::TrialChargesRecords,
        Self::LatestIsNow,
        Self::AncestorsAtOldest,
        Self::HeartGenerationAtAnswer,
        Self::VanishedWorkerIsDead,
        Self::VanishedHeartHolds,
        Self::ReapsWorkersAtWork,
        Self::KeepsOwnAboveMax,
        Self::OwnTakesLeaveRoom,
        Self::ClaimsCountTwice,
        Self::OrderDiffersByHost,
        Self::WriteTroubleIsLeftAlone,
        Self::CallsHaveNoDeadline,
        Self::HintStopsLeader,
        Self::FailingKeysFirst,
        Self::LendsGuarantees,
        Self::KeptRepliesHideGaps,
        Self::SpreadsKeysByTurns,
        Self::CheckpointPassesSlowStrand,
        Self::PauseIsForgotten,
        Self::SeeksAgain,
        Self::SeekKeepsReadAhead,
        Self::OldPlaceIsWritten,
        Self::SeekSkipsFirstRecord,
        Self::PauseMissesTakes,
        Self::SkipDropsLetters,
        Self::SkipsOneMore,
        Self::DrainKeepsLeases,
        Self::DrainedTakes,
        Self::SoughtChildRunsOn,
        Self::ForwardSeekGoesBack,
        Self::TickIsCoveredFirst,
    ];

    /// Whether this bug is switched on for this thread.
    #[inline]
    pub fn is_on(self) -> bool {
        #[cfg(debug_assertions)]
        return switch::ACTIVE.get() == Some(self);
        #[cfg(not(debug_assertions))]
        return false;
    }

    /// Whether any bug is switched on for this thread: then its consequences are expected.
    #[inline]
    pub(crate) fn is_any_on() -> bool {
        #[cfg(debug_assertions)]
        return switch::ACTIVE.get().is_some();
        #[cfg(not(debug_assertions))]
        return false;
    }
}

/// Switches one bug on, or all off, for this thread.
#[cfg(debug_assertions)]
pub fn switch_on(bug: Option<SeededBug>) {
    switch::ACTIVE.set(bug);
}

#[cfg(debug_assertions)]
mod switch {
    use std::cell::Cell;

    use super::SeededBug;

    thread_local! {
        pub(super) static ACTIVE: Cell<Option<SeededBug>> = const { Cell::new(None) };
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn one_bug_is_on_for_the_thread_that_switched_it_on_and_no_other() {
        switch_on(Some(SeededBug::NeverResigns));
        assert!(SeededBug::NeverResigns.is_on() && !SeededBug::SkipsFirstRecord.is_on());
        let elsewhere = std::thread::spawn(|| SeededBug::ALL.iter().any(|bug| bug.is_on()));
        assert!(!elsewhere.join().unwrap());
        switch_on(None);
        assert!(!SeededBug::NeverResigns.is_on());
    }
}
