//! Events that speak of child jobs.

use super::*;
use crate::event::{
    ChildEnded, ChildOutcome, ChildStarted, Items, JobCancelled, JobPaused, Parent, PauseReason, TimerSet,
};
use crate::job::JobStatus;
use crate::limits;
use crate::plan::OnParentEnd;
use crate::projection::{Promise, promises};
use crate::state::{Child, ChildCount, Output};
use crate::step::StepStatus as S;

fn asks(node: &str, child: u128) -> ChildStarted {
    ChildStarted {
        agent: "other".into(),
        agent_version: "1".to_owned(),
        child: JobId::from_u128(child),
        deadline_us: None,
        depth: 1,
        message: json("do"),
        node: node.into(),
        on_parent_end: OnParentEnd::Cancel,
        plan_hash: Hash::of(b"plan"),
        planner: "static".to_owned(),
        session: None,
        sessions: Vec::new(),
        parent_deadline: None,
        waits: true,
    }
}

fn told(node: &str, child: u128) -> ChildEnded {
    ChildEnded {
        child: JobId::from_u128(child),
        node: node.into(),
        outcome: ChildOutcome::Completed { result: json("done") },
    }
}

fn waits_for_child(node: &str) -> JobWaiting {
    JobWaiting { wait_type: WaitType::Child, ..waiting(node, None) }
}

/// `a` has asked for child 1.
fn asked() -> Story {
    Story::running().then(node_started("a", 1)).then(asks("a", 1))
}

fn ended(node: &str) -> NodeFinished {
    finished(node, StepResult::Success)
}

#[test]
fn a_step_asks_for_one_child_while_it_is_under_way() {
    says(&Story::running().refuses(asks("a", 1)), "`a` cannot ask for a child job");
    says(&asked().refuses(asks("a", 1)), "`a` cannot ask for a child job");
    says(&asked().refuses(ended("a")), "`a` cannot end: its child job has not");
    let left = Story::running().then(node_started("a", 1)).then(ChildStarted { waits: false, ..asks("a", 1) });
    says(&left.refuses(told("a", 1)), "`a` does not wait for");
    assert_eq!(left.then(ended("a")).step("a").status, S::Completed);
    let deep = ChildStarted { depth: 2, ..asks("a", 1) };
    says(&Story::running().then(node_started("a", 1)).refuses(deep), "cannot be 2 jobs deep");
}

#[test]
fn a_child_ends_before_its_job_waits_for_it_or_after() {
    let early = asked().then(told("a", 1));
    says(&early.refuses(told("a", 1)), "`a` does not wait for");
    says(&early.refuses(waits_for_child("a")), "waits for something else");
    let early = early.then(ended("a"));
    assert_eq!(early.step("a").output, Some(Output::Inline(json("done"))));
    assert_eq!(early.step("a").child.as_deref().and_then(Child::result), Some(&json(serde_json::Value::Null)));
    says(&asked().refuses(waiting("a", Some("k"))), "waits for something else");
    says(&Story::running().then(node_started("a", 1)).refuses(waits_for_child("a")), "waits for something else");
    let late = asked().then(waits_for_child("a"));
    assert_eq!((late.0.status, late.step("a").status), (JobStatus::Waiting, S::Waiting));
    says(&late.refuses(told("a", 2)), "`a` does not wait for");
    let late = late.then(told("a", 1));
    assert_eq!((late.0.status, late.step("a").status), (JobStatus::Pending, S::Running));
    assert!(late.0.blocks.is_empty());
}

#[test]
fn a_job_that_is_held_or_requeued_is_told_and_one_that_has_ended_is_not() {
    let paused = asked().then(waits_for_child("a")).then(JobPaused { reason: PauseReason::Operator });
    assert_eq!(paused.then(told("a", 1)).0.status, JobStatus::Paused);
    let back = asked().then(requeued(RequeueReason::LeaseExpired)).then(told("a", 1));
    assert_eq!((back.0.status, back.step("a").awaited_child()), (JobStatus::Pending, None));
    let over = asked().then(JobCancelled {});
    says(&over.refuses(told("a", 1)), "`a` does not wait for");
}

#[test]
fn children_are_counted_up_to_their_bounds() {
    let mut count = ChildCount::default();
    let (node, item) = ("a".into(), "m[3]".into());
    assert_eq!((count.bound_reached(&node), count.bound_reached(&item)), (None, None));
    count = ChildCount { all: limits::CHILDREN_OF_NODES_MAX, of_nodes: limits::CHILDREN_OF_NODES_MAX };
    assert_eq!(count.bound_reached(&node), Some(limits::CHILDREN_OF_NODES_MAX));
    assert_eq!(count.bound_reached(&item), None);
    count = ChildCount { all: limits::CHILDREN_MAX, of_nodes: 0 };
    assert_eq!([count.bound_reached(&node), count.bound_reached(&item)], [Some(limits::CHILDREN_MAX); 2]);
    assert_eq!(asked().0.children, ChildCount { all: 1, of_nodes: 1 });
}

/// What events promise, from the state before them.
fn promised(story: &Story, events: &[Event]) -> Vec<Promise> {
    let mut state = story.0.clone();
    let seq = state.seq;
    events.iter().for_each(|event| state.apply(event).unwrap());
    promises(seq, events.iter(), &state)
}

#[test]
fn who_asks_for_a_child_promises_to_create_it() {
    let story = Story::running().then(node_started("a", 1));
    let events = [TimerSet { after_us: 1, timer: TimerId::Deadline }.into(), asks("a", 9).into()];
    let seq = story.0.seq + 2;
    assert_eq!(promised(&story, &events), [Promise::CreateChild { child: JobId::from_u128(9), node: "a".into(), seq }]);
}

#[test]
fn an_end_promises_to_end_what_is_to_end_with_it_and_to_tell_who_waits_for_it() {
    let cancel = [Event::from(JobCancelled {})];
    assert_eq!(promised(&Story::running(), &cancel), []);
    assert_eq!(promised(&asked(), &cancel), [Promise::CancelChildren]);
    assert_eq!(promised(&asked().then(told("a", 1)), &cancel), []);
    let leave = ChildStarted { on_parent_end: OnParentEnd::Leave, ..asks("a", 1) };
    assert_eq!(promised(&Story::running().then(node_started("a", 1)).then(leave), &cancel), []);
    let untold = ChildStarted { waits: false, ..asks("a", 1) };
    let untold = Story::running().then(node_started("a", 1)).then(untold).then(ended("a"));
    assert_eq!(promised(&untold, &cancel), [Promise::CancelChildren], "nobody knows whether it has ended");
    for waits in [true, false] {
        let mut story = Story::running();
        let (parent, node) = (JobId::from_u128(4), StepPath::from("p[2]"));
        let on_parent_end = OnParentEnd::Leave;
        story.0.parent =
            Some(Parent { depth: 1, job: parent, node: node.clone(), on_parent_end, sessions: Vec::new(), waits });
        let tell = Promise::TellParent { node, parent };
        assert_eq!(promised(&story, &cancel), if waits { vec![tell] } else { Vec::new() });
    }
}

#[test]
fn an_item_that_fails_promises_to_cancel_the_children_of_the_others() {
    let items = Items { collect: false, count: 3 };
    let mut story = Story::running().then(NodeStarted { items: Some(items), ..node_started("m", 1) });
    for (node, child) in [("m[0]", 10), ("m[1]", 11), ("m[2]", 12)] {
        story = story.then(node_started(node, 1)).then(asks(node, child));
    }
    let story = story.then(told("m[0]", 10));
    let fails = [finished("m[0]", StepResult::PermanentFailure).into()];
    let cancel = |child, node: &str| Promise::CancelChild { child: JobId::from_u128(child), node: node.into() };
    assert_eq!(promised(&story, &fails), [cancel(11, "m[1]"), cancel(12, "m[2]")]);
    let collects = NodeFinished { absorbed: true, ..finished("m[0]", StepResult::PermanentFailure) };
    let mut collecting = story;
    collecting.0.steps.get_mut(&"m".into()).unwrap().items.as_deref_mut().unwrap().collect = true;
    assert_eq!(promised(&collecting, &[collects.into()]), []);
}

/// In one unit a child may be asked for and be given up again. Whoever is given up promises nothing of its own.
#[test]
fn a_child_is_created_before_it_is_cancelled_and_cancelled_once() {
    let items = Items { collect: false, count: 3 };
    let mut story = Story::running().then(NodeStarted { items: Some(items), ..node_started("m", 1) });
    for node in ["m[0]", "m[1]", "m[2]"] {
        story = story.then(node_started(node, 1));
    }
    let fails = |node| NodeFinished { result: StepResult::PermanentFailure, ..ended(node) };
    let failed = finished("m[2]", StepResult::PermanentFailure);
    let events = [asks("m[0]", 10).into(), asks("m[1]", 11).into(), failed.into()];
    let at = story.0.seq + 1;
    let create =
        |child, node: &str, seq| Promise::CreateChild { child: JobId::from_u128(child), node: node.into(), seq };
    let cancel = |child, node: &str| Promise::CancelChild { child: JobId::from_u128(child), node: node.into() };
    let expected = [create(10, "m[0]", at), create(11, "m[1]", at + 1), cancel(10, "m[0]"), cancel(11, "m[1]")];
    assert_eq!(promised(&story, &events), expected);
    for event in &events {
        story = story.then(event.clone());
    }
    let story = story.then(ChildEnded { outcome: ChildOutcome::Cancelled, ..told("m[0]", 10) });
    let given_up = NodeFinished { given_up: true, ..fails("m[0]") };
    let given_up = NodeFinished { error: finished("m[0]", StepResult::PermanentFailure).error, ..given_up };
    assert_eq!(promised(&story, &[given_up.into()]), []);
}

/// Lists and claims order jobs by their ids; and whoever asks again, whenever that is, asks for the same child.
#[test]
fn a_childs_name_is_made_of_its_jobs_name_and_its_step_alone() {
    let of_moment = |millis: u128, random: u128| JobId::from_u128((millis << 80) | (7 << 76) | (2 << 62) | random);
    let (job, other, later) = (of_moment(9, 1), of_moment(9, 2), of_moment(10, 1));
    let name = |job, path: &str| JobId::of_child(job, &path.into());
    assert!(name(job, "z") < name(later, "a"));
    let names = [name(job, "a"), name(job, "a@1"), name(job, "b"), name(other, "a")];
    assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
    let bits = name(job, "a").as_u128();
    assert_eq!((bits >> 80, (bits >> 76) & 15, (bits >> 62) & 3), (9, 7, 2));
    let below = name(name(job, "a"), "a").as_u128();
    assert_eq!(below >> 80, 9);
}

/// The child of an item stands with the item's newest round, and is the one that is cancelled.
#[test]
fn the_child_of_a_further_round_is_cancelled_with_its_map() {
    use crate::event::{Judge, NodeRefining, Verdict};
    let items = Items { collect: false, count: 2 };
    let story = Story::running().then(NodeStarted { items: Some(items), ..node_started("m", 1) });
    let story = story.then(node_started("m[0]", 1)).then(asks("m[0]", 10)).then(told("m[0]", 10));
    let rejected = NodeFinished { verdict: Some(Verdict::Reject), ..ended("m[0]") };
    let again = NodeRefining { by: Judge::Schema, feedback: "no".to_owned(), node: "m[0]".into(), round: 1 };
    let story = story.then(rejected).then(again).then(node_started("m[0]@1", 1)).then(asks("m[0]@1", 11));
    let story = story.then(node_started("m[1]", 1));
    let fails = [finished("m[1]", StepResult::PermanentFailure).into()];
    let cancel = Promise::CancelChild { child: JobId::from_u128(11), node: "m[0]@1".into() };
    assert_eq!(promised(&story, &fails), [cancel]);
}
