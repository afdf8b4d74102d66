//! Steps that ask for child jobs.

use aetheris_core::hash::Hash;
use aetheris_core::json::Json;
use aetheris_core::limits;
use aetheris_core::plan::{EffectClass, JobNode, NodeKind, OnParentEnd};
use aetheris_core::state::ChildCount;

use super::bed::Bed;
use crate::run::prepared::{AgentFound, Body, Said};

fn found() -> AgentFound {
    AgentFound::Agent { deadline: None, plan_hash: Hash::ZERO, planner: "static".to_owned(), version: "1".to_owned() }
}

/// While the agent of one is looked up, another step may ask for the last child that the job may have.
#[test]
fn the_bound_of_children_is_asked_again_when_the_agent_is_found() {
    let most = limits::CHILDREN_OF_NODES_MAX;
    for (of_nodes, fact) in [(most - 1, "child_started"), (most, "node_finished")] {
        let node = JobNode {
            agent: "child".to_owned(),
            deadline: None,
            message: Json::null(),
            on_parent_end: OnParentEnd::Cancel,
            session: None,
            wait: true,
        };
        let mut bed = Bed::of(NodeKind::Job(node), EffectClass::Pure);
        let Body::FindAgent(wanted) = bed.begin() else { panic!("no agent is looked for") };
        bed.state.children = ChildCount { all: of_nodes, of_nodes };
        assert_eq!(bed.conclude(Said::AgentFound(wanted, found())).0, [fact]);
        assert_eq!(bed.error().map(|error| error.code), (of_nodes == most).then(|| "too_many_children".to_owned()));
    }
}
