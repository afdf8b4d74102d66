//! Words for what is amiss in rows that no job's history tells of.

use std::collections::BTreeMap;

use aetheris_core::job::JobStatus;
use aetheris_store::amiss::{Absent, Amiss, DocumentFault, DocumentKind, JobFault, Leftover, RawId};

/// One sentence.
pub(crate) fn words(amiss: &Amiss) -> String {
    match amiss {
        Amiss::Counts { counted, told } => {
            let told = match told {
                Some(told) => format!("say {}", counts(told)),
                None => "cannot be read".to_owned(),
            };
            format!("the store's counts of jobs {told}, and the jobs' rows say {}", counts(counted))
        }
        Amiss::Document { fault, kind, name } => {
            let fault = match fault {
                DocumentFault::Hash => "its document does not have its hash",
                DocumentFault::Plan => "its plan is not there",
            };
            format!("the {} `{name}`: {fault}", kind_of(*kind))
        }
        Amiss::Id(number) => format!("job number {number}: its id cannot be read"),
        Amiss::Job { fault, job } => format!("{job}: {}", fault_of(fault)),
        Amiss::Numbers { count, least } => {
            let jobs = if *count == 1 { "1 job has a number".to_owned() } else { format!("{count} jobs have numbers") };
            format!("{jobs} below nought, the least is {least}: nothing else is said of what they hold")
        }
        Amiss::Stray { count, of, what } => {
            format!("{} is not there, and something is left of it: {} ({count})", absent(of), left(*what))
        }
    }
}

/// The statuses that have jobs.
fn counts(jobs: &BTreeMap<JobStatus, u64>) -> String {
    let some = jobs.iter().filter(|(_, count)| **count > 0);
    let words: Vec<String> = some.map(|(status, count)| format!("{count} {}", status.as_str())).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

fn kind_of(document: DocumentKind) -> &'static str {
    match document {
        DocumentKind::Agent => "agent",
        DocumentKind::Plan => "plan",
    }
}

fn fault_of(fault: &JobFault) -> String {
    match fault {
        JobFault::Label(key) => format!("its label `{key}` does not find it"),
        JobFault::Wait(None) => "it waits for nothing, and is listed as if it did".to_owned(),
        JobFault::Wait(Some(wait)) => {
            format!("its wait is of the type `{}`, and it is not listed under that", wait.as_str())
        }
    }
}

fn left(what: Leftover) -> &'static str {
    match what {
        Leftover::Checkpoints => "checkpoints",
        Leftover::Effects => "effects",
        Leftover::Events => "events",
        Leftover::Evidence => "pieces of evidence",
        Leftover::Labels => "labels",
        Leftover::Ledger => "rows in the ledger",
        Leftover::Signals => "signals",
        Leftover::Timers => "timers",
    }
}

fn absent(job: &Absent) -> String {
    match job {
        Absent::Id(Ok(id)) => id.to_string(),
        Absent::Id(Err(bytes)) => format!("a job whose id is `{}`", RawId(bytes)),
        Absent::Number(number) => format!("job number {number}"),
    }
}

#[cfg(test)]
mod tests {
    use aetheris_core::id::JobId;
    use aetheris_core::plan::WaitType;

    use super::*;

    #[test]
    fn what_is_amiss_is_told_in_words() {
        let job = JobId::from_u128(7);
        let counted: BTreeMap<_, _> = JobStatus::ALL.into_iter().zip([3, 2, 0, 0, 0, 0, 0, 1]).collect();
        let none = Some(JobStatus::ALL.into_iter().map(|status| (status, 0)).collect());
        let (kind, name) = (DocumentKind::Agent, "a".to_owned());
        let stray = |of, what| Amiss::Stray { count: 2, of, what };
        for (amiss, told) in [
            (
                Amiss::Counts { counted: counted.clone(), told: none },
                "the store's counts of jobs say none, and the jobs' rows say 3 pending, 2 running, 1 paused",
            ),
            (
                Amiss::Counts { counted, told: None },
                "the store's counts of jobs cannot be read, and the jobs' rows say 3 pending, 2 running, 1 paused",
            ),
            (
                Amiss::Document { fault: DocumentFault::Plan, kind, name: name.clone() },
                "the agent `a`: its plan is not there",
            ),
            (
                Amiss::Document { fault: DocumentFault::Hash, kind: DocumentKind::Plan, name },
                "the plan `a`: its document does not have its hash",
            ),
            (
                Amiss::Numbers { count: 2, least: -5 },
                "2 jobs have numbers below nought, the least is -5: nothing else is said of what they hold",
            ),
            (Amiss::Id(4), "job number 4: its id cannot be read"),
            (
                Amiss::Job { fault: JobFault::Wait(Some(WaitType::Human)), job },
                &format!("{job}: its wait is of the type `human`, and it is not listed under that"),
            ),
            (
                Amiss::Job { fault: JobFault::Wait(None), job },
                &format!("{job}: it waits for nothing, and is listed as if it did"),
            ),
            (
                Amiss::Job { fault: JobFault::Label("team".to_owned()), job },
                &format!("{job}: its label `team` does not find it"),
            ),
            (
                stray(Absent::Number(77), Leftover::Signals),
                "job number 77 is not there, and something is left of it: signals (2)",
            ),
            (
                stray(Absent::Id(Ok(job)), Leftover::Timers),
                &format!("{job} is not there, and something is left of it: timers (2)"),
            ),
            (
                stray(Absent::Id(Err(vec![1, 0xab])), Leftover::Labels),
                "a job whose id is `01ab` is not there, and something is left of it: labels (2)",
            ),
        ] {
            assert_eq!(words(&amiss), told);
        }
    }

    #[test]
    fn whatever_is_left_of_a_job_has_its_name() {
        for (what, name) in [
            (Leftover::Checkpoints, "checkpoints"),
            (Leftover::Effects, "effects"),
            (Leftover::Events, "events"),
            (Leftover::Evidence, "pieces of evidence"),
            (Leftover::Labels, "labels"),
            (Leftover::Ledger, "rows in the ledger"),
            (Leftover::Signals, "signals"),
            (Leftover::Timers, "timers"),
        ] {
            assert_eq!(left(what), name);
        }
    }
}
