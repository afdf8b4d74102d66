//! A2, A3, A9: claims, fences and reclaims.

use std::collections::BTreeSet;

use aetheris_core::event::{Event, Recorded, RequeueReason};
use aetheris_core::lease::Fence;

use crate::facts::Dossier;
use crate::invariant::Invariant::{A2, A3, A9};
use crate::report::Tally;

pub(crate) fn check(facts: &Dossier, events: &[Recorded], tally: &mut Tally) {
    epochs(facts, events, tally);
    fences(facts, events, tally);
    reclaims(facts, events, tally);
}

fn epochs(facts: &Dossier, events: &[Recorded], tally: &mut Tally) {
    let job = facts.row.id;
    let (mut last, mut attempts) = (Fence::default(), BTreeSet::new());
    for recorded in events {
        if let Event::JobClaimed(claimed) = &recorded.event {
            let found = recorded.fence;
            let grown = found.epoch == last.epoch + 1 && found.generation >= last.generation;
            let fresh = attempts.insert(claimed.attempt_id);
            tally.case(A2, grown && fresh, || {
                format!("{job} event {}: the claim has fence {found} after {last}", recorded.seq)
            });
            last = found;
        }
    }
    if !attempts.is_empty() {
        let row = facts.row.fence;
        tally.case(A2, row.epoch == last.epoch, || format!("{job}: its row has fence {row}, its last claim {last}"));
    }
}

fn fences(facts: &Dossier, events: &[Recorded], tally: &mut Tally) {
    let mut highest = Fence::default();
    for recorded in events {
        let found = recorded.fence;
        tally.case(A3, found >= highest, || {
            format!("{} event {}: fence {found} follows fence {highest}", facts.row.id, recorded.seq)
        });
        highest = highest.max(found);
    }
}

fn reclaims(facts: &Dossier, events: &[Recorded], tally: &mut Tally) {
    let mut held = false;
    for recorded in events {
        match &recorded.event {
            Event::JobClaimed(_) => held = true,
            Event::JobRequeued(requeued) => {
                let reclaimed = match requeued.reason {
                    RequeueReason::LeaseExpired | RequeueReason::HolderDied => true,
                    RequeueReason::Retry | RequeueReason::Draining | RequeueReason::RateLimited => false,
                };
                if reclaimed {
                    tally.case(A9, held, || {
                        format!("{} event {}: reclaimed while nobody held it", facts.row.id, recorded.seq)
                    });
                }
                held = false;
            }
            Event::JobWaiting(_)
            | Event::JobPaused(_)
            | Event::JobCompleted(_)
            | Event::JobFailed(_)
            | Event::JobCancelled(_) => held = false,
            _ => {}
        }
    }
}
