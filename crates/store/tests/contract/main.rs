//! The contract of the store: every body below is written once and runs on SQLite, PostgreSQL and in memory.
//!
//! `TURNPIKE_TEST_POSTGRES_URL` names a superuser of a scratch cluster (`scripts/postgres-for-tests` starts
//! one); without it the PostgreSQL half fails. The books are audited at the end of every test.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test says what went wrong by panicking"
)]

mod actions;
mod agents;
mod audit_log;
mod bank;
mod books;
mod calls;
mod concurrency;
mod directory;
mod drifts;
mod end_users;
mod endings;
mod faults;
mod keys;
mod money_in;
mod notes;
mod paid_calls;
mod payouts;
mod people;
mod quotes;
mod reads;
mod retirement;
mod sessions;
mod settings;
mod text;
mod tokens;
mod topups;
mod upgrade;
mod upgrade_paid_calls;
mod webhooks;
mod webhooks_many;
mod world;

use world::{Kind, World, on};

/// Makes `sqlite::name`, `postgres::name` and `memory::name` of every body of `everywhere`; what is about SQL or
/// about a queue has nothing to show in memory.
macro_rules! contract {
    (
        everywhere: { $($module:ident: $($name:ident),+ $(,)?;)+ }
        databases: { $($db_module:ident: $($db_name:ident),+ $(,)?;)+ }
    ) => {
        contract!(@kind sqlite Sqlite $($module: $($name),+;)+ $($db_module: $($db_name),+;)+);
        contract!(@kind postgres Postgres $($module: $($name),+;)+ $($db_module: $($db_name),+;)+);
        contract!(@kind memory Memory $($module: $($name),+;)+);
    };
    (@kind $kind:ident $variant:ident $($module:ident: $($name:ident),+;)+) => {
        mod $kind {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::on(super::Kind::$variant, async |world: &super::World| super::$module::$name(world).await)
                        .await;
                }
            )+)+
        }
    };
}

contract! {
    everywhere: {
        calls:
            a_call_is_held_dispatched_captured_and_answered,
            a_repeated_capture_changes_nothing,
            a_release_before_dispatch_frees_the_key,
            a_stored_failure_keeps_the_key,
            a_key_stands_for_one_request,
            a_stream_is_captured_first_and_finished_later,
            a_hold_above_the_balance_is_refused;
        endings:
            an_unfinished_call_is_found_and_expired,
            a_captured_stream_without_an_end_is_closed,
            expired_answers_lose_their_bodies,
            refused_commands_disturb_no_neighbour,
            grants_and_moves_are_idempotent,
            tenants_do_not_see_each_other;
        concurrency:
            two_hundred_holds_on_a_balance_for_seven,
            two_services_share_one_balance_or_the_second_is_refused,
            fifty_requests_with_one_key_take_one_hold,
            the_bank_neither_makes_nor_loses_money,
            a_day_limit_is_never_exceeded,
            a_loop_limit_admits_exactly_its_calls;
        books:
            events_are_without_gaps;
        directory:
            workspaces_are_added_listed_and_changed,
            members_come_change_and_go,
            two_owners_cannot_remove_each_other,
            what_credits_mean_is_fixed_by_the_first_entry,
            limits_are_set_and_hold_for_the_next_call;
        keys:
            keys_are_found_by_hash_and_revoked_once,
            a_key_is_replaced_once_and_never_lives_longer,
            keys_are_paged_and_priced;
        settings:
            twenty_edits_at_once_lose_nothing,
            what_was_not_read_is_not_replaced;
        audit_log:
            whoever_appends_continues_the_chain,
            the_log_is_paged_and_filtered;
        text:
            external_ids_are_case_sensitive,
            hostile_text_is_data,
            prices_have_a_revision,
            imported_tools_are_replaced_by_who_has_read_them;
        reads:
            usage_is_grouped_and_filtered,
            transfers_are_paged_newest_first,
            a_scan_reads_everything_in_order_or_stops;
        topups:
            a_topup_comes_back_as_it_was_answered,
            a_processors_name_finds_its_topup_and_no_other,
            topups_are_paged_newest_first,
            unsettled_topups_are_listed_until_nothing_can_come,
            automatic_topups_keep_their_choice_and_their_count,
            a_payment_told_fifty_times_is_credited_once;
        payouts:
            a_payout_comes_back_as_it_was_answered,
            a_connection_comes_and_goes,
            payouts_are_paged_summed_and_found_while_open,
            payouts_at_once_never_overdraw_the_margin,
            disconnecting_and_opening_take_turns;
        paid_calls:
            a_paid_call_comes_back_as_it_was_answered,
            what_was_not_sent_begins_again,
            fifty_claims_of_one_request_claim_once,
            one_payment_pays_for_one_of_fifty_requests,
            a_wallet_has_no_more_open_than_it_may,
            a_settlement_is_gone_on_with_by_one_and_booked_once,
            what_is_due_is_found,
            open_settlements_are_counted_and_failures_listed,
            a_house_tenant_is_made_once,
            an_answer_outlives_its_open_call,
            a_day_costs_what_its_paid_calls_cost;
        quotes:
            a_quote_comes_back_as_it_was_kept_and_used,
            sixty_four_calls_race_for_one_quote,
            sixty_four_calls_race_for_one_approval,
            approvals_are_paged_filtered_and_forgotten,
            who_leaves_leaves_nothing_open;
        tokens:
            a_token_comes_back_as_it_was_minted,
            a_hundred_holds_race_for_a_tokens_ceiling,
            revoking_one_or_all_counts_what_was_live,
            tokens_minted_beside_a_revocation_are_counted_once,
            a_call_outlives_its_pruned_token,
            however_many_tokens_have_expired_all_are_pruned,
            signing_keys_are_listed_oldest_first;
        agents:
            a_connection_comes_back_as_it_was_made,
            fifty_holds_race_for_a_connections_ceiling,
            retirement_counts_connections_and_tokens_apart,
            of_twenty_redemptions_of_a_code_one_happens,
            of_twenty_refreshes_one_happens,
            clients_and_codes_are_forgotten;
        people:
            a_login_is_one_persons_without_case,
            a_step_and_a_recovery_code_are_taken_once,
            tries_are_counted_and_then_spaced,
            twenty_tries_at_once_are_no_more_than_allowed,
            sessions_end_and_a_reset_is_used_once,
            an_invitation_is_accepted_once,
            invitations_are_bounded_paged_and_replaced,
            invitations_end_with_who_made_them;
        sessions:
            a_step_up_token_is_found_in_its_workspace_alone,
            an_ended_session_takes_its_persons_tokens_along,
            what_is_over_is_pruned;
        retirement:
            who_is_retired_receives_nothing;
        drifts:
            a_day_costs_what_its_calls_cost,
            a_drift_comes_back_as_it_was_told,
            sixteen_reports_at_once_tell_once,
            what_a_provider_says_is_replaced_and_judged_once;
        end_users:
            a_search_takes_every_character_as_itself,
            end_users_are_listed_with_what_they_have;
    }
    databases: {
        bank:
            whatever_the_bank_says_is_in_its_books;
        concurrency:
            a_full_queue_says_busy,
            a_closing_store_does_or_refuses_and_nothing_between;
        books:
            transfers_events_and_audit_rows_cannot_be_changed,
            the_database_itself_refuses_an_overdraft,
            the_audit_finds_what_was_tampered_with;
        directory:
            a_change_and_its_audit_row_are_one;
        audit_log:
            the_audit_finds_what_was_done_to_the_log;
        notes:
            a_command_that_is_repeated_is_noted_once,
            a_command_whose_note_cannot_be_written_does_nothing,
            a_row_that_cannot_be_read_disturbs_no_neighbour;
        payouts:
            the_audit_finds_a_payout_that_was_tampered_with,
            the_migration_sets_the_margin_aside;
        paid_calls:
            a_restart_reads_the_same_rows,
            the_audit_finds_a_paid_call_that_was_tampered_with;
        quotes:
            the_audit_finds_a_quote_that_was_tampered_with;
        webhooks:
            an_event_reaches_the_endpoints_that_want_it,
            a_failed_attempt_is_followed_by_another,
            a_lost_worker_loses_its_attempts,
            an_endpoint_out_of_use_gets_nothing,
            a_replay_is_a_new_attempt,
            what_was_missed_is_replayed,
            days_of_failures_disable,
            old_events_go_with_their_attempts,
            endpoints_are_counted;
        webhooks_many:
            ten_thousand_events_are_paged_beside_eight_writers,
            callers_at_once_make_each_attempt_once,
            two_thousand_attempts_are_taken_once_each,
            reports_recoveries_and_replays_race_and_one_attempt_is_open,
            a_late_failure_does_not_disable_who_was_enabled_again,
            who_comes_into_use_misses_nothing_afterwards;
    }
}
