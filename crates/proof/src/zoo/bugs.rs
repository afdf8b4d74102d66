//! The list: every planted bug, the scenario that shows it, and what else can find it.

use super::scenarios::Scenario;

/// A planted bug.
#[derive(Debug, Clone, Copy)]
pub struct Bug {
    /// Its name: `AETHERIS_BUG=name`.
    pub name: &'static str,
    /// What it does.
    pub what: &'static str,
    /// The smallest scenario that shows it; none for a bug that survived when it was first planted, by people who had not
    /// thought of it before: those are for the layers to find by themselves.
    pub scenario: Option<Scenario>,
    /// The test by itself that finds it, where no layer that looks for everything does.
    pub test: Option<&'static str>,
    /// Whether it is in a store, whose contract then forbids it; otherwise no store can show it alone.
    pub in_store: bool,
}

const fn run(name: &'static str, what: &'static str, scenario: Scenario) -> Bug {
    Bug { name, what, scenario: Some(scenario), test: None, in_store: false }
}

const fn store(name: &'static str, what: &'static str, scenario: Scenario) -> Bug {
    Bug { name, what, scenario: Some(scenario), test: None, in_store: true }
}

/// A bug that survived every proof when it was planted.
const fn survivor(name: &'static str, what: &'static str) -> Bug {
    Bug { name, what, scenario: None, test: None, in_store: false }
}

/// One that only a test of its own finds.
const fn tested(name: &'static str, what: &'static str, test: &'static str) -> Bug {
    Bug { name, what, scenario: None, test: Some(test), in_store: false }
}

/// The same mistake in the model of the exhaustive search, where it has a place for it.
#[must_use]
pub fn mutation(bug: &str) -> Option<&'static str> {
    SEARCHED.iter().find(|(name, _)| *name == bug).map(|(_, mutation)| *mutation)
}

/// A bug and its name in the model.
const SEARCHED: &[(&str, &str)] = &[
    ("call-before-permission", "call-before-permission"),
    ("cancel-lost", "cancel-lost"),
    ("claim-keeps-epoch", "epoch-not-raised"),
    ("deadline-ignored-while-blocked", "deadline-ignored-while-blocked"),
    ("deposit-dropped", "outcome-dropped"),
    ("disproof-believed-early", "disproof-believed-early"),
    ("disproof-gives-a-call", "disproof-gives-a-call"),
    ("doubt-forgotten", "called-again-after-crash"),
    ("duplicate-signal-refused", "end-before-duplicate"),
    ("lease-never-expires-check", "renewal-revives"),
    ("lease-not-checked-before-call", "lease-not-checked-before-call"),
    ("ledger-not-arbitrated", "ledger-not-arbitrated"),
    ("older-permit-settles", "deposit-of-any-permit"),
    ("open-calls-forgotten", "open-calls-forgotten"),
    ("permit-without-lease", "permission-without-lease"),
    ("reclaim-ignores-lease", "reclaim-ignores-lease"),
    ("resent-after-refusal", "resent-after-refusal"),
    ("renewal-by-worker", "renewal-of-any-fence"),
    ("sequence-not-checked", "sequence-not-checked"),
    ("success-forgotten", "success-forgotten"),
    ("timeout-is-a-failure", "timeout-is-failure"),
    ("timer-fires-early", "timer-fires-early"),
    ("unknown-is-committed", "unknown-is-written"),
    ("unknown-is-failed", "unknown-is-absent"),
    ("wait-without-looking", "wait-without-looking"),
    ("write-only-inbox", "signal-not-used"),
];

/// Every bug of the zoo.
pub const BUGS: &[Bug] = &[
    run("call-before-permission", "the tool is called before its permission is durable", Scenario::Ledger),
    run("key-with-attempt", "the idempotency key contains the attempt", Scenario::Ledger),
    run("key-without-node", "two steps of a job have one idempotency key", Scenario::Ledger),
    run("recall-with-new-key", "a call that is made again has another key", Scenario::Ledger),
    run("lease-not-checked-before-call", "a call leaves though the lease is spent", Scenario::SpentLease),
    run("timeout-is-a-failure", "a timed-out call counts as failed", Scenario::LostOnlyAnswer),
    run("retry-any-error", "an unknown outcome counts as not sent", Scenario::LostAnswer),
    run("retry-budget-per-claim", "the tries of a step begin anew with each claim", Scenario::AlwaysBusy),
    run("backoff-skipped", "the next try comes at once", Scenario::HeldBack),
    run("doubt-forgotten", "after a crash in the call the step runs again", Scenario::CrashInBody),
    run("open-calls-forgotten", "a job ends over a call whose outcome is unknown", Scenario::CancelAfterCrash),
    run("reconcile-error-is-disproof", "no answer counts as \"did not happen\"", Scenario::ReconcileFails),
    run("disproof-believed-early", "\"did not happen\" is believed while it still can", Scenario::Reconcile),
    run("deposit-dropped", "an answer that came after the lease was lost is thrown away", Scenario::LateAnswer),
    store("older-permit-settles", "an answer settles whatever permission is current", Scenario::OlderAnswer),
    run("reclaim-ignores-lease", "a live holder's job is taken back", Scenario::LiveReclaim),
    run("poison-job-for-ever", "a job that kills its workers is tried for ever", Scenario::Poison),
    run("early-signal-refused", "a signal before its wait is refused", Scenario::EarlySignal),
    run("write-only-inbox", "kept signals are never read", Scenario::EarlySignal),
    run("signal-meets-any-wait", "a kept signal ends whichever wait comes first", Scenario::CrossedSignals),
    run("second-signal-wins", "a second payload takes the place of the first", Scenario::TwoPayloads),
    run("duplicate-signal-refused", "a repeated signal is refused once the job has ended", Scenario::LateDuplicate),
    run("wait-without-looking", "a signal that comes while the job blocks is missed", Scenario::RacedSignal),
    run("lease-kept-while-waiting", "a job that waits is still held", Scenario::PlainWait),
    run("wait-deadline-forgotten", "a wait's deadline is not set", Scenario::WaitDeadline),
    run("timer-fires-early", "a timer is fired without looking at its time", Scenario::EarlyTimer),
    run("timer-deleted-first", "a timer is taken away before it has fired", Scenario::FailedFiring),
    run("deadline-forgotten", "a job's deadline is not set", Scenario::Deadline),
    run("deadline-ignored-while-blocked", "a deadline ends only jobs that run", Scenario::Deadline),
    run("pause-lost", "a pause of a running job is answered and not written", Scenario::Pause),
    run("cancel-lost", "a cancel of a running job is answered and not written", Scenario::Cancel),
    run("reducer-not-asked", "facts are laid onto a newer state whatever it says", Scenario::OvertakenAnswer),
    run("drain-cancels", "a worker that stops cancels its jobs", Scenario::Drained),
    run("job-without-plan", "a job is made without its plan", Scenario::Ledger),
    run("plan-of-newest-version", "a run takes the agent's newest plan", Scenario::ChangedAgent),
    run("client-key-ignored", "the same message makes a second job", Scenario::Resend),
    run("checkpoint-ahead", "a checkpoint names the wrong place", Scenario::Checkpoint),
    run("unknown-is-committed", "a write of unknown outcome counts as made", Scenario::LostWrites),
    run("unknown-is-failed", "a write of unknown outcome counts as not made", Scenario::LostReplies),
    run("blind-retry", "a write of unknown outcome is made again", Scenario::LostReplies),
    run("append-error-ignored", "a write that failed counts as made", Scenario::FailedWrites),
    store("fence-not-checked", "a write with an old fence is accepted", Scenario::StaleWrite),
    store("sequence-not-checked", "a write that has missed another is accepted", Scenario::TwoSignals),
    store("ledger-not-arbitrated", "a second permission is given for the same call", Scenario::SecondPermit),
    store("permit-without-lease", "a permission is given under an expired lease", Scenario::SpentPermit),
    store("claim-keeps-epoch", "a claim does not raise the epoch", Scenario::CrashInBody),
    store("lost-candidate", "the first job cannot be claimed, and that counts as no work", Scenario::BehindDelayed),
    store("delay-ignored", "a delayed job is given at once", Scenario::Delayed),
    store("session-order-ignored", "a session's jobs run side by side", Scenario::Conversation),
    store("lease-never-expires-check", "an expired lease is renewed", Scenario::ExpiredHeartbeat),
    store("renewal-by-worker", "a worker renews the lease of an older claim", Scenario::OlderRenewal),
    store("clock-goes-back", "the store's time is the machine's", Scenario::ClockSetBack),
    store("hash-before-storing", "the chain is over values that are stored otherwise", Scenario::Ledger),
    store("reply-before-commit", "a message is acknowledged before it is durable", Scenario::Acknowledged),
    survivor("repeat-is-pending", "a repeated message is always told `pending`"),
    survivor("body-without-labels", "another message under the same key passes if only its labels differ"),
    survivor("margin-not-checked", "a call leaves however long its permission took to be written"),
    survivor("pure-call-before-durable", "a pure call leaves while what is before it is being written"),
    survivor("owed-for-ever", "an outcome that was written is deposited again"),
    survivor("equal-results-agree", "the success of an older permission contradicts nothing if it is equal"),
    survivor("doubt-outlives-answer", "a late answer is stored and the doubt about it stays open"),
    survivor("drain-breaks-claim-off", "a claim under way is dropped with the jobs that it has got"),
    survivor("dead-only-first-page", "a proof of death takes the first page of the jobs back"),
    survivor("checkpoint-without-tokens", "a checkpoint forgets the tokens that were used"),
    survivor(
        "disproof-gives-a-call",
        "\"did not happen\" gives one more call in the same try, whatever the budget says",
    ),
    Bug { in_store: true, ..survivor("session-by-id", "a session's jobs run in the order of their ids") },
    survivor("promoted-before-session", "a job whose time has come does not wait for its session"),
    survivor("flush-beside-sent", "a unit is written beside the one that is on its way"),
    survivor("result-of-a-cut-start", "a body counts though its start could not be kept"),
    survivor("rows-left-behind", "a run that reads its job again keeps the rows of before"),
    survivor("commit-not-noted", "a run forgets that it has committed a permit of the run before it"),
    survivor("cursor-kept-over-cut", "a run goes on behind steps whose ends were cut off"),
    survivor("question-before-durable", "a model is asked while what is before the question is being written"),
    survivor("first-kept-fits", "the first kept signal ends a wait whether or not it fits"),
    survivor("deposit-of-another-step", "a late outcome is kept under the name of another step"),
    survivor("first-step-concludes", "the end of a body is taken for that of the first step"),
    survivor("end-concluded-twice", "the end of a step is drafted twice"),
    survivor("given-away-unseen", "a job is given away for a wait that has just ended"),
    survivor("body-forgotten", "a run forgets that the body of a step is under way"),
    survivor("bound-not-kept", "more steps run at once than the plan allows"),
    survivor("call-beside-a-failure", "a call leaves beside a step that has failed"),
    survivor("bodies-dropped-with-their-run", "a run that gives up drops calls that have left"),
    survivor("late-branch-seen", "a node sees what has ended since it started"),
    survivor("given-up-item-untold", "an item is given up, and nobody is told that its call is in doubt"),
    survivor("item-of-the-next-place", "the work for an item sees the one behind it"),
    survivor("key-of-the-whole-map", "all items of a map share one idempotency key"),
    survivor("items-in-another-order", "the list of a map stands in another order than its items"),
    survivor("others-go-on-beside-a-lost-map", "other steps begin while a map ends with which the job fails"),
    survivor("drawn-values-forgotten", "what was drawn for a step is not recorded"),
    survivor("lost-map-is-absorbed", "a map whose job has used up its budget fails like any other"),
    survivor("schema-not-asked", "an output counts that its schema does not accept"),
    survivor("critic-not-asked", "an output counts about which its critic was not asked"),
    survivor("unread-verdict-passes", "an answer of a critic that is no verdict passes"),
    survivor("one-round-too-many", "the work of a step is done once more than its plan allows"),
    survivor("feedback-forgotten", "a round is not told why the one before was rejected"),
    survivor("first-round-is-the-output", "the nodes behind a refined one see what was rejected"),
    survivor("critics-word-is-the-output", "the nodes behind a judged one see what its critic said"),
    survivor("key-of-the-first-round", "all rounds of a call share one idempotency key"),
    survivor("child-asked-for-again", "a step that has asked for its child asks for it again"),
    survivor("child-of-an-ended-parent", "a child is created for a job that has ended and cannot cancel it any more"),
    survivor("childs-answer-lost", "a job is told that its child has answered nothing"),
    survivor("parent-never-told", "the end of a child is told to nobody, and the promise to tell it is gone"),
    survivor("promise-outlives-its-child", "a child is created, and the promise to create it stands"),
    survivor("promise-unwritten", "what a unit promises is not written with it"),
    tested(
        "promise-kept-twice",
        "what was promised is done by whoever comes, also when it is done",
        "o2_what_is_done_is_not_done_again",
    ),
    tested(
        "session-deadlock-unseen",
        "a child stands in line behind the job that waits for it",
        "a_child_in_the_session_of_a_job_above_it_is_refused",
    ),
    tested(
        "childs-own-deadline",
        "a child that ends with its parent has more time than that",
        "a_childs_time_is_what_is_left_of_its_parents",
    ),
    tested(
        "open-call-beside-a-lost-map",
        "a job waits for the children of a lost map, and nothing is told of a call that its run has dropped",
        "a_call_that_was_dropped_beside_a_lost_map_is_in_doubt_while_its_job_waits",
    ),
    tested(
        "left-call-out-of-turn",
        "a job waits over a call that a run with another number of steps at once has left",
        "a_call_that_was_left_is_told_of_wherever_it_stands_in_the_plan",
    ),
    tested(
        "item-forgotten-after-a-look",
        "an item whose job was read anew while it rested does not know what it is about",
        "an_item_knows_what_it_is_about_after_its_run_has_read_the_job_anew",
    ),
    tested(
        "unsent-asks-no-budget",
        "the permit after one under which nothing left asks no budget",
        "a_call_that_did_not_leave_asks_the_budget_again",
    ),
    survivor("key-of-the-turn", "all calls of a turn share one idempotency key"),
    tested(
        "planner-not-told",
        "a planner is asked again and not told what was wrong",
        "a_plan_that_cannot_be_is_asked_for_again",
    ),
    survivor("plan-not-judged", "whatever a planner says is taken for a plan"),
    survivor("any-word-approves", "a person who says no to a plan approves of it"),
    survivor("plan-under-another-name", "a plan is recorded under the hash of its planning"),
    survivor("first-plan-counts", "the plan is the first that was made, whatever was said of it"),
    tested(
        "unclear-rule-does-not-hold",
        "a rule that cannot be evaluated counts as false",
        "the_first_rule_that_holds_is_the_plan",
    ),
    survivor("plan-approved-unseen", "a plan is approved by a word that came before it was made"),
    survivor("planning-is-the-answer", "a job answers with its plan and does not follow it"),
    survivor("silence-is-an-answer", "a question that nobody has answered in time is answered with null"),
    survivor("questions-share-a-key", "all questions of a map or a loop have one key"),
    survivor("question-not-withdrawn", "an item that is given up is not done with the question that it has asked"),
    tested(
        "tools-answer-not-judged",
        "a tool's answer counts that its schema does not accept",
        "what_a_tool_answers_fits_its_schema_or_the_step_fails_once",
    ),
    survivor("loop-drawn-for-anew", "each turn of a loop is asked with values of its own"),
    survivor("conversation-forgets-a-turn", "a model is told of its first turn alone"),
    survivor("results-in-another-order", "a model is told what its calls came to in another order"),
    survivor("last-word-not-judged", "a last word counts that its schema does not accept"),
    survivor("last-word-may-call", "a model that has used up its turns may call tools"),
    survivor("model-told-of-a-doubt", "a model is told that a call has failed which may have happened"),
    survivor("arguments-not-judged", "a tool is called with arguments that its schema does not accept"),
    survivor("judged-call-asks-no-budget", "a call whose arguments were judged asks no budget"),
    tested(
        "model-calls-any-tool",
        "a model calls a tool that its loop does not list",
        "a_model_is_told_of_its_mistakes",
    ),
    tested(
        "first-child-is-cancelled",
        "of the children of a job that ends one is cancelled",
        "all_children_of_a_cancelled_job_end",
    ),
    Bug { in_store: true, ..survivor("trace-by-place", "another's event at the place of a unit counts as the unit") },
    Bug {
        in_store: true,
        ..survivor("success-forgotten", "a call is permitted though another of its key is known to have succeeded")
    },
    Bug { in_store: true, ..survivor("tenant-not-asked", "a tenant sees the jobs of another") },
    Bug { in_store: true, ..survivor("client-key-of-any-tenant", "a client's key names a job of another tenant") },
    Bug {
        in_store: true,
        ..survivor("session-of-any-tenant", "a conversation waits for another tenant's of the same name")
    },
    Bug { in_store: true, ..survivor("checkpoint-of-any-version", "a checkpoint of another form is folded on from") },
    tested(
        "outcome-dropped-with-a-recall",
        "what a call came to goes with the unit that ran ahead",
        "an_outcome_that_comes_beside_a_slow_write_and_a_cancel",
    ),
    tested(
        "owed-until-any-write",
        "an older unit's arrival counts as that of an outcome",
        "an_outcome_that_comes_beside_a_slow_write_outlives",
    ),
    tested(
        "expected-signals-overwritten",
        "a doubt beside a wait takes its look at kept signals away",
        "a_doubt_beside_a_wait_hides_no_signal",
    ),
    tested(
        "early-key-counts",
        "a wait's key counts before the nodes that it names have ended",
        "the_key_of_a_wait_is_not_known_before",
    ),
    tested(
        "checkpoints-at-even-places",
        "a checkpoint is written after so many events, however large it is",
        "the_checkpoints_of_a_job_stay_in_proportion",
    ),
    tested(
        "left-calls-wait-for-places",
        "calls that a run before has left open wait until others have ended",
        "calls_that_a_run_has_left_take_their_places",
    ),
    tested(
        "memory-of-items-forgotten",
        "the outputs of items do not count for what a job may keep",
        "items_count_for_what_a_job_may_keep",
    ),
    tested(
        "claim-history-one-short",
        "a claim brings a history without its last event where one is too many",
        "a_claim_brings_a_whole_history",
    ),
    tested(
        "old-run-ends-new-lease",
        "the end of a run ends the renewals of the job's next run",
        "the_end_of_an_old_run",
    ),
    tested("lease-from-receipt", "a lease counts from the answer to its renewal", "a_lease_counts_from_the_sending"),
    tested(
        "begun-wait-refuses",
        "a signal for a wait that has begun and not blocked is refused",
        "a_signal_for_a_wait_that_has_begun",
    ),
    tested(
        "settles-lost-by-rebase",
        "what a draft settles besides is lost on a newer state",
        "a_draft_keeps_what_it_also_settles",
    ),
    tested("log-not-synced", "a commit is not synced", "survive_a_power_cut"),
    tested(
        "log-taken-as-synced",
        "a log whose sync has failed is not written again by the next process",
        "acknowledged_after_a_failed_sync",
    ),
    tested(
        "log-copied-at-a-look",
        "who looks at a database and goes copies the log that was left into it before it is synced",
        "is_written_again_before_anything_else",
    ),
    tested("unclear-commit-failed", "a COMMIT of unknown outcome is told as failed", "a_commit_that_fails_is_told"),
    tested("torn-reads", "a history is read without a transaction", "questions_that_are_asked_at_once"),
    tested("queue-slot-leaks", "each claim takes a place in the writer's queue for ever", "the_queue_has_room"),
    tested("log-ends-with-its-target", "a log line that cannot be written ends the log", "a_target_that_fails_costs"),
    tested(
        "own-call-not-asked",
        "a call that its process still awaits counts as over",
        "awaits_is_not_disproved_by_a_tool",
    ),
    tested("settle-not-waited", "a call is disproved before it has settled", "a_tool_that_only_looks_is_asked_again"),
    tested("unwritable-for-ever", "what can never be written is tried for ever", "a_unit_that_can_never_be_written"),
    tested(
        "restore-forgets-generations",
        "a restore looks at the backup's generation alone",
        "a_restore_over_a_damaged",
    ),
    tested("clock-step-believed", "a wrong wall clock moves the store's at once", "a_wall_clock_that_was_wrong_for"),
    tested("a-byte-is-enough", "who takes a byte at times is never cut off", "who_took_much_and_then_takes_a_byte"),
    tested("equal-answers-contradict", "an equal late answer is a contradiction", "a_result_is_the_same_however"),
    tested("lost-file-unnoticed", "writes go on into a file that is gone", "nothing_is_acknowledged_when_the_file"),
    tested("sweep-of-one-page", "the first page of due timers is the only one", "timers_of_jobs_that_cannot_be_read"),
    tested("want-of-files-is-theirs", "want of open files is the other side's failure", "want_of_files_is_told"),
    tested("own-server-reached", "a tool reaches a server of its own store", "no_tool_reaches_a_server_of_its_own"),
    tested("depth-not-charged", "a template makes data of any depth", "every_bomb_ends_in_a_named_error"),
    tested("address-not-encoded", "a value chooses the path of a tool's address", "an_address_keeps_its_segments"),
    tested(
        "large-history-on-the-spot",
        "a history of any size is parsed on the thread that asks",
        "a_look_at_a_large_history_reads_nothing_of_it",
    ),
    tested(
        "fuel-for-each-text",
        "each text of a value has the work of a whole one",
        "work_is_bounded_over_all_templates",
    ),
    tested(
        "agent-before-key",
        "an accepted message is unknown once its agent is gone",
        "a_key_is_known_when_its_agent",
    ),
    tested("any-boot-clock", "processes with other clocks share a file", "processes_with_other_clocks_are_refused"),
    tested("ready-if-readable", "ready while nothing can be written", "each_part_of_the_store_that_does_not"),
    tested(
        "redirect-ignores-scheme",
        "a redirect from HTTPS to HTTP keeps an author's headers",
        "an_authors_headers_go",
    ),
    tested(
        "dead-forgotten-first",
        "a process forgets its dead predecessors before their jobs are taken back",
        "the_dead_are_known_until",
    ),
    tested(
        "broken-stream-is-the-end",
        "whoever follows a job stops where its stream broke",
        "a_stream_that_broke_before_the_end",
    ),
    survivor("resent-after-refusal", "a call that was refused leaves again under its permission"),
    tested(
        "recall-keeps-release",
        "a unit that is recalled still releases the job",
        "what_ran_ahead_of_a_refused_unit_is_dropped_with_all",
    ),
    tested(
        "sent-error-ignored",
        "a unit that could not be written while its run went on counts as written",
        "a_unit_whose_writing_fails_is_written_once",
    ),
    tested(
        "timers-of-what-ran-ahead",
        "a written unit's timers include those set since",
        "what_came_while_a_unit_was_written",
    ),
    tested(
        "dropped-outcome-forgotten",
        "an outcome that a run has learned is forgotten where a newer state does not take its draft",
        "what_a_lookup_has_found_outranks",
    ),
    tested(
        "restore-forgets-pause",
        "a pause that was asked for before a backup is the restore's",
        "a_pause_that_was_asked_for_before_a_restore",
    ),
    tested(
        "pause-hides-open-call",
        "a job is paused without a word on a call of unknown outcome",
        "a_call_that_was_lost_is_answered",
    ),
    tested(
        "answer-left-unwritten",
        "a function runs over an answer from outside that is not written",
        "no_function_runs_while_an_answer",
    ),
    tested(
        "failed-look-is-absence",
        "a look for a unit of unknown outcome that fails counts as not there",
        "whichever_answer_is_lost",
    ),
    tested(
        "other-users-are-gone",
        "another user's running backup loses its part",
        "a_process_of_another_user_is_there",
    ),
    tested(
        "delivered-needs-room",
        "a signal that ends its wait at once is refused where many are kept",
        "j6_kept_signals_are_bounded",
    ),
    tested(
        "progress-counts-as-away",
        "a job is given up a minute after its first stream broke, though each brings events",
        "how_long_a_server_was_away",
    ),
    tested(
        "appended-behind-a-gap",
        "events are appended behind one that is missing",
        "a_held_row_that_is_ahead_of_its_events",
    ),
    tested(
        "writer-sees-no-others",
        "a claim that stands does not see what another process has written",
        "time_and_the_writes_of_others_are_noticed_once_each",
    ),
    tested(
        "memory-of-outputs-forgotten",
        "the outputs of a run do not count for what its job may keep",
        "a_job_keeps_no_more_than",
    ),
    tested("overlap-without-bound", "a run goes on however much of it is unwritten", "a_run_that_is_far_ahead_waits"),
    tested("never-stands-back", "a busy writer leaves other processes no turn", "a_busy_writer_stands_back"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::BUGS;

    const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

    /// The names of all functions in the sources and tests of the workspace.
    fn functions() -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for package in fs::read_dir(Path::new(ROOT).join("crates")).unwrap() {
            let package = package.unwrap().path();
            for folder in ["src", "tests"].map(|folder| package.join(folder)) {
                if folder.exists() {
                    collect(&folder, &mut names);
                }
            }
        }
        names
    }

    fn collect(folder: &Path, names: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, names);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let behind = text.split("fn ").skip(1);
                let name = |text: &str| text.split(|c: char| !is_of_a_name(c)).next().map(str::to_owned);
                names.extend(behind.filter_map(name));
            }
        }
    }

    fn is_of_a_name(c: char) -> bool {
        c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'
    }

    /// A name that fits no test finds nothing, and its bug is told as one that nothing finds.
    #[test]
    fn every_test_that_finds_a_bug_is_there() {
        let functions = functions();
        for (bug, test) in BUGS.iter().filter_map(|bug| Some((bug.name, bug.test?))) {
            assert!(functions.iter().any(|name| name.contains(test)), "`{bug}`: no test is called `{test}`");
        }
    }

    /// The tests in the last column of a page's tables, as `module::name` or `crate: name`, where `…` stands for the rest of
    /// a name: how many are there, and those that are not.
    fn tests_named(page: &str) -> (usize, Vec<String>) {
        const WORDS_MIN: usize = 3;
        let functions = functions();
        let (mut known, mut lost) = (0, vec![]);
        for row in page.lines().filter(|line| line.starts_with('|')) {
            let tests = row.trim_end_matches(['|', ' ']).rsplit(" | ").next().unwrap_or_default();
            for quoted in tests.split('`').skip(1).step_by(2) {
                let name = quoted.rsplit([':', ' ']).next().unwrap_or_default();
                let part = name.trim_matches('…');
                // Other names are of modules, files, commands and bugs of the zoo.
                if !part.chars().all(is_of_a_name) || part.split('_').count() < WORDS_MIN {
                    continue;
                }
                let whole = part == name;
                let found =
                    functions.iter().any(|function| if whole { function == part } else { function.contains(part) });
                known += usize::from(found);
                lost.extend((!found).then(|| quoted.to_owned()));
            }
        }
        (known, lost)
    }

    /// Every test that keeps a bug away.
    #[test]
    fn every_test_of_a_bug_that_was_found_is_there() {
        let page = fs::read_to_string(Path::new(ROOT).join("docs/bugs-found.md")).unwrap();
        let (known, lost) = tests_named(&page);
        assert!(lost.is_empty(), "no test is called {lost:#?}");
        assert!(known > 400, "{known} names were found: the page is read wrongly");
    }

    /// Every test by which a sentence of the specification is held.
    #[test]
    fn every_test_of_a_sentence_of_the_specification_is_there() {
        let page = fs::read_to_string(Path::new(ROOT).join("TESTING.md")).unwrap();
        let (_, table) = page.split_once("## SPEC §5 and §6").unwrap();
        let (known, lost) = tests_named(table.split("\n## ").next().unwrap());
        assert!(lost.is_empty(), "no test is called {lost:#?}");
        assert!(known > 150, "{known} names were found: the page is read wrongly");
    }
}
