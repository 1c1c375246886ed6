//! The suite of behaviours that runs over every store.
//!
//! A semaphore must behave the same in every store. So each behaviour is a *case*, written once, in a module
//! by subject; [`every_case`] lists them. A [`Provider`] is a semaphore in some store, with one unit or
//! several. `suites` crosses the two, and each combination is a test of its own:
//! `drained::queue::waiters_are_granted_in_order`.
//!
//! A behaviour that needs nothing of the API of Rust is a case in `permits-testkit/cases/`, which a client in
//! any language has to pass.
//!
//! A case that needs several units is an ignored test where there is one. A case that is not listed, and a
//! provider without a suite, are code that nothing uses, of which the compiler warns.

mod acquiring;
mod administering;
mod closing;
mod crowds;
mod fixture;
mod handing_over;
mod keeping;
mod lanes;
mod limits;
mod lines;
mod losing;
mod queue;
mod rates;
mod several;
mod superseding;
mod terms;
mod threads;

use fixture::{Fixture, Provider};
use permits_testkit::{HANGS, skip};

/// The list of the cases, by subject, each with its needs: any provider (`anything`), or several `units`;
/// either in real time.
/// Passes the list to the macro `$to`, behind `$with`.
macro_rules! every_case {
    ($to:ident $with:tt) => {
        $to! { $with
            acquiring {
                a_permit_says_what_it_is: anything,
                a_try_on_a_full_one_is_refused_for_now: anything,
                a_dropped_permit_is_free_for_the_next_try: anything,
                dropped_permits_are_free_for_the_next_tries_of_many_tasks: units,
                a_holder_has_one_permit_at_a_time: anything,
                tokens_strictly_increase: anything,
                a_weight_above_the_limit_is_refused_for_good: anything,
            }
            queue {
                waiters_are_granted_in_order: anything,
                a_release_grants_the_head_and_no_newcomer: anything,
                a_wait_that_times_out_leaves_the_queue: real_time,
                a_timeout_says_why: units_in_real_time,
                a_request_that_times_out_in_flight_is_gone_for_the_next: units_in_real_time,
                a_request_that_is_dropped_in_flight_is_gone_for_the_next: units,
                a_full_queue_refuses_more: anything,
                waits_are_counted: anything,
            }
            superseding {
                the_newest_request_of_a_key_waits: anything,
                requests_of_other_keys_stay: anything,
                a_request_in_another_lane_joins_its_own: anything,
                a_lighter_request_that_takes_a_place_is_granted: units,
                a_heavier_request_that_takes_a_place_is_not_overtaken: units,
                a_place_is_taken_in_a_full_queue: anything,
                a_waiter_that_has_left_has_no_key: anything,
                a_place_is_taken_in_a_pause_and_not_in_a_closed_line: anything,
                a_place_is_taken_while_units_cool: real_time,
                a_request_with_a_key_is_not_served_by_what_is_kept: anything,
                a_set_is_superseded_in_any_of_its_lines: anything,
            }
            keeping {
                a_kept_permit_is_granted_again_without_a_call: anything,
                an_acquisition_that_is_not_polled_takes_nothing_that_is_kept: anything,
                a_client_keeps_for_each_semaphore_that_does_not_say_otherwise: anything,
                a_permit_is_kept_for_a_third_of_its_lease_at_most: real_time,
                what_may_be_kept_is_seen_until_a_request_waits: anything,
                another_client_gets_what_is_kept: anything,
                a_try_of_another_client_waits_for_what_is_kept: real_time,
                a_try_is_refused_if_what_may_be_kept_is_used: anything,
                what_nobody_uses_is_given_back_in_time: real_time,
                other_terms_are_not_met_by_what_is_kept: anything,
                what_is_kept_serves_no_request_that_is_not_valid: anything,
                another_weight_is_not_met_by_what_is_kept: units,
                a_permit_with_other_terms_is_not_kept: anything,
                a_kept_permit_that_is_revoked_is_gone: anything,
                operators_get_back_what_is_kept: anything,
                a_client_that_closes_gives_back_what_it_keeps: anything,
                a_permit_that_was_granted_again_can_be_handed_over: anything,
                a_permit_whose_loss_was_awaited_is_kept: anything,
                a_loss_is_told_to_the_holder_of_a_permit_that_was_granted_again: anything,
                a_permit_with_a_slot_above_a_lower_limit_is_not_kept: units,
                a_required_limit_that_changes_is_not_served_by_what_is_kept: units,
                nothing_is_kept_while_a_lane_is_pinned: units,
                a_handle_that_declares_another_limit_is_not_served_by_what_is_kept: anything,
            }
            lanes {
                lanes_take_turns: anything,
                a_share_of_three_gets_three_of_four: anything,
                a_lane_pays_for_the_weight_of_its_grants: units,
                a_lane_whose_waiters_give_up_pays_nothing: real_time,
                a_lane_that_comes_back_gains_nothing: anything,
                an_inspection_shows_lanes: anything,
                an_inspection_shows_the_bounds_of_lanes: units,
                a_lane_keeps_to_its_limit_and_stops_nobody_else: units,
                a_lane_below_its_floor_is_before_others: units,
                several_semaphores_are_acquired_in_lanes: anything,
                an_operator_pins_the_bounds_of_a_lane: units,
                a_pin_that_makes_no_sense_is_refused: anything,
            }
            limits {
                a_raised_limit_grants_at_once: anything,
                a_lowered_limit_revokes_no_holder_and_grants_when_it_fits: units,
                waiters_heavier_than_a_lowered_limit_are_refused: units,
                the_last_declaration_counts: anything,
                a_pinned_limit_ignores_declarations_until_unpinned: anything,
                a_limit_changed_meanwhile_is_a_version_mismatch: anything,
                of_two_changes_at_one_version_one_is_made: anything,
                changes_of_several_sessions_add_up: anything,
                a_limit_is_not_adjusted_out_of_its_range: anything,
                a_refused_request_changes_no_limit: anything,
                a_required_limit_is_refused_where_another_is_in_force: anything,
                without_a_limit_nothing_is_granted: anything,
                a_declared_limit_is_available_before_it_is_used: anything,
            }
            administering {
                inspection_shows_holders_and_waiters: units,
                an_inspection_says_how_long_ago_each_was_granted: units,
                labels_and_the_time_in_the_queue_are_shown: anything,
                inspecting_leaves_nothing_behind: anything,
                a_list_names_what_is_in_use: anything,
                an_inspection_says_which_operator_made_the_last_changes: anything,
                an_alert_is_kept_and_replaced_as_a_whole: anything,
                a_paused_semaphore_grants_nothing: anything,
                a_pause_ends_by_itself: real_time,
                a_try_after_a_pause_succeeds: real_time,
                a_pause_is_checked: anything,
                a_revoked_holder_receives_the_reason: anything,
                a_revoked_waiter_receives_the_reason: anything,
            }
            lines {
                a_declared_limit_is_shown_before_anything_is_acquired: anything,
                a_raised_declaration_grants_at_once: anything,
                a_declaration_leaves_a_pinned_limit: anything,
                without_a_limit_there_is_nothing_to_declare: anything,
                an_idle_line_is_deleted_with_its_pin_and_pause: anything,
                a_line_in_use_is_not_deleted: anything,
                a_closed_line_refuses_waiters_and_newcomers_with_the_reason: anything,
                a_line_can_be_closed_before_it_is_used: anything,
                a_closed_line_that_is_paused_refuses_and_stays_paused: anything,
                a_reason_of_a_closed_line_is_checked: anything,
            }
            crowds {
                a_release_grants_a_crowd: units,
                a_client_that_closes_grants_a_crowd: units,
                a_revocation_grants_a_crowd: units,
                a_raised_limit_grants_a_crowd: units,
                a_resumed_semaphore_grants_a_crowd: units,
                a_closed_line_refuses_a_crowd: units,
            }
            losing {
                without_renewal_a_permit_ends_with_its_lease: anything,
                a_late_drop_frees_no_other_permit: anything,
                renewal_keeps_a_permit_for_many_leases: real_time,
                an_explicit_renewal_extends: anything,
                a_lost_permit_stops_the_work_it_runs: anything,
                a_permit_is_held_no_longer_than_asked: real_time,
                work_that_ends_in_time_has_its_result: anything,
                a_cancellation_token_is_cancelled_by_the_loss: anything,
                a_release_is_no_loss: anything,
            }
            rates {
                a_released_grant_counts_for_as_long_as_asked: real_time,
                a_grant_counts_for_what_it_really_cost: units_in_real_time,
                a_grant_that_was_lost_counts_for_what_it_really_cost: real_time,
                a_grant_of_a_client_that_closes_counts_for_what_it_really_cost: real_time,
                a_grant_counts_for_the_limit_at_most: units_in_real_time,
                a_grant_that_counts_is_not_served_by_what_is_kept: real_time,
                what_does_not_count_is_not_counted: real_time,
                a_try_succeeds_when_it_was_told_to: units_in_real_time,
                a_try_in_a_pause_hears_of_what_keeps_it_out_longest: real_time,
                a_permit_held_for_longer_is_free_at_once: real_time,
                a_lost_grant_counts_for_as_long_as_asked: real_time,
                what_cools_can_be_freed_by_an_operator: anything,
                a_try_knows_when_although_permits_were_kept_before: units,
                no_window_has_more_grants_than_the_limit: units_in_real_time,
                a_grant_that_was_handed_over_counts_as_long: real_time,
                a_time_above_a_day_is_refused: anything,
                a_grant_of_a_set_counts_from_when_the_whole_set_is_held: real_time,
                a_grant_of_a_set_that_is_lost_counts_from_when_the_set_was_held: real_time,
                a_grant_of_a_set_that_was_handed_over_counts_as_long: real_time,
                a_grant_of_a_set_that_is_never_held_counts_for_nothing: real_time,
            }
            terms {
                a_released_part_goes_to_the_head_of_the_queue: units,
                neither_no_unit_nor_all_are_a_part: anything,
                a_part_that_counts_for_some_time_is_free_after_it: units_in_real_time,
                a_part_can_be_released_before_a_hand_over: units,
                a_longer_lease_holds_at_once: anything,
                a_shorter_lease_ends_sooner: real_time,
                a_lease_out_of_range_changes_nothing: anything,
                renewal_can_be_left_to_the_caller_and_taken_back: real_time,
            }
            threads {
                a_thread_waits_for_every_operation: units,
                threads_are_granted_in_order: anything,
                a_blocked_thread_is_cancelled_by_another: anything,
                a_thread_waits_for_a_loss: anything,
            }
            several {
                a_set_is_acquired_in_the_order_that_all_programs_share: anything,
                a_set_is_acquired_completely_or_not_at_all: anything,
                a_set_whose_last_semaphore_refuses_for_good_holds_nothing: anything,
                a_request_that_is_not_valid_fails_before_any_is_sent: anything,
                a_semaphore_named_twice_is_refused: anything,
                an_empty_set_is_acquired_at_once: anything,
                a_set_that_waits_in_a_narrow_line_holds_nothing_of_the_wide_one: anything,
                a_set_that_waits_takes_nothing_that_is_kept_of_a_later_line: anything,
                a_set_that_waits_in_a_wide_line_keeps_its_place_in_the_narrow_one: anything,
                the_shortest_timeout_is_the_limit_of_the_whole_wait: anything,
                a_set_of_which_one_does_not_wait_does_not_wait: anything,
                a_permit_that_is_lost_while_another_is_waited_for_fails_the_set: anything,
                a_permit_that_is_not_renewed_can_end_while_another_is_waited_for: anything,
                a_set_is_lost_with_any_of_its_permits: anything,
                a_renewal_extends_each_permit_of_a_set: anything,
                a_dropped_set_is_released: anything,
                permits_of_a_set_can_be_released_one_by_one: anything,
                the_line_that_a_set_waits_in_is_known: anything,
                a_dropped_acquisition_of_a_set_leaves_nothing: anything,
                a_set_that_is_lost_stops_the_work_it_runs: anything,
            }
            closing {
                closing_ends_permits_and_waits: anything,
                clones_are_one_client: anything,
                permits_outlive_the_client_that_was_dropped: real_time,
            }
            handing_over {
                a_permit_handed_over_goes_on_with_another_client: anything,
                what_was_released_cannot_be_adopted: anything,
                a_handle_is_good_once: anything,
                a_handle_that_says_more_than_the_store_is_refused: anything,
                a_handle_is_good_for_one_lease: anything,
                an_adopted_permit_can_be_revoked: anything,
                a_handle_is_renewed_and_released_by_any_client: real_time,
                a_handle_without_its_permit_changes_nothing: anything,
                a_handle_stays_gone_when_its_semaphore_is_forgotten: anything,
                an_invented_handle_is_refused: anything,
            }
        }
    };
}

/// A test that runs, or is ignored with the reason.
macro_rules! test {
    ($case:ident units SingleUnit $provider:ident $subject:ident) => {
        #[test]
        #[ignore = "needs several units"]
        fn $case() {}
    };
    ($case:ident units_in_real_time SingleUnit $provider:ident $subject:ident) => {
        test! { $case units SingleUnit $provider $subject }
    };
    ($case:ident real_time $units_kind:ident $provider:ident $subject:ident) => {
        #[test]
        fn $case() {
            permits_testkit::in_real_time(|| crate::run(crate::Provider::$provider, crate::$subject::$case));
        }
    };
    ($case:ident units_in_real_time $units_kind:ident $provider:ident $subject:ident) => {
        test! { $case real_time $units_kind $provider $subject }
    };
    ($case:ident $needs:ident $units_kind:ident $provider:ident $subject:ident) => {
        #[test]
        fn $case() {
            crate::run(crate::Provider::$provider, crate::$subject::$case);
        }
    };
}

/// All cases with one provider.
macro_rules! suite {
    ([$suite:ident $provider:ident $units_kind:ident]
        $($subject:ident { $($case:ident: $needs:ident,)* })*
    ) => {
        mod $suite {
            $(mod $subject {
                $(test! { $case $needs $units_kind $provider $subject })*
            })*
        }
    };
}

/// The suites: provider and number of units.
macro_rules! suites {
    ($($suite:ident: $provider:ident $units_kind:ident,)*) => {
        $(every_case! { suite [$suite $provider $units_kind] })*
    };
}

suites! {
    memory: Memory MultiUnit,
    local: Local MultiUnit,
    redis: Redis MultiUnit,
    cluster: Cluster MultiUnit,
    other_prefix: OtherPrefix MultiUnit,
    mutex: Mutex SingleUnit,
    drained: Drained SingleUnit,
}

/// Runs one case, from the set-up of its fixture to the check that it left nothing.
fn run(provider: Provider, case: impl AsyncFnOnce(&Fixture)) {
    // Permits needs sharded channels in a cluster.
    if provider == Provider::Cluster && skip::before(7, 0) {
        return;
    }
    let mut fixture = Fixture::new(provider);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let whole = async {
            fixture.connect_other_client().await;
            case(&fixture).await;
            fixture.end().await;
        };
        tokio::time::timeout(HANGS, whole).await.expect("no case hangs");
    });
}
