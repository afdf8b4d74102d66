//! F5: the newest checkpoint and what follows it equal the fold from the first event.

use aetheris_core::event::Recorded;
use aetheris_core::state::JobState;

use crate::facts::Dossier;
use crate::invariant::Invariant::F5;
use crate::report::Tally;

pub(crate) fn check(facts: &Dossier, events: &[Recorded], tally: &mut Tally) {
    let Some(checkpoint) = &facts.checkpoint else { return };
    let job = facts.row.id;
    let Ok(full) = JobState::fold(job, events) else { return };
    let resumed = serde_json::from_slice::<JobState>(&checkpoint.state).map_err(|e| e.to_string()).and_then(|start| {
        let mut state = start;
        for recorded in events.iter().filter(|event| event.seq > checkpoint.seq) {
            state.replay(recorded).map_err(|e| e.to_string())?;
        }
        Ok(state)
    });
    // The states themselves: what a serialisation leaves out is in no hash of it either.
    tally.case(F5, resumed.as_ref() == Ok(&full), || match &resumed {
        Ok(_) => format!("{job}: the fold from the checkpoint at {} ends in another state", checkpoint.seq),
        Err(why) => format!("{job}: the checkpoint at {} cannot be gone on from: {why}", checkpoint.seq),
    });
}
