//! The one list of cases.

/// Makes a named test of every case, for the harness that the expression gives.
///
/// ```ignore
/// mod conformance {
///     aetheris_store_conformance::conformance_suite!(crate::SqliteHarness);
/// }
/// ```
#[macro_export]
macro_rules! conformance_suite {
    ($harness:expr) => {
        $crate::conformance_list! { {suite $harness} }
    };
}

/// Makes a named test of every case for stores that outlive their process.
#[macro_export]
macro_rules! durable_suite {
    ($harness:expr) => {
        $crate::durable_list! { {durable $harness} }
    };
}

/// What becomes of a list.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_expand {
    ({suite $harness:expr} $($family:ident { $($case:ident,)* })*) => {$($(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            let fixture = $crate::Fixture::open(&$harness).await;
            $crate::$family::$case(fixture).await;
        }
    )*)*};
    ({durable $harness:expr} $($family:ident { $($case:ident,)* })*) => {$($(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            let harness = $harness;
            let fixture = $crate::Fixture::open(&harness).await;
            $crate::$family::$case(fixture, &harness).await;
        }
    )*)*};
    ({runner} $($family:ident { $($case:ident,)* })*) => {
        vec![$($((stringify!($case), |fixture| Box::pin($crate::$family::$case(fixture))),)*)*]
    };
    ({names $($more:tt)*} $($family:ident { $($case:ident,)* })*) => {
        $crate::durable_list! { {all $($(stringify!($case),)*)*} }
    };
    ({all $($before:tt)*} $($family:ident { $($case:ident,)* })*) => {
        &[$($before)* $($(stringify!($case),)*)*]
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! durable_list {
    ($mode:tt) => {
        $crate::conformance_expand! { $mode
            durable {
                j13_every_kind_of_write_reads_the_same_after_opening_again,
                j13_a_lease_outlives_the_store_that_gave_it,
                j13_epochs_go_on_where_they_were,
                j13_the_clock_does_not_run_backwards,
                j13_no_reboot_takes_the_clock_back_behind_a_write,
                j13_a_lost_answer_is_found,
                j13_a_clients_key_is_remembered,
                j13_a_second_opening_is_like_the_first,
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_list {
    ($mode:tt) => {
        $crate::conformance_expand! { $mode
            journal {
                j1_places_are_dense_over_units_and_claims,
                j1_one_of_sixteen_units_with_one_expectation_is_accepted,
                j3_the_chain_verifies_from_stored_bytes,
                j1_sixteen_jobs_are_written_at_once_each_in_order,
                j1_a_unit_that_has_not_seen_everything_is_refused,
                j2_a_refused_unit_changes_nothing,
                j2_a_failed_unit_changes_nothing,
                j2_an_accepted_unit_changes_everything_at_once,
                j3_the_answer_has_the_head_and_the_place,
                j5_all_events_of_a_unit_have_its_time,
                j5_the_clock_does_not_run_backwards,
                j5_a_clock_that_was_set_back_goes_on,
                j5_a_wall_clock_that_was_wrong_for_a_moment_moves_nothing,
                j5_events_have_the_fence_of_the_last_claim,
                j7_what_makes_no_sense_fails_as_invalid,
                j8_the_checks_have_an_order,
                j8_a_creations_checks_have_an_order,
                j9_the_row_is_the_units_projection,
                j9_every_row_equals_its_fold,
                j9_a_unit_without_a_row_leaves_it_but_for_its_time,
                j9_a_renewal_is_no_write,
                j10_a_history_starts_from_the_newest_checkpoint,
                j10_an_older_checkpoint_never_replaces_a_newer_one,
                j10_a_checkpoint_may_come_with_its_events,
                j10_a_checkpoint_of_another_version_is_as_if_absent,
                j11_followers_of_a_job_are_woken,
                j12_a_refused_unit_disturbs_nobody_elses,
            }
            glance {
                j14_a_glance_brings_a_history_of_few_bytes,
                j14_a_glance_brings_a_history_of_few_events,
                j14_a_glance_brings_as_many_bytes_as_it_may_and_not_one_more,
                j15_a_history_is_carried_on_from_an_event,
            }
            payloads {
                j4_null_survives,
                j4_an_empty_text_survives,
                j4_empty_collections_survive,
                j4_u0000_survives,
                j4_control_characters_survive,
                j4_all_of_unicode_survives,
                j4_quotes_and_sql_survive,
                j4_exact_numbers_survive,
                j4_deep_nesting_survives,
                j4_a_large_value_survives,
                j4_odd_names_survive,
                j6_an_events_payload_is_bounded,
                j6_an_effects_result_is_bounded,
                j6_a_signals_payload_is_bounded,
                j6_evidence_is_bounded,
                j6_the_events_of_a_unit_are_bounded,
                j6_the_events_of_a_job_are_bounded,
                j6_kept_signals_are_bounded,
                j6_kept_bytes_are_bounded,
                j6_the_memory_of_kept_signals_is_bounded,
                j6_a_result_of_nothing_is_a_result,
            }
            fencing {
                l3_an_older_epoch_takes_no_permission,
                l3_an_older_epoch_records_nothing,
                l3_an_older_epoch_does_not_finish,
                l3_an_older_epoch_does_not_block,
                l3_an_older_epoch_does_not_requeue,
                l3_an_older_epoch_does_not_doubt,
                l3_an_older_epoch_consumes_no_signal,
                l3_an_older_epoch_sets_no_timer,
                l3_an_older_epoch_does_not_cancel,
                l3_an_older_epoch_does_not_pause,
                l3_an_older_epoch_is_not_reclaimed,
                l3_an_older_epoch_is_not_reclaimed_by_proof,
                l3_an_older_epoch_deposits_nothing,
                l3_an_older_epoch_resolves_nothing,
                l3_an_older_epoch_keeps_no_checkpoint,
                l3_another_generation_takes_no_permission,
                l3_another_generation_records_nothing,
                l3_another_generation_does_not_finish,
                l3_another_generation_does_not_block,
                l3_another_generation_does_not_requeue,
                l3_another_generation_does_not_doubt,
                l3_another_generation_consumes_no_signal,
                l3_another_generation_sets_no_timer,
                l3_another_generation_does_not_cancel,
                l3_another_generation_does_not_pause,
                l3_another_generation_is_not_reclaimed,
                l3_another_generation_is_not_reclaimed_by_proof,
                l3_another_generation_deposits_nothing,
                l3_another_generation_resolves_nothing,
                l3_another_generation_keeps_no_checkpoint,
                l3_a_released_run_takes_no_permission,
                l3_a_released_run_records_nothing,
                l3_a_released_run_does_not_finish,
                l3_a_released_run_does_not_block,
                l3_a_released_run_does_not_requeue,
                l3_a_released_run_does_not_doubt,
                l3_a_released_run_consumes_no_signal,
                l3_a_released_run_sets_no_timer,
                l3_a_released_run_does_not_cancel,
                l3_a_released_run_does_not_pause,
                l3_a_released_run_is_not_reclaimed,
                l3_a_released_run_is_not_reclaimed_by_proof,
                l3_a_released_run_deposits_nothing,
                l3_a_released_run_resolves_nothing,
                l3_a_released_run_keeps_no_checkpoint,
                l3_the_holder_writes_each_of_them,
                l3_nobody_holds_a_job_that_is_not_there,
            }
            lease {
                l1_a_claim_writes_owner_epoch_and_event,
                l1_every_claim_has_the_next_epoch,
                l1_a_delayed_job_is_claimable_from_its_moment_on,
                l1_a_backed_off_job_is_claimable_from_its_moment_on,
                l1_an_expired_lease_alone_makes_nothing_claimable,
                l1_a_waiting_job_is_not_claimed,
                l1_a_parked_job_is_not_claimed,
                l1_a_paused_job_is_not_claimed,
                l1_a_pause_is_taken_over,
                l1_a_completed_job_is_not_claimed,
                l1_a_failed_job_is_not_claimed,
                l1_a_cancelled_job_is_not_claimed,
                l2_sixteen_contenders_share_without_a_double,
                l2_nobody_goes_away_empty_while_there_is_one,
                l4_a_renewal_counts_from_now,
                l4_the_last_microsecond_is_not_too_late,
                l4_at_its_end_a_lease_is_over,
                l4_an_older_epoch_is_refused,
                l4_another_generation_is_refused,
                l4_another_worker_is_refused,
                l4_a_released_job_is_refused,
                l4_an_unknown_job_is_refused,
                l4_each_lease_is_decided_alone_and_in_order,
                l5_an_expired_run_still_records,
                l5_an_expired_run_gets_no_permission,
                l5_only_the_holders_run_gets_permissions,
                l6_a_requeued_job_is_claimable_at_once,
                l6_a_signal_right_after_blocking_is_picked_up_at_once,
                l6_a_unit_that_keeps_the_lease_leaves_the_holder,
                l7_higher_priority_comes_first_then_the_older_job,
                l7_age_is_of_the_job_and_not_of_its_last_write,
                l7_one_job_per_pair_of_ids,
                l7_a_claim_is_bounded,
                l9_without_linger_nothing_is_answered_at_once,
                l9_a_lingering_claim_gets_a_new_job,
                l9_a_lingering_claim_gets_a_requeued_job,
                l9_a_lingering_claim_gets_the_next_of_a_session,
                l9_a_lingering_claim_gets_a_job_whose_moment_comes,
                l9_a_linger_ends_empty,
                l13_a_claims_answer_is_what_was_written,
            }
            reclaim {
                l10_a_lease_is_listed_from_its_end_on,
                l10_the_longest_over_comes_first,
                l10_leases_that_end_together_are_all_paged,
                l10_a_page_of_expired_leases_is_bounded,
                l11_held_jobs_are_listed_by_instance,
                l11_a_page_of_held_jobs_is_bounded,
                l11_held_jobs_are_paged_by_their_ids,
                l12_a_live_lease_is_not_taken_back,
                l12_a_renewed_lease_is_not_taken_back,
                l12_proof_of_death_takes_a_live_lease_of_that_instance_only,
                l12_of_sixteen_reclaimers_one_succeeds,
            }
            sessions {
                l8_the_second_waits_for_the_first_to_end,
                l8_earlier_is_what_was_written_earlier,
                l8_a_delayed_job_waits_for_its_turn_when_its_moment_comes,
                l8_a_blocked_job_holds_its_session,
                l8_a_paused_job_holds_its_session,
                l8_a_delayed_job_holds_its_session,
                l8_priority_does_not_overtake_within_a_session,
                l8_other_sessions_and_jobs_without_one_go_on,
                l8_a_session_belongs_to_its_agent,
                l8_one_claim_takes_one_job_of_a_session,
                q9_the_job_ahead_is_the_first_unfinished_that_came_before,
                q9_what_came_later_or_belongs_elsewhere_is_not_ahead,
            }
            tenants {
                t1_an_agent_of_a_tenant_is_its_own,
                t1_a_clients_key_of_a_tenant_is_its_own,
                t1_a_session_of_a_tenant_is_its_own,
                t2_no_question_about_a_job_is_answered_for_another_tenant,
                t2_no_list_of_a_tenant_has_jobs_of_another,
                t2_a_page_of_a_session_has_only_its_own_tenants_jobs,
                t3_a_row_and_its_state_say_whose_it_is,
                t3_what_the_process_does_is_for_everybody,
            }
            ledger {
                e1_the_first_permission_is_given_and_read_back,
                e1_of_sixteen_that_ask_for_a_key_one_gets_it,
                e1_the_first_permission_has_the_number_one,
                e2_next_permit_of_a_started_at_most_once_call,
                e2_next_permit_of_a_committed_at_most_once_call,
                e2_next_permit_of_a_retryably_refused_at_most_once_call,
                e2_next_permit_of_a_permanently_refused_at_most_once_call,
                e2_next_permit_of_an_unsent_at_most_once_call,
                e2_next_permit_of_an_at_most_once_call_in_doubt,
                e2_next_permit_of_an_unresolved_at_most_once_call,
                e2_next_permit_of_a_disproved_at_most_once_call,
                e2_next_permit_of_a_started_idempotent_call,
                e2_next_permit_of_a_committed_idempotent_call,
                e2_next_permit_of_a_retryably_refused_idempotent_call,
                e2_next_permit_of_a_permanently_refused_idempotent_call,
                e2_next_permit_of_an_unsent_idempotent_call,
                e2_next_permit_of_an_idempotent_call_in_doubt,
                e2_next_permit_of_an_unresolved_idempotent_call,
                e2_next_permit_of_a_disproved_idempotent_call,
                e2_of_sixteen_that_ask_for_the_next_permit_one_gets_it,
                e2_the_class_is_that_of_the_first_permission,
                e3_a_key_never_stands_for_other_arguments,
                e4_settlements_of_a_started_call,
                e4_settlements_of_a_committed_call,
                e4_settlements_of_a_retryably_refused_call,
                e4_settlements_of_a_permanently_refused_call,
                e4_settlements_of_an_unsent_call,
                e4_settlements_of_a_call_in_doubt,
                e4_settlements_of_an_unresolved_call,
                e4_settlements_of_a_disproved_call,
                e5_a_clock_that_is_set_forward_disproves_nothing,
                e5_another_boot_runs_the_whole_lifetime_from_its_first_reading,
                e5_only_a_question_that_was_asked_late_enough_disproves,
                e5_who_refuses_the_permit_is_believed_at_once,
                e2_nothing_is_called_again_once_any_call_is_known_to_have_succeeded,
                e4_an_older_permit_settles_nothing,
                e4_a_missing_key_is_not_settled,
                e4_changes_of_one_unit_see_each_other,
                e5_did_not_happen_is_accepted_from_the_deadline_on,
                e7_another_jobs_unit_does_not_touch_the_row,
            }
            invocations {
                e6_an_effect_is_recorded_with_its_events_and_ledger,
                e6_an_effect_put_again_stays_the_first,
                e6_an_effect_of_an_older_permit_is_refused,
                e6_an_effect_without_an_invocation_is_refused,
                e6_number_and_id_of_the_permit_must_both_fit,
                e6_the_units_own_permission_counts,
                e6_an_effect_of_each_call_is_kept,
                e6_effects_come_by_call_and_permit_and_the_newest_is_that_of_its_call,
                e8_evidence_is_kept_once_with_the_stores_time,
                e8_evidence_comes_in_the_order_it_came,
                e8_evidence_of_an_ended_job_is_kept,
                e9_doubts_are_listed_until_they_have_an_answer,
                e9_a_cancelled_jobs_doubt_stays_on_the_list,
                e9_what_a_jobs_end_leaves_unresolved_stays_listed,
                e9_other_outcomes_are_no_doubts,
                e9_a_page_of_doubts_is_bounded,
                q8_doubts_say_what_their_history_tells,
                q8_a_call_that_is_tried_again_says_why_its_outcome_is_unknown,
                q8_doubts_of_one_job_are_told_each_by_its_own,
                q8_doubts_are_found_by_whether_their_job_goes_on,
                q8_doubts_come_in_pages_without_gap_or_repetition,
                q8_a_page_of_doubts_ends_by_the_bytes_of_its_evidence,
            }
            inbox {
                i1_a_signal_is_kept_until_it_is_consumed,
                i1_kept_signals_come_in_the_order_they_came,
                i1_a_signal_that_its_own_unit_delivers_is_not_kept,
                i1_signals_of_other_jobs_are_not_mixed_in,
                i2_a_signal_id_is_received_once,
                i2_a_consumed_signal_is_not_received_again,
                i3_a_signal_is_consumed_once,
                i3_what_never_came_is_not_consumed,
                i3_a_unit_may_receive_and_consume,
                i4_a_job_does_not_block_while_its_signal_is_kept,
                i4_other_keys_other_jobs_and_delivered_signals_do_not_matter,
                i4_signals_that_are_known_hold_nothing_up_and_one_more_does,
                i5_a_timers_length_is_counted_from_now,
                i5_timers_are_set_moved_and_cleared,
                i5_a_job_that_ends_has_no_timers_left,
                i5_a_jobs_timers_come_by_moment_and_then_by_name,
                i6_a_timer_is_due_from_its_moment_on,
                i6_due_timers_come_oldest_first_and_bounded,
                i6_a_fired_timer_is_gone,
                i6_a_page_of_due_timers_is_bounded,
                i7_a_timer_is_not_fired_before_its_moment_whatever_was_listed,
            }
            outbox {
                o1_what_a_unit_promises_stands_in_its_order,
                o1_a_page_of_promises_is_bounded,
                o1_a_refused_unit_promises_nothing,
                o1_promises_are_found_by_author_and_target,
                o2_a_promise_goes_with_the_unit_that_keeps_it,
                o2_what_is_done_is_not_done_again,
                o2_of_many_that_keep_a_promise_one_does,
                o3_no_child_is_created_for_a_parent_that_would_have_to_end_it,
                o4_children_are_listed_in_the_order_of_their_creation,
                o4_children_of_another_tenant_are_not_there,
                o5_a_unit_that_only_keeps_promises_is_found_by_them,
                o6_a_promise_is_hinted,
            }
            creation {
                c1_creation_writes_everything_at_once,
                c1_a_job_may_have_no_plan_yet,
                c2_the_same_request_makes_one_job,
                c2_another_request_under_the_same_key_is_a_conflict,
                c2_keys_are_per_agent_and_exact,
                c2_a_refused_creation_leaves_its_key_free,
                c2_of_sixteen_equal_requests_one_makes_the_job,
                c2_a_key_can_be_asked_for_when_its_agent_is_gone,
                c3_a_plan_that_is_not_there_is_refused,
                c3_a_plan_recorded_later_must_be_there_too,
                c4_a_job_is_not_created_twice,
                c5_an_agent_is_put_read_and_replaced,
                c5_an_agent_put_again_is_the_same,
                c5_a_deleted_agent_leaves_jobs_and_plans,
                c5_agents_are_listed_by_name,
                c5_a_page_of_agents_is_bounded,
                c5_a_page_of_agents_ends_by_the_bytes_of_their_files,
                c6_a_plan_document_is_stored_with_the_unit_that_records_it,
            }
            unknown {
                u1_a_permission_is_found,
                u1_a_record_is_found,
                u1_an_end_is_found,
                u1_a_block_is_found,
                u1_a_requeue_is_found,
                u1_a_doubt_is_found,
                u1_a_consumed_signal_is_found,
                u1_a_timer_is_found,
                u1_a_cancel_is_found,
                u1_a_reclaim_is_found,
                u1_a_reclaim_by_proof_is_found,
                u1_a_resolution_is_found,
                u3_evidence_is_found,
                u1_a_creation_is_found,
                u2_a_refused_unit_is_not_found,
                u2_an_equal_unit_of_another_author_is_not_this_one,
                u2_an_event_of_another_job_is_not_this_one,
                u3_a_kept_signal_is_found,
                u3_late_evidence_is_found,
                u3_an_effect_alone_is_found,
                u3_another_authors_effect_is_not_this_one,
                u3_a_permission_alone_is_found,
                u3_another_authors_permission_is_not_this_one,
                u3_a_unit_without_a_name_is_not_found_and_may_be_repeated,
                u4_settle_waits_for_a_write_in_flight,
                u1_a_unit_of_many_events_is_found_by_its_first,
                u3_a_settled_permission_is_still_found,
            }
            waiting {
                q2_what_waits_for_someone,
                q2_who_waits_for_a_child_waits_for_nobody,
            }
            queries {
                q1_pages_are_newest_first_without_gap_or_repetition,
                q1_a_page_that_is_the_last_names_no_other,
                q1_pages_are_stable_while_jobs_arrive,
                q1_a_page_is_bounded,
                q2_by_status,
                q2_by_agent_and_session,
                q2_by_label,
                q2_every_filter_holds_beside_every_other,
                q2_by_what_they_wait_for,
                q2_what_is_paused,
                q6_waits_have_their_times,
                q6_a_second_wait_has_its_own_times,
                q2_filters_hold_across_pages,
                q3_events_come_after_a_place,
                q3_a_page_of_events_is_bounded,
                q3_a_page_of_events_is_bounded_in_bytes,
                q3_a_page_of_events_ends_with_the_one_that_fills_it,
                q4_what_is_not_there_is_none,
                q5_the_status_counts_what_is_there,
                q5_the_writer_counts_accepted_units,
                q7_one_effect_is_read_by_its_key,
                q10_dossiers_have_every_job_once_and_nothing_is_amiss,
            }
        }
    };
}

/// The names of all cases.
pub const CASES: &[&str] = conformance_list! { {names} };

/// Runs a case on a fresh store.
pub type Case = fn(super::Fixture) -> std::pin::Pin<Box<dyn Future<Output = ()>>>;

/// The cases of [`conformance_suite!`](crate::conformance_suite) by name, for whoever runs them otherwise than
/// as tests.
#[must_use]
pub fn cases() -> Vec<(&'static str, Case)> {
    conformance_list! { {runner} }
}
