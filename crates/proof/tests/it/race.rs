//! Two workers on one database, one of which is killed in the middle.

use std::time::Duration;

use aetheris_check::{Invariant, Report};
use aetheris_proof::drive::fleet::{Fleet, ready};
use aetheris_proof::drive::stories::{STORIES, Story};
use anyhow::Result;
use rustix::process::Signal;

const JOBS: u32 = 200;
/// How long all of it may take.
const BOUND: Duration = Duration::from_secs(180);

#[test]
fn two_workers_share_a_database_and_one_is_killed() {
    crate::block_on(async {
        let fleet = Fleet::new(crate::program()).unwrap();
        tokio::select! {
            report = raced(&fleet) => println!("{}", report.unwrap()),
            () = tokio::time::sleep(BOUND) => panic!("stuck for {BOUND:?}\n{}", fleet.tail()),
        }
    });
}

async fn raced(fleet: &Fleet) -> Result<Report> {
    let story = STORIES.iter().find(|story| story.agent == "ledger").unwrap();
    let stories = [Story { jobs: JOBS, ..*story }];
    let server = ready(&fleet.part("serve", None)).await?;
    fleet.serve_at(&server)?;
    let client = fleet.client()?;
    client.put(story.agent, &story.source(&fleet.witness_url())?).await?;
    let first = ready(&fleet.part("worker", None)).await?;
    let second = ready(&fleet.part("worker", None)).await?;
    let killer = async {
        // A third of the bodies have begun.
        let third = usize::try_from(JOBS)?;
        while fleet.witness.lines()?.iter().filter(|line| line.is_act()).count() < third {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        first.signal(Signal::KILL)
    };
    let ((), history) = tokio::try_join!(killer, fleet.play(&client, &stories))?;
    drop((server, second));
    let excused = [Invariant::D7, Invariant::E1, Invariant::E2, Invariant::E6, Invariant::F5];
    fleet.check(&history, &excused).await
}
