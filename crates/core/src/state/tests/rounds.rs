//! Events that speak of outputs that are judged, and of further rounds.

use super::*;
use crate::event::{Items, Judge, NodeRefining, NodeSkipped, SkipReason, Source, Verdict};
use crate::step::StepStatus as S;

fn gave(path: &str, verdict: Option<Verdict>) -> NodeFinished {
    NodeFinished { output: Some(json(path)), verdict, ..finished(path, StepResult::Pure) }
}

fn refining(path: &str, round: u32) -> NodeRefining {
    NodeRefining { by: Judge::Schema, feedback: format!("told {round}"), node: path.into(), round }
}

fn failed(path: &str) -> NodeFinished {
    let error = Some(Failure::new("rejected", "again and again"));
    NodeFinished { absorbed: true, error, ..finished(path, StepResult::PermanentFailure) }
}

/// The first round of `a` has given an output.
fn first(verdict: Verdict) -> Story {
    Story::running().then(node_started("a", 1)).then(gave("a", Some(verdict)))
}

fn statuses(story: &Story, paths: &[&str]) -> Vec<S> {
    paths.iter().map(|path| story.0.step_status(&(*path).into())).collect()
}

#[test]
fn a_further_round_is_a_step_of_its_own_and_ends_the_first() {
    let story = first(Verdict::Reject);
    assert_eq!(statuses(&story, &["a"]), [S::Validating]);
    says(&story.refuses(node_started("a@1", 1)), "`a@1` is not the current round of its node");
    says(&story.refuses(refining("a", 2)), "round 2 of `a` cannot follow round 0");
    let story = story.then(refining("a", 1));
    assert_eq!((statuses(&story, &["a", "a@1"]), story.step("a").round), (vec![S::Refining, S::Pending], 1));
    assert_eq!(story.step("a@1").feedback.as_deref(), Some("told 1"));
    says(&story.refuses(node_started("a@2", 1)), "is not the current round of its node");
    says(&story.refuses(node_started("a", 2)), "is not the current round of its node");
    says(&story.refuses(failed("a")), "is not the current round of its node");
    says(&story.refuses(refining("a", 2)), "nothing has rejected the output of `a@1`");
    let story = story.then(node_started("a@1", 1)).then(gave("a@1", Some(Verdict::Reject))).then(refining("a", 2));
    assert_eq!(statuses(&story, &["a", "a@1", "a@2"]), [S::Refining, S::Rejected, S::Pending]);
    assert!(story.step("a@1").finished_at.is_some() && story.step("a").finished_at.is_none());
    let story = story.then(node_started("a@2", 1)).then(gave("a@2", None));
    assert_eq!(statuses(&story, &["a", "a@1", "a@2"]), [S::Completed, S::Rejected, S::Completed]);
    assert_eq!((story.step("a").result, story.step("a").finished_at), (Some(StepResult::Pure), Some(story.0.last_at)));
    says(&story.refuses(node_started("a@2", 2)), "is not the current round of its node");
}

#[test]
fn a_critic_decides_about_the_output_that_it_was_asked_about() {
    says(&Story::running().refuses(node_started("a/critic", 1)), "`a/critic` is not the current round of its node");
    says(&first(Verdict::Reject).refuses(node_started("a/critic", 1)), "is not the current round of its node");
    says(&first(Verdict::Pending).refuses(refining("a", 1)), "nothing has rejected the output of `a`");
    let asked = first(Verdict::Pending).then(node_started("a/critic", 1));
    says(&asked.refuses(gave("a/critic", None)), "a critic gives a verdict");
    says(&asked.refuses(gave("a/critic", Some(Verdict::Pending))), "it cannot end with this verdict");
    let passed = asked.then(gave("a/critic", Some(Verdict::Pass)));
    assert_eq!(statuses(&passed, &["a", "a/critic"]), [S::Completed, S::Completed]);
    let ended = Some(passed.0.last_at);
    assert_eq!((passed.step("a").finished_at, passed.step("a/critic").finished_at), (ended, ended));
    let rejected =
        first(Verdict::Pending).then(node_started("a/critic", 1)).then(gave("a/critic", Some(Verdict::Reject)));
    assert_eq!(statuses(&rejected, &["a", "a/critic"]), [S::Validating, S::Completed]);
    assert_eq!(rejected.step("a").finished_at, None);
    let second = rejected.then(refining("a", 1)).then(node_started("a@1", 1)).then(gave("a@1", Some(Verdict::Pending)));
    says(&second.refuses(node_started("a/critic", 2)), "is not the current round of its node");
    let second = second.then(node_started("a@1/critic", 1)).then(gave("a@1/critic", Some(Verdict::Pass)));
    assert_eq!(statuses(&second, &["a", "a@1", "a@1/critic"]), [S::Completed, S::Completed, S::Completed]);
}

#[test]
fn what_ends_a_round_with_an_error_ends_its_node_with_it() {
    for of_first in [true, false] {
        let story = first(if of_first { Verdict::Pending } else { Verdict::Reject });
        let (story, path) = match of_first {
            true => (story.then(node_started("a/critic", 1)), "a/critic"),
            false => (story.then(refining("a", 1)).then(node_started("a@1", 1)), "a@1"),
        };
        let story = story.then(failed(path));
        let step = story.step("a");
        assert_eq!((step.status, step.absorbed, step.result), (S::Failed, true, Some(StepResult::PermanentFailure)));
        assert_eq!(step.error.as_ref().map(|error| &*error.code), Some("rejected"));
        assert_eq!(step.finished_at, Some(story.0.last_at));
    }
    // One that may not begin fails as well; one of another round does not exist.
    let story = first(Verdict::Reject).then(refining("a", 1));
    says(&story.refuses(failed("a@2")), "is not the current round of its node");
    assert_eq!(statuses(&story.then(failed("a@1")), &["a", "a@1"]), [S::Failed, S::Failed]);
    // The last round's output was rejected.
    assert_eq!(statuses(&first(Verdict::Reject).then(failed("a")), &["a"]), [S::Failed]);
}

#[test]
fn nothing_else_passes_its_own_output_or_is_skipped_in_a_round() {
    let story = Story::running().then(node_started("a", 1));
    says(&story.refuses(gave("a", Some(Verdict::Pass))), "it cannot end with this verdict");
    let story = first(Verdict::Reject).then(refining("a", 1));
    says(&story.refuses(NodeSkipped { node: "a@1".into(), reason: SkipReason::Condition }), "not skipped");
    says(&story.refuses(refining("a@1", 1)), "cannot follow");
}

/// An item is open until a round of it has ended it.
#[test]
fn the_rounds_of_an_item_end_it() {
    let begun = NodeStarted { items: Some(Items { collect: true, count: 1 }), ..node_started("m", 1) };
    let story = Story::running().then(begun).then(node_started("m[0]", 1)).then(gave("m[0]", Some(Verdict::Reject)));
    let story = story.then(refining("m[0]", 1)).then(node_started("m[0]@1", 1));
    let over = |story: &Story| story.step("m").items.as_deref().unwrap().is_over();
    assert!(!over(&story));
    let failed = story.then(failed("m[0]@1"));
    assert!(over(&failed) && failed.step("m").items.as_deref().unwrap().stopped_by.is_none());
    assert_eq!(statuses(&failed, &["m[0]", "m[0]@1"]), [S::Failed, S::Failed]);
    failed.then(finished("m", StepResult::Success));
    let given_up = NodeFinished { given_up: true, ..self::failed("m[0]@1") };
    let story =
        Story::running().then(NodeStarted { items: Some(Items { collect: true, count: 1 }), ..node_started("m", 1) });
    let story = story.then(node_started("m[0]", 1)).then(gave("m[0]", Some(Verdict::Reject))).then(refining("m[0]", 1));
    assert!(story.then(given_up).step("m[0]").given_up);
}

/// Of the rounds the last one counts: where its result came from, and what it was.
#[test]
fn a_refined_step_ends_as_its_last_round_does() {
    let mut story = first(Verdict::Reject).then(refining("a", 1)).then(node_started("a@1", 1));
    story.0.steps.get_mut(&"a@1".into()).unwrap().source = Source::Reconciled;
    let story = story.then(finished("a@1", StepResult::SideEffectCommitted));
    assert_eq!(
        (story.step("a").result, story.step("a").source),
        (Some(StepResult::SideEffectCommitted), Source::Reconciled)
    );
}
