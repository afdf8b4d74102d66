//! One planted violation per invariant, at least.

use aetheris_core::event::*;
use aetheris_core::id::*;
use aetheris_core::job::JobStatus;
use aetheris_core::json::Json;
use aetheris_core::ledger::LedgerStatus;
use aetheris_core::path::StepPath;
use aetheris_core::state::JobState;
use aetheris_core::time::Span;
use aetheris_store::{Checkpoint, EffectRow, Evidence, KeptSignal};

use super::report;
use super::story::{self, JOB, Story, Told, at, fence, key, numbered, result, seen, whole};
use crate::Dossier;
use crate::history::{AckedSignal, SignalAck, Submission, Write};
use crate::invariant::Invariant::{self, *};
use crate::report::{Report, Tally};
use crate::witness::{WitnessKind, WitnessLine};

fn is_found(id: Invariant, story: &Story, facts: &Dossier) {
    let found = report(facts, &story.witness, &story.history);
    assert!(found.violated().contains(&id), "{id} is not violated:\n{found}");
}

/// Spoils what is told, and chains it again.
fn in_story(id: Invariant, spoil: impl FnOnce(&mut Story)) {
    let mut story = whole();
    spoil(&mut story);
    is_found(id, &story, &story.facts());
}

/// Spoils what is stored.
fn in_facts(id: Invariant, spoil: impl FnOnce(&mut Dossier)) {
    let story = whole();
    let mut facts = story.facts();
    spoil(&mut facts);
    is_found(id, &story, &facts);
}

/// That a violation is told in these words: another rule of the same invariant does not stand in for it.
fn says(id: Invariant, words: &str, found: &Report) {
    let mut lines = found.lines.iter().filter(|line| line.id == id).flat_map(|line| &line.violations);
    assert!(lines.any(|told| told.contains(words)), "{id} does not say `{words}`:\n{found}");
}

#[test]
fn each_rule_is_asked_by_itself() {
    let mut facts = whole().facts();
    facts.row.fence.epoch += 1;
    let story = whole();
    says(A2, "its row has fence", &report(&facts, &story.witness, &story.history));

    let mut stray = whole();
    let ends = stray.events.remove(stray.place(EventKind::WaitCompleted));
    let begins = stray.place(EventKind::JobWaiting);
    stray.events.insert(begins, ends);
    says(E2, "it ends a wait that never began", &report(&stray.facts(), &stray.witness, &stray.history));

    let mut again = whole();
    let first = again.place(EventKind::ToolInvocationStarted);
    again.events.insert(first + 1, Told { at: 21, epoch: 1, event: story::permit("pay", 2).into() });
    says(C5, "permit 2", &report(&again.facts(), &again.witness, &again.history));

    let mut tally = Tally::default();
    crate::tools::known_jobs(&std::collections::BTreeSet::new(), &whole().witness, &mut tally);
    says(C2, "which is not there", &tally.into_report(0, 0));
}

#[test]
fn ownership() {
    in_story(A2, |s| s.events.iter_mut().filter(|told| told.epoch == 4).for_each(|told| told.epoch = 3));
    in_story(A2, |s| {
        let again = story::claimed(1);
        s.events.iter_mut().filter(|t| t.epoch == 2).take(1).for_each(|t| t.event = again.clone().into());
    });
    in_story(A3, |s| s.first(EventKind::JobWaiting).epoch = 1);
    in_story(A9, |s| {
        let reclaim = JobRequeued { after_us: None, reason: RequeueReason::HolderDied };
        let place = s.place(EventKind::WaitCompleted);
        s.events.insert(place, Told { at: 65, epoch: 2, event: reclaim.into() });
    });
}

#[test]
fn the_log() {
    in_facts(B1, |f| drop(f.events.remove(4)));
    in_facts(B1, |f| drop(f.events.pop()));
    in_facts(B2, |f| f.events[3].id = f.events[4].id);
    in_story(B2, |s| s.history.writes.push(Write { event: EventId::from_u128(99), job: JOB, unknown: false }));
    in_facts(B4, |f| f.events[2].payload.push(b' '));
    in_facts(B4, |f| f.events[2].at = at(11));
    in_facts(B4, |f| f.row.head = f.events[0].hash);
    in_facts(B4, |f| f.events[5].kind = 200);
    in_story(B5, |s| s.events.push(Told { at: 220, epoch: 4, event: JobCancelled {}.into() }));
    in_facts(B5, |f| f.row.status = JobStatus::Running);
    in_facts(B7, |f| f.row.status = JobStatus::Failed);
    in_facts(B7, |f| f.row.plan_hash = None);
    in_facts(B7, |f| f.row.priority += 1);
    in_facts(B7, |f| drop(f.row.labels.insert("team".to_owned(), "a".to_owned())));
}

#[test]
fn a_timer_row_that_no_event_set() {
    let mut story = whole();
    story.events.truncate(story.place(EventKind::TimerFired));
    let mut facts = story.facts();
    facts.timers[0].due = at(1);
    is_found(B7, &story, &facts);
}

/// A restore holds by its row what it cannot read, and a build that can read it says nothing against it. A pause that an
/// operator is said to have made needs its event.
#[test]
fn a_job_that_a_restore_holds_by_its_row() {
    let mut story = whole();
    story.events.truncate(story.place(EventKind::WaitCompleted) - 1);
    let mut facts = story.facts();
    let wrong = |facts: &Dossier| report(facts, &story.witness, &story.history).violated().contains(&B7);
    assert!(facts.row.holder.take().is_some() && !wrong(&story.facts()));
    facts.row.status = JobStatus::Paused;
    facts.row.paused = Some((PauseReason::Restored, at(300)));
    assert!(!wrong(&facts));
    facts.row.paused = Some((PauseReason::Operator, at(300)));
    assert!(wrong(&facts));
    facts.row.paused = Some((PauseReason::Restored, at(300)));
    // In the generation of its last claim, or after a further event, there was nothing that a restore could not read.
    let now = facts.row.fence.generation;
    let mut tally = Tally::default();
    let witness = (&story.witness[..], crate::witness::names_permits(&story.witness));
    crate::check_job(&facts, now, witness, &story.history, &mut tally);
    assert!(tally.into_report(1, 1).violated().contains(&B7));
    facts.row.seq -= 1;
    assert!(wrong(&facts));
}

/// Whether what is stored of a story, spoiled, contradicts its events.
fn contradicts(story: &Story, spoil: impl FnOnce(&mut Dossier)) -> bool {
    let mut facts = story.facts();
    spoil(&mut facts);
    report(&facts, &story.witness, &story.history).violated().contains(&B7)
}

/// Only a job that is held by its row alone may say otherwise than its events.
#[test]
fn a_pause_that_has_its_event_is_as_that_tells_it() {
    let mut held = whole();
    held.events.truncate(held.place(EventKind::JobRequeued));
    let holder = held.facts().row.holder;
    assert!(holder.is_some());
    for (reason, other) in
        [(PauseReason::Restored, PauseReason::Operator), (PauseReason::Operator, PauseReason::Restored)]
    {
        let mut story = whole();
        story.events.truncate(story.place(EventKind::WaitCompleted));
        story.events.push(Told { at: 75, epoch: 2, event: JobPaused { reason }.into() });
        assert_eq!(story::status(&story), JobStatus::Paused);
        assert!(!contradicts(&story, |_| ()));
        assert!(contradicts(&story, |f| f.row.paused = Some((reason, at(76)))));
        assert!(contradicts(&story, |f| f.row.paused = Some((reason, at(0)))));
        assert!(contradicts(&story, |f| f.row.paused = Some((other, at(75)))));
        assert!(contradicts(&story, |f| f.row.paused = Some((other, at(300)))));
        assert!(contradicts(&story, |f| f.row.paused = None));
        assert!(contradicts(&story, |f| f.row.holder.clone_from(&holder)));
        assert!(contradicts(&story, |f| f.row.status = JobStatus::Waiting));
    }
}

#[test]
fn an_acknowledged_job_or_signal_that_is_gone() {
    let job = JobId::from_u128(8);
    in_story(B3, |s| s.history.submissions.push(Submission { client_key: None, job }));
    in_story(B3, |s| {
        let (ack, key) = (SignalAck::Kept, "k".to_owned());
        s.history.signals.push(AckedSignal { ack, job, key, payload_hash: None });
    });
}

#[test]
fn bodies() {
    // A second body that says nothing of its permit, and calls that came again under theirs.
    in_story(C1, |s| s.witness.push(WitnessLine { permit: None, ..seen(WitnessKind::BodyStart, 26) }));
    for kind in [WitnessKind::BodyStart, WitnessKind::Refused, WitnessKind::Dropped] {
        in_story(C1, |s| s.witness.push(WitnessLine { acts: false, ..seen(kind, 26) }));
        in_story(C2, |s| s.witness.push(WitnessLine { acts: false, permit: numbered(1, 2), ..seen(kind, 26) }));
        let key = IdempotencyKey::derive(JOB, &StepPath::from("pay"), 1);
        in_story(C4, |s| s.witness.push(WitnessLine { acts: false, key, ..seen(kind, 26) }));
    }
    in_story(C2, |s| s.witness[0].permit = numbered(2, 1));
    // Beside calls that name theirs, one that names none has none.
    in_story(C2, |s| s.witness[0].permit = None);
    in_story(C2, |s| s.witness[0].at = at(19));
    in_story(C2, |s| s.witness[0].fence = fence(2));
    in_story(C4, |s| s.witness[0].key = IdempotencyKey::derive(JOB, &StepPath::from("pay"), 1));
    // Whether it sorts before the call's own or behind it.
    for key in [IdempotencyKey::from_u128(1), IdempotencyKey::from_u128(u128::MAX)] {
        in_story(C4, |s| s.witness.push(WitnessLine { acts: false, key, ..seen(WitnessKind::Dropped, 26) }));
    }
    in_story(C6, |s| s.witness[0].at = at(31));
    in_story(C7, |s| s.witness[1].result_hash = Some(Json::null().hash()));
}

#[test]
fn a_second_body_of_an_at_most_once_call_under_another_permit() {
    let mut story = whole();
    let place = story.place(EventKind::ToolInvocationFinished);
    let refused = story::finished("pay", InvocationOutcome::RefusedRetryable);
    let again = story::permit("pay", 2);
    let at = 22;
    story.events.insert(place, Told { at, epoch: 1, event: again.into() });
    story.events.insert(place, Told { at, epoch: 1, event: refused.into() });
    story.witness.push(WitnessLine { permit: numbered(1, 2), ..seen(WitnessKind::BodyStart, 27) });
    is_found(C1, &story, &story.facts());
}

#[test]
fn outcomes() {
    in_facts(C5, |f| f.ledger.clear());
    in_facts(C5, |f| f.ledger[0].permit = 2);
    in_facts(C5, |f| f.ledger[0].node = "mail".into());
    in_facts(C5, |f| f.ledger[0].tool = "mail".into());
    in_facts(C5, |f| f.ledger[0].class = aetheris_core::plan::EffectClass::Idempotent);
    in_facts(C5, |f| f.ledger[0].input_hash = aetheris_core::hash::Hash::ZERO);
    in_facts(C5, |f| f.ledger[0].deadline = at(1_019));
    in_facts(C5, |f| f.ledger[0].lifetime = Some(Span::from_micros(999)));
    in_facts(C7, |f| f.effects.push(f.effects[0].clone()));
    in_facts(C7, |f| f.effects[0].result = Json::null());
    in_facts(C8, |f| f.effects.clear());
    in_facts(C8, |f| f.ledger[0].status = LedgerStatus::NotSent);
    in_story(C8, |s| {
        let place = s.place(EventKind::CommandCommitted);
        s.events.remove(place);
    });
}

/// What is said against the ledger's row of the call, which has this status, after these events that follow its permit.
fn against_row(told: &[Event], status: LedgerStatus, disproved: bool) -> String {
    let mut story = whole();
    story.events.truncate(story.place(EventKind::ToolInvocationFinished));
    story.events.extend(told.iter().map(|event| Told { at: 30, epoch: 1, event: event.clone() }));
    (story.ledger[0].status, story.ledger[0].disproved) = (status, disproved);
    let facts = story.facts();
    assert!(JobState::fold(JOB, &decoded(&facts)).is_ok(), "{told:?}");
    let found = report(&facts, &story.witness, &story.history);
    found.line(C5).unwrap().violations.join("\n")
}

fn decoded(facts: &Dossier) -> Vec<Recorded> {
    facts.events.iter().map(aetheris_store::EventRow::decode).collect::<Result<_, _>>().unwrap()
}

fn doubted() -> Event {
    StepInDoubt { node: StepPath::from("pay"), permit: 1, policy: 0, reason: "the answer was lost".to_owned() }.into()
}

fn outcome(outcome: InvocationOutcome) -> Event {
    story::finished("pay", outcome).into()
}

fn unresolved() -> [Event; 2] {
    let answer = InDoubtResolved {
        by: Resolver::Policy,
        grounds: None,
        node: StepPath::from("pay"),
        note: None,
        outcome: DoubtOutcome::Unresolved,
        permit: 1,
        result: None,
        settle_us: None,
        then: None,
    };
    [doubted(), answer.into()]
}

#[test]
fn a_ledger_row_that_its_events_do_not_allow() {
    use InvocationOutcome as I;
    use LedgerStatus as L;
    let ended = Event::from(JobCancelled {});
    for (told, status, words) in [
        (&[ended][..], L::Started, "the job has gone on"),
        (&[], L::FailedUnresolved, "the ledger has given it up, and no event does"),
        (&[outcome(I::InDoubt)], L::FailedUnresolved, "the ledger has given it up, and its step goes on"),
        (&[outcome(I::NotSent)], L::InDoubt, "the ledger has it in doubt, and no event does"),
        (&[outcome(I::NotSent)], L::Committed, "its events tell another outcome"),
        (&[outcome(I::RefusedPermanent)], L::Committed, "its events tell another outcome"),
        (&[outcome(I::RefusedRetryable)], L::NotSent, "not sent, and its events say otherwise"),
        (&[doubted()], L::NotSent, "not sent, and its events say otherwise"),
        (&[outcome(I::InDoubt)], L::NotSent, "not sent, and its events say otherwise"),
        (&[outcome(I::RefusedPermanent)], L::RefusedRetryable, "refused for now, and its events say otherwise"),
        (&[doubted()], L::RefusedRetryable, "refused for now, and its events say otherwise"),
        (&[outcome(I::NotSent)], L::RefusedPermanent, "refused for good, and its events say otherwise"),
        (&[doubted()], L::RefusedPermanent, "refused for good, and its events say otherwise"),
    ] {
        let said = against_row(told, status, false);
        assert!(said.contains(words), "{told:?}, {status:?}: {words}: {said}");
    }
    let said = against_row(&[doubted()], L::InDoubt, true);
    assert!(said.contains("the ledger says that it did not happen, and no event does"), "{said}");
}

/// An outcome is deposited before an event tells it, and an end gives a call up without one.
#[test]
fn a_ledger_row_that_its_events_allow() {
    use InvocationOutcome as I;
    use LedgerStatus as L;
    let deposited = [L::Started, L::Committed, L::NotSent, L::RefusedPermanent, L::RefusedRetryable];
    let failed = Event::from(story::node_finished("pay", StepResult::PermanentFailure));
    let cancelled = Event::from(JobCancelled {});
    for (told, statuses) in [
        (&[doubted()][..], &[L::InDoubt, L::Committed][..]),
        (&[], &deposited),
        (&[outcome(I::InDoubt)], &[L::InDoubt, L::Committed]),
        (&[outcome(I::InDoubt), failed], &[L::InDoubt, L::Committed, L::FailedUnresolved]),
        (&[outcome(I::InDoubt), cancelled], &[L::InDoubt, L::Committed, L::FailedUnresolved]),
        (&[outcome(I::NotSent)], &[L::NotSent]),
        (&[outcome(I::RefusedPermanent)], &[L::RefusedPermanent]),
        (&[outcome(I::RefusedRetryable)], &[L::RefusedRetryable]),
        (&unresolved(), &[L::FailedUnresolved]),
    ] {
        for status in statuses {
            assert_eq!(against_row(told, *status, false), "", "{told:?}, {status:?}");
        }
    }
}

/// Its own table does not say it, and what `verify` asks does.
#[test]
fn a_ledger_row_that_only_the_fold_contradicts() {
    for (told, status) in [
        (&[doubted()][..], LedgerStatus::Started),
        (&[outcome(InvocationOutcome::NotSent)], LedgerStatus::Started),
        (&unresolved(), LedgerStatus::InDoubt),
    ] {
        let said = against_row(told, status, false);
        assert!(said.contains("in a step that is") && !said.contains('\n'), "{told:?}, {status:?}: {said}");
    }
}

/// Its node has a call, and it is another one.
#[test]
fn a_ledger_row_that_is_no_call_of_its_node() {
    let said = |spoil: fn(&mut Dossier)| {
        let story = whole();
        let mut facts = story.facts();
        spoil(&mut facts);
        report(&facts, &story.witness, &story.history).line(C5).unwrap().violations.join("\n")
    };
    assert_eq!(said(|_| ()), "");
    let told = said(|facts| facts.ledger[0].key = key("mail"));
    assert!(told.contains(&format!("{} is in the ledger and not in the events", key("mail"))), "{told}");
    assert!(told.contains(&format!("{} is in the events and not in the ledger", key("pay"))), "{told}");
}

/// A tool may fail a node with the same word.
#[test]
fn a_success_before_is_the_ledgers_word_only_where_no_node_has_failed() {
    let found = |node: Option<&str>| {
        let mut story = whole();
        story.events.truncate(story.place(EventKind::ToolInvocationFinished));
        let error = Failure::new(SUCCEEDED_BEFORE, "an earlier call is known to have succeeded");
        let refused = outcome(InvocationOutcome::RefusedPermanent);
        let failed = story::node_finished("pay", StepResult::PermanentFailure).into();
        let ended = JobFailed { error, node: node.map(StepPath::from) }.into();
        story.events.extend([refused, failed, ended].map(|event| Told { at: 30, epoch: 1, event }));
        story.ledger[0].status = LedgerStatus::RefusedPermanent;
        story.effects.clear();
        report(&story.facts(), &story.witness, &story.history).violated().contains(&C8)
    };
    assert!(found(None) && !found(Some("pay")));
}

#[test]
fn a_success_before_that_nothing_tells_of() {
    let mut story = whole();
    story.events.truncate(story.place(EventKind::ToolInvocationFinished));
    let error = Failure::new(SUCCEEDED_BEFORE, "an earlier call is known to have succeeded");
    let refused = story::finished("pay", InvocationOutcome::NotSent);
    // The ledger refuses the next permit for good, which is no end of the step.
    let ended = JobFailed { error, node: None };
    let (at, epoch) = (30, 1);
    story.events.extend([refused.into(), ended.into()].map(|event| Told { at, epoch, event }));
    story.ledger[0].status = LedgerStatus::NotSent;
    let effect = story.effects.pop().unwrap();
    let mut facts = story.facts();
    is_found(C8, &story, &facts);
    let outcome = |outcome: &str| Json::new(serde_json::json!({ "outcome": outcome, "result": {} }));
    facts.evidence = vec![Evidence {
        at: story::at(40),
        conflict: true,
        key: key("pay"),
        node: StepPath::from("pay"),
        outcome: outcome("success"),
        permit: 1,
        permit_id: PermitId::from_u128(1),
    }];
    assert!(!report(&facts, &story.witness, &story.history).violated().contains(&C8));
    let mut spoilt = facts.clone();
    spoilt.evidence[0].outcome = outcome("refuse");
    is_found(C8, &story, &spoilt);
    // Nor is it what another call has brought, or what contradicted nothing.
    let mut spoilt = facts.clone();
    spoilt.evidence[0].key = key("mail");
    is_found(C8, &story, &spoilt);
    let mut spoilt = facts.clone();
    spoilt.evidence[0].conflict = false;
    is_found(C8, &story, &spoilt);
    // What an operator says after the end of a later call was no effect when the job failed.
    let mut said_later = facts.clone();
    said_later.effects.push(EffectRow { at: story::at(31), ..effect.clone() });
    assert!(!report(&said_later, &story.witness, &story.history).violated().contains(&C8));
    facts.effects.push(effect);
    is_found(C8, &story, &facts);
}

#[test]
fn a_permission_given_again_without_a_reason_and_a_doubt_answered_too_early() {
    in_story(C5, |s| {
        let place = s.place(EventKind::ToolInvocationFinished);
        s.events.insert(place, Told { at: 22, epoch: 1, event: story::permit("pay", 2).into() });
    });
    in_story(C5, |s| {
        let place = s.place(EventKind::ToolInvocationFinished);
        let answer = InDoubtResolved {
            by: Resolver::Operator,
            node: StepPath::from("pay"),
            note: None,
            outcome: DoubtOutcome::DidNotHappen,
            permit: 1,
            grounds: None,
            result: None,
            settle_us: None,
            then: None,
        };
        s.events.insert(place, Told { at: 22, epoch: 1, event: answer.into() });
    });
    let doubts = [key("pay")].into();
    let mut tally = crate::report::Tally::default();
    crate::outcomes::listed(&doubts, &[].into(), &mut tally);
    assert_eq!(tally.into_report(1, 0).violated(), [C5]);
}

#[test]
fn the_job_machine() {
    in_story(D1, |s| {
        let place = s.place(EventKind::JobRequeued);
        s.events.remove(place);
    });
    in_story(D5, |s| s.first(EventKind::PlanGenerated).at = 11);
    in_story(D5, |s| {
        let job = JobId::from_u128(9);
        s.history.submissions.push(Submission { client_key: Some("c".into()), job });
    });
    in_story(D7, |s| s.history.cancels = [JOB].into());
    in_story(D8, |s| {
        let place = s.place(EventKind::PlanGenerated);
        let plan = s.events.remove(place);
        s.events.push(plan);
    });
}

#[test]
fn a_cancel_that_ended_nothing() {
    let mut story = whole();
    story.events.truncate(story.place(EventKind::JobWaiting));
    story.events.push(Told { at: 61, epoch: 2, event: JobCancelRequested { cause: EndCause::Cancel }.into() });
    assert_eq!(story::status(&story), JobStatus::Running);
    is_found(D7, &story, &story.facts());
    story.events.push(Told { at: 62, epoch: 2, event: JobCancelled {}.into() });
    let found = report(&story.facts(), &story.witness, &story.history);
    assert!(!found.violated().contains(&D7), "{found}");
}

/// Whoever asked may have been told of it before its holder let the job go, or at once.
#[test]
fn a_pause_that_was_accepted_and_stands_nowhere() {
    let held = || {
        let mut story = whole();
        story.events.truncate(story.place(EventKind::JobRequeued));
        story.history.pauses = [JOB].into();
        story
    };
    is_found(B3, &held(), &held().facts());
    for event in [JobPauseRequested {}.into(), JobPaused { reason: PauseReason::Operator }.into()] {
        let mut story = held();
        story.events.push(Told { at: 300, epoch: 2, event });
        let found = report(&story.facts(), &story.witness, &story.history);
        assert!(!found.violated().contains(&B3), "{found}");
    }
}

fn kept(name: &str) -> KeptSignal {
    // The one that the story's wait ended with.
    let signal = SignalId::from_u128(1);
    KeptSignal { key: name.to_owned(), payload: result(), received_at: at(5), signal, wait_type: None }
}

#[test]
fn signals_and_waits() {
    in_story(E1, |s| s.history.signals[0].key = "other".into());
    in_story(E1, |s| s.history.signals[0].payload_hash = Some(result().hash()));
    in_facts(E1, |f| f.kept.push(kept("k")));
    in_facts(E1, |f| f.consumed.push(SignalId::from_u128(9)));
    // Another one of its key may have been kept beside it, and stays.
    let mut beside = whole();
    let mut facts = beside.facts();
    facts.kept.push(KeptSignal { signal: SignalId::from_u128(2), ..kept("k") });
    assert!(!report(&facts, &beside.witness, &beside.history).violated().contains(&E1));
    let (ack, payload_hash) = (SignalAck::Kept, Some(result().hash()));
    beside.history.signals.push(AckedSignal { ack, payload_hash, ..beside.history.signals[0].clone() });
    assert!(!report(&facts, &beside.witness, &beside.history).violated().contains(&E1));
    facts.kept.clear();
    assert!(report(&facts, &beside.witness, &beside.history).violated().contains(&E1), "it was kept and is nowhere");
    let mut story = whole();
    story.events.truncate(story.place(EventKind::WaitCompleted));
    story.history.signals.clear();
    let mut facts = story.facts();
    facts.kept.push(kept("k"));
    is_found(E1, &story, &facts);
    // Also where its wait is not the one that the row shows.
    facts.row.waiting.as_mut().unwrap().correlation_key = Some("of another".to_owned());
    is_found(E1, &story, &facts);
    in_story(E2, |s| {
        let place = s.place(EventKind::WaitCompleted);
        let twice = s.events[place].clone();
        s.events.insert(place, twice);
    });
    in_story(E2, |s| {
        let place = s.place(EventKind::WaitCompleted);
        s.events.remove(place);
    });
}

#[test]
fn timers_and_leases() {
    in_story(E6, |s| s.first(EventKind::TimerFired).at = 189);
    in_story(E6, |s| {
        let place = s.place(EventKind::TimerFired);
        let twice = s.events[place].clone();
        s.events.insert(place, twice);
    });
    in_story(E6, |s| {
        let delay = JobRequeued { after_us: Some(11), reason: RequeueReason::Retry };
        s.first(EventKind::JobRequeued).event = delay.into();
    });
    let mut story = whole();
    story.events.truncate(story.place(EventKind::JobRequeued));
    let held = story.facts().row.holder;
    assert!(held.is_some());
    in_facts(E7, |f| f.row.holder = held);
}

#[test]
fn a_checkpoint_of_another_state() {
    let story = whole();
    let mut facts = story.facts();
    let events = facts.events.iter().map(aetheris_store::EventRow::decode).collect::<Result<Vec<_>, _>>().unwrap();
    let mut state = JobState::fold(JOB, &events[..6]).unwrap();
    facts.checkpoint = Some(Checkpoint::of(6, &state));
    let found = report(&facts, &story.witness, &story.history);
    assert!(found.line(F5).is_some_and(crate::Line::is_proof), "{found}");
    state.created_at = state.created_at.after(Span::from_micros(1));
    facts.checkpoint = Some(Checkpoint::of(6, &state));
    is_found(F5, &story, &facts);
    facts.checkpoint = Some(Checkpoint::of(7, &state));
    is_found(F5, &story, &facts);
}

/// The words, for a ledger at another permit breaks C5 too.
#[test]
fn only_did_not_happen_is_a_reason_for_a_further_permission() {
    let mut story = whole();
    let place = story.place(EventKind::ToolInvocationFinished);
    let [doubted, answered] = unresolved();
    for event in [story::permit("pay", 2).into(), answered, doubted] {
        story.events.insert(place, Told { at: 22, epoch: 1, event });
    }
    let said = report(&story.facts(), &story.witness, &story.history).line(C5).unwrap().violations.join("\n");
    assert!(said.contains("was given without a reason"), "{said}");
}
