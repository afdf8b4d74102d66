//! Events that speak of loops: turns, calls, and what ends them.

use super::*;
use crate::event::{ModelRecord, ToolAsked, Turn, Usage};
use crate::step::StepStatus as S;

fn asked(name: &str) -> ToolAsked {
    ToolAsked {
        arguments: "{}".to_owned(),
        id: "c".to_owned(),
        name: name.to_owned(),
        provider: None,
        tool: Some(name.into()),
    }
}

/// A turn that asks for so many calls.
fn turn(path: &str, calls: usize) -> NodeFinished {
    let turn = Turn { calls: vec![asked("t"); calls], reply: None };
    let usage = Usage { completion_tokens: 3, prompt_tokens: 7, ..Usage::default() };
    let model = Some(Box::new(ModelRecord {
        finish: None,
        parameters: None,
        model: "m".to_owned(),
        prompt_hash: Hash::of(b"p"),
        usage,
    }));
    let end = finished(path, StepResult::Pure);
    NodeFinished { model, output: Some(json("said")), turn: Some(Box::new(turn)), ..end }
}

fn replied(path: &str) -> NodeFinished {
    let turn = Turn { calls: Vec::new(), reply: Some("no".to_owned()) };
    NodeFinished { turn: Some(Box::new(turn)), ..turn_of(path) }
}

fn turn_of(path: &str) -> NodeFinished {
    turn(path, 0)
}

fn failed(path: &str) -> NodeFinished {
    let error = Some(Failure::new("broken", "it broke"));
    NodeFinished { absorbed: true, error, ..finished(path, StepResult::PermanentFailure) }
}

fn told(path: &str) -> NodeFinished {
    NodeFinished { told: true, ..failed(path) }
}

/// The loop `a` has begun.
fn begun() -> Story {
    Story::running().then(NodeStarted { turns: true, ..node_started("a", 1) })
}

/// Its first turn has asked for so many calls.
fn asks(calls: usize) -> Story {
    begun().then(node_started("a/0", 1)).then(turn("a/0", calls))
}

fn done(path: &str) -> NodeFinished {
    NodeFinished { output: Some(json(path)), ..finished(path, StepResult::Pure) }
}

fn turns(story: &Story) -> crate::state::TurnsState {
    story.0.turns_of(&"a".into()).cloned().unwrap()
}

#[test]
fn turns_begin_one_after_the_other() {
    says(&Story::running().refuses(node_started("a/0", 1)), "`a/0`: its loop is not under way");
    says(&Story::started().refuses(node_started("a/0", 1)), "`a/0`: its loop is not under way");
    says(&begun().refuses(node_started("a/1", 1)), "`a/1`: it is not the turn that is under way");
    says(&begun().refuses(node_started("a/0.0", 1)), "it is no open call of the newest turn");
    let asking = begun().then(node_started("a/0", 1));
    says(&asking.refuses(node_started("a/1", 1)), "the turn before it has not ended");
    says(&asking.refuses(done("a")), "it cannot end: its turns have not");
    says(&asking.refuses(done("a/0")), "a turn of a loop ends with what it came to");
    let called = asks(1);
    assert_eq!(called.0.asked_of(&"a/0.0".into()), Some(&asked("t")));
    assert_eq!((called.0.asked_of(&"a/0.1".into()), called.0.asked_of(&"a/1.0".into())), (None, None));
    says(&called.refuses(node_started("a/1", 1)), "the turn before it has not ended");
    says(&called.refuses(done("a")), "it cannot end: its turns have not");
    let next = called.then(node_started("a/0.0", 1)).then(done("a/0.0")).then(node_started("a/1", 1));
    let said = next.then(turn_of("a/1"));
    assert!(turns(&said).said);
    says(&said.refuses(node_started("a/2", 1)), "the turn before it has not ended, or its loop has");
    let ended = said.then(done("a"));
    assert_eq!(ended.0.step_status(&"a".into()), S::Completed);
    says(&ended.refuses(node_started("a/2", 1)), "its loop is not under way");
    let parts: Vec<String> = ended.0.parts_of(&"a".into()).map(|path| path.to_string()).collect();
    assert_eq!(parts, ["a/0", "a/0.0", "a/1"]);
}

/// They may begin in any order: what is asked about each before takes its time.
#[test]
fn calls_begin_as_soon_as_they_may() {
    let story = asks(3).then(node_started("a/0.2", 1)).then(node_started("a/0.0", 1));
    assert_eq!((turns(&story).open, turns(&story).left), ([0, 2].into(), [1].into()));
    says(&story.refuses(node_started("a/0.3", 1)), "it is no open call of the newest turn");
    let over = story.then(done("a/0.0")).then(done("a/0.2")).then(node_started("a/0.1", 1));
    assert!(turns(&over).is_calling());
    let over = over.then(done("a/0.1"));
    assert!(!turns(&over).is_calling());
}

#[test]
fn a_last_word_that_is_not_taken_is_followed_by_a_turn() {
    let story = begun().then(node_started("a/0", 1)).then(replied("a/0"));
    assert!(!turns(&story).said);
    says(&story.refuses(done("a")), "it cannot end: its turns have not");
    let story = story.then(node_started("a/1", 1)).then(turn_of("a/1")).then(done("a"));
    assert_eq!(story.0.tokens, 20);
}

#[test]
fn tokens_are_counted_by_the_job_and_the_loop() {
    let story = begun().then(node_started("a/0", 1)).then(turn("a/0", 0));
    assert_eq!((story.0.tokens, turns(&story).tokens, turns(&story).asked_at), (10, 10, 0));
    let again = replied("a/0");
    let story = begun().then(node_started("a/0", 1)).then(again).then(node_started("a/1", 1));
    assert_eq!(turns(&story).asked_at, 10);
}

/// A refusal before any try is the model's mistake; a failure that is told is none.
#[test]
fn what_is_told_goes_on_and_what_is_not_ends_the_loop() {
    let story = asks(2).then(told("a/0.0"));
    assert_eq!((turns(&story).mistakes, turns(&story).failed_by.clone()), (1, None));
    let story = story.then(node_started("a/0.1", 1)).then(told("a/0.1"));
    assert_eq!(turns(&story).mistakes, 1);
    story.then(node_started("a/1", 1));
    let story = asks(3).then(node_started("a/0.0", 1)).then(node_started("a/0.1", 1)).then(failed("a/0.1"));
    assert_eq!(turns(&story).failed_by, Some("a/0.1".into()));
    assert!(story.0.is_stopped(&"a/0.0".into()) && !story.0.is_stopped(&"a".into()));
    says(&story.refuses(node_started("a/0.2", 1)), "its loop has failed");
    says(&story.refuses(failed("a")), "it cannot end: its turns have not");
    let story = story.then(done("a/0.0"));
    says(&story.refuses(done("a")), "it cannot end: its turns have not");
    assert_eq!(story.then(failed("a")).0.step_status(&"a".into()), S::Failed);
    // A turn that fails ends it at once.
    let story = begun().then(node_started("a/0", 1)).then(failed("a/0"));
    says(&story.refuses(node_started("a/1", 1)), "the turn before it has not ended, or its loop has");
    story.then(failed("a"));
}

#[test]
fn only_failed_calls_are_told() {
    let story = asks(1).then(node_started("a/0.0", 1));
    says(&story.refuses(NodeFinished { told: true, ..done("a/0.0") }), "a model is told of calls that have failed");
    says(&story.refuses(NodeFinished { given_up: true, ..told("a/0.0") }), "a model is told of calls that have failed");
    let asking = begun().then(node_started("a/0", 1));
    says(&asking.refuses(told("a/0")), "a model is told of calls that have failed");
    says(&Story::started().refuses(told("a")), "a model is told of calls that have failed");
}

fn permit_of(number: u32, effect: EffectClass) -> ToolInvocationStarted {
    ToolInvocationStarted { effect, node: "a/0.0".into(), ..permit(number) }
}

fn came_to(number: u32, outcome: InvocationOutcome) -> ToolInvocationFinished {
    ToolInvocationFinished { error: None, node: "a/0.0".into(), outcome, permit: number, source: Source::Executed }
}

/// Whatever may have happened is never told: by the newest permit, or by one before it.
#[test]
fn a_model_is_never_told_of_a_call_that_may_have_happened() {
    use InvocationOutcome::{InDoubt, NotSent, RefusedPermanent, RefusedRetryable};
    let never = "a model is never told of a call that may have happened";
    let called = |effect| asks(1).then(node_started("a/0.0", 1)).then(permit_of(1, effect));
    says(&called(EffectClass::AtMostOnce).refuses(told("a/0.0")), never);
    says(&called(EffectClass::Idempotent).then(came_to(1, InDoubt)).refuses(told("a/0.0")), never);
    for outcome in [NotSent, RefusedPermanent, RefusedRetryable] {
        called(EffectClass::AtMostOnce).then(came_to(1, outcome)).then(told("a/0.0"));
        // An earlier call of an idempotent tool may have acted: nobody knows what became of it.
        for before in [Some(came_to(1, InDoubt)), None] {
            let story = called(EffectClass::Idempotent);
            let story = before.into_iter().fold(story, |story, event| story.then(event));
            let story = story.then(permit_of(2, EffectClass::Idempotent)).then(came_to(2, outcome));
            assert_eq!(story.step("a/0.0").invocation.as_deref().map(|call| call.unknown), Some(1));
            says(&story.refuses(told("a/0.0")), never);
        }
    }
}

/// A loop that is judged has turns of its own in each round, and the end of one of them ends no round.
#[test]
fn the_parts_of_a_loop_are_no_rounds() {
    use crate::event::{Judge, NodeRefining, Verdict};
    let first = begun().then(node_started("a/0", 1)).then(turn_of("a/0"));
    let rejected = NodeFinished { verdict: Some(Verdict::Reject), ..done("a") };
    let refining = NodeRefining { by: Judge::Schema, feedback: "no".to_owned(), node: "a".into(), round: 1 };
    let second = first.then(rejected).then(refining).then(NodeStarted { turns: true, ..node_started("a@1", 1) });
    says(&second.refuses(node_started("a/1", 1)), "its loop is not under way");
    let turned = second.then(node_started("a@1/0", 1)).then(turn_of("a@1/0"));
    assert_eq!((turned.0.step_status(&"a".into()), turned.0.step_status(&"a@1".into())), (S::Refining, S::Running));
    let verdict = NodeFinished { verdict: Some(Verdict::Pending), ..turn_of("a@1/0") };
    says(&second_turn().refuses(verdict), "`a@1/0` is a part of a loop, which nobody judges");
    let ended = turned.then(done("a@1"));
    assert_eq!((ended.0.step_status(&"a".into()), ended.0.step_status(&"a@1".into())), (S::Completed, S::Completed));
    let parts: Vec<String> = ended.0.parts_of(&"a".into()).map(|path| path.to_string()).collect();
    assert_eq!(parts, ["a/0", "a@1", "a@1/0"]);
    // What fails in a round fails the loop of that round first.
    let lost = second_turn().then(failed("a@1/0"));
    assert_eq!((lost.0.step_status(&"a".into()), lost.0.step_status(&"a@1".into())), (S::Refining, S::Running));
    assert_eq!(lost.then(failed("a@1")).0.step_status(&"a".into()), S::Failed);
}

/// The second round of the loop `a` asks its first turn.
fn second_turn() -> Story {
    use crate::event::{Judge, NodeRefining, Verdict};
    let first = begun().then(node_started("a/0", 1)).then(turn_of("a/0"));
    let rejected = NodeFinished { verdict: Some(Verdict::Reject), ..done("a") };
    let refining = NodeRefining { by: Judge::Schema, feedback: "no".to_owned(), node: "a".into(), round: 1 };
    let second = first.then(rejected).then(refining).then(NodeStarted { turns: true, ..node_started("a@1", 1) });
    second.then(node_started("a@1/0", 1))
}
