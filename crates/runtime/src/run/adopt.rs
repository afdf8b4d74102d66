//! A run whose plan was made: the plan is recorded, and followed from here on.

use std::sync::Arc;

use aetheris_core::agent::Planner;
use aetheris_core::event::{Failure, PlanGenerated};
use aetheris_core::path::StepPath;
use aetheris_core::plan::{NodeKind, Plan};
use aetheris_store::{PlanDocument, Purpose};

use super::kind::{plan, rules};
use super::{Run, Stop};
use crate::draft::{Fact, Rebased};
use crate::names;

impl Run<'_> {
    /// The planning plan has done its work. One commit, with the document of the plan; nothing of that runs before.
    pub(super) async fn adopt(&mut self) -> Result<(), Stop> {
        let (planner, made) = self.made().map_err(Stop::Fault)?;
        let document = PlanDocument { hash: made.hash(), plan: Arc::new(made) };
        let hash = document.hash;
        let event = PlanGenerated {
            plan_hash: if aetheris_fault::planted!("plan-under-another-name") { self.plan.hash() } else { hash },
            plan_version: 1,
            planner: planner.as_str().to_owned(),
            planner_version: self.rt.settings.execution_version.clone(),
        };
        let ids = self.ids();
        self.draft.add(ids, Fact::with_plan(event, document))?;
        aetheris_fault::crash_point!("run.plan.made");
        // Where a newer state has refused it, that is looked at first.
        if self.flush(Purpose::Record).await? == Rebased::Cut {
            return Ok(());
        }
        aetheris_fault::sometimes!(PlanMade);
        let plan = self.rt.plans.get(self.rt.store.as_ref(), hash).await?;
        self.follow(plan);
        Ok(())
    }

    /// Who has made the plan, and the plan. One that an earlier build has accepted may be none for this one.
    fn made(&self) -> Result<(Planner, Plan), Failure> {
        let corrupt = |why: String| Failure::new("corrupt_history", why);
        let planning = self.plan.plan();
        let path = StepPath::planning();
        let newest = self.state().newest_round(&path);
        let mut answer = names::of_round(self.state(), &self.rows.effects, &newest);
        if aetheris_fault::planted!("first-plan-counts") {
            answer = names::of_round(self.state(), &self.rows.effects, &path);
        }
        let answer = answer.ok_or_else(|| corrupt(format!("`{newest}` has given no plan")))?;
        match planning.planning_node().map(|node| &node.work.kind) {
            Some(NodeKind::Plan(_)) => {
                let unreadable = |why| {
                    let message = format!("this build does not take the plan that was accepted: {why}");
                    Failure::new(names::REJECTED, message)
                };
                plan::made(planning, &answer).map(|plan| (Planner::Llm, plan)).map_err(unreadable)
            }
            Some(NodeKind::Rules(_)) => rules::made(planning, &answer)
                .map(|plan| (Planner::Rules, plan))
                .ok_or_else(|| corrupt(format!("`{newest}` has chosen no rule"))),
            Some(_) | None => Err(corrupt("the job's plan makes none".to_owned())),
        }
    }
}
