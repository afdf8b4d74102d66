//! Decisions about steps, asked by themselves: no store, no clock and no tool is there.

mod bed;
mod calls;
mod children;
mod doubts;
mod recovered;
mod tries;
mod waits;
