//! B3: what clients were told exists. D5, the client's part: one key, one job.

use std::collections::{BTreeMap, BTreeSet};

use aetheris_core::id::JobId;

use crate::history::ClientHistory;
use crate::invariant::Invariant::{B3, D5};
use crate::report::Tally;

pub(crate) fn exist(seen: &BTreeSet<JobId>, history: &ClientHistory, tally: &mut Tally) {
    for submission in &history.submissions {
        tally.case(B3, seen.contains(&submission.job), || format!("{} was accepted and is not there", submission.job));
    }
    for signal in &history.signals {
        tally.case(B3, seen.contains(&signal.job), || {
            format!("a signal to {} was accepted and the job is not there", signal.job)
        });
    }
    let mut keys: BTreeMap<&str, JobId> = BTreeMap::new();
    for submission in &history.submissions {
        let Some(key) = &submission.client_key else { continue };
        let first = *keys.entry(key).or_insert(submission.job);
        tally.case(D5, first == submission.job, || {
            format!("the client key `{key}` was answered with {first} and with {}", submission.job)
        });
    }
}
