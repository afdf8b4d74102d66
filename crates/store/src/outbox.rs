//! Child jobs and the outbox, as they are read.

use aetheris_core::id::JobId;
use aetheris_core::path::StepPath;
use aetheris_core::plan::OnParentEnd;
use aetheris_core::projection::Promise;

use crate::query::JobRow;

/// A job that another has asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildRow {
    /// The step that asked.
    pub node: StepPath,
    /// What becomes of it when the parent ends.
    pub on_parent_end: OnParentEnd,
    /// Its row.
    pub row: JobRow,
}

/// A page of children.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ChildPage {
    /// In the order in which they were created.
    pub children: Vec<ChildRow>,
    /// The last of them, where there may be more.
    pub next: Option<JobId>,
    /// How many were passed over, as they cannot be read.
    pub unreadable: usize,
}

/// What a unit has promised, until it is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromiseRow {
    /// The job whose unit it was.
    pub author: JobId,
    /// What is to be done.
    pub promise: Promise,
    /// Its number: later ones have greater ones.
    pub num: u64,
}
