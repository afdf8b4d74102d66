//! Facts and rules of the durable execution runtime. Pure: no I/O, no clock, no randomness, no async.
//!
//! Reading order: [`id`], [`path`], [`time`], [`json`] (what values are), [`agent`] and [`plan`] (what is to be
//! done), [`event`] and [`chain`] (what happened, and how it is kept), [`job`] and [`step`] (the two
//! transition tables), [`state`] (the one reducer), [`ledger`], [`disproof`] and [`lease`] (who may act),
//! [`recovery`] (what a step may do after anything happened to it), [`schedule`] (what comes next),
//! [`signal`] (where an outside message goes), [`projection`] (the row that is derived from it all).

pub mod agent;
pub mod chain;
pub mod disproof;
pub mod event;
pub mod hash;
pub mod id;
pub mod job;
pub mod json;
pub mod lease;
pub mod ledger;
pub mod limits;
pub mod path;
pub mod plan;
pub mod projection;
pub mod recovery;
pub mod retry;
pub mod schedule;
pub mod schema;
pub mod signal;
pub mod state;
pub mod step;
pub mod time;
