//! Who answers doubts.

use aetheris_core::json::Json;
use aetheris_core::ledger::PermitNumber;
use aetheris_core::time::Span;
use aetheris_runtime::ops::{Resolution, Then};
use aetheris_testing::random::Random;
use std::time::Duration;

use crate::clients::{Clients, PATIENCE};
use crate::services::QUEUE_MS;
use crate::tell;

impl Clients {
    /// Answers doubts by looking at what the services have really done.
    pub async fn operator(self, mut random: Random) {
        loop {
            tokio::time::sleep(Duration::from_millis(random.between(500, 5_000))).await;
            let Ok(doubts) = self.stage.store.in_doubt(100).await else { continue };
            for doubt in doubts {
                let known = self.stage.services.known(doubt.key);
                if random.chance(400) {
                    continue;
                }
                let refused = known.acts == 0 && random.chance(300);
                if refused {
                    let (generation, number) = (doubt.fence.generation, doubt.permit);
                    self.stage.services.refuse(doubt.key, Some(PermitNumber { generation, number }));
                }
                // Who looks while a call may still come and finds nothing has seen nothing yet.
                let now = self.stage.store.status().await.map(|status| status.now).unwrap_or_default();
                let early = known.on_the_way > 0 || now < doubt.deadline.after(Span::from_millis(QUEUE_MS));
                if known.acts == 0 && !refused && early {
                    continue;
                }
                let happened = (known.acts > 0).then(|| Json::new(known.result.unwrap_or_default().into()));
                let then = if random.chance(200) { Then::Fail } else { Then::Retry };
                let note = "looked at the tool's own log".to_owned();
                let resolution = Resolution { happened, note, permit: doubt.permit, refused, then };
                let Some(rt) = self.processes.reach(&mut random) else { continue };
                let answer = tokio::select! {
                    biased;
                    answer = rt.resolve(doubt.job, doubt.key, resolution.clone()) => Some(answer.is_ok()),
                    () = tokio::time::sleep(PATIENCE) => None,
                };
                let name = self.stage.trace.name(doubt.job);
                tell!(self.stage.trace, "operator", "{name} happened: {}: {answer:?}", resolution.happened.is_some());
            }
        }
    }
}
