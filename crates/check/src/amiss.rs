//! Words for what is amiss in rows that no job's history tells of.

use aetheris_store::amiss::{Absent, Amiss, DocumentFault, JobFault, Misplaced};

/// One sentence.
pub(crate) fn words(amiss: &Amiss) -> String {
    match amiss {
        Amiss::Counts { counted, told: Some(told) } => format!("the store counts {told:?}, and has {counted:?}"),
        Amiss::Counts { counted, told: None } => {
            format!("the store's counts of jobs cannot be read, and it has {counted:?}")
        }
        Amiss::Document { fault: DocumentFault::Hash, name, what } => {
            format!("the {what} `{name}`: its document does not have its hash")
        }
        Amiss::Document { fault: DocumentFault::Plan, name, what } => {
            format!("the {what} `{name}`: its plan is not there")
        }
        Amiss::Id(number) => format!("job number {number}: its id cannot be read"),
        Amiss::Job { fault, job } => format!("{job}: {}", fault_of(fault)),
        Amiss::Stray { count, of, table } => {
            format!("the table `{table}` has {count} of {}, which is not there", absent(of))
        }
    }
}

fn fault_of(fault: &JobFault) -> String {
    match fault {
        JobFault::Label(key) => format!("its label `{key}` does not find it"),
        JobFault::Place(misplaced) => place(*misplaced),
        JobFault::Wait(None) => "it waits for nothing, and is listed as if it did".to_owned(),
        JobFault::Wait(Some(wait)) => format!("it waits for {wait:?}, and is not listed under that"),
    }
}

fn place(misplaced: Misplaced) -> String {
    match misplaced {
        Misplaced::Behind => "it can be claimed, and another job of its session comes first".to_owned(),
        Misplaced::Both => "its row says that it can be claimed, and that it cannot yet".to_owned(),
        Misplaced::Early { at, from: None } => format!("it can be claimed, and its time is {at}"),
        Misplaced::Early { at, from: Some(from) } => format!("it is claimed from {from} on, and its time is {at}"),
        Misplaced::Late(until) => format!("no claim finds it before {until}, which is not its time"),
        Misplaced::Never => "it is pending, and no claim finds it".to_owned(),
        Misplaced::NotPending => "it is not pending, and its row says that it can be claimed".to_owned(),
    }
}

fn absent(job: &Absent) -> String {
    match job {
        Absent::Id(Ok(id)) => id.to_string(),
        Absent::Id(Err(bytes)) => {
            let told = bytes.iter().take(aetheris_core::limits::UNREADABLE_ID_BYTES_TOLD);
            told.map(|byte| format!("{byte:02x}")).collect()
        }
        Absent::Number(number) => format!("job number {number}"),
    }
}
