//! Each rule at its edges: what it accepts, what it does not, and in which words.

use aetheris_core::chain::Header;
use aetheris_core::disproof::Grounds;
use aetheris_core::event::*;
use aetheris_core::hash::Hash;
use aetheris_core::id::*;
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::ledger::LedgerStatus;
use aetheris_core::path::StepPath;
use aetheris_core::plan::{EffectClass, WaitType};
use aetheris_store::{EffectRow, KeptSignal, TimerRow};

use super::report;
use super::story::{self, JOB, Story, Told, at, fence, key, numbered, result, seen, whole};
use crate::Dossier;
use crate::history::{AckedSignal, ClientHistory, SignalAck, Write};
use crate::invariant::Invariant::{self, *};
use crate::report::{Report, Tally, VIOLATIONS_TOLD_MAX};
use crate::witness::{self, WitnessKind, WitnessLine};

/// What is said against an invariant, of what is stored of a story.
fn told(id: Invariant, story: &Story, facts: &Dossier) -> String {
    report(facts, &story.witness, &story.history).line(id).unwrap().violations.join("\n")
}

fn of(id: Invariant, story: &Story) -> String {
    told(id, story, &story.facts())
}

/// The whole story up to the first event of a kind.
fn until(kind: EventKind) -> Story {
    let mut story = whole();
    story.events.truncate(story.place(kind));
    story
}

impl Story {
    fn then(mut self, at: i64, epoch: u32, event: impl Into<Event>) -> Self {
        self.events.push(Told { at, epoch, event: event.into() });
        self
    }
}

fn doubted() -> StepInDoubt {
    StepInDoubt { node: StepPath::from("pay"), permit: 1, policy: 0, reason: "the answer was lost".to_owned() }
}

fn answer(by: Resolver, grounds: Option<Grounds>, outcome: DoubtOutcome) -> InDoubtResolved {
    let node = StepPath::from("pay");
    InDoubtResolved { by, grounds, node, note: None, outcome, permit: 1, result: None, settle_us: None, then: None }
}

fn again(permit: u32, effect: EffectClass) -> ToolInvocationStarted {
    ToolInvocationStarted { effect, ..story::permit("pay", permit) }
}

/// A history whose every hash follows from what stands there.
fn rechained(mut facts: Dossier) -> Dossier {
    let mut head = Hash::ZERO;
    for event in &mut facts.events {
        let header = Header {
            job: JOB,
            seq: event.seq,
            id: event.id,
            kind: event.kind,
            schema_version: event.schema_version,
            fence: event.fence,
            at: event.at,
            payload_hash: event.payload_hash,
        };
        head = header.chain(&head);
        event.hash = head;
    }
    facts.row.head = head;
    facts
}

#[test]
fn a_claim_has_the_next_epoch_and_no_earlier_generation() {
    let mut skips = whole();
    skips.events.iter_mut().filter(|told| told.epoch == 4).for_each(|told| told.epoch = 5);
    assert!(of(A2, &skips).contains("the claim has fence 1.5 after 1.3"));
    let story = whole();
    let second = story.events.iter().position(|told| told.epoch == 2).unwrap();
    let mut facts = story.facts();
    facts.events[second].fence.generation = 0;
    assert!(told(A2, &story, &facts).contains("the claim has fence 0.2 after 1.1"));
    // A restore has begun the next one.
    facts.events[second..].iter_mut().for_each(|event| event.fence.generation = 2);
    facts.row.fence.generation = 2;
    assert_eq!((told(A2, &story, &facts), told(A3, &story, &facts)), (String::new(), String::new()));
}

#[test]
fn whoever_has_given_a_job_up_holds_it_no_more() {
    let requeued = |reason| JobRequeued { after_us: None, reason };
    let failed = JobFailed { error: Failure::new("broken", "broken"), node: None };
    let overs: [(Event, u64); 8] = [
        (story::waiting("w", None, WaitType::Signal).into(), 1),
        (JobPaused { reason: PauseReason::Operator }.into(), 1),
        (JobCompleted { answer: Answer::Value(Json::null()) }.into(), 1),
        (failed.into(), 1),
        (JobCancelled {}.into(), 1),
        (requeued(RequeueReason::Draining).into(), 1),
        (requeued(RequeueReason::Retry).into(), 1),
        (requeued(RequeueReason::LeaseExpired).into(), 2),
    ];
    for (over, cases) in overs {
        for reason in [RequeueReason::LeaseExpired, RequeueReason::HolderDied] {
            let story = until(EventKind::NodeStarted).then(16, 1, over.clone()).then(17, 1, requeued(reason));
            let found = report(&story.facts(), &story.witness, &story.history);
            let line = found.line(A9).unwrap();
            assert_eq!((line.examined, line.violated), (cases, 1), "{over:?}, {reason:?}");
        }
    }
}

#[test]
fn a_named_write_is_there_once_or_at_most_once_where_its_author_was_told_nothing() {
    for (event, unknown, right) in [(5, false, true), (5, true, true), (99, false, false), (99, true, true)] {
        let mut story = whole();
        story.history.writes = vec![Write { event: EventId::from_u128(event), job: JOB, unknown }];
        assert_eq!(of(B2, &story).is_empty(), right, "{event} {unknown}");
        // What another job has, this one need not have.
        story.history.writes[0].job = JobId::from_u128(8);
        assert_eq!(of(B2, &story), "");
    }
    for unknown in [false, true] {
        let mut story = whole();
        story.history.writes = vec![Write { event: EventId::from_u128(5), job: JOB, unknown }];
        let mut facts = story.facts();
        facts.events[3].id = facts.events[4].id;
        assert!(told(B2, &story, &facts).contains("was acknowledged and is there 2 times"), "{unknown}");
    }
}

/// Whoever spoils a row may chain it anew.
#[test]
fn a_chain_that_holds_does_not_stand_in_for_what_it_goes_over() {
    let story = whole();
    let spoilt = |spoil: fn(&mut Dossier)| {
        let mut facts = story.facts();
        spoil(&mut facts);
        told(B4, &story, &rechained(facts))
    };
    assert_eq!(spoilt(|_| ()), "");
    let spaced = spoilt(|facts| {
        facts.events[2].payload.push(b' ');
        facts.events[2].payload_hash = Hash::of(&facts.events[2].payload);
    });
    assert!(spaced.ends_with("event 3: its payload is not in canonical form"), "{spaced}");
    let other = spoilt(|facts| facts.events[2].payload_hash = Hash::ZERO);
    assert!(other.ends_with("event 3: its payload does not have its hash"), "{other}");
    let unknown = spoilt(|facts| facts.events[5].kind = 200);
    assert!(unknown.contains("event 6: the event kind 200 is unknown"), "{unknown}");
}

#[test]
fn only_the_answer_to_a_doubt_follows_an_end() {
    let answered = answer(Resolver::Operator, None, DoubtOutcome::Happened);
    for (after, allowed) in [
        (Event::from(answered), true),
        (doubted().into(), false),
        (JobResumed {}.into(), false),
        (JobCancelled {}.into(), false),
    ] {
        let ended = until(EventKind::ToolInvocationFinished).then(21, 1, doubted()).then(22, 1, JobCancelled {});
        let kind = after.kind();
        assert_eq!(of(B5, &ended.then(23, 1, after)).is_empty(), allowed, "{kind:?}");
    }
}

/// Changes what is stored.
type Spoil<'a> = &'a dyn Fn(&mut Dossier);

/// One column after the other.
#[test]
fn a_row_that_says_otherwise_than_its_events_is_named_by_its_column() {
    let (held, waits) = (until(EventKind::JobRequeued).facts().row, until(EventKind::WaitCompleted).facts().row);
    assert!(held.holder.is_some() && waits.waiting.is_some());
    let error = Failure::new("broken", "broken");
    let timer = TimerRow { due: at(1), job: JOB, timer: TimerId::Deadline };
    let says = |spoil: Spoil<'_>| {
        let story = whole();
        let mut facts = story.facts();
        spoil(&mut facts);
        told(B7, &story, &facts)
    };
    let columns: [(&str, Spoil<'_>); 13] = [
        ("status", &|facts| facts.row.status = JobStatus::Failed),
        ("pause", &|facts| facts.row.paused = Some((PauseReason::Operator, at(1)))),
        ("holder", &|facts| facts.row.holder.clone_from(&held.holder)),
        ("fence", &|facts| facts.row.fence.epoch += 1),
        ("plan", &|facts| facts.row.plan_hash = None),
        ("wait", &|facts| facts.row.waiting.clone_from(&waits.waiting)),
        ("requested end", &|facts| facts.row.end_requested = Some(EndCause::Cancel)),
        ("error", &|facts| facts.row.error = Some((error.clone(), None))),
        ("delay", &|facts| facts.row.not_before = Some(at(1))),
        ("agent", &|facts| facts.row.agent = AgentName::from("b")),
        ("session", &|facts| facts.row.session = Some(SessionId::from("s"))),
        ("creation", &|facts| facts.row.created_at = at(11)),
        ("timers", &|facts| facts.timers.push(timer.clone())),
    ];
    for (column, spoil) in columns {
        let said = says(spoil);
        assert!(said.starts_with(&format!("{JOB}: its {column} is ")) && !said.contains("; "), "{column}: {said}");
    }
}

/// The permit is of 20 and lives for 1000.
#[test]
fn did_not_happen_is_believed_from_the_deadline_on_or_on_other_grounds() {
    let by_clock = Some(Grounds::Clock);
    for (grounds, settle, moment, believed) in [
        (None, None, 1_019, false),
        (None, None, 1_020, true),
        (by_clock, None, 1_019, false),
        (by_clock, Some(5), 1_024, false),
        (by_clock, Some(5), 1_025, true),
        (Some(Grounds::Refuses), Some(5), 22, true),
        (Some(Grounds::OperatorRefused), None, 22, true),
    ] {
        for outcome in [DoubtOutcome::DidNotHappen, DoubtOutcome::Unresolved] {
            let said = InDoubtResolved { settle_us: settle, ..answer(Resolver::Reconcile, grounds, outcome) };
            let story = until(EventKind::ToolInvocationFinished).then(21, 1, doubted()).then(moment, 1, said);
            let wrong = of(C5, &story).contains("\"did not happen\" at");
            assert_eq!(wrong, outcome == DoubtOutcome::DidNotHappen && !believed, "{grounds:?} {settle:?} {moment}");
        }
    }
}

#[test]
fn a_further_permission_has_a_reason_and_the_next_number() {
    let unfounded = |story: Story| of(C5, &story).contains("was given without a reason");
    let called = || until(EventKind::ToolInvocationFinished);
    for (outcome, reason) in [
        (InvocationOutcome::RefusedRetryable, true),
        (InvocationOutcome::NotSent, true),
        (InvocationOutcome::RefusedPermanent, false),
        (InvocationOutcome::InDoubt, false),
        (InvocationOutcome::Committed, false),
    ] {
        let tried = || called().then(21, 1, story::finished("pay", outcome));
        assert_eq!(unfounded(tried().then(22, 1, again(2, EffectClass::AtMostOnce))), !reason, "{outcome:?}");
        // An idempotent call needs none.
        assert!(!unfounded(tried().then(22, 1, again(2, EffectClass::Idempotent))), "{outcome:?}");
    }
    for (outcome, reason) in
        [(DoubtOutcome::DidNotHappen, true), (DoubtOutcome::Happened, false), (DoubtOutcome::Unresolved, false)]
    {
        let said = answer(Resolver::Reconcile, Some(Grounds::Refuses), outcome);
        let story = called().then(21, 1, doubted()).then(22, 1, said).then(23, 1, again(2, EffectClass::AtMostOnce));
        assert_eq!(unfounded(story), !reason, "{outcome:?}");
    }
    // An answer is the reason of the permission behind its own, and of no later one.
    let said = answer(Resolver::Reconcile, Some(Grounds::Refuses), DoubtOutcome::DidNotHappen);
    let second = called().then(21, 1, doubted()).then(22, 1, said).then(23, 1, again(2, EffectClass::AtMostOnce));
    assert!(unfounded(second.then(24, 1, again(3, EffectClass::AtMostOnce))));
    for number in [1, 3] {
        assert!(unfounded(called().then(22, 1, again(number, EffectClass::Idempotent))), "{number}");
    }
}

#[test]
fn a_committed_call_has_its_effect_and_its_events_in_one_write() {
    let spoilt = |id: Invariant, spoil: fn(&mut Story)| {
        let mut story = whole();
        spoil(&mut story);
        of(id, &story)
    };
    assert_eq!(spoilt(C8, |_| ()), "");
    let untold = spoilt(C8, |story| drop(story.events.remove(story.place(EventKind::ToolInvocationFinished))));
    assert!(untold.contains("its events whole: false"), "{untold}");
    let apart = spoilt(C8, |story| story.first(EventKind::NodeFinished).at = 31);
    assert!(apart.contains("its events whole: false"), "{apart}");
    let of_another: fn(&mut Story) = |story| story.effects[0].permit = 2;
    assert!(spoilt(C8, of_another).contains("effect: false"));
    assert!(spoilt(C7, of_another).contains("of the ledger's permit: false"));
    let unsent = spoilt(C7, |story| story.ledger[0].status = LedgerStatus::NotSent);
    assert!(unsent.contains("of the ledger's permit: false"), "{unsent}");
}

/// The outcome was deposited, and the job goes on, has ended in another way, or had ended the try before.
#[test]
fn an_effect_that_a_job_has_not_taken_in_is_owed_by_a_completed_job_alone() {
    let completed = || JobCompleted { answer: Answer::Value(Json::null()) };
    let called = || until(EventKind::ToolInvocationFinished);
    let disproved = answer(Resolver::Reconcile, Some(Grounds::Refuses), DoubtOutcome::DidNotHappen);
    let unresolved = answer(Resolver::Policy, None, DoubtOutcome::Unresolved);
    for (story, owed) in [
        (called(), false),
        (called().then(30, 1, JobCancelled {}), false),
        (called().then(21, 1, doubted()).then(22, 1, disproved).then(30, 1, completed()), false),
        (called().then(21, 1, doubted()).then(22, 1, unresolved).then(30, 1, completed()), true),
        (called().then(30, 1, completed()), true),
    ] {
        let mut facts = story.facts();
        if let Some(Told { event: Event::JobCompleted(_), .. }) = story.events.last() {
            // The reducer does not let a job with an open step complete.
            facts.row.status = JobStatus::Completed;
        }
        assert_eq!(!told(C8, &story, &facts).is_empty(), owed, "{:?}", story.events.last().unwrap().event);
    }
}

#[test]
fn the_list_of_doubts_is_the_ledgers() {
    let (one, none) = ([key("pay")].into(), std::collections::BTreeSet::new());
    for (ledger, list, wrong) in [(&one, &none, 1), (&none, &one, 1), (&one, &one, 0), (&none, &none, 0)] {
        let mut tally = Tally::default();
        crate::outcomes::listed(ledger, list, &mut tally);
        assert_eq!(tally.into_report(1, 0).line(C5).unwrap().violated, wrong);
    }
}

#[test]
fn a_job_is_made_with_its_plan_and_every_step_stands_behind_it() {
    let mut unplanned = whole();
    unplanned.events.remove(unplanned.place(EventKind::PlanGenerated));
    unplanned.first(EventKind::JobClaimed).at = 10;
    assert!(of(D5, &unplanned).contains("it was not created with its plan in one write"));
    let mut second = whole();
    second.first(EventKind::PlanGenerated).event = PlanGenerated { plan_version: 2, ..story::planned() }.into();
    assert!(of(D8, &second).contains("event 2: it does not stand behind its plan"));
    let skipped = NodeSkipped { node: StepPath::from("pay"), reason: SkipReason::Upstream };
    let started = NodeStarted::new("pay", 1);
    for step in [Event::from(skipped), started.into(), story::permit("pay", 1).into()] {
        let mut early = whole();
        early.events.insert(1, Told { at: 10, epoch: 0, event: step });
        assert!(of(D8, &early).contains("event 2: it does not stand behind its plan"));
    }
    // What makes the plan stands before it, in a job whose plan is made, and an answer behind it.
    let planning = || Event::from(NodeStarted::new("$plan", 1));
    let mut unasked = whole();
    unasked.events.insert(1, Told { at: 10, epoch: 0, event: planning() });
    assert!(of(D8, &unasked).contains("event 2: it does not stand behind its plan"));
    let made = || {
        let mut made = whole();
        made.first(EventKind::JobCreated).event =
            JobCreated { planning: Some(Hash::of(b"p")), ..story::created() }.into();
        made
    };
    let mut late = made();
    late.events.insert(3, Told { at: 10, epoch: 1, event: planning() });
    assert!(of(D8, &late).contains("event 4: it does not stand behind its plan"));
    let mut unplanned = made();
    unplanned.events.truncate(1);
    unplanned.events.push(Told {
        at: 10,
        epoch: 0,
        event: JobCompleted { answer: Answer::Value(Json::null()) }.into(),
    });
    assert!(of(D8, &unplanned).contains("event 2: it does not stand behind its plan"));
}

#[test]
fn a_requested_end_ends_a_job_once_and_not_as_completed() {
    let failed = || Event::from(JobFailed { error: Failure::new("late", "late"), node: None });
    let (cancelled, completed) =
        (Event::from(JobCancelled {}), Event::from(JobCompleted { answer: Answer::Value(Json::null()) }));
    for (ends, quiet, right) in [
        (vec![], false, true),
        (vec![], true, false),
        (vec![cancelled.clone()], true, true),
        (vec![failed()], true, true),
        (vec![completed.clone()], true, false),
        (vec![cancelled.clone(), failed()], true, false),
        (vec![cancelled, completed], false, false),
    ] {
        for by_client in [false, true] {
            let mut story = until(EventKind::NodeStarted);
            if by_client {
                story.history.cancels = [JOB].into();
            } else {
                story = story.then(16, 1, JobCancelRequested { cause: EndCause::Cancel });
            }
            story.history.quiet = quiet;
            story.events.extend(ends.iter().map(|event| Told { at: 17, epoch: 1, event: event.clone() }));
            assert_eq!(of(D7, &story).is_empty(), right, "{ends:?}, quiet: {quiet}, by a client: {by_client}");
        }
    }
}

#[test]
fn a_kept_signal_that_its_wait_does_not_take_may_lie_beside_it() {
    for (claimed, met) in [(None, true), (Some(WaitType::Signal), true), (Some(WaitType::Human), false)] {
        for (name, named) in [("k", true), ("other", false)] {
            let mut story = until(EventKind::WaitCompleted);
            story.history.signals.clear();
            let mut facts = story.facts();
            facts.kept.push(KeptSignal {
                key: name.to_owned(),
                payload: result(),
                received_at: at(5),
                signal: SignalId::from_u128(9),
                wait_type: claimed,
            });
            let said = told(E1, &story, &facts).contains("that signal lies in its inbox");
            assert_eq!(said, met && named, "{claimed:?} {name}");
        }
    }
}

#[test]
fn a_kept_signal_may_end_as_refused_and_a_delivered_one_may_not() {
    let (ours, other) = (result().hash(), Hash::of(b"other"));
    for (ack, name, payload_hash, right) in [
        (SignalAck::Kept, "late", ours, true),
        (SignalAck::Kept, "late", other, false),
        (SignalAck::Kept, "other", ours, false),
        (SignalAck::Delivered, "late", ours, false),
    ] {
        let (node, signal) = (StepPath::from("ask"), SignalId::from_u128(9));
        let refused =
            SignalRefused { correlation_key: name.to_owned(), node, payload_hash, signal, violations: Vec::new() };
        let mut story = whole();
        story.events.push(Told { at: 220, epoch: 4, event: refused.into() });
        let acked = AckedSignal { ack, job: JOB, key: "late".to_owned(), payload_hash: Some(ours) };
        story.history.signals.push(acked);
        assert_eq!(of(E1, &story).is_empty(), right, "{ack:?} {name}");
    }
}

#[test]
fn a_wait_in_doubt_is_ended_by_its_answer_and_only_while_it_lasts() {
    let waits = || JobWaiting { doubt: true, ..story::waiting("pay", None, WaitType::Timer) };
    let answered = || answer(Resolver::Reconcile, Some(Grounds::Refuses), DoubtOutcome::DidNotHappen);
    let begun = || until(EventKind::ToolInvocationFinished).then(21, 1, doubted()).then(21, 1, waits());
    assert_eq!(of(E2, &begun().then(22, 1, answered()).then(23, 2, story::claimed(2))), "");
    let left = begun().then(22, 2, story::claimed(2));
    assert!(of(E2, &left.then(23, 2, answered())).contains("its job was claimed before it had"));
    // A wait that lasts may have no end yet, but not two.
    let end = || WaitCompleted { by: WaitEnd::Time, node: StepPath::from("pay") };
    for (ends, right) in [(0, true), (1, true), (2, false)] {
        let story = (0..ends).fold(begun(), |story, _| story.then(22, 1, end()));
        assert_eq!(of(E2, &story).is_empty(), right, "{ends}");
    }
}

#[test]
fn a_job_is_claimed_from_its_moment_on_and_a_timer_that_nobody_set_does_not_fire() {
    for (moment, right) in [(14, true), (15, true), (16, false)] {
        let mut story = whole();
        let run_at = Some(at(moment));
        story.first(EventKind::JobCreated).event = JobCreated { run_at, ..story::created() }.into();
        assert_eq!(of(E6, &story).is_empty(), right, "{moment}");
    }
    let mut unset = whole();
    unset.events.remove(unset.place(EventKind::TimerSet));
    assert!(of(E6, &unset).contains("it was not set"));
}

#[test]
fn two_bodies_of_an_at_most_once_call_need_a_persons_word_between_them() {
    let (clock, refuses) = (Some(Grounds::Clock), Some(Grounds::Refuses));
    for (by, grounds, outcome, allowed) in [
        (Resolver::Operator, None, DoubtOutcome::DidNotHappen, true),
        (Resolver::Operator, None, DoubtOutcome::Happened, false),
        (Resolver::Operator, Some(Grounds::OperatorRefused), DoubtOutcome::DidNotHappen, true),
        (Resolver::Operator, clock, DoubtOutcome::DidNotHappen, true),
        (Resolver::Reconcile, clock, DoubtOutcome::DidNotHappen, false),
        (Resolver::Reconcile, refuses, DoubtOutcome::DidNotHappen, false),
        (Resolver::Operator, refuses, DoubtOutcome::DidNotHappen, false),
    ] {
        let mut story = until(EventKind::ToolInvocationFinished)
            .then(22, 1, doubted())
            .then(23, 1, answer(by, grounds, outcome))
            .then(24, 1, again(2, EffectClass::AtMostOnce));
        let body = |permit, micros| WitnessLine { permit, ..seen(WitnessKind::BodyStart, micros) };
        story.witness = vec![body(numbered(1, 1), 21), body(numbered(1, 2), 25)];
        assert_eq!(of(C1, &story).is_empty(), allowed, "{by:?} {grounds:?} {outcome:?}");
        // And one word allows one body more, not two.
        story.witness.push(body(None, 26));
        assert_ne!(of(C1, &story), "");
    }
}

#[test]
fn an_idempotent_call_has_one_body_for_each_permission() {
    for (permits, bodies, right) in [(1, 1, true), (1, 2, false), (2, 2, true), (2, 3, false)] {
        let mut story = until(EventKind::ToolInvocationStarted);
        story.witness.clear();
        for permit in 1..=permits {
            story = story.then(20, 1, again(permit, EffectClass::Idempotent));
        }
        for body in 0..bodies {
            story.witness.push(WitnessLine { permit: None, ..seen(WitnessKind::BodyStart, 21 + body) });
        }
        assert_eq!(of(C1, &story).is_empty(), right, "{bodies} bodies with {permits} permissions");
    }
}

/// The outcome is of 30.
#[test]
fn a_body_after_the_recorded_outcome_is_excused_where_it_could_not_know() {
    use EffectClass::{AtMostOnce, Idempotent};
    let happened = |by| answer(by, None, DoubtOutcome::Happened);
    let called = |class| {
        let mut story = until(EventKind::ToolInvocationFinished);
        story.first(EventKind::ToolInvocationStarted).event = again(1, class).into();
        story.witness = vec![seen(WitnessKind::BodyStart, 40)];
        story
    };
    for (class, by, excused) in [
        (Idempotent, Some(Resolver::Operator), true),
        (Idempotent, Some(Resolver::LateDeposit), true),
        (Idempotent, Some(Resolver::Reconcile), false),
        (Idempotent, None, false),
        (AtMostOnce, Some(Resolver::Operator), false),
    ] {
        let story = by.map_or_else(|| called(class), |by| called(class).then(29, 1, happened(by)));
        assert_eq!(of(C6, &story).is_empty(), excused, "{class:?} {by:?}");
    }
    // Its own permission is of after the outcome.
    let told = called(Idempotent).then(29, 1, happened(Resolver::Operator));
    let mut later = told.then(32, 2, story::claimed(2)).then(35, 2, again(2, Idempotent));
    later.witness[0].fence = fence(2);
    assert_ne!(of(C6, &later), "");
    // Another run had the job when the outcome was recorded, or only later.
    for (claimed, excused) in [(28, true), (30, true), (31, false)] {
        let story = called(AtMostOnce).then(claimed, 2, story::claimed(2));
        assert_eq!(of(C6, &story).is_empty(), excused, "{claimed}");
    }
    // Of two recorded outcomes the first counts, and at its moment a body may begin.
    let mut story = called(AtMostOnce);
    story.effects.push(EffectRow { at: at(50), permit: 2, ..story.effects[0].clone() });
    assert_ne!(of(C6, &story), "");
    story.witness[0].at = at(30);
    assert_eq!(of(C6, &story), "");
}

#[test]
fn only_bodies_that_act_count_and_all_have_the_calls_own_key() {
    let mut other = whole();
    let wrong = IdempotencyKey::derive(JOB, &StepPath::from("pay"), 1);
    other.witness.iter_mut().for_each(|line| line.key = wrong);
    assert!(of(C4, &other).contains("the call's is"));
    let mut asked = whole();
    let read = |key, micros| WitnessLine { acts: false, key, permit: None, ..seen(WitnessKind::BodyStart, micros) };
    asked.witness.push(read(wrong, 26));
    asked.witness.push(read(key("pay"), 27));
    let found = report(&asked.facts(), &asked.witness, &asked.history);
    assert!(found.is_clean(), "{found}");
    assert_eq!(found.line(C2).unwrap().examined, 1);
}

#[test]
fn an_effect_is_what_a_body_answered_unless_somebody_else_brought_it() {
    for (by, right) in [
        (Resolver::Operator, true),
        (Resolver::Reconcile, true),
        (Resolver::LateDeposit, false),
        (Resolver::Policy, false),
    ] {
        let mut story = until(EventKind::ToolInvocationFinished).then(29, 1, answer(by, None, DoubtOutcome::Happened));
        story.effects[0].result = Json::null();
        assert_eq!(!of(C7, &story).contains("none of the answers that its bodies gave"), right, "{by:?}");
    }
}

fn counted(id: Invariant, cases: u32, violated: u32) -> Tally {
    let mut tally = Tally::default();
    for case in 0..cases {
        tally.case(id, case >= violated, || format!("case {case}"));
    }
    tally
}

#[test]
fn what_several_have_counted_is_added_up_and_a_few_are_told() {
    let most = u32::try_from(VIOLATIONS_TOLD_MAX).unwrap();
    let mut all = counted(A2, 20, most - 1);
    all.add(counted(A2, 7, 3));
    all.add(counted(A3, 2, 0));
    let found = all.into_report(3, 4);
    let line = found.line(A2).unwrap();
    assert_eq!((line.examined, line.violated), (27, u64::from(most) + 2));
    assert_eq!((line.violations.len(), found.line(A3).unwrap().examined), (VIOLATIONS_TOLD_MAX, 2));
    assert_eq!(counted(A2, 99, most + 9).into_report(1, 1).line(A2).unwrap().violations.len(), VIOLATIONS_TOLD_MAX);
    let shown = |violated: u32| counted(A2, 99, violated).into_report(1, 1).to_string();
    assert!(shown(most + 1).contains("  - and 1 more\n") && !shown(most).contains(" more\n"), "{}", shown(most + 1));
}

#[test]
fn a_line_proves_its_invariant_only_where_it_held_and_had_cases() {
    let report = |cases, violated| counted(A2, cases, violated).into_report(1, 1);
    let proves = |report: &Report| report.line(A2).unwrap().is_proof();
    assert!(proves(&report(1, 0)) && !proves(&report(1, 1)) && !proves(&report(0, 0)));
    let excused = |cases, violated| report(cases, violated).excuse(&[A2]);
    assert!(proves(&excused(0, 0)) && !proves(&excused(1, 1)));
    assert!(report(0, 0).unexamined().contains(&A2) && !excused(0, 0).unexamined().contains(&A2));
    assert!(!report(1, 0).unexamined().contains(&A2));
    let lines = [report(0, 0), excused(0, 0), report(1, 0), report(1, 1), report(2, 2)]
        .map(|report| report.to_string().lines().nth(1).unwrap().to_owned());
    for (line, verdict) in
        lines.iter().zip(["NOT EXAMINED", "no cases here", "holds", "VIOLATED once", "VIOLATED 2 times"])
    {
        assert!(line.starts_with("A2 ") && line.ends_with(verdict), "{line}");
    }
}

#[test]
fn a_witness_log_is_read_up_to_its_last_whole_line() {
    let line = serde_json::to_string(&seen(WitnessKind::BodyEnd, 28)).unwrap();
    let whole = format!("{line}\n\n{line}\n");
    assert_eq!(witness::parse(&whole).unwrap(), [seen(WitnessKind::BodyEnd, 28), seen(WitnessKind::BodyEnd, 28)]);
    for cut in ["", &line[..9], &line] {
        assert_eq!(witness::parse(&format!("{whole}{cut}")).unwrap().len(), 2, "{cut}");
        assert_eq!(witness::parse(cut).unwrap(), []);
    }
    let wrong = witness::parse(&format!("{whole}nonsense\n")).unwrap_err();
    assert!(wrong.starts_with("line 4: "), "{wrong}");
    for text in ["1", "1.", ".1", "1.x", "-1.2", ""] {
        assert!(witness::parse_fence(text).unwrap_err().contains("expected GENERATION.EPOCH"), "{text}");
    }
    assert_eq!(witness::parse_fence("1.2").unwrap(), fence(2));
    // A log of before permits were logged is read as well, and a call that needs none has none.
    let unnamed = WitnessLine { permit: None, ..seen(WitnessKind::BodyEnd, 28) };
    let line = line.replace(r#""permit":"1.1","#, "");
    assert_eq!(line, serde_json::to_string(&unnamed).unwrap());
    assert_eq!(witness::parse(&format!("{line}\n")).unwrap(), [unnamed]);
    assert!(witness::parse_permit("1").unwrap_err().contains("expected GENERATION.NUMBER"));
}

#[test]
fn a_history_of_clients_says_nothing_only_where_all_of_it_is_empty() {
    let whole = ClientHistory { cancels: [JOB].into(), ..whole().history };
    let none = ClientHistory { quiet: true, ..ClientHistory::default() };
    assert!(none.is_empty() && !whole.is_empty());
    for part in [
        ClientHistory { cancels: whole.cancels, ..none.clone() },
        ClientHistory { pauses: [JOB].into(), ..none.clone() },
        ClientHistory { signals: whole.signals, ..none.clone() },
        ClientHistory { submissions: whole.submissions, ..none.clone() },
        ClientHistory { writes: whole.writes, ..none.clone() },
    ] {
        assert!(!part.is_empty(), "{part:?}");
    }
}
