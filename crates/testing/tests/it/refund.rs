//! The code of docs/testing-your-agent.md, and the test that the page shows this code.

use std::time::Duration;

use aetheris_testing::{
    Failed, FakeModels, FakeTools, JobStatus, Reply, Script, TestWorld, crash_everywhere, run, stop_everywhere,
};
use serde_json::json;

const AGENT: &str = include_str!("../../../cli/demo/refund.yaml");

fn tools() -> FakeTools {
    FakeTools::new()
        .reads("orders.get", |_| json!({ "total": "20 EUR", "cents": 2000 }))
        .acts("payments.refund", |call| json!({ "refunded": call.input["cents"] }))
        .reconciles("payments.lookup", "payments.refund")
}

fn models() -> FakeModels {
    FakeModels::new().when_asked("approve or reject", "approve")
}

#[test]
fn an_approved_refund_is_paid_once() -> Result<(), Failed> {
    run(async {
        let world = TestWorld::new(&tools(), &models());
        world.put(AGENT).await?;
        let _process = world.start("first");
        let job = world.send("refund", json!({ "order_id": 7 })).await?;

        world.until(job, &[JobStatus::Parked]).await?;
        world.signal(job, &format!("approve-{job}"), json!({ "approved": true })).await?;

        world.ended(job).await?;
        assert_eq!(world.result(job).await?, json!({ "refunded": 2000 }));
        assert_eq!(world.tools().acted("payments.refund"), 1);
        world.check().await?;
        Ok(())
    })
}

#[test]
fn nobody_approves_for_a_day_and_nothing_is_paid() -> Result<(), Failed> {
    run(async {
        let world = TestWorld::new(&tools(), &models());
        world.put(AGENT).await?;
        let _process = world.start("first");
        let job = world.send("refund", json!({ "order_id": 7 })).await?;
        let ended = world.ended(job).await?;
        assert_eq!(ended.status, JobStatus::Failed);
        assert!(world.passed() >= Duration::from_secs(24 * 3_600));
        assert_eq!(world.tools().acted("payments.refund"), 0);
        world.check().await?;
        Ok(())
    })
}

#[test]
fn a_lost_answer_is_looked_up_and_the_refund_is_not_sent_again() -> Result<(), Failed> {
    run(async {
        let tools = tools().acts("payments.refund", |_| Reply::answer_lost(json!({ "refunded": 2000 })));
        let world = TestWorld::new(&tools, &models());
        world.put(AGENT).await?;
        let process = world.start("first");
        let job = world.send("refund", json!({ "order_id": 7 })).await?;
        world.until(job, &[JobStatus::Parked]).await?;
        process.kill();
        let _process = world.start("second");
        world.signal(job, &format!("approve-{job}"), json!({ "approved": true })).await?;
        world.ended(job).await?;
        assert_eq!(world.result(job).await?, json!({ "refunded": 2000 }));
        assert_eq!((tools.acted("payments.refund"), tools.count("payments.lookup")), (1, 1));
        world.check().await?;
        Ok(())
    })
}

fn script() -> Script {
    Script::new(tools)
        .models(models)
        .when_waiting(|_| Some(json!({ "approved": true })))
        .when_in_doubt(|doubt| doubt.truth())
        .check(|_, tools| match tools.acted("payments.refund") {
            1 => Ok(()),
            n => Err(format!("the money was sent {n} times")),
        })
}

#[test]
fn a_refund_is_paid_once_wherever_the_process_dies() -> Result<(), Failed> {
    let report = crash_everywhere(AGENT, json!({ "order_id": 7 }), &script())?;
    println!("{report}");
    assert_eq!(report.total().completed, report.total().runs());
    Ok(())
}

#[test]
fn a_refund_is_paid_once_wherever_the_process_is_slow() -> Result<(), Failed> {
    let report = stop_everywhere(AGENT, json!({ "order_id": 7 }), &script())?;
    println!("{report}");
    assert_eq!(report.total().completed, report.total().runs());
    Ok(())
}

#[test]
fn the_page_shows_this_code() {
    let (page, code) = (include_str!("../../../../docs/testing-your-agent.md"), include_str!("refund.rs"));
    let shown: Vec<&str> = page.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(shown.len(), 3);
    for block in shown {
        assert!(code.contains(block), "this is not the code of refund.rs:\n{block}");
    }
}
