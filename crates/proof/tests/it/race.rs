//! Two workers on one database, one of which is killed in the middle.

use std::time::Duration;

use aetheris_check::Invariant;
use aetheris_proof::drive::fleet::{Fleet, ready};
use aetheris_proof::drive::stories::{STORIES, Story};
use rustix::process::Signal;

const JOBS: u32 = 200;

#[test]
fn two_workers_share_a_database_and_one_is_killed() {
    crate::block_on(async {
        let fleet = Fleet::new(crate::program()).unwrap();
        let story = STORIES.iter().find(|story| story.agent == "ledger").unwrap();
        let stories = [Story { jobs: JOBS, ..*story }];
        let server = ready(&fleet.part("serve", None)).await.unwrap();
        fleet.serve_at(&server).unwrap();
        let client = fleet.client().unwrap();
        client.put(story.agent, &story.source(&fleet.witness_url()).unwrap()).await.unwrap();
        let first = ready(&fleet.part("worker", None)).await.unwrap();
        let second = ready(&fleet.part("worker", None)).await.unwrap();
        let killer = async {
            // A third of the bodies have begun.
            let third = usize::try_from(JOBS).unwrap();
            while fleet.witness.lines().unwrap().iter().filter(|line| line.is_act()).count() < third {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            first.signal(Signal::KILL).unwrap();
        };
        let ((), history) = tokio::join!(killer, fleet.play(&client, &stories));
        let history = history.unwrap();
        drop((server, second));
        let excused = [Invariant::D7, Invariant::E1, Invariant::E2, Invariant::E6, Invariant::F5];
        let report = fleet.check(&history, &excused).await.unwrap();
        println!("{report}");
    });
}
