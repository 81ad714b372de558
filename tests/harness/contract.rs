//! What every lease store, coordinator, stream and fan-out must do, fake or real. One function a
//! promise; the macros make each a test.

pub mod coordinator;
pub mod directives;
pub mod fan_out;
pub mod lease_store;
pub mod standalone_hosts;
pub mod stream;

/// Makes a test of every promise of a lease store. `$make` is an async block that gives an empty
/// store and whatever must live as long.
#[macro_export]
macro_rules! lease_store_contract {
    ($make:expr) => {
        $crate::promises! { lease_store, $make;
            a_row_is_read_back_as_it_was_created,
            creating_a_row_that_exists_leaves_it_alone,
            taking_a_free_lease_makes_an_owner_and_raises_the_counter,
            taking_from_another_owner_counts_the_switch,
            of_two_takes_on_the_same_sight_one_wins_and_the_other_sees_the_winner,
            a_renewal_raises_the_counter_and_notes_progress,
            a_stale_holder_can_write_nothing,
            a_stale_holder_can_write_no_state,
            state_comes_and_goes_with_its_checkpoint,
            a_checkpoint_moves_the_position_and_resets_the_switches,
            the_end_of_a_shard_is_written_with_its_children,
            a_released_lease_is_free_and_the_token_is_void,
            a_claim_asks_the_owner_and_fences_nobody,
            a_claim_in_vain_is_replaced,
            a_row_is_deleted_only_if_nothing_changed,
            trouble_and_throughput_are_noted_for_people,
            a_write_to_a_row_that_is_not_there_is_a_conflict_without_a_row,
            all_rows_are_listed,
            a_lost_answer_is_settled_by_the_row_itself,
        }
    };
}

/// Makes a test of every promise of a coordinator. `$make` is an async block that gives an empty
/// one and whatever must live as long.
#[macro_export]
macro_rules! coordinator_contract {
    ($make:expr) => {
        $crate::promises! { coordinator, $make;
            an_empty_table_knows_nobody,
            a_worker_beats_until_another_run_of_it_registers,
            a_late_registration_replaces_nobody,
            a_late_heartbeat_does_not_turn_the_beat_back,
            a_worker_is_removed_only_as_it_was_seen,
            of_two_candidates_on_the_same_sight_one_leads,
            the_office_is_given_back_and_taken_again,
            the_stream_is_written_down_once,
            the_start_is_written_down_once_and_kept,
            a_version_is_quarantined_until_it_is_released,
            the_bulletin_rises_with_every_announcement,
            the_board_shows_all_but_the_workers,
            mail_is_read_back_by_its_worker_until_other_mail_is_left,
            a_nudge_is_read_with_the_mail_until_there_is_another,
            what_operators_want_of_all_hosts_is_changed_by_one_at_a_time,
            the_history_is_added_to_and_changes_nothing_else,
            the_shard_list_is_read_back_whole,
        }
    };
}

/// Makes a test of every promise of a lease store about what operators want. `$make` is an async
/// block that gives an empty store and whatever must live as long.
#[macro_export]
macro_rules! directives_contract {
    ($make:expr) => {
        $crate::promises! { directives, $make;
            directives_change_nothing_that_the_holder_writes,
            directives_that_changed_meanwhile_are_not_overwritten,
            a_take_returns_what_is_wanted,
            a_holder_goes_where_it_is_told_once,
            a_holder_that_read_old_directives_changes_nothing,
            a_shard_does_not_end_over_what_its_holder_has_not_read,
            a_state_goes_with_the_place_or_is_removed_with_it,
            a_state_that_was_left_for_a_holder_is_taken_over_once,
        }
    };
}

/// Makes a test of every promise of the list of standalone hosts. `$make` is an async block that
/// gives an empty one and whatever must live as long.
#[macro_export]
macro_rules! standalone_hosts_contract {
    ($make:expr) => {
        $crate::promises! { standalone_hosts, $make;
            of_two_writes_on_the_same_sight_one_counts,
            an_entry_is_removed_only_as_it_was_seen,
            all_entries_are_listed,
            what_a_host_left_is_removed_and_nothing_of_others,
            what_operators_want_and_the_history_stay_when_only_places_go,
            nothing_is_removed_once_the_mark_is_replaced,
            what_is_not_there_is_removed_already,
        }
    };
}

/// Makes a test of every promise of a stream. `$make` is an async block that gives a stream of two
/// shards and whatever must live as long.
#[macro_export]
macro_rules! stream_contract {
    ($make:expr) => {
        $crate::promises! { stream, $make;
            shards_cover_the_hash_key_space,
            records_come_back_in_order_with_all_they_were_put_with,
            an_empty_shard_is_not_at_its_end,
            reading_on_after_an_empty_reply_finds_what_was_put_since,
            every_initial_position_starts_where_it_says,
            what_arrives_after_the_streams_time_was_told_is_read_from_that_time,
            shards_closed_since_a_time_are_told_from_those_closed_before,
            a_sequence_number_starts_at_it_or_after_it,
            limited_replies_lose_and_repeat_nothing,
            a_closed_shard_gives_all_its_records_then_its_children_and_no_iterator,
            the_child_of_a_merge_has_both_parents,
            what_is_put_after_a_split_is_read_from_the_children,
            an_unknown_shard_is_not_found,
        }
    };
}

/// Makes a test of every promise of enhanced fan-out. `$make` is an async block that gives a stream
/// of two shards with it, and whatever must live as long.
#[macro_export]
macro_rules! fan_out_contract {
    ($make:expr) => {
        $crate::promises! { fan_out, $make;
            a_consumer_is_made_once_and_found_again,
            a_given_consumer_that_is_not_there_is_not_made,
            a_consumer_that_is_removed_cannot_be_subscribed_with,
            records_are_pushed_in_order_with_all_they_were_put_with,
            every_start_position_starts_where_it_says,
            a_quiet_shard_sends_events_without_records,
            a_continuation_leads_on_without_a_gap,
            a_second_subscription_is_refused_at_first_and_takes_over_later,
            a_closed_shard_is_pushed_to_its_end_with_its_children,
            a_subscription_to_an_unknown_shard_is_not_found,
        }
    };
}

/// See [`lease_store_contract`] and [`stream_contract`].
#[macro_export]
macro_rules! promises {
    ($suite:ident, $make:expr; $($promise:ident),* $(,)?) => {
        $(
            #[tokio::test]
            async fn $promise() {
                let (subject, _alive) = $make.await;
                $crate::contract::$suite::$promise(&subject).await;
            }
        )*
    };
}
