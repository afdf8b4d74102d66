//! Rows of the outbox: what units have promised.

use aetheris_core::id::JobId;
use aetheris_core::path::StepPath;
use aetheris_core::projection::Promise;
use aetheris_store::PromiseRow;
use rusqlite::Row;

use crate::error::Error;
use crate::rows;

const CREATE_CHILD: i64 = 0;
const TELL_PARENT: i64 = 1;
const CANCEL_CHILD: i64 = 2;
const CANCEL_CHILDREN: i64 = 3;

/// The columns of a promise beside author and target: its number, its step and the place of its event.
pub(crate) fn columns(promise: &Promise) -> (i64, Option<&StepPath>, Option<u64>) {
    match promise {
        Promise::CreateChild { node, seq, .. } => (CREATE_CHILD, Some(node), Some(*seq)),
        Promise::TellParent { node, .. } => (TELL_PARENT, Some(node), None),
        Promise::CancelChild { node, .. } => (CANCEL_CHILD, Some(node), None),
        Promise::CancelChildren => (CANCEL_CHILDREN, None, None),
    }
}

/// A row as it is stored.
pub(crate) fn read(row: &Row<'_>) -> Result<PromiseRow, Error> {
    let num = rows::number(row, 0)?;
    let (author, target) = (rows::id(row, 2, JobId::from_slice)?, rows::id(row, 3, JobId::from_slice)?);
    let wrong = || Error::Corrupt(format!("promise {num} in the outbox cannot be read"));
    let node = || rows::maybe(row, 4, |row, i| rows::text(row, i).map(StepPath::from))?.ok_or_else(wrong);
    let kind: i64 = row.get(1)?;
    let promise = match kind {
        CREATE_CHILD => Promise::CreateChild { child: target, node: node()?, seq: rows::number(row, 5)? },
        TELL_PARENT => Promise::TellParent { node: node()?, parent: target },
        CANCEL_CHILD => Promise::CancelChild { child: target, node: node()? },
        CANCEL_CHILDREN => Promise::CancelChildren,
        _ => return Err(wrong()),
    };
    Ok(PromiseRow { author, promise, num })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_promise_has_a_number_of_its_own() {
        let job = JobId::from_u128(1);
        let all = [
            Promise::CreateChild { child: job, node: "a".into(), seq: 5 },
            Promise::TellParent { node: "a".into(), parent: job },
            Promise::CancelChild { child: job, node: "a".into() },
            Promise::CancelChildren,
        ];
        let kinds: Vec<i64> = all.iter().map(|promise| columns(promise).0).collect();
        assert_eq!(kinds, [0, 1, 2, 3], "stores keep the numbers for ever");
    }
}
