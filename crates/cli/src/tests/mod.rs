//! Tests over several modules: the command line, the client, and commands against a small server.

mod arguments;
mod commands;
mod connection;
mod copies;
mod fields;
mod pauses;
mod samples;
mod server;
mod settings;
mod views;

pub(crate) use self::server::Kept;
