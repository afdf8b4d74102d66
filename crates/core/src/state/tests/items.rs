//! Events that speak of a map and its items.

use super::*;
use crate::event::{Items, NodeSkipped, SkipReason};
use crate::state::{ItemsState, Output};

fn map_started(collect: bool, count: u32) -> NodeStarted {
    NodeStarted { items: Some(Items { collect, count }), ..node_started("m", 1) }
}

fn map(collect: bool, count: u32) -> Story {
    Story::running().then(map_started(collect, count))
}

fn ended(item: &str) -> NodeFinished {
    NodeFinished { output: Some(json(item)), ..finished(item, StepResult::Pure) }
}

fn failed(item: &str, absorbed: bool) -> NodeFinished {
    let error = Some(Failure::new("code", "why"));
    NodeFinished { absorbed, error, ..finished(item, StepResult::PermanentFailure) }
}

fn items(story: &Story) -> &ItemsState {
    story.step("m").items.as_deref().unwrap()
}

#[test]
fn items_begin_in_their_order_and_the_map_ends_when_they_have() {
    let story = map(false, 2);
    says(&story.refuses(node_started("m[1]", 1)), "it is not the next item");
    says(&story.refuses(finished("m", StepResult::Success)), "its items have not");
    let story = story.then(node_started("m[0]", 1)).then(node_started("m[1]", 1));
    assert_eq!((items(&story).begun, items(&story).open.len()), (2, 2));
    says(&story.refuses(node_started("m[2]", 1)), "it is not the next item");
    let story = story.then(ended("m[1]"));
    assert!(!items(&story).is_over());
    says(&story.refuses(finished("m", StepResult::Success)), "its items have not");
    says(&story.refuses(finished("m", StepResult::PermanentFailure)), "its items have not");
    let story = story.then(ended("m[0]"));
    assert!(items(&story).is_over() && items(&story).open.is_empty());
    let story = story.then(finished("m", StepResult::Success));
    assert_eq!(story.step("m").output, Some(Output::Items));
    assert!(matches!(story.refuses(node_started("m[0]", 1)), Illegal::Step { .. }));
}

#[test]
fn an_item_needs_its_map_and_an_empty_map_none() {
    says(&Story::running().refuses(node_started("m[0]", 1)), "its map is not under way");
    let plain = Story::running().then(node_started("m", 1));
    says(&plain.refuses(node_started("m[0]", 1)), "its map is not under way");
    let empty = map(false, 0);
    says(&empty.refuses(node_started("m[0]", 1)), "it is not the next item");
    empty.then(finished("m", StepResult::Success));
}

/// An item may end without having begun: it is skipped, or its condition cannot be asked.
#[test]
fn an_item_that_ends_at_once_has_begun() {
    let skipped = |item: &str| NodeSkipped { node: item.into(), reason: SkipReason::Condition };
    let story = map(true, 3).then(skipped("m[0]")).then(failed("m[1]", true));
    assert!(matches!(story.refuses(skipped("m[1]")), Illegal::Step { .. }));
    assert_eq!((items(&story).begun, items(&story).open.len(), items(&story).stopped_by), (2, 0, None));
    let story = map(false, 3).then(failed("m[0]", false));
    assert_eq!((items(&story).begun, items(&story).stopped_by), (1, Some(0)));
    assert!(items(&story).is_over());
}

/// The first by its place whose failure ends the map, whichever came first; what is given up for it is none.
#[test]
fn a_map_fails_with_the_first_of_its_items_by_place() {
    let begun = map(false, 4).then(node_started("m[0]", 1)).then(node_started("m[1]", 1)).then(node_started("m[2]", 1));
    let story = begun.then(failed("m[2]", false));
    assert_eq!(items(&story).stopped_by, Some(2));
    assert!(story.0.is_stopped(&"m[0]".into()) && !story.0.is_stopped(&"m".into()));
    says(&story.refuses(node_started("m[3]", 1)), "its map has failed");
    let story = story.then(failed("m[1]", false));
    assert_eq!(items(&story).stopped_by, Some(1));
    let story = story.then(NodeFinished { given_up: true, ..failed("m[0]", false) });
    assert_eq!(items(&story).stopped_by, Some(1));
    says(&story.refuses(finished("m", StepResult::Success)), "its items have not");
    story.then(finished("m", StepResult::PermanentFailure));
}

/// A map that collects goes on over the failures of its items, unless one is the job's.
#[test]
fn a_map_that_collects_ends_with_no_item_but_one_with_which_the_job_fails() {
    let story = map(true, 2).then(failed("m[0]", true));
    assert_eq!(items(&story).stopped_by, None);
    says(&story.refuses(finished("m", StepResult::PermanentFailure)), "its items have not");
    let lost = story.then(failed("m[1]", false));
    assert_eq!((items(&lost).stopped_by, items(&lost).lost_by), (Some(1), Some(1)));
    let absorbed = NodeFinished { absorbed: true, ..finished("m", StepResult::PermanentFailure) };
    says(&lost.refuses(absorbed), "cannot end");
    lost.then(finished("m", StepResult::PermanentFailure));
}

/// Each item is progress: a long map that loses its workers now and then is not given up.
#[test]
fn an_item_that_ends_is_progress() {
    let taken_back = |story: Story| story.then(requeued(RequeueReason::LeaseExpired)).then(claimed());
    let story = taken_back(map(true, 3).then(node_started("m[0]", 1)));
    assert_eq!(story.0.reclaims, 1);
    assert_eq!(story.clone().then(ended("m[0]")).0.reclaims, 0);
    assert_eq!(story.then(failed("m[0]", true)).0.reclaims, 0);
}
